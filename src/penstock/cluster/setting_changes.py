"""What becomes of the settings of one topic or group: the edits, and the settings after them. Pure.

Edits come in Kafka's kinds. A list gets items added and taken away; of anything else that is
refused. What the values mean is NOT looked at here, and a name that does not exist passes: whoever
owns the settings checks all of them together afterwards, as Kafka does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from uuid import UUID

from penstock.cluster.topic_config_table import SettingType, TopicConfig
from penstock.core.errors import InvalidTopicConfigError


class EditKind(IntEnum):
    """What is done to one setting, with Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class SettingEdit:
    """One setting that changes."""

    name: str
    kind: EditKind
    value: str = ""
    """For a list, items with commas between them; nothing is needed to delete."""
    expected: str | None = None
    """Delete it only while it has this value; None deletes whatever it has."""


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """What becomes of the settings of one topic or group."""

    name: str
    """Of the topic or group."""
    edits: tuple[SettingEdit, ...]
    replaces_all: bool = False
    """Whether settings that are not edited go back to their defaults."""
    topic_id: UUID | None = None
    """The topic that is meant, where another one of its name must not be changed instead."""


def edited(
    current: Mapping[str, str],
    change: SettingsChange,
    configs: Mapping[str, TopicConfig],
    defaults: Mapping[str, str],
) -> dict[str, str]:
    """The settings after a change; `configs` says what there is, `defaults` what a list begins as.

    What their values mean is not looked at.
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
