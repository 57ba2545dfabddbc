"""`CertificateReload`: the TLS contexts of all listeners, rebuilt when their files change.

Guarantees:

- the files of a listener are accepted or rejected together. They are read when two looks at all of
  them in a row are equal, and only if a third look after reading is equal too; so a certificate is
  never used with the key of another one, and half a file is not used;
- a change builds a new context and replaces the reference that new connections use. Open
  connections keep theirs; no context is ever changed;
- rejected files change nothing: `problem` has the reason until the next good files, for /health;
- a context is replaced after a day even without a change, because the keys of session tickets live
  as long as the context.

The first load raises: a broker does not start with files that it cannot use.
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from penstock.core.clock import Clock
from penstock.core.errors import ConfigError
from penstock.core.file_watch import Look
from penstock.core.metrics import Family, Registry, Row
from penstock.node.settings.file_look import look_at

if TYPE_CHECKING:
    from penstock.broker.tls.contexts import ServerTls
    from penstock.broker.tls.tls_files import TlsFiles, TlsSnapshot

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""Time between two looks: renewed files are in use within three seconds."""
CONTEXT_SECONDS_MAX: Final = 86_400.0
"""Age of a context, and so of the keys of its session tickets."""
APPLIED: Final = "applied"
REFUSED: Final = "refused"

Reloaded = Callable[[str, str | None], None]
"""Called with a listener's name, and the problem if its files were refused."""


class ListenerCertificate:
    """The files of one listener and the context in use."""

    def __init__(self, name: str, files: "TlsFiles", clock: Clock) -> None:
        """Load the files; raise `ConfigError` if they cannot be used. Waits for the disk."""
        self.name = name
        self._files = files
        self._clock = clock
        self._last = self._taken = self._looks()
        self._snapshot, self._current = self._load()
        self._built_at = clock.monotonic()
        self.refusal: str | None = None
        """The reason why the last files were refused; None if they are in use."""

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection."""
        return self._current.context

    @property
    def expires_at(self) -> datetime:
        """When the certificate in use expires."""
        return self._current.expires_at

    @property
    def seconds_left(self) -> float:
        """Seconds until the certificate in use expires; negative afterwards."""
        return (self.expires_at - self._now()).total_seconds()

    @property
    def problem(self) -> str | None:
        """The state that an operator must change; None if all is well."""
        if self.refusal is not None:
            return f"listener {self.name}: renewed TLS files are not used: {self.refusal}"
        if self.seconds_left <= 0:
            return (
                f"listener {self.name}: the TLS certificate expired at "
                f"{self.expires_at:%Y-%m-%d %H:%M} UTC. Renew it."
            )
        return None

    def has_changed(self) -> bool:
        """Look at the files; return whether they have changed and are no longer being written."""
        looks = self._looks()
        is_at_rest = looks == self._last
        self._last = looks
        return is_at_rest and looks != self._taken

    async def reload(self) -> bool:
        """Use the present files, or keep the old ones; return False if they are being written."""
        looks = self._last
        loaded: tuple[TlsSnapshot, ServerTls] | ConfigError
        try:
            # Off the loop: disks can be slow, and clients must not wait for them.
            loaded = await asyncio.to_thread(self._load)
        except ConfigError as error:
            loaded = error
        if self._looks() != looks:
            return False
        self._taken = looks
        if isinstance(loaded, ConfigError):
            self.refusal = " ".join(filter(None, (str(loaded), loaded.hint)))
        else:
            self._snapshot, self._current = loaded
            self._built_at = self._clock.monotonic()
            self.refusal = None
        return True

    async def renew(self) -> None:
        """Replace the context by one of the same files, if it is old."""
        now = self._clock.monotonic()
        if now - self._built_at < CONTEXT_SECONDS_MAX:
            return
        self._built_at = now
        try:
            self._current = await asyncio.to_thread(self._build, self._snapshot)
        except ConfigError as error:
            # The certificate has expired, which `problem` reports.
            logger.debug("listener %s: the TLS context is not renewed: %s", self.name, error)

    def _looks(self) -> tuple[Look | None, ...]:
        looks = [look_at(path) for path in self._files.paths]
        return tuple(looks)

    def _load(self) -> "tuple[TlsSnapshot, ServerTls]":
        # Only a broker with TLS needs these modules.
        from penstock.broker.tls.tls_files import read_files

        snapshot = read_files(self._files)
        return snapshot, self._build(snapshot)

    def _build(self, snapshot: "TlsSnapshot") -> "ServerTls":
        from penstock.broker.tls.contexts import build_server_tls

        return build_server_tls(self._files, snapshot, self._now())

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ms() / 1_000, UTC)


class CertificateReload:
    """The certificates of all listeners with TLS."""

    def __init__(
        self,
        files: "Mapping[str, TlsFiles]",
        clock: Clock,
        metrics: Registry,
        on_reloaded: Reloaded | None = None,
    ) -> None:
        """Load the files of all listeners, by name; raise `ConfigError` if one cannot be used."""
        self._listeners: dict[str, ListenerCertificate] = {}
        for name, own in files.items():
            try:
                self._listeners[name] = ListenerCertificate(name, own, clock)
            except ConfigError as error:
                raise ConfigError(f"listener {name}: {error}", hint=error.hint) from error
        self._on_reloaded = on_reloaded
        self._asked = asyncio.Event()
        self._counters = metrics.counters(
            "tls_reloads_total",
            "Times that the TLS files of a listener were read again, by result.",
            "result",
            (APPLIED, REFUSED),
        )
        metrics.family(
            "tls_certificate_expiry_seconds",
            Family(
                "Seconds until the TLS certificate of a listener expires; negative afterwards.",
                ("listener",),
                self._expiry_rows,
            ),
        )

    def context_source(self, listener_name: str) -> Callable[[], ssl.SSLContext]:
        """Return the function that returns the context for a new connection of a listener."""
        return self._listeners[listener_name].context

    @property
    def problem(self) -> str | None:
        """All states that an operator must change; None if all is well."""
        problems = [one.problem for one in self._listeners.values()]
        return "; ".join(filter(None, problems)) or None

    def ask(self) -> None:
        """Read all files again soon, changed or not; for a signal handler on the loop."""
        self._asked.set()

    async def run(self) -> None:
        """Watch the files until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._asked.wait()
            await self.look()

    async def look(self) -> None:
        """Look at all files once, and reload the listeners whose files have changed."""
        is_asked = self._asked.is_set()
        self._asked.clear()
        for one in self._listeners.values():
            has_changed = one.has_changed()
            if (has_changed or is_asked) and await one.reload():
                self._note(one)
            await one.renew()

    def _note(self, one: ListenerCertificate) -> None:
        if one.refusal is None:
            self._counters[APPLIED].value += 1
            logger.info(
                "listener %s: TLS files reloaded; the certificate expires at %s UTC",
                one.name,
                f"{one.expires_at:%Y-%m-%d %H:%M}",
            )
        else:
            self._counters[REFUSED].value += 1
            logger.error(
                "listener %s: TLS files refused, the previous ones stay in use: %s",
                one.name,
                one.refusal,
            )
        if self._on_reloaded is not None:
            self._on_reloaded(one.name, one.refusal)

    def _expiry_rows(self) -> Iterable[Row]:
        return [Row((name,), one.seconds_left) for name, one in self._listeners.items()]
