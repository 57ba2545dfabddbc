"""A connection that is accepted while the listener stops is ended, not left to parts that are gone.

An event loop may accept one more connection after it was told to close a socket.
"""

import asyncio
from types import SimpleNamespace
from typing import cast

from penstock.broker.dispatch import Dispatcher
from penstock.broker.server import Listener
from penstock.core.metrics import Registry
from penstock.core.settings import ListenerSettings


class Transport(asyncio.Transport):
    """Knows whether it was aborted."""

    def __init__(self) -> None:
        super().__init__()
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


def test_who_comes_while_it_stops_is_sent_away() -> None:
    async def stop_and_connect() -> Transport:
        quiet = SimpleNamespace(unsent_answers=None, version_ranges={}, quotas=None)
        dispatcher = cast("Dispatcher", quiet)
        listener = Listener(ListenerSettings(port=0), dispatcher, Registry())
        await listener.stop()
        late = Transport()
        listener._connection().connection_made(late)
        return late

    assert asyncio.run(stop_and_connect()).is_aborted
