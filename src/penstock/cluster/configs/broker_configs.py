"""The broker settings that DescribeConfigs returns: Kafka's settings, by Kafka's names.

A setting or bound has a row only if Penstock has it and it means what Kafka's documentation says,
in Kafka's unit. Settings that only Penstock has are in `penstock config explain`, not on the wire.
Settings that only Kafka has are not shown, because a value without an effect would mislead
(docs/behaviour.md lists the missing ones).

Defaults of topics can be changed over the wire while the broker runs, for one broker or for all
(`broker_changes`); all other settings are read-only there, as most of them are in Kafka.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from penstock.cluster.configs.described_configs import (
    TOPIC_DEFAULTS,
    TOPIC_SYNONYMS,
    BrokerLayers,
    ConfigSource,
    DescribedConfig,
    Synonym,
    broker_synonyms,
)
from penstock.cluster.configs.drain_setting import DRAIN
from penstock.cluster.configs.topic_config_table import SettingType, TopicConfig
from penstock.core.limits import (
    FETCH_BYTES_MAX,
    FETCH_SESSIONS_MAX,
    FRAME_BYTES_MAX,
    KEEP_ALIVES_PER_SESSION,
)
from penstock.core.settings.tree import FIELDS, Settings

_BOOLEAN, _STRING, _INT = SettingType.BOOLEAN, SettingType.STRING, SettingType.INT
_SHORT, _LONG, _LIST = SettingType.SHORT, SettingType.LONG, SettingType.LIST

_SETTINGS: Final[Mapping[str, SettingType]] = {
    "cluster.min_insync_replicas_default": _INT,
    "cluster.replica_selector_class": _STRING,
    "cluster.unclean_leader_election": _BOOLEAN,
    "groups.consumer_assignment_interval_ms": _INT,
    "groups.consumer_assignment_interval_ms_max": _INT,
    "groups.consumer_assignment_interval_ms_min": _INT,
    "groups.consumer_heartbeat_interval_ms": _INT,
    "groups.consumer_heartbeat_interval_ms_max": _INT,
    "groups.consumer_heartbeat_interval_ms_min": _INT,
    "groups.consumer_members_max": _INT,
    "groups.consumer_migration_policy": _STRING,
    "groups.consumer_session_timeout_ms": _INT,
    "groups.consumer_session_timeout_ms_max": _INT,
    "groups.consumer_session_timeout_ms_min": _INT,
    "groups.initial_rebalance_delay_ms": _INT,
    "groups.members_max": _INT,
    "groups.offset_metadata_bytes_max": _INT,
    "groups.offsets_partitions": _INT,
    "groups.offsets_retention_check_interval_ms": _LONG,
    "groups.offsets_retention_minutes": _INT,
    "groups.offsets_segment_bytes": _INT,
    "groups.session_timeout_ms_max": _INT,
    "groups.session_timeout_ms_min": _INT,
    "groups.share_assignment_interval_ms": _INT,
    "groups.share_assignment_interval_ms_max": _INT,
    "groups.share_assignment_interval_ms_min": _INT,
    "groups.share_delivery_count_limit": _INT,
    "groups.share_delivery_count_limit_max": _INT,
    "groups.share_delivery_count_limit_min": _INT,
    "groups.share_heartbeat_interval_ms": _INT,
    "groups.share_heartbeat_interval_ms_max": _INT,
    "groups.share_heartbeat_interval_ms_min": _INT,
    "groups.share_members_max": _INT,
    "groups.share_record_lock_duration_ms": _INT,
    "groups.share_record_lock_duration_ms_max": _INT,
    "groups.share_record_lock_duration_ms_min": _INT,
    "groups.share_record_locks_max": _INT,
    "groups.share_record_locks_max_highest": _INT,
    "groups.share_record_locks_max_lowest": _INT,
    "groups.share_session_timeout_ms": _INT,
    "groups.share_session_timeout_ms_max": _INT,
    "groups.share_session_timeout_ms_min": _INT,
    "groups.share_sessions_max": _INT,
    "listener.connections_max": _INT,
    "listener.connections_per_address_max": _INT,
    "listener.request_bytes_in_flight_max": _LONG,
    "node.data_dir": _LIST,
    "node.id": _INT,
    "quotas.controller_window_count": _INT,
    "quotas.controller_window_seconds": _INT,
    "quotas.window_count": _INT,
    "quotas.window_seconds": _INT,
    "security.allow_everyone_if_no_acl_found": _BOOLEAN,
    "security.failed_login_delay_ms": _INT,
    "security.super_users": _STRING,
    "topic_defaults.auto_create": _BOOLEAN,
    "topic_defaults.message_bytes_max": _INT,
    "topic_defaults.partitions_default": _INT,
    "topic_defaults.retention_bytes": _LONG,
    "topic_defaults.retention_ms": _LONG,
    "topic_defaults.segment_bytes": _INT,
    "transactions.expiration_check_interval_ms": _INT,
    "transactions.id_expiration_ms": _INT,
    "transactions.producer_expiration_ms": _INT,
    "transactions.state_partitions": _INT,
    "transactions.state_segment_bytes": _INT,
    "transactions.timeout_check_interval_ms": _INT,
    "transactions.timeout_ms_max": _INT,
}
"""Penstock's settings that Kafka has in the same unit, with Kafka's types; `core` has the rest."""


class _Row(NamedTuple):
    name: str
    type: SettingType
    value: Callable[[Settings], object]
    documentation: str


def _listeners(settings: Settings) -> str:
    return ",".join(f"{one.name}://{one.host}:{one.port}" for one in settings.all_listeners)


def _advertised(settings: Settings) -> str | None:
    listeners = settings.all_listeners
    if all(one.advertised_host is None and one.advertised_port is None for one in listeners):
        return None
    return ",".join(
        f"{one.name}://{one.advertised_host or one.host}:{one.advertised_port or one.port}"
        for one in listeners
    )


_OTHERS: Final = (
    _Row(
        "advertised.listeners",
        _LIST,
        _advertised,
        "The address that clients connect to, if it is not the listener's address.",
    ),
    _Row(
        "broker.heartbeat.interval.ms",
        _INT,
        lambda settings: int(settings.cluster.session_seconds * 1000 / KEEP_ALIVES_PER_SESSION),
        "Time between two signs of life of a broker.",
    ),
    _Row("broker.id", _INT, lambda settings: settings.node.id, "The same as node.id."),
    _Row("broker.rack", _STRING, lambda settings: settings.node.rack, "Rack of the broker."),
    _Row(
        "broker.session.timeout.ms",
        _INT,
        lambda settings: int(settings.cluster.session_seconds * 1000),
        "A broker that is silent for this long counts as dead.",
    ),
    _Row(
        "connections.max.idle.ms",
        _LONG,
        lambda settings: int(settings.listener.connection_idle_seconds_max * 1000),
        "A connection without a request for this long is closed.",
    ),
    _Row(
        "default.replication.factor",
        _INT,
        lambda settings: settings.cluster.replication_factor_default,
        "Replicas of a topic whose creator gave no number.",
    ),
    _Row("delete.topic.enable", _BOOLEAN, lambda _: True, "Whether topics can be deleted."),
    _Row(
        "fetch.max.bytes",
        _INT,
        lambda _: FETCH_BYTES_MAX,
        "Most bytes of records in one Fetch response.",
    ),
    _Row(
        "group.consumer.assignors",
        _LIST,
        lambda _: "uniform,range",
        "The supported assignors; the first is the default.",
    ),
    _Row(
        "group.coordinator.rebalance.protocols",
        _LIST,
        lambda _: "classic,consumer",
        "The kinds of groups that are served.",
    ),
    _Row(
        "listeners",
        _LIST,
        _listeners,
        "Where the broker listens.",
    ),
    _Row(
        "max.incremental.fetch.session.cache.slots",
        _INT,
        lambda _: FETCH_SESSIONS_MAX,
        "Incremental fetch sessions that are kept.",
    ),
    _Row("log.cleaner.enable", _BOOLEAN, lambda _: True, "Whether logs are compacted."),
    _Row(
        "offsets.topic.compression.codec",
        _INT,
        lambda _: 0,
        "How the topic that keeps offsets and groups is compressed; 0 is not at all.",
    ),
    _Row(
        "offsets.topic.replication.factor",
        _SHORT,
        lambda _: 1,
        "Replicas of the topic that keeps offsets and groups.",
    ),
    _Row(
        "socket.request.max.bytes",
        _INT,
        lambda _: FRAME_BYTES_MAX,
        "Largest request.",
    ),
    _Row(
        "transaction.state.log.min.isr",
        _INT,
        lambda _: 1,
        "In-sync replicas that the topic which keeps transactions needs.",
    ),
    _Row(
        "transaction.state.log.replication.factor",
        _SHORT,
        lambda _: 1,
        "Replicas of the topic that keeps transactions.",
    ),
    _Row(
        "transaction.two.phase.commit.enable",
        _BOOLEAN,
        lambda _: False,
        "Whether producers may prepare a transaction and decide on it later.",
    ),
)

_OTHER_UNITS: Final = (
    ("log.retention.hours", _INT, "retention.ms in hours; log.retention.ms wins."),
    ("log.retention.minutes", _INT, "retention.ms in minutes; log.retention.ms wins."),
    ("log.roll.hours", _INT, "segment.ms in hours; log.roll.ms wins."),
    ("log.roll.jitter.hours", _INT, "segment.jitter.ms in hours; log.roll.jitter.ms wins."),
)


def _setting_row(key: str, kind: SettingType) -> _Row:
    field = FIELDS[key]
    assert isinstance(field.json_schema_extra, dict), key
    name, documentation = field.json_schema_extra["kafka"], field.description
    assert isinstance(name, str), key
    assert documentation is not None, key
    section, _, own = key.partition(".")
    return _Row(
        name, kind, lambda settings: getattr(getattr(settings, section), own), documentation
    )


_ROWS: Final = (*(_setting_row(key, kind) for key, kind in _SETTINGS.items()), *_OTHERS)
assert len({row.name for row in _ROWS}) == len(_ROWS), "a setting is declared twice"
_DEFAULT_SETTINGS: Final = Settings()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _config(name: str, kind: SettingType, default: str, documentation: str) -> TopicConfig:
    return TopicConfig(
        name=name,
        type=kind,
        default=default,
        documentation=documentation,
        synonym=name,
        honoured=True,
    )


_DEFAULTS: Final[Mapping[str, str]] = {
    **{
        row.name: _text(value)
        for row in _ROWS
        if row.name not in TOPIC_SYNONYMS and (value := row.value(_DEFAULT_SETTINGS)) is not None
    },
    **TOPIC_DEFAULTS,
}
"""Settings without a default value are absent: they are unset, or have a coarser unit."""

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
_UNLIMITED: Final = str(2**63 - 1)

OPERATION_CONFIGS: Final[Mapping[str, TopicConfig]] = {
    config.name: replace(config, minimum=minimum)
    for config, minimum in (
        (
            _config(
                LEADER_RATE,
                _LONG,
                _UNLIMITED,
                "Bytes a second that this broker sends to other brokers for the replicas in "
                "leader.replication.throttled.replicas of a topic.",
            ),
            0,
        ),
        (
            _config(
                FOLLOWER_RATE,
                _LONG,
                _UNLIMITED,
                "Bytes a second that this broker copies from other brokers for the replicas in "
                "follower.replication.throttled.replicas of a topic.",
            ),
            0,
        ),
        (
            _config(
                DRAIN,
                _BOOLEAN,
                "false",
                "Whether other brokers lead the partitions of this broker, if they can.",
            ),
            None,
        ),
    )
}
"""Settings for the operation of a running broker. They have no place in a settings file."""

_SHOWN_IF_GIVEN: Final = frozenset(
    {"super.users", "allow.everyone.if.no.acl.found", *OPERATION_CONFIGS}
)
"""Settings that a broker without them does not list: those of Kafka's authorizer, and those for
operation."""

DYNAMIC_CONFIGS: Final[Mapping[str, TopicConfig]] = {
    **{
        name: replace(
            config,
            name=name,
            documentation=(
                f"{config.name} of topics that do not say otherwise. {config.documentation}"
            ),
        )
        for name, config in TOPIC_SYNONYMS.items()
    },
    **OPERATION_CONFIGS,
}
"""Settings that can be changed over the wire, by the broker's names."""

