"""Edits of the settings of one topic or group, and the settings after them. Pure.

Edits have Kafka's kinds. Items can be added to and removed from lists; other types reject this. The
values are NOT checked here, and an unknown name is accepted: the owner of the settings checks all
of them together afterwards, as Kafka does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from uuid import UUID

from penstock.cluster.configs.topic_config_table import SettingType, TopicConfig
from penstock.core.errors import InvalidTopicConfigError


class EditKind(IntEnum):
    """The operation on one setting, with Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class SettingEdit:
    """The change of one setting."""

    name: str
    kind: EditKind
    value: str = ""
    """For a list, items separated by commas; not needed for a deletion."""
    expected: str | None = None
    """Delete the setting only if it has this value; None deletes any value."""


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """The edits of the settings of one topic or group."""

    name: str
    """Name of the topic or group."""
    edits: tuple[SettingEdit, ...]
    replaces_all: bool = False
    """Whether unedited settings return to their defaults."""
    topic_id: UUID | None = None
    """The id of the topic, if a new topic of the same name must not be changed instead."""


def edited(
    current: Mapping[str, str],
    change: SettingsChange,
    configs: Mapping[str, TopicConfig],
    defaults: Mapping[str, str],
) -> dict[str, str]:
    """Return the settings after a change; `configs` has known settings, `defaults` initial lists.

    The values are not checked.
    """
    settings = {} if change.replaces_all else dict(current)
    for edit in change.edits:
        match edit.kind:
            case EditKind.SET:
                settings[edit.name] = edit.value
            case EditKind.DELETE:
                if edit.expected is None or settings.get(edit.name) == edit.expected:
                    settings.pop(edit.name, None)
            case EditKind.APPEND | EditKind.SUBTRACT:
                config = configs.get(edit.name)
                if config is None or config.type is not SettingType.LIST:
                    raise InvalidTopicConfigError(
                        f"Can't {edit.kind.name} to key {edit.name[:249]} because its type is not "
                        "LIST."
                    )
                default = defaults.get(edit.name, config.default)
                settings[edit.name] = _edited_list(edit, settings.get(edit.name, default))
    return settings


def _edited_list(edit: SettingEdit, current: str) -> str:
    items = [item for item in current.split(",") if item]
    for item in edit.value.split(","):
        if edit.kind is EditKind.APPEND and item not in items:
            items.append(item)
        elif edit.kind is EditKind.SUBTRACT and item in items:
            items.remove(item)
    return ",".join(items)
