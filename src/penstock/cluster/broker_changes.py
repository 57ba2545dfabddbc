"""Decisions about the settings of brokers that change while they run. Pure.

The input is an image and a request, the output the settings or a domain error, as in
`topic_changes`. Only settings that a running broker can change are accepted
(`broker_configs.DYNAMIC_CONFIGS`), and only values that do not contradict the broker's other
settings. Rejections have Kafka's codes and begin with Kafka's words. Kafka stores unknown settings;
Penstock rejects them, because an accepted setting without an effect would mislead.

All settings of a broker are written together; a broker without changed settings has no key. Each
change compares with the last change to the same broker: of two changes decided on the same image,
one is decided again.
"""

from collections.abc import Mapping
from typing import Final

from penstock.cluster import values
from penstock.cluster.configs.broker_configs import (
    BROKER_CONFIGS,
    DYNAMIC_CONFIGS,
    OPERATION_CONFIGS,
)
from penstock.cluster.configs.described_configs import TOPIC_SYNONYMS, BrokerLayers, topic_defaults
from penstock.cluster.configs.drain_setting import DRAIN
from penstock.cluster.configs.setting_changes import EditKind, SettingEdit, SettingsChange, edited
from penstock.cluster.configs.topic_config_table import SettingType
from penstock.cluster.configs.topic_configs import (
    COMPACTION_LAGS,
    check_override,
    check_together,
    parse_topic_settings,
    parse_value,
)
from penstock.cluster.controller import GuardedWrites, replacement
from penstock.cluster.image import MetadataImage
from penstock.cluster.keys import ALL_BROKERS, Keys
from penstock.cluster.stores.port import Compare
from penstock.core.errors import InvalidRequestError, InvalidTopicConfigError

_SHOWN_CHARACTERS_MAX: Final = 249


def broker_layers(image: MetadataImage, node_id: int, static: Mapping[str, str]) -> BrokerLayers:
    """Return the settings given to a broker: over the wire, and (`static`) at its start."""
    return BrokerLayers(
        own=image.settings_of_broker(str(node_id)),
        shared=image.settings_of_broker(ALL_BROKERS),
        static=static,
    )


def decide_broker_settings(
    image: MetadataImage, change: SettingsChange, layers: BrokerLayers
) -> dict[str, str]:
    """Return the broker's changed settings after the request; raise a domain error to reject it.

    `layers` are the settings of the broker that got the request, before the change.
    """
    for edit in change.edits:
        _check_list_edit(edit)
    current = image.settings_of_broker(change.name)
    settings = edited(current, change, DYNAMIC_CONFIGS, {})
    fixed = [name for name in settings if name not in DYNAMIC_CONFIGS]
    if fixed:
        names = ", ".join(name[:_SHOWN_CHARACTERS_MAX] for name in sorted(fixed))
        raise InvalidRequestError(f"Cannot update these configs dynamically: [{names}]")
    is_shared = change.name == ALL_BROKERS
    if is_shared and DRAIN in settings:
        raise InvalidRequestError(
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"[{DRAIN}]"
        )
    try:
        for name, text in settings.items():
            _check_value(name, text)
        after = layers._replace(**{"shared" if is_shared else "own": settings})
        defaults = topic_defaults(after)
        parse_topic_settings({}, defaults)
        _check_topics(image, defaults)
    except InvalidTopicConfigError as error:
        # Kafka's code for a well-formed value that a broker cannot use.
        raise InvalidRequestError(str(error)) from error
    return settings


def _check_topics(image: MetadataImage, defaults: Mapping[str, str]) -> None:
    """Check that each topic's own settings do not contradict the defaults."""
    for topic in image.topics.values():
        if any(name in topic.settings for name in COMPACTION_LAGS):
            try:
                check_together({**defaults, **topic.settings})
            except InvalidTopicConfigError as error:
                raise InvalidTopicConfigError(f"topic {topic.name}: {error}") from error


def _check_list_edit(edit: SettingEdit) -> None:
    if edit.kind not in {EditKind.APPEND, EditKind.SUBTRACT}:
        return
    name, verb = edit.name[:_SHOWN_CHARACTERS_MAX], edit.kind.name.lower()
    if edit.name not in BROKER_CONFIGS:
        raise InvalidTopicConfigError(f"Unknown config name: {name}")
    if BROKER_CONFIGS[edit.name].type is not SettingType.LIST:
        raise InvalidTopicConfigError(f"Config value {verb} is not allowed for config key: {name}")
    if edit.name not in DYNAMIC_CONFIGS:
        raise InvalidRequestError(f"Cannot update these configs dynamically: [{name}]")


def _check_value(name: str, text: str) -> None:
    """Check that a value is valid for the broker's setting, and for topics if it is a default."""
    parse_value(DYNAMIC_CONFIGS[name], text)
    if name in OPERATION_CONFIGS:
        return
    check_override(TOPIC_SYNONYMS[name].name, text)


def broker_settings_writes(
    keys: Keys,
    image: MetadataImage,
    name: str,
    settings: Mapping[str, str],
    guards: tuple[Compare, ...],
) -> GuardedWrites:
    """Return the transaction that stores exactly these changed settings of a broker."""
    key = keys.broker_settings(name)
    found = image.broker_settings.get(name)
    revision = None if found is None else found.revision
    return replacement(key, revision, values.write_settings(settings) if settings else None, guards)
