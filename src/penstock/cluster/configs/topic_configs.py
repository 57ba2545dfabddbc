"""The settings of a topic: Kafka 4.3's names, types, defaults, bounds and synonyms.

The table lists every topic setting that Kafka 4.3 shows, for tools that read all settings and write
them back. A setting that Penstock does not support yet is not `honoured`: it is listed with its
default, and any other value is rejected by name, because an accepted setting without an effect
would mislead.

Texts are parsed as in Kafka: surrounding spaces are ignored, numbers are decimal with an optional
sign, booleans are true or false in any case. Errors have Kafka's wording, because people search for
it. Numbers are compared as whole 32 or 64-bit values; nothing is rounded.

This module converts settings to their types. It does not store them and knows no topic.
`described_configs` shows them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.cluster.configs.topic_config_table import TABLE, SettingType, TopicConfig
from penstock.core.errors import InvalidTopicConfigError

_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_REAL_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)
_RANGES: Final = {
    SettingType.SHORT: (-(2**15), 2**15 - 1),
    SettingType.INT: (-(2**31), 2**31 - 1),
    SettingType.LONG: (-(2**63), 2**63 - 1),
}

TOPIC_CONFIGS: Final[Mapping[str, TopicConfig]] = {config.name: config for config in TABLE}
"""Every topic setting by name."""

LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
_THROTTLED: Final = frozenset({LEADER_REPLICAS, FOLLOWER_REPLICAS})
_THROTTLED_REPLICA: Final = re.compile(r"([0-9]+):([0-9]+)", re.ASCII)

COMPACTION_LAGS: Final = ("min.compaction.lag.ms", "max.compaction.lag.ms")
"""Settings that can contradict each other: the first must not exceed the second."""

SettingValue = bool | int | float | str | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The settings that Penstock acts on, with types."""

    cleanup_delete: bool
    cleanup_compact: bool
    compression_type: str
    """`producer` keeps the producer's compression."""
    max_message_bytes: int
    """Size of the largest stored batch, header included."""
    message_timestamp_type: str
    """`CreateTime` or `LogAppendTime`."""
    message_timestamp_before_max_ms: int
    message_timestamp_after_max_ms: int
    retention_ms: int
    """-1 keeps records for ever."""
    retention_bytes: int
    """Negative for no bound."""
    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    min_insync_replicas: int
    flush_messages: int
    flush_ms: int
    file_delete_delay_ms: int
    preallocate: bool
    delete_retention_ms: int
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int


def parse_topic_settings(
    overrides: Mapping[str, str], defaults: Mapping[str, str] | None = None
) -> TopicSettings:
    """Return the settings of a topic, from its overrides and the broker's defaults.

    Raise `InvalidTopicConfigError` for the first setting that is unknown, wrong or unsupported.
    """
    for name in overrides:
        check_override(name, overrides[name])
    given = {**(defaults or {}), **overrides}

    def number(name: str) -> int:
        value = _value(name, given)
        assert isinstance(value, int), name
        return value

    def text(name: str) -> str:
        value = _value(name, given)
        assert isinstance(value, str), name
        return value

    policies = _value("cleanup.policy", given)
    assert isinstance(policies, tuple)
    dirty_ratio = _value("min.cleanable.dirty.ratio", given)
    assert isinstance(dirty_ratio, int | float)
    check_together(given)
    return TopicSettings(
        cleanup_delete="delete" in policies,
        cleanup_compact="compact" in policies,
        compression_type=text("compression.type"),
        max_message_bytes=number("max.message.bytes"),
        message_timestamp_type=text("message.timestamp.type"),
        message_timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        message_timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        retention_ms=number("retention.ms"),
        retention_bytes=number("retention.bytes"),
        segment_bytes=number("segment.bytes"),
        segment_ms=number("segment.ms"),
        segment_jitter_ms=number("segment.jitter.ms"),
        segment_index_bytes=number("segment.index.bytes"),
        index_interval_bytes=number("index.interval.bytes"),
        min_insync_replicas=number("min.insync.replicas"),
        flush_messages=number("flush.messages"),
        flush_ms=number("flush.ms"),
        file_delete_delay_ms=number("file.delete.delay.ms"),
        preallocate=bool(_value("preallocate", given)),
        delete_retention_ms=number("delete.retention.ms"),
        min_cleanable_dirty_ratio=float(dirty_ratio),
        min_compaction_lag_ms=number("min.compaction.lag.ms"),
        max_compaction_lag_ms=number("max.compaction.lag.ms"),
    )


def usable_topic_settings(
    overrides: Mapping[str, str], defaults: Mapping[str, str]
) -> tuple[TopicSettings, tuple[str, ...]]:
    """Parse stored settings as `parse_topic_settings` does, but skip and report invalid ones.

    It never raises, so stored settings cannot prevent the start of a broker. A topic's own setting
    overrides a default that contradicts it.
    """
    problems: list[str] = []
    own: dict[str, str] = {}
    followed: dict[str, str] = {}
    for given, usable in ((overrides, own), (defaults, followed)):
        for name, text in given.items():
            try:
                check_override(name, text)
            except InvalidTopicConfigError as error:
                problems.append(str(error))
            else:
                usable[name] = text
    for contradicting in (followed, own):
        try:
            check_together({**followed, **own})
        except InvalidTopicConfigError as error:
            problems.append(str(error))
            for name in COMPACTION_LAGS:
                contradicting.pop(name, None)
    return parse_topic_settings(own, followed), tuple(problems)


