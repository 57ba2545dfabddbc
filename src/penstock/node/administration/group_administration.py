"""`GroupAdministration`: the settings of single groups, shown and changed.

The metadata checks and stores them. No further step is needed: coordinators read the newest image
whenever they need a time, so a change is in force when the call returns.
`coordinator_kinds.ImageGroupTimes` returns the values in force.
"""

import logging
from collections.abc import Sequence
from functools import partial

from penstock.cluster.configs.described_configs import DescribedConfig
from penstock.cluster.configs.group_configs import (
    DEAD_LETTER_TOPIC,
    GROUP_CONFIGS,
    describe_group,
    group_rules,
    text_in_force,
)
from penstock.cluster.configs.setting_changes import EditKind, SettingsChange
from penstock.cluster.service import MetadataService
from penstock.core.errors import InvalidTopicConfigError, PenstockError
from penstock.core.settings.coordinator_settings import GroupsSettings
from penstock.core.settings.tree import Settings
from penstock.node.administration.each_change import change_each

logger = logging.getLogger(__name__)


class Groups:
    """Describes and changes the settings of groups."""

    def __init__(self, metadata: MetadataService, settings: GroupsSettings) -> None:
        self._metadata = metadata
        self._rules = group_rules(settings)
        self._letter_prefix = settings.dead_letter_topic_prefix
        self._log_values_out_of_bounds()

    def follow(self, settings: Settings) -> None:
        """Change the default values of groups, and the bounds of all."""
        self._rules = group_rules(settings.groups)
        self._letter_prefix = settings.groups.dead_letter_topic_prefix
        self._log_values_out_of_bounds()

    def describe_settings(self, name: str) -> tuple[DescribedConfig, ...]:
        """Return every setting of a group, with the source of its value."""
        return describe_group(self._metadata.image.group_settings(name), self._rules)

    async def change_settings(
        self, changes: Sequence[SettingsChange], *, validate_only: bool
    ) -> list[PenstockError | None]:
        """Return one outcome for each group; when the call returns, its next heartbeat uses it."""
        return await change_each(changes, partial(self._change, validate_only=validate_only))

    async def _change(self, change: SettingsChange, *, validate_only: bool) -> None:
        for edit in change.edits:
            name = edit.value.strip()
            if edit.name != DEAD_LETTER_TOPIC or not name or edit.kind is EditKind.DELETE:
                continue
            if not name.startswith(self._letter_prefix):
                raise InvalidTopicConfigError(
                    f"Invalid value {name[:249]} for configuration {edit.name}: names of "
                    f"dead-letter topics begin with {self._letter_prefix!r} "
                    "(errors.deadletterqueue.topic.name.prefix)"
                )
        await self._metadata.change_group_settings(
            change, rules=self._rules, validate_only=validate_only
        )

    def _log_values_out_of_bounds(self) -> None:
        """Log settings out of bounds: the broker's bounds may have changed since."""
        for name, group in self._metadata.image.groups.items():
            for setting, text in group.settings.items():
                if setting not in GROUP_CONFIGS:
                    continue
                used = text_in_force(setting, group.settings, self._rules)
                if used != text:
                    logger.warning(
                        "%s of group %r is %s, outside of the bounds of this broker: %s is used. "
                        "Change it, or the bounds in the broker's settings.",
                        setting,
                        name,
                        text,
                        used,
                    )