BROKER_CONFIGS: Final[Mapping[str, TopicConfig]] = {
    **{
        row.name: _config(row.name, row.type, _DEFAULTS.get(row.name, ""), row.documentation)
        for row in _ROWS
    },
    **{
        name: _config(name, kind, _DEFAULTS.get(name, ""), documentation)
        for name, kind, documentation in _OTHER_UNITS
    },
    **DYNAMIC_CONFIGS,
}
"""Every shown setting of the broker, by name."""


def static_layer(settings: Settings) -> dict[str, str]:
    """Return the settings that the broker was started with, without defaults, by Kafka's names."""
    return {
        row.name: _text(row.value(settings))
        for row in _ROWS
        if row.value(settings) != row.value(_DEFAULT_SETTINGS)
    }


def describe_broker(layers: BrokerLayers) -> tuple[DescribedConfig, ...]:
    """Return the broker's settings, ordered by name."""
    return tuple(
        _described(BROKER_CONFIGS[name], layers)
        for name in sorted(BROKER_CONFIGS)
        if name not in _SHOWN_IF_GIVEN or layers.given(name) is not None
    )


def describe_shared(layers: BrokerLayers) -> tuple[DescribedConfig, ...]:
    """Return only the settings that were changed over the wire for all brokers."""
    return tuple(
        replace(
            described,
            value=layers.shared[described.config.name],
            source=ConfigSource.DYNAMIC_ALL_BROKERS,
            synonyms=tuple(_only_shared(described)),
        )
        for described in describe_broker(layers)
        if described.config.name in layers.shared
    )


def _only_shared(described: DescribedConfig) -> Iterable[Synonym]:
    return (s for s in described.synonyms if s.source is ConfigSource.DYNAMIC_ALL_BROKERS)


def _described(config: TopicConfig, layers: BrokerLayers) -> DescribedConfig:
    name = config.name
    synonyms = broker_synonyms(name, layers, _DEFAULTS)
    given = layers.given(name)
    return DescribedConfig(
        config,
        _DEFAULTS.get(name) if given is None else given,
        synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        synonyms,
        is_read_only=name not in DYNAMIC_CONFIGS,
    )