def check_override(name: str, text: str | None) -> None:
    """Raise an error for a setting that is unknown, wrong or unsupported."""
    config = TOPIC_CONFIGS.get(name)
    if config is None:
        raise InvalidTopicConfigError(f"Unknown topic config name: {name[:249]}")
    if text is None:
        raise InvalidTopicConfigError(f"Null value not supported for topic configs: {name}")
    value = parse_value(config, text)
    if not config.honoured and value != parse_value(config, config.default):
        raise InvalidTopicConfigError(
            f"Invalid value {text[:249]} for configuration {name}: Penstock has no use for it yet, "
            f"and takes only the default, {config.default or 'empty'}"
        )


def check_together(given: Mapping[str, str]) -> None:
    """Raise an error for settings that are valid alone and contradict each other."""
    lag_ms_min, lag_ms_max = (_value(name, given) for name in COMPACTION_LAGS)
    assert isinstance(lag_ms_min, int)
    assert isinstance(lag_ms_max, int)
    if lag_ms_min > lag_ms_max:
        raise InvalidTopicConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({lag_ms_min}) > "
            f"max.compaction.lag.ms ({lag_ms_max})"
        )


def parse_value(config: TopicConfig, text: str) -> SettingValue:
    """Return the typed value of a text, within the setting's bounds."""
    trimmed = text.strip()
    match config.type:
        case SettingType.BOOLEAN:
            if trimmed.lower() not in ("true", "false"):
                raise _invalid(config, text, "Expected value to be either true or false")
            return trimmed.lower() == "true"
        case SettingType.SHORT | SettingType.INT | SettingType.LONG:
            return _bounded(config, text, _whole_number(config, trimmed))
        case SettingType.DOUBLE:
            if _REAL_NUMBER.fullmatch(trimmed) is None:
                raise _invalid(config, text, "Not a number of type DOUBLE")
            return _bounded(config, text, float(trimmed))
        case SettingType.LIST:
            return _items(config, trimmed)
        case SettingType.STRING:
            _check_choice(config, trimmed)
            return trimmed


def _items(config: TopicConfig, text: str) -> tuple[str, ...]:
    items = tuple(item.strip() for item in text.split(",")) if text else ()
    if config.choices and "" in items:
        raise InvalidTopicConfigError(f"Configuration '{config.name}' values must not be empty.")
    for item in items:
        _check_choice(config, item)
    if config.name in _THROTTLED:
        _check_throttled(config, items)
    return items


def _check_throttled(config: TopicConfig, items: tuple[str, ...]) -> None:
    is_list = all(not item or _THROTTLED_REPLICA.fullmatch(item) for item in items)
    if not is_list and "".join(items) != "*":
        raise _invalid(
            config,
            f"[{', '.join(items)}]",
            f"{config.name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        )


def throttled_partitions(name: str, text: str, broker_id: int) -> frozenset[int] | None:
    """Return the partitions of a topic whose replica on a broker is throttled; None for all.

    `text` is the value of `LEADER_REPLICAS` or `FOLLOWER_REPLICAS`.
    """
    items = parse_value(TOPIC_CONFIGS[name], text)
    assert isinstance(items, tuple)
    if "*" in items:
        return None
    pairs = [item.split(":") for item in items if item]
    return frozenset(int(number) for number, broker in pairs if int(broker) == broker_id)


def _whole_number(config: TopicConfig, text: str) -> int:
    low, high = _RANGES[config.type]
    if _WHOLE_NUMBER.fullmatch(text) is None or not low <= int(text) <= high:
        raise _invalid(config, text, f"Not a number of type {config.type.name}")
    return int(text)


def _bounded(config: TopicConfig, text: str, value: float) -> int | float:
    if value in config.also_allowed:
        return value
    if config.minimum is not None and value < config.minimum:
        raise _invalid(config, text, f"Value must be at least {config.minimum}")
    if config.maximum is not None and value > config.maximum:
        raise _invalid(config, text, f"Value must be no more than {config.maximum}")
    return value


def _check_choice(config: TopicConfig, text: str) -> None:
    if config.choices and text not in config.choices:
        raise _invalid(config, text, f"String must be one of: {', '.join(config.choices)}")


def _invalid(config: TopicConfig, text: str, reason: str) -> InvalidTopicConfigError:
    # The error repeats the client's text, cut to a bound.
    return InvalidTopicConfigError(
        f"Invalid value {text[:249]} for configuration {config.name}: {reason}"
    )


def _value(name: str, given: Mapping[str, str]) -> SettingValue:
    config = TOPIC_CONFIGS[name]
    return parse_value(config, given.get(name, config.default))
