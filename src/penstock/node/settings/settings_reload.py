"""`SettingsReload`: reloads the settings file after a change or on request.

Guarantees: a file is accepted or rejected as a whole, with every reason in the log and the outcome
in metrics named like Prometheus' own (`config_last_reload_successful` and so on). A rejected file
changes nothing: the broker keeps its settings and waits for the next change. One reload runs at a
time. A change of the file is noticed within two checks; `core.file_watch` defines a change.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from penstock.core.clock import Clock
from penstock.core.errors import ConfigError, PenstockError
from penstock.core.file_watch import FileWatch, Look
from penstock.core.metrics import Registry
from penstock.core.settings.config import Loaded
from penstock.core.settings.settings_changes import changed_settings, restart_reasons
from penstock.core.settings.tree import Settings, flat_values
from penstock.node.settings.declared_topics import DeclaredTopics
from penstock.node.settings.file_look import look_at
from penstock.node.settings.live_settings import LiveSettings

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Time between two checks of the file: a saved file is in force within two seconds."""


@dataclass(frozen=True, slots=True)
class SettingsSource:
    """The source of a broker's settings, which can be read again."""

    path: str | None
    """The settings file; None if there is none, and only environment and flags apply."""
    load: Callable[[], Loaded]
    """Reads all layers again; blocks."""
    first: Loaded
    """The settings that were read before the start."""
    first_look: Look | None
    """The state of the file just before that."""


class ReloadOutcomes:
    """The last reload's result and the count of each result, as metrics; also without a source."""

    def __init__(self, clock: Clock, metrics: Registry) -> None:
        self._clock = clock
        self.refusal: str | None = None
        """The reason why the last reload was rejected; None if it was not."""
        self._applied_at_ms = clock.now_ms()
        self.applied = metrics.counter(
            "config_reloads_applied_total", "Times that the settings were read again and taken."
        )
        self.refused = metrics.counter(
            "config_reloads_refused_total", "Times that the settings were read again and refused."
        )
        metrics.gauge(
            "config_last_reload_successful",
            "1 when the settings that were last read are in force, 0 when they were refused.",
            lambda: 0.0 if self.refusal else 1.0,
        )
        metrics.gauge(
            "config_last_reload_success_timestamp_seconds",
            "When settings were last taken, at the start or later, since 1970.",
            lambda: self._applied_at_ms / 1_000,
        )

    def note_applied(self) -> None:
        """Record that the loaded settings are in force."""
        self.refusal = None
        self.applied.value += 1
        self._applied_at_ms = self._clock.now_ms()

    def note_refused(self, reason: str) -> None:
        """Record that the loaded settings are rejected, and nothing was changed."""
        self.refusal = reason
        self.refused.value += 1


class SettingsReload:
    """Applies changes of the settings file to a running broker."""

    def __init__(
        self,
        source: SettingsSource,
        live: LiveSettings,
        declared: DeclaredTopics,
        outcomes: ReloadOutcomes,
        check: Callable[[Settings], None],
    ) -> None:
        """Set up the reload; `check` raises a domain error if topics cannot follow the settings."""
        self._source = source
        self._live = live
        self._declared = declared
        self._watch = FileWatch(source.first_look)
        self._asked = asyncio.Event()
        self._check = check
        self.outcomes = outcomes

    @property
    def refusal(self) -> str | None:
        """The reason why the last reload was rejected; None if it was not."""
        return self.outcomes.refusal

    def ask(self) -> None:
        """Reload the settings soon, changed or not; for a signal handler on the loop."""
        self._asked.set()

    async def run(self) -> None:
        """Watch the file until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._asked.wait()
            await self.look(look_at(self._source.path) if self._source.path else None)

    async def look(self, look: Look | None) -> None:
        """Reload if it was requested, or if the file, with this present state, has changed."""
        if self._asked.is_set():
            self._asked.clear()
            self._watch.was_read(look)
        elif not self._watch.note(look):
            return
        await self.reload()

    async def reload(self) -> None:
        """Read all layers again; accept or reject them."""
        try:
            # Off the loop: a large file takes time, and clients must not wait for it.
            loaded = await asyncio.to_thread(self._source.load)
        except (ConfigError, OSError) as error:
            self._refuse(str(error))
            return
        changed = changed_settings(self._live.given, loaded.settings)
        reasons = restart_reasons(changed, loaded.sources)
        if reasons:
            self._refuse("\n".join(reasons))
            return
        try:
            self._check(loaded.settings)
        except PenstockError as error:
            self._refuse(str(error))
            return
        in_force = await self._live.take(loaded.settings)
        for line in loaded.notes:
            logger.warning("%s", line)
        for one in in_force:
            logger.info("settings: %s", one)
        values = flat_values(self._live.current.settings)
        for one in changed:
            if one.key in values and values[one.key] != one.after:
                logger.warning(
                    "settings: %s = %s is given and %s is in force; see the reason with "
                    "`penstock config explain %s --bootstrap-server HOST:PORT`",
                    one.key,
                    one.after,
                    values[one.key],
                    one.key,
                )
        await self._declared.reconcile(loaded.topics)
        self.outcomes.note_applied()
        logger.info("settings: read again, %d changed", len(in_force))

    def _refuse(self, reason: str) -> None:
        self.outcomes.note_refused(reason)
        for line in reason.splitlines():
            logger.error("settings refused: %s", line)
        logger.error("settings refused: nothing was changed; the broker goes on as before")
