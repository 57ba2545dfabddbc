"""The settings of a single group: Kafka 4.3's names, types, defaults, bounds and synonyms.

The table has the settings of consumer groups and of share groups. Kafka also has settings of
streams groups. Penstock has no streams groups, so their settings are not shown and are rejected by
name: a value without an effect would mislead. Checks have Kafka's order, and errors begin with
Kafka's words; the number of a bound is added. The settings of dead letters are those of Kafka 4.4
(KIP-1191): a description has them only for a group that has its own values.

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
from penstock.cluster.configs.share_offset_reset import OffsetReset, parse_offset_reset
from penstock.cluster.configs.topic_config_table import SettingType, TopicConfig
from penstock.cluster.configs.topic_configs import parse_value
from penstock.cluster.topic_rules import check_topic_name
from penstock.core.errors import InvalidTopicConfigError, InvalidTopicNameError
from penstock.core.settings.coordinator_settings import GroupsSettings

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"
SHARE_SESSION_TIMEOUT: Final = "share.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL: Final = "share.heartbeat.interval.ms"
SHARE_ASSIGNMENT_INTERVAL: Final = "share.assignment.interval.ms"
SHARE_LOCK_DURATION: Final = "share.record.lock.duration.ms"
SHARE_DELIVERY_LIMIT: Final = "share.delivery.count.limit"
SHARE_LOCKS_MAX: Final = "share.partition.max.record.locks"
SHARE_OFFSET_RESET: Final = "share.auto.offset.reset"
SHARE_ISOLATION: Final = "share.isolation.level"
SHARE_RENEW: Final = "share.renew.acknowledge.enable"
READ_COMMITTED: Final = "read_committed"
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
DEAD_LETTER_COPY: Final = "errors.deadletterqueue.copy.record.enable"

_SHOWN_IF_SET: Final = (DEAD_LETTER_TOPIC, DEAD_LETTER_COPY)
"""Settings that Kafka 4.3 does not have."""

_BOUNDS_CHECKED: Final = (
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    ASSIGNMENT_INTERVAL,
    SHARE_HEARTBEAT_INTERVAL,
    SHARE_SESSION_TIMEOUT,
    SHARE_LOCK_DURATION,
    SHARE_DELIVERY_LIMIT,
    SHARE_LOCKS_MAX,
    SHARE_ASSIGNMENT_INTERVAL,
)
"""In Kafka's order: for a value with two faults a client gets the same error as in Kafka."""
_LONGER_THAN_HEARTBEATS: Final = (
    (SESSION_TIMEOUT, HEARTBEAT_INTERVAL),
    (SHARE_SESSION_TIMEOUT, SHARE_HEARTBEAT_INTERVAL),
)

_OTHER_GROUPS: Final = ("streams.",)


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


