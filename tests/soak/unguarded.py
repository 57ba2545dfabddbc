"""`host` with one safeguard taken out: `python -m tests.soak.unguarded GUARD DOOR serve ...`.

For `test_soak_guards` alone: a check that cannot fail proves nothing. The product's code is changed
from outside, in this process, before it starts; so it has to be the source tree, not a compiled
package.
"""

import sys
from collections.abc import Callable
from typing import Final

from penstock.broker.connections.endings import Endings
from penstock.broker.connections.listener import ConnectionProtocol
from penstock.broker.connections.send_queue import Stall
from penstock.core.metrics import Registry
from penstock.node.settings.settings_reload import SettingsReload
from penstock.storage.disk.disk_guard import DiskGuard, DiskState
from tests.crash.unguarded import replace
from tests.soak import host


def uncounted_refusals() -> None:
    """Refuse connections above a limit, and tell nobody."""
    original = Endings.__init__

    def start(self: Endings, metrics: Registry) -> None:
        original(self, metrics)
        aside = Endings.__new__(Endings)
        original(aside, Registry())
        self.refused = aside.refused

    replace(Endings, "__init__", start)


def slow_readers_stay() -> None:
    """Keep the answers of a client that reads nothing, for ever."""
    replace(Stall, "lasts", lambda *_: False)


def unlimited_requests() -> None:
    """Read on, however many bytes of unfinished requests are held."""
    replace(ConnectionProtocol, "_is_held_back", lambda _self: False)


def no_disk_mark() -> None:
    """Take records until the disk has no room at all."""
    replace(DiskGuard, "sample", lambda *_: DiskState.OPEN)


def no_reload() -> None:
    """Never look at the settings file again."""

    async def look(*_: object) -> None:
        return

    replace(SettingsReload, "look", look)


GUARDS: Final[dict[str, Callable[[], None]]] = {
    "uncounted-refusals": uncounted_refusals,
    "slow-readers-stay": slow_readers_stay,
    "unlimited-requests": unlimited_requests,
    "no-disk-mark": no_disk_mark,
    "no-reload": no_reload,
}


def main() -> None:
    GUARDS[sys.argv.pop(1)]()
    host.main()


if __name__ == "__main__":
    main()
