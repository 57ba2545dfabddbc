"""The broker's settings as DescribeConfigs shows them: those that Kafka has too, by Kafka's names.

A row is here only when Penstock has the setting or the bound and it means what Kafka's
documentation says, in Kafka's unit. What Penstock has alone is in `penstock config explain`, not
on the wire; what Kafka has alone is not shown, because a value nobody acts on is a lie. None of
these can be changed over the wire yet, so all are read-only there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.cluster.topic_config_table import SettingType, TopicConfig
from penstock.cluster.topic_configs import ConfigSource, DescribedConfig, Synonym
from penstock.core.limits import (
    FETCH_BYTES_MAX,
    FETCH_SESSIONS_MAX,
    FRAME_BYTES_MAX,
)
from penstock.core.settings import Settings


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    type: SettingType
    value: Callable[[Settings], object]
    documentation: str


_ROWS: Final = (
    _Row(
        "auto.create.topics.enable",
        SettingType.BOOLEAN,
        lambda settings: settings.topic_defaults.auto_create,
        "Whether a topic is created when a client asks for one that does not exist.",
    ),
    _Row(
        "connections.max.idle.ms",
        SettingType.LONG,
        lambda settings: int(settings.listener.connection_idle_seconds_max * 1000),
        "A connection without a request for this long is closed.",
    ),
    _Row(
        "controller.quota.window.num",
        SettingType.INT,
        lambda settings: settings.quotas.controller_window_count,
        "Windows that a burst of created and deleted partitions may use at once.",
    ),
    _Row(
        "controller.quota.window.size.seconds",
        SettingType.INT,
        lambda settings: settings.quotas.controller_window_seconds,
        "Length of one window for created and deleted partitions.",
    ),
    _Row(
        "default.replication.factor",
        SettingType.INT,
        lambda _: 1,
        "Replicas of a topic whose creator gave no number.",
    ),
    _Row(
        "fetch.max.bytes",
        SettingType.INT,
        lambda _: FETCH_BYTES_MAX,
        "Most bytes of records in one Fetch response.",
    ),
    _Row(
        "group.consumer.assignment.interval.ms",
        SettingType.INT,
        lambda settings: settings.groups.consumer_assignment_interval_ms,
        "Least time between two target assignments of a consumer group.",
    ),
    _Row(
        "group.consumer.heartbeat.interval.ms",
        SettingType.INT,
        lambda settings: settings.groups.consumer_heartbeat_interval_ms,
        "Time between two heartbeats that members of consumer groups are told.",
    ),
    _Row(
        "group.consumer.max.assignment.interval.ms",
        SettingType.INT,
        lambda settings: settings.groups.consumer_assignment_interval_ms_max,
        "Longest assignment interval that a single group may be given.",
    ),
    _Row(
        "group.consumer.max.heartbeat.interval.ms",
        SettingType.INT,
        lambda settings: settings.groups.consumer_heartbeat_interval_ms_max,
        "Longest heartbeat interval that a single group may be given.",
    ),
    _Row(
        "group.consumer.max.session.timeout.ms",
        SettingType.INT,
        lambda settings: settings.groups.consumer_session_timeout_ms_max,
        "Longest session timeout that a single group may be given.",
    ),
    _Row(
        "group.consumer.min.assignment.interval.ms",
        SettingType.INT,
        lambda settings: settings.groups.consumer_assignment_interval_ms_min,
        "Shortest assignment interval that a single group may be given.",
    ),
    _Row(
        "group.consumer.min.heartbeat.interval.ms",
        SettingType.INT,
        lambda settings: settings.groups.consumer_heartbeat_interval_ms_min,
        "Shortest heartbeat interval that a single group may be given.",
    ),
    _Row(
        "group.consumer.min.session.timeout.ms",
        SettingType.INT,
        lambda settings: settings.groups.consumer_session_timeout_ms_min,
        "Shortest session timeout that a single group may be given.",
    ),
    _Row(
        "group.consumer.session.timeout.ms",
        SettingType.INT,
        lambda settings: settings.groups.consumer_session_timeout_ms,
        "A member of a consumer group that is silent for this long is removed.",
    ),
    _Row(
        "log.dirs",
        SettingType.STRING,
        lambda settings: settings.node.data_dir,
        "Directory of the log.",
    ),
    _Row(
        "log.retention.bytes",
        SettingType.LONG,
        lambda settings: settings.topic_defaults.retention_bytes,
        "Size above which a partition loses its oldest segments; -1 for no bound.",
    ),
    _Row(
        "log.retention.ms",
        SettingType.LONG,
        lambda settings: settings.topic_defaults.retention_ms,
        "Age at which records may be deleted; -1 for never.",
    ),
    _Row(
        "log.segment.bytes",
        SettingType.INT,
        lambda settings: settings.topic_defaults.segment_bytes,
        "Size of one segment file.",
    ),
    _Row(
        "max.connections",
        SettingType.INT,
        lambda settings: settings.listener.connections_max,
        "Connections at one time.",
    ),
    _Row(
        "max.connections.per.ip",
        SettingType.INT,
        lambda settings: settings.listener.connections_per_address_max,
        "Connections at one time from one address.",
    ),
    _Row(
        "max.incremental.fetch.session.cache.slots",
        SettingType.INT,
        lambda _: FETCH_SESSIONS_MAX,
        "Incremental fetch sessions that are kept.",
    ),
    _Row(
        "message.max.bytes",
        SettingType.INT,
        lambda settings: settings.topic_defaults.message_bytes_max,
        "Largest batch that a topic takes when it sets nothing else.",
    ),
    _Row(
        "node.id",
        SettingType.INT,
        lambda settings: settings.node.id,
        "Number of this broker in its cluster.",
    ),
    _Row(
        "num.partitions",
        SettingType.INT,
        lambda settings: settings.topic_defaults.partitions_default,
        "Partitions of a topic whose creator gave no number.",
    ),
    _Row(
        "quota.window.num",
        SettingType.INT,
        lambda settings: settings.quotas.window_count,
        "Windows over which the use of client quotas is averaged.",
    ),
    _Row(
        "quota.window.size.seconds",
        SettingType.INT,
        lambda settings: settings.quotas.window_seconds,
        "Length of one window for client quotas.",
    ),
    _Row(
        "socket.request.max.bytes",
        SettingType.INT,
        lambda _: FRAME_BYTES_MAX,
        "Largest request.",
    ),
)


def describe_broker(settings: Settings) -> tuple[DescribedConfig, ...]:
    """The broker's settings, ordered by name; one that differs from its default was given."""
    defaults = Settings()
    return tuple(_describe(row, settings, defaults) for row in _ROWS)


def _describe(row: _Row, settings: Settings, defaults: Settings) -> DescribedConfig:
    value, default = _text(row.value(settings)), _text(row.value(defaults))
    source = ConfigSource.DEFAULT if value == default else ConfigSource.STATIC_BROKER
    synonyms: tuple[Synonym, ...] = (Synonym(row.name, default, ConfigSource.DEFAULT),)
    if source is ConfigSource.STATIC_BROKER:
        synonyms = (Synonym(row.name, value, source), *synonyms)
    config = TopicConfig(
        name=row.name,
        type=row.type,
        default=default,
        documentation=row.documentation,
        synonym=row.name,
        honoured=True,
    )
    return DescribedConfig(config, value, source, synonyms)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