def _own(
    name: str, kind: SettingType, default: str, documentation: str, choices: tuple[str, ...] = ()
) -> TopicConfig:
    """Return the row of a setting that brokers do not have; Kafka shows it as its own synonym."""
    return TopicConfig(
        name=name,
        type=kind,
        default=default,
        documentation=documentation,
        synonym=name,
        honoured=True,
        choices=choices,
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
        _row(
            SHARE_SESSION_TIMEOUT,
            45_000,
            1,
            "A member of the share group that is silent for this long is removed, in milliseconds.",
        ),
        _row(
            SHARE_HEARTBEAT_INTERVAL,
            5_000,
            1,
            "Time between two heartbeats of a member of the share group, in milliseconds.",
        ),
        _row(
            SHARE_LOCK_DURATION,
            30_000,
            1_000,
            "Time that a member has to acknowledge a record, in milliseconds.",
        ),
        _row(
            SHARE_DELIVERY_LIMIT,
            5,
            2,
            "Deliveries of one record; a record that no member accepts is archived then.",
        ),
        _row(
            SHARE_LOCKS_MAX,
            2_000,
            100,
            "Records of one partition that the share group may have in flight.",
        ),
        _own(
            SHARE_OFFSET_RESET,
            SettingType.STRING,
            "latest",
            "Where the share group begins with a new partition: latest, earliest, or "
            "by_duration: with a duration in ISO 8601 (PnDTnHnMn.nS).",
        ),
        _own(
            SHARE_ISOLATION,
            SettingType.STRING,
            "read_uncommitted",
            "read_committed: records of a transaction are delivered only when it is committed.",
            (READ_COMMITTED, "read_uncommitted"),
        ),
        _own(
            SHARE_RENEW,
            SettingType.BOOLEAN,
            "true",
            "Whether a member may renew the lock of a record.",
        ),
        _row(
            SHARE_ASSIGNMENT_INTERVAL,
            1_000,
            0,
            "Least time between two target assignments of the share group, in milliseconds.",
        ),
        _own(
            DEAD_LETTER_TOPIC,
            SettingType.STRING,
            "",
            "Topic for dead letters: records that members of the share group rejected, or that no "
            "member accepted; empty for none. The topic needs "
            "errors.deadletterqueue.group.enable=true.",
        ),
        _own(
            DEAD_LETTER_COPY,
            SettingType.BOOLEAN,
            "false",
            "Whether a dead letter has the key, the value and the headers of the record.",
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
"""The defaults and bounds of this broker, for every number of `GROUP_CONFIGS`."""


class DeliverySettings(NamedTuple):
    """The settings of a share group that concern the delivery of records."""

    lock_duration_ms: int
    delivery_count_limit: int
    record_locks_max: int
    """For each partition."""
    is_committed_only: bool
    """`share.isolation.level` is `read_committed`."""
    offset_reset: OffsetReset
    is_renew_enabled: bool
    dead_letter_topic: str = ""
    """Empty: records that are given up have no letters."""
    copies_dead_letters: bool = False
    is_buffer_bound: bool = False
    """Whether the topic bounds `record_locks_max`: then no batch exceeds it."""


def group_rules(settings: GroupsSettings) -> GroupRules:
    """Return the rules for single groups from the broker's settings."""

    def bounds(name: str) -> Bounds:
        default, low, high = (getattr(settings, name + end) for end in ("", "_min", "_max"))
        return Bounds(default, min(low, default), max(high, default))

    locks = settings.share_record_locks_max
    return {
        SESSION_TIMEOUT: bounds("consumer_session_timeout_ms"),
        HEARTBEAT_INTERVAL: bounds("consumer_heartbeat_interval_ms"),
        ASSIGNMENT_INTERVAL: bounds("consumer_assignment_interval_ms"),
        SHARE_SESSION_TIMEOUT: bounds("share_session_timeout_ms"),
        SHARE_HEARTBEAT_INTERVAL: bounds("share_heartbeat_interval_ms"),
        SHARE_ASSIGNMENT_INTERVAL: bounds("share_assignment_interval_ms"),
        SHARE_LOCK_DURATION: bounds("share_record_lock_duration_ms"),
        SHARE_DELIVERY_LIMIT: bounds("share_delivery_count_limit"),
        SHARE_LOCKS_MAX: Bounds(
            locks,
            min(settings.share_record_locks_max_lowest, locks),
            max(settings.share_record_locks_max_highest, locks),
        ),
    }


def checked_settings(overrides: Mapping[str, str], rules: GroupRules) -> dict[str, str]:
    """Return the settings of a group in stored form: each number in its plain form.

    Raise `InvalidTopicConfigError` for the first setting that is unknown, wrong or out of bounds.
    """
    for name in overrides:
        if name not in GROUP_CONFIGS:
            raise _unknown(name)
    texts = {
        name: _plain(config, overrides[name])
        for name, config in GROUP_CONFIGS.items()
        if name in overrides
    }
    values = {
        name: int(texts[name]) if name in texts else bounds.default
        for name, bounds in rules.items()
    }
    for name in _BOUNDS_CHECKED:
        _check_bounds(name, values[name], rules[name])
    for session, heartbeat in _LONGER_THAN_HEARTBEATS:
        if values[session] <= values[heartbeat]:
            raise InvalidTopicConfigError(
                f"{session} must be greater than {heartbeat}: they would be "
                f"{values[session]} and {values[heartbeat]}"
            )
    return {name: texts[name] for name in overrides}


def value_in_force(name: str, overrides: Mapping[str, str], rules: GroupRules) -> int:
    """Return the number that a group uses. It never fails: invalid stored text is ignored."""
    default, minimum, maximum = rules[name]
    text = overrides.get(name)
    if text is None:
        return default
    try:
        value = _number(GROUP_CONFIGS[name], text)
    except InvalidTopicConfigError:
        return default
    return max(minimum, min(value, maximum))


def text_in_force(name: str, overrides: Mapping[str, str], rules: GroupRules) -> str:
    """Return the value of any setting that a group uses, as text. It never fails."""
    if name in rules:
        return str(value_in_force(name, overrides, rules))
    config = GROUP_CONFIGS[name]
    try:
        return _plain(config, overrides.get(name, config.default))
    except InvalidTopicConfigError:
        return config.default


def delivery_settings(overrides: Mapping[str, str], rules: GroupRules) -> DeliverySettings:
    """Return the settings of deliveries that a share group uses. It never fails."""
    offset_reset = parse_offset_reset(text_in_force(SHARE_OFFSET_RESET, overrides, rules))
    assert offset_reset is not None, "texts in force are valid"
    return DeliverySettings(
        lock_duration_ms=value_in_force(SHARE_LOCK_DURATION, overrides, rules),
        delivery_count_limit=value_in_force(SHARE_DELIVERY_LIMIT, overrides, rules),
        record_locks_max=value_in_force(SHARE_LOCKS_MAX, overrides, rules),
        is_committed_only=text_in_force(SHARE_ISOLATION, overrides, rules) == READ_COMMITTED,
        offset_reset=offset_reset,
        is_renew_enabled=text_in_force(SHARE_RENEW, overrides, rules) == "true",
        dead_letter_topic=text_in_force(DEAD_LETTER_TOPIC, overrides, rules),
        copies_dead_letters=text_in_force(DEAD_LETTER_COPY, overrides, rules) == "true",
    )


def describe_group(overrides: Mapping[str, str], rules: GroupRules) -> tuple[DescribedConfig, ...]:
    """Return every setting of a group, ordered by name, with the source of its value."""
    described = []
    for name in sorted(GROUP_CONFIGS):
        if name in _SHOWN_IF_SET and name not in overrides:
            continue
        config, default = GROUP_CONFIGS[name], text_in_force(name, {}, rules)
        assert config.synonym is not None, name
        static = {} if default == config.default else {config.synonym: default}
        followed = broker_synonyms(
            config.synonym, BrokerLayers(static=static), {config.synonym: config.default}
        )
        described.append(describe_one(config, overrides.get(name), followed, ConfigSource.GROUP))
    return tuple(described)


def _plain(config: TopicConfig, text: str) -> str:
    """Return the plain form of a text, within the least that Kafka accepts of any group."""
    value = parse_value(config, text)
    if config.name == SHARE_OFFSET_RESET and parse_offset_reset(str(value)) is None:
        raise InvalidTopicConfigError(
            f"Invalid value {text[:249]} for configuration {config.name}: Invalid value "
            f"`{text[:249]}` for configuration {config.name}. The value must be either "
            "'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS.>'."
        )
    if config.name == DEAD_LETTER_TOPIC and value:
        _check_dead_letter_topic(str(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_dead_letter_topic(name: str) -> None:
    try:
        check_topic_name(name)
    except InvalidTopicNameError as error:
        raise InvalidTopicConfigError(
            f"Invalid value {name[:249]} for configuration {DEAD_LETTER_TOPIC}: {error}"
        ) from error
    if name.startswith("__"):
        raise InvalidTopicConfigError(
            f"Invalid value {name} for configuration {DEAD_LETTER_TOPIC}: a topic whose name "
            "begins with __ belongs to the broker"
        )


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
