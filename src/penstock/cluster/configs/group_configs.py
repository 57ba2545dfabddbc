"""The settings of a single group: Kafka 4.3's names, types, defaults, bounds and synonyms.

The table has the settings of consumer groups. Kafka also has settings of share groups and of
streams groups. Penstock has neither, so their settings are not shown and are rejected by name: a
value without an effect would mislead. Checks have Kafka's order, and errors begin with Kafka's
words; the number of a bound is added.

The broker's settings have the defaults and the bounds of groups (`GroupRules`). The broker's own
value is always allowed, also outside its own bounds. A value that was stored under other bounds is
shown as stored and used as far as the present bounds allow, as in Kafka.

This module converts settings to their types. It does not store them and knows no group.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.cluster.configs.described_configs import (
    BrokerLayers,
    ConfigSource,
    DescribedConfig,
    broker_synonyms,
    describe_one,
)
from penstock.cluster.configs.topic_config_table import SettingType, TopicConfig
from penstock.cluster.configs.topic_configs import parse_value
from penstock.core.errors import InvalidTopicConfigError
from penstock.core.settings.coordinator_settings import GroupsSettings

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"

_BOUNDS_CHECKED: Final = (HEARTBEAT_INTERVAL, SESSION_TIMEOUT, ASSIGNMENT_INTERVAL)
"""In Kafka's order: for a value with two faults a client gets the same error as in Kafka."""

_OTHER_GROUPS: Final = ("share.", "streams.")


def _row(name: str, default: int, at_least: int, documentation: str) -> TopicConfig:
    return TopicConfig(
        name=name,
        type=SettingType.INT,
        default=str(default),
        documentation=documentation,
        synonym=f"group.{name}",
        honoured=True,
        minimum=at_least,
    )


GROUP_CONFIGS: Final[Mapping[str, TopicConfig]] = {
    config.name: config
    for config in (
        _row(
            SESSION_TIMEOUT,
            45_000,
            1,
            "A member of the group that is silent for this long is removed, in milliseconds.",
        ),
        _row(
            HEARTBEAT_INTERVAL,
            5_000,
            1,
            "Time between two heartbeats of a member of the group, in milliseconds.",
        ),
        _row(
            ASSIGNMENT_INTERVAL,
            1_000,
            0,
            "Least time between two target assignments of the group, in milliseconds.",
        ),
    )
}
"""Every group setting by name, in the order in which Kafka reads them."""


class Bounds(NamedTuple):
    """The default of a group's setting, and its bounds."""

    default: int
    minimum: int
    maximum: int


GroupRules = Mapping[str, Bounds]
"""The defaults and bounds of this broker, for every name of `GROUP_CONFIGS`."""


def group_rules(settings: GroupsSettings) -> GroupRules:
    """Return the rules for single groups from the broker's settings."""

    def bounds(default: int, minimum: int, maximum: int) -> Bounds:
        return Bounds(default, min(minimum, default), max(maximum, default))

    return {
        SESSION_TIMEOUT: bounds(
            settings.consumer_session_timeout_ms,
            settings.consumer_session_timeout_ms_min,
            settings.consumer_session_timeout_ms_max,
        ),
        HEARTBEAT_INTERVAL: bounds(
            settings.consumer_heartbeat_interval_ms,
            settings.consumer_heartbeat_interval_ms_min,
            settings.consumer_heartbeat_interval_ms_max,
        ),
        ASSIGNMENT_INTERVAL: bounds(
            settings.consumer_assignment_interval_ms,
            settings.consumer_assignment_interval_ms_min,
            settings.consumer_assignment_interval_ms_max,
        ),
    }


def checked_settings(overrides: Mapping[str, str], rules: GroupRules) -> dict[str, str]:
    """Return the settings of a group in stored form: each number in its plain form.

    Raise `InvalidTopicConfigError` for the first setting that is unknown, wrong or out of bounds.
    """
    for name in overrides:
        if name not in GROUP_CONFIGS:
            raise _unknown(name)
    values = {
        name: _number(config, overrides[name]) if name in overrides else rules[name].default
        for name, config in GROUP_CONFIGS.items()
    }
    for name in _BOUNDS_CHECKED:
        _check_bounds(name, values[name], rules[name])
    if values[SESSION_TIMEOUT] <= values[HEARTBEAT_INTERVAL]:
        raise InvalidTopicConfigError(
            f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}: they would be "
            f"{values[SESSION_TIMEOUT]} and {values[HEARTBEAT_INTERVAL]}"
        )
    return {name: str(values[name]) for name in overrides}


def value_in_force(name: str, overrides: Mapping[str, str], rules: GroupRules) -> int:
    """Return the value that a group uses. It never fails: invalid stored text is ignored."""
    default, minimum, maximum = rules[name]
    text = overrides.get(name)
    if text is None:
        return default
    try:
        value = _number(GROUP_CONFIGS[name], text)
    except InvalidTopicConfigError:
        return default
    return max(minimum, min(value, maximum))


def describe_group(overrides: Mapping[str, str], rules: GroupRules) -> tuple[DescribedConfig, ...]:
    """Return every setting of a group, ordered by name, with the source of its value."""
    described = []
    for name in sorted(GROUP_CONFIGS):
        config, default = GROUP_CONFIGS[name], str(rules[name].default)
        assert config.synonym is not None, name
        static = {} if default == config.default else {config.synonym: default}
        followed = broker_synonyms(
            config.synonym, BrokerLayers(static=static), {config.synonym: config.default}
        )
        described.append(describe_one(config, overrides.get(name), followed, ConfigSource.GROUP))
    return tuple(described)


def _number(config: TopicConfig, text: str) -> int:
    value = parse_value(config, text)
    assert isinstance(value, int), config.name
    return value


def _check_bounds(name: str, value: int, bounds: Bounds) -> None:
    kind, _, rest = name.partition(".")
    if value < bounds.minimum:
        raise InvalidTopicConfigError(
            f"{name} must be greater than or equal to group.{kind}.min.{rest} ({bounds.minimum})"
        )
    if value > bounds.maximum:
        raise InvalidTopicConfigError(
            f"{name} must be less than or equal to group.{kind}.max.{rest} ({bounds.maximum})"
        )


def _unknown(name: str) -> InvalidTopicConfigError:
    message = f"Unknown group config name: {name[:249]}"
    for prefix in _OTHER_GROUPS:
        if name.startswith(prefix):
            message += f": Penstock has no {prefix.removesuffix('.')} groups"
    return InvalidTopicConfigError(message)
