"""`LiveSettings`: the settings in force, and the parts that follow them while the broker runs.

Guarantees: every follower gets settings that were checked as a whole, in the order in which
followers were added, and before `take` returns. A follower only replaces values and cannot fail, so
a change is in force for all parts or for none. Values are pushed to the parts: a hot path reads its
own attribute, without extra cost.

`settings_changes` decides whether a change is accepted, and `settings_reload` reads it.
"""

import logging
from collections.abc import Awaitable, Callable

from penstock.core.settings.current_settings import CurrentSettings
from penstock.core.settings.settings_changes import ChangedSetting, changed_settings
from penstock.core.settings.tree import Settings

Follower = Callable[[Settings], None]
Adaptation = Callable[[Settings], Settings]
"""Adapts the given settings to the machine and the cluster."""


class LiveSettings:
    """One broker's settings while it runs."""

    def __init__(self, given: Settings, adapt: Adaptation) -> None:
        self._given = given
        self._adapt = adapt
        self.followers: list[Follower] = []
        self._last_follower: Callable[[Settings], Awaitable[None]] | None = None
        self.current = CurrentSettings(adapt(given))

    @property
    def given(self) -> Settings:
        """The settings of file, environment and flags; the settings in force may differ."""
        return self._given

    def adapt_also(self, further: Adaptation) -> None:
        """Adapt the given settings by this function too; `adapt_again` puts the result in force."""
        first = self._adapt
        self._adapt = lambda given: further(first(given))

    def add_followers(self, *followers: Follower) -> None:
        """Call these followers with every change."""
        self.followers.extend(followers)

    def end_with(self, follower: Callable[[Settings], Awaitable[None]]) -> None:
        """Call this follower last and await it: it has work for each topic."""
        self._last_follower = follower

    async def take(self, given: Settings) -> tuple[ChangedSetting, ...]:
        """Put checked settings in force; return the changed ones."""
        self._given = given
        return await self.adapt_again()

    async def adapt_again(self) -> tuple[ChangedSetting, ...]:
        """Adapt the given settings again, because the cluster or the machine has changed."""
        before, after = self.current.settings, self._adapt(self._given)
        changed = changed_settings(before, after)
        if not changed:
            return ()
        self.current.settings = after
        for follow in self.followers:
            follow(after)
        if self._last_follower is not None:
            await self._last_follower(after)
        return changed


def follow_log_level(settings: Settings) -> None:
    """Use the log level of these settings from now on."""
    logging.getLogger("penstock").setLevel(settings.node.log_level.upper())
