"""The table of topic settings: one row for each setting that Kafka 4.3 shows, and a few more.

Names, types, defaults, bounds and synonyms are those of Apache Kafka 4.3.1 (its response to
DescribeConfigs is stored beside the tests and compared). `BEYOND_KAFKA` has settings that Kafka 4.3
does not have: DescribeConfigs shows such a setting only on a topic that has its own value.
`topic_configs` parses texts by this table; a row describes a setting, not its implementation.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from penstock.core.settings.topic_declarations import (
    BUFFER_SIZE,
    BUFFER_SIZE_MAX,
    ROUTING,
    ROUTINGS,
)

DEAD_LETTERS_ENABLE: Final = "errors.deadletterqueue.group.enable"
_NEVER: Final = str(2**63 - 1)


class SettingType(IntEnum):
    """The type of a setting, with Kafka's wire numbers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """One topic setting."""

    name: str
    type: SettingType
    default: str
    documentation: str
    synonym: str | None
    """The broker's setting with the same unit; its value is the topic's default."""
    honoured: bool
    """Whether Penstock acts on it; if not, only the default is accepted."""
    minimum: int | float | None = None
    maximum: int | float | None = None
    also_allowed: tuple[int, ...] = ()
    """Values outside the bounds that have a meaning."""
    choices: tuple[str, ...] = ()
    sensitive: bool = False


def _row(
    name: str,
    kind: SettingType,
    default: str,
    synonym: str | None,
    documentation: str,
    *,
    honoured: bool,
    at_least: float | None = None,
    at_most: float | None = None,
    also_allowed: tuple[int, ...] = (),
    choices: tuple[str, ...] = (),
) -> TopicConfig:
    return TopicConfig(
        name=name,
        type=kind,
        default=default,
        documentation=documentation,
        synonym=synonym,
        honoured=honoured,
        minimum=at_least,
        maximum=at_most,
        also_allowed=also_allowed,
        choices=choices,
    )


_BOOLEAN, _STRING, _INT = SettingType.BOOLEAN, SettingType.STRING, SettingType.INT
_LONG, _DOUBLE, _LIST = SettingType.LONG, SettingType.DOUBLE, SettingType.LIST

_RETENTION: Final = (
    _row(
        "cleanup.policy",
        _LIST,
        "delete",
        "log.cleanup.policy",
        "What becomes of old segments: 'delete' drops those past the retention bounds, 'compact' "
        "keeps the last record of each key and refuses records without one. Both may be given, or "
        "neither: then nothing goes.",
        honoured=True,
        choices=("compact", "delete"),
    ),
    _row(
        "retention.ms",
        _LONG,
        "604800000",
        "log.retention.ms",
        "How long records are kept under the 'delete' policy, in milliseconds; -1 for ever.",
        honoured=True,
        at_least=-1,
    ),
    _row(
        "retention.bytes",
        _LONG,
        "-1",
        "log.retention.bytes",
        "How large a partition may grow before its oldest segments are dropped under the 'delete' "
        "policy; -1 for no bound.",
        honoured=True,
    ),
    _row(
        "file.delete.delay.ms",
        _LONG,
        "60000",
        "log.segment.delete.delay.ms",
        "How long the files of a dropped segment stay on disk for readers that still use them.",
        honoured=True,
        at_least=0,
    ),
)

_SEGMENTS: Final = (
    _row(
        "segment.bytes",
        _INT,
        "1073741824",
        "log.segment.bytes",
        "Size of one segment file. Retention drops whole segments, so smaller ones are dropped "
        "closer to the bound.",
        honoured=True,
        at_least=1_048_576,
    ),
    _row(
        "segment.ms",
        _LONG,
        "604800000",
        "log.roll.ms",
        "Age at which a segment is closed even if it is not full, so that retention can drop it.",
        honoured=True,
        at_least=1,
    ),
    _row(
        "segment.jitter.ms",
        _LONG,
        "0",
        "log.roll.jitter.ms",
        "Largest random time taken off segment.ms, so that partitions do not roll all at once.",
        honoured=True,
        at_least=0,
    ),
    _row(
        "segment.index.bytes",
        _INT,
        "10485760",
        "log.index.size.max.bytes",
        "Largest size of one index file; a segment whose index is full is closed.",
        honoured=True,
        at_least=4,
    ),
    _row(
        "index.interval.bytes",
        _INT,
        "4096",
        "log.index.interval.bytes",
        "Bytes of log between two entries of the offset index.",
        honoured=True,
        at_least=0,
    ),
    _row(
        "preallocate",
        _BOOLEAN,
        "false",
        "log.preallocate",
        "Whether the file of a new segment gets its whole size at once.",
        honoured=True,
    ),
)

