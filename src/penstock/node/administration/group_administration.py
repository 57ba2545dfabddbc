"""`GroupAdministration`: the settings of single groups, shown and changed.

The metadata checks and stores them. No further step is needed: coordinators read the newest image
whenever they need a time, so a change is in force when the call returns.
`coordinator_kinds.ImageGroupTimes` returns the values in force.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from penstock.cluster.configs.described_configs import DescribedConfig
from penstock.cluster.configs.group_configs import (
    GROUP_CONFIGS,
    describe_group,
    group_rules,
    value_in_force,
)
from penstock.cluster.configs.setting_changes import SettingsChange
from penstock.cluster.service import MetadataService
from penstock.core.errors import PenstockError
from penstock.core.settings.coordinator_settings import GroupsSettings
from penstock.core.settings.tree import Settings

logger = logging.getLogger(__name__)

CHANGES_AT_ONCE: Final = 50
"""Changes handled before other connections get a turn: rejected changes never wait, and one request
may name twenty thousand groups. About 3 ms of work."""


class Groups:
    """Describes and changes the settings of groups."""

    def __init__(self, metadata: MetadataService, settings: GroupsSettings) -> None:
        self._metadata = metadata
        self._rules = group_rules(settings)
        self._tell_what_is_out_of_bounds()

    def follow(self, settings: Settings) -> None:
        """Change the default values of groups, and the bounds of all."""
        self._rules = group_rules(settings.groups)
        self._tell_what_is_out_of_bounds()

    def describe_settings(self, name: str) -> tuple[DescribedConfig, ...]:
        """Return every setting of a group, with the source of its value."""
        return describe_group(self._metadata.image.group_settings(name), self._rules)

    async def change_settings(
        self, changes: Sequence[SettingsChange], *, validate_only: bool
    ) -> list[PenstockError | None]:
        """Return one outcome for each group; when the call returns, its next heartbeat uses it."""
        outcomes: list[PenstockError | None] = []
        for number, change in enumerate(changes, 1):
            if number % CHANGES_AT_ONCE == 0:
                await asyncio.sleep(0)
            try:
                await self._metadata.change_group_settings(
                    change, self._rules, validate_only=validate_only
                )
            except PenstockError as error:
                outcomes.append(error)
            else:
                outcomes.append(None)
        return outcomes

    def _tell_what_is_out_of_bounds(self) -> None:
        """Log settings out of bounds: the broker's bounds may have changed since."""
        for name, group in self._metadata.image.groups.items():
            for setting, text in group.settings.items():
                if setting not in GROUP_CONFIGS:
                    continue
                used = value_in_force(setting, group.settings, self._rules)
                if str(used) != text:
                    logger.warning(
                        "%s of group %r is %s, outside of the bounds of this broker: %d is used. "
                        "Change it, or the bounds in the broker's settings.",
                        setting,
                        name,
                        text,
                        used,
                    )
