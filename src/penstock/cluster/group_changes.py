"""Decisions about the settings of single groups. Pure.

The input is an image and a request, the output the settings or a domain error, as in
`topic_changes`. A group need not exist to have settings, and keeps them when it is deleted, as in
Kafka: the metadata does NOT know which groups exist. So the number of groups with settings and the
length of their names are bounded.

All settings of a group are written together, and only if they are valid together; a group without
settings has no key. Each change compares with the last change to the same group: of two changes
decided on the same image, one is decided again.
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
    """Return the group's settings after the change; raise a domain error to reject it."""
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
    """Return the transaction that stores exactly these settings of a group."""
    key = keys.group_settings(name)
    group = image.groups.get(name)
    revision = None if group is None else group.revision
    return replacement(key, revision, values.write_settings(settings) if settings else None, guards)