_RECORDS: Final = (
    _row(
        "compression.type",
        _STRING,
        "producer",
        "compression.type",
        "How batches are compressed on disk; 'producer' keeps what the producer chose.",
        honoured=True,
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    _row(
        "compression.gzip.level",
        _INT,
        "-1",
        "compression.gzip.level",
        "Level used when compression.type is gzip; -1 for the library's own.",
        honoured=False,
        at_least=1,
        at_most=9,
        also_allowed=(-1,),
    ),
    _row(
        "compression.lz4.level",
        _INT,
        "9",
        "compression.lz4.level",
        "Level used when compression.type is lz4.",
        honoured=False,
        at_least=1,
        at_most=17,
    ),
    _row(
        "compression.zstd.level",
        _INT,
        "3",
        "compression.zstd.level",
        "Level used when compression.type is zstd.",
        honoured=False,
        at_least=-131_072,
        at_most=22,
    ),
    _row(
        "max.message.bytes",
        _INT,
        "1048588",
        "message.max.bytes",
        "Largest batch that the topic takes, as stored, with its header.",
        honoured=True,
        at_least=0,
    ),
    _row(
        "message.timestamp.type",
        _STRING,
        "CreateTime",
        "log.message.timestamp.type",
        "Whether records keep the producer's time or get that of the append.",
        honoured=True,
        choices=("CreateTime", "LogAppendTime"),
    ),
    _row(
        "message.timestamp.before.max.ms",
        _LONG,
        _NEVER,
        "log.message.timestamp.before.max.ms",
        "How far behind the broker's clock a producer's timestamp may be.",
        honoured=True,
        at_least=0,
    ),
    _row(
        "message.timestamp.after.max.ms",
        _LONG,
        "3600000",
        "log.message.timestamp.after.max.ms",
        "How far ahead of the broker's clock a producer's timestamp may be.",
        honoured=True,
        at_least=0,
    ),
)

_DURABILITY: Final = (
    _row(
        "flush.messages",
        _LONG,
        _NEVER,
        "log.flush.interval.messages",
        "Records after which the log is synced. Penstock syncs before it acknowledges, which is "
        "stronger than any value here.",
        honoured=True,
        at_least=1,
    ),
    _row(
        "flush.ms",
        _LONG,
        _NEVER,
        "log.flush.interval.ms",
        "Time after which the log is synced. Penstock syncs before it acknowledges, which is "
        "stronger than any value here.",
        honoured=True,
        at_least=0,
    ),
    _row(
        "min.insync.replicas",
        _INT,
        "1",
        "min.insync.replicas",
        "In-sync replicas, the leader included, that a produce with acks=all needs.",
        honoured=True,
        at_least=1,
    ),
    _row(
        "unclean.leader.election.enable",
        _BOOLEAN,
        "false",
        "unclean.leader.election.enable",
        "Whether a replica that is not in sync may lead when no other can, losing records.",
        honoured=True,
    ),
)

_COMPACTION: Final = (
    _row(
        "delete.retention.ms",
        _LONG,
        "86400000",
        "log.cleaner.delete.retention.ms",
        "How long a compacted topic keeps the marks of deleted keys.",
        honoured=True,
        at_least=0,
    ),
    _row(
        "min.cleanable.dirty.ratio",
        _DOUBLE,
        "0.5",
        "log.cleaner.min.cleanable.ratio",
        "Share of a log that must be uncompacted before it is compacted.",
        honoured=True,
        at_least=0,
        at_most=1,
    ),
    _row(
        "min.compaction.lag.ms",
        _LONG,
        "0",
        "log.cleaner.min.compaction.lag.ms",
        "Shortest time that a record stays uncompacted.",
        honoured=True,
        at_least=0,
    ),
    _row(
        "max.compaction.lag.ms",
        _LONG,
        _NEVER,
        "log.cleaner.max.compaction.lag.ms",
        "Longest time that a record stays uncompacted.",
        honoured=True,
        at_least=1,
    ),
)

_REPLICATION_AND_TIERING: Final = (
    _row(
        "leader.replication.throttled.replicas",
        _LIST,
        "",
        None,
        "Replicas whose fetching is throttled at the leader, as partition:broker, or * for all.",
        honoured=True,
    ),
    _row(
        "follower.replication.throttled.replicas",
        _LIST,
        "",
        None,
        "Replicas whose fetching is throttled at the follower, as partition:broker, or * for all.",
        honoured=True,
    ),
    _row(
        "remote.storage.enable",
        _BOOLEAN,
        "false",
        None,
        "Whether closed segments are also kept in the object store.",
        honoured=False,
    ),
    _row(
        "remote.log.copy.disable",
        _BOOLEAN,
        "false",
        None,
        "Whether copying to the object store is stopped, while existing segments there are read.",
        honoured=False,
    ),
    _row(
        "remote.log.delete.on.disable",
        _BOOLEAN,
        "false",
        None,
        "Whether what is in the object store is deleted when tiering is switched off.",
        honoured=False,
    ),
    _row(
        "local.retention.ms",
        _LONG,
        "-2",
        "log.local.retention.ms",
        "How long a tiered topic keeps records on local disk; -2 for as long as retention.ms.",
        honoured=False,
        at_least=-2,
    ),
    _row(
        "local.retention.bytes",
        _LONG,
        "-2",
        "log.local.retention.bytes",
        "How much a tiered topic keeps on local disk; -2 for as much as retention.bytes.",
        honoured=False,
        at_least=-2,
    ),
)

BEYOND_KAFKA: Final[tuple[TopicConfig, ...]] = (
    _row(
        DEAD_LETTERS_ENABLE,
        _BOOLEAN,
        "false",
        None,
        "Whether share groups may write dead letters to the topic (Kafka 4.4, KIP-1191).",
        honoured=True,
    ),
    _row(
        ROUTING,
        _STRING,
        ROUTINGS[0],
        None,
        "Delivery to push subscribers that name no mode: 'fanout' to each of them, 'queue' to one "
        "of them, as members of the share group with the name of the topic.",
        honoured=True,
        choices=ROUTINGS,
    ),
    _row(
        BUFFER_SIZE,
        _INT,
        "0",
        None,
        "Most records in flight to the subscribers of the topic; 0 for no bound of the topic.",
        honoured=True,
        at_least=0,
        at_most=BUFFER_SIZE_MAX,
    ),
)
"""Settings that Kafka 4.3 does not have."""

KAFKA_TABLE: Final[tuple[TopicConfig, ...]] = (
    *_RETENTION,
    *_SEGMENTS,
    *_RECORDS,
    *_DURABILITY,
    *_COMPACTION,
    *_REPLICATION_AND_TIERING,
)

TABLE: Final[tuple[TopicConfig, ...]] = (*KAFKA_TABLE, *BEYOND_KAFKA)
"""Every setting."""
