"""Decisions about the settings of single groups. Pure.

An image and a request in, the settings or a domain error out, as in `topic_changes`. A group need
not exist to have settings, and keeps them when it is deleted, as in Kafka: the metadata does NOT
know which groups exist. So the number of groups with settings is bounded, and the length of their
names.

Settings are written whole, and only when all of them together are right; a group without any has no
key. Each change compares with the last one to the same group: of two changes that were decided on
the same image, one is decided again.
"""

from collections.abc import Mapping

from penstock.cluster import values
from penstock.cluster.configs.group_configs import GROUP_CONFIGS, GroupRules, checked_settings
from penstock.cluster.configs.setting_changes import SettingsChange, edited
from penstock.cluster.controller import GuardedWrites, replacement
from penstock.cluster.image import MetadataImage
from penstock.cluster.keys import Keys
from penstock.cluster.stores.port import Compare
from penstock.core.errors import InvalidRequestError, PolicyViolationError
from penstock.core.limits import GROUP_WITH_SETTINGS_NAME_BYTES_MAX, GROUPS_WITH_SETTINGS_MAX


def decide_group_settings(
    image: MetadataImage, change: SettingsChange, rules: GroupRules
) -> dict[str, str]:
    """The settings that the group will have; raises a domain error if the change is refused."""
    settings = edited(image.group_settings(change.name), change, GROUP_CONFIGS, {})
    if not change.name:
        raise InvalidRequestError("Default group resources are not allowed.")
    settings = checked_settings(settings, rules)
    if settings and change.name not in image.groups:
        _check_room(image, change.name)
    return settings


def _check_room(image: MetadataImage, name: str) -> None:
    if len(name.encode()) > GROUP_WITH_SETTINGS_NAME_BYTES_MAX:
        raise PolicyViolationError(
            "A group that has settings may have a name of "
            f"{GROUP_WITH_SETTINGS_NAME_BYTES_MAX} bytes at most."
        )
    if len(image.groups) >= GROUPS_WITH_SETTINGS_MAX:
        raise PolicyViolationError(
            f"{GROUPS_WITH_SETTINGS_MAX} groups have settings already, and no more may: "
            "delete the settings of groups that need none."
        )


def group_settings_writes(
    keys: Keys,
    image: MetadataImage,
    name: str,
    settings: Mapping[str, str],
    guards: tuple[Compare, ...],
) -> GuardedWrites:
    """The transaction that stores exactly these settings of a group."""
    key = keys.group_settings(name)
    group = image.groups.get(name)
    revision = None if group is None else group.revision
    return replacement(key, revision, values.write_settings(settings) if settings else None, guards)
