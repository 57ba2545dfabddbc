"""`LiveSettings`: the settings in force, and everybody who follows them while the broker runs.

Guarantees: followers hear of settings that were checked whole, all of them, in the order in which
they were added, and before `take` returns; a follower only replaces values and cannot fail. So a
change is in force for all parts or for none. Values are pushed to the parts: a hot path reads an
attribute of its own and pays nothing for being changeable.

Whether a change may be taken is `core.settings_changes`' question, and where it comes from is
`node.settings_reload`'s.
"""

import logging
from collections.abc import Awaitable, Callable

from penstock.core.current_settings import CurrentSettings
from penstock.core.settings import Settings
from penstock.core.settings_changes import ChangedSetting, changed_settings

Follower = Callable[[Settings], None]
Adaptation = Callable[[Settings], Settings]
"""What the machine or the cluster makes of the settings that were given."""


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
        """What file, environment and flags say; what is in force may differ."""
        return self._given

    def add_followers(self, *followers: Follower) -> None:
        """Tell these of every change."""
        self.followers.extend(followers)

    def end_with(self, follower: Callable[[Settings], Awaitable[None]]) -> None:
        """Tell this one last and wait for it: it has work for each topic."""
        self._last_follower = follower

    async def take(self, given: Settings) -> tuple[ChangedSetting, ...]:
        """Put settings in force that were found to be right; what changed by it."""
        self._given = given
        return await self.adapt_again()

    async def adapt_again(self) -> tuple[ChangedSetting, ...]:
        """What is given is the same, and something else that counts has changed."""
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
    """Write messages of another level from now on."""
    logging.getLogger("penstock").setLevel(settings.node.log_level.upper())
