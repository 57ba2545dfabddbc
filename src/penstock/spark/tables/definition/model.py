"""The definition of a pipeline, as frozen values: the same from a TOML file and from Python.

Guarantees: `definition.reader` has checked each value, so no code checks it again; two definitions
with the same content are equal, and each one can be pickled and hashed. Times are in milliseconds
and sizes in bytes, whatever the unit in the definition.

It is not a plan: the run checks the existence of topic, table and schema later.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

DLQ_SUFFIX: Final = "__dlq"
"""Bad records of `shop.orders` go to `shop.orders__dlq`."""


KAFKA: Final = "_kafka"
"""The column with the metadata of a row's record."""
METADATA_FIELDS: Final = ("topic", "partition", "offset", "timestamp", "key", "headers")
"""The fields of that column."""
STATE_REPORT: Final = "_penstock_report"
"""The column with the report of a range, in the source of a stateful pipeline."""

APPEND_OFFSETS_MAX: Final = 10_000_000
"""The maximum batch without a limit in the definition: some seconds of work on two cores."""
UPSERT_OFFSETS_MAX: Final = 1_000_000
"""The same limit if the keys of a batch are held in memory."""

FUTURE_MAX_MS: Final = 86_400_000
"""A day: clocks and time zones differ by less, and a wrong year by more."""


SNAPSHOTS_MAX: Final = 1_000
"""Each commit to an Iceberg table writes all its snapshots again: 1,000 cost about 50 ms of CPU,
and 20,000 (a week at a commit every 30 seconds) 2 s."""


class RunMode(Enum):
    """The execution mode of a pipeline in Spark."""

    AUTO = "auto"
    """The planner chooses."""
    IN_TASK = "in_task"
    """Decode, parse, check and write inside the task."""
    DATAFRAME = "dataframe"
    """Rows pass through Spark SQL."""


class TableFormat(Enum):
    """The kinds of tables."""

    ICEBERG = "iceberg"
    DELTA = "delta"


class WriteMode(Enum):
    """The effect of a record on the table."""

    APPEND = "append"
    """The record adds a row."""
    UPSERT = "upsert"
    """The record replaces the row of its key."""


class Metadata(Enum):
    """The columns that identify the record of a row."""

    STRUCT = "struct"
    """One column `_kafka` with the fields of `METADATA_FIELDS`."""
    FLAT = "flat"
    """A column for each field: `_kafka_topic`, `_kafka_partition` and so on."""
    NONE = "none"
    """The table has no metadata column."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields, as in `partition_by` and rules."""
        separator = "_" if self is Metadata.FLAT else "."
        return tuple(f"{KAFKA}{separator}{name}" for name in METADATA_FIELDS)


class ValueFormat(Enum):
    """The encoding of values."""

    RAW = "raw"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class UnknownFields(Enum):
    """The handling of JSON fields without a column."""

    COUNT = "count"
    """The fields are left out, and counted in a sample of the values."""
    RESCUE = "rescue"
    """The fields are kept as JSON in the column `_rescued_data`."""
    REJECT = "reject"
    """The record is a reject."""
    IGNORE = "ignore"
    """The fields are left out."""


class Envelope(Enum):
    """The form of the changes in JSON values."""

    NONE = "none"
    """A value is a row."""
    DEBEZIUM = "debezium"
    """Debezium's events with `op`, `before`, `after` and `source`."""
    DEBEZIUM_FLAT = "debezium_flat"
    """Rows of Debezium's `ExtractNewRecordState`."""


class Decimals(Enum):
    """The form of decimals in values without a schema part."""

    NUMBER = "number"
    """Numbers, and texts of numbers."""
    BASE64 = "base64"
    """The bytes of the unscaled number; the column's type has the scale."""


class TimeUnit(Enum):
    """The unit of numbers in columns of times, in values without a schema part."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"


class SchemaSource(Enum):
    """The source of the values' schema."""

    NONE = "none"
    """Raw bytes have no schema."""
    INFERRED = "inferred"
    """Inferred from the first records, and pinned."""
    DDL = "ddl"
    """Written in the definition, in Spark's DDL."""
    FILE = "file"
    REGISTRY = "registry"


class Transform(Enum):
    """The conversion of a column's value to a partition's value."""

    IDENTITY = "identity"
    HOUR = "hour"
    DAY = "day"
    MONTH = "month"
    YEAR = "year"
    BUCKET = "bucket"
    TRUNCATE = "truncate"

    @property
    def has_width(self) -> bool:
        """Whether a number precedes the column: of buckets, or of characters."""
        return self in {Transform.BUCKET, Transform.TRUNCATE}


class Action(Enum):
    """The action for a row that breaks an expectation."""

    WARN = "warn"
    """The row is counted and written."""
    DROP = "drop"
    """The row is counted and not written."""
    QUARANTINE = "quarantine"
    """The row's record goes to the table of bad records."""
    FAIL = "fail"
    """The batch is not committed and the pipeline stops."""


class LateRecords(Enum):
    """The handling of records that a stateful function can no longer use."""

    REJECT = "reject"
    """The record goes to the table of bad records."""
    DROP = "drop"
    """The record is counted and not written."""


class StartingOffsets(Enum):
    """The start of a pipeline whose table holds no records of it yet."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Upserts(Enum):
    """How an upsert changes the rows of an Iceberg table."""

    COPY_ON_WRITE = "copy_on_write"
    """Rewrites the files that have rows of changed keys."""
    MERGE_ON_READ = "merge_on_read"
    """Writes delete files with the positions of changed rows; readers merge them."""


@dataclass(frozen=True, slots=True)
class OperationSettings:
    """What a running pipeline shows to others; none of it changes a row."""

    metrics_port: int = 0
    """The port of metrics and health; 0: none."""
    metrics_host: str = "127.0.0.1"
    publish_group: str | None = None
    """The group that gets the committed offsets, for tools that show the lag of groups."""
    lineage: str | None = None
    """The URL of a file or a service that gets OpenLineage events."""


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """The pipeline's name and locations."""

    name: str
    bootstrap_servers: str
    checkpoint: str
    mode: RunMode = RunMode.AUTO
    small_batches: bool = True
    """Whether the driver may write a small batch without Spark's tasks."""
    operation: OperationSettings = field(default_factory=OperationSettings)


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """The source."""

    topics: tuple[str, ...] = ()
    """The names of the topics; empty with a pattern."""
    pattern: str | None = None
    starting_offsets: StartingOffsets = StartingOffsets.EARLIEST
    options: tuple[tuple[str, str], ...] = ()
    """Further options of the source, by name, such as `maxOffsetsPerTrigger`."""


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field of a table's partitioning."""

    transform: Transform
    column: str
    width: int = 0
    """The number of buckets, or the width of a truncated value."""

    def __str__(self) -> str:
        if self.transform is Transform.IDENTITY:
            return self.column
        width = f"{self.width}, " if self.transform.has_width else ""
        return f"{self.transform.value}({width}{self.column})"


@dataclass(frozen=True, slots=True)
class SortField:
    """One column of a table's sort order."""

    column: str
    is_descending: bool = False

    def __str__(self) -> str:
        return f"{self.column} desc" if self.is_descending else self.column


@dataclass(frozen=True, slots=True)
class TableSettings:
    """The table."""

    format: TableFormat
    name: str
    """The name with its namespace: `shop.orders`."""
    catalog: tuple[tuple[str, str], ...]
    """The catalog's options by name, without secrets; Delta needs only `warehouse`, or `path`."""
    partition_by: tuple[PartitionField, ...] = ()
    mode: WriteMode = WriteMode.APPEND
    key: tuple[str, ...] = ()
    """The columns of the key, for upserts."""
    metadata: Metadata = Metadata.STRUCT
    history: bool = False
    """Whether the table keeps each version of a row."""
    partial_updates: bool = False
    """Whether a change keeps the columns that it does not carry."""
    path: str = ""
    """The location of a Delta table that is not below a warehouse."""
    upserts: Upserts = Upserts.COPY_ON_WRITE
    sort_by: tuple[SortField, ...] = ()
    keeps_partitions: bool = True
    """Whether the definition does not mention partitions: an existing table keeps its own."""
    keeps_sort: bool = True
    """The same for the sort order."""

    def upserts_of(self, name: str) -> Upserts:
        """Return the way of upserts into this table; bad records are appended."""
        return Upserts.COPY_ON_WRITE if name == self.dlq_name else self.upserts

    @property
    def dlq_name(self) -> str:
        """The table of bad records."""
        return self.name + DLQ_SUFFIX


@dataclass(frozen=True, slots=True)
class ChangeSettings:
    """The reading of values as changes of rows."""

    envelope: Envelope = Envelope.NONE
    deleted_when: str | None = None
    """A field, or a field and a text that it equals: such a value deletes its row."""
    sequence_by: tuple[str, ...] = ()
    """Fields that order the changes of a key; the first one counts most."""
    decimals: Decimals = Decimals.NUMBER
    time_unit: TimeUnit = TimeUnit.SECONDS
    has_history: bool = False
    """Whether changes become versions: `table.history`."""
    is_partial: bool = False
    """Whether a change may lack columns: `table.partial_updates`."""

    @property
    def is_plain(self) -> bool:
        """Whether a value is a whole row, and its offset its only order."""
        is_row = self.envelope is Envelope.NONE and self.deleted_when is None
        return is_row and not self.sequence_by and not self.is_partial


@dataclass(frozen=True, slots=True)
class ValueSettings:
    """The parsing of values to columns."""

    format: ValueFormat = ValueFormat.RAW
    schema_source: SchemaSource = SchemaSource.NONE
    schema: str | None = None
    """The DDL, the file's path or the registry's address, as written."""
    registry: tuple[tuple[str, str], ...] = ()
    """The identity that the registry sees, without secrets."""
    subject: str | None = None
    """The registry's name for the schema; by default `<topic>-value`."""
    message: str | None = None
    """The message of a Protobuf file."""
    unknown_fields: UnknownFields = UnknownFields.COUNT
    reject_share_max: float = 0.5
    """The circuit breaker: the pipeline stops if more than this share is unreadable ..."""
    reject_window_records: int = 10_000
    """... of at least this number of last records."""
    changes: ChangeSettings = field(default_factory=ChangeSettings)


@dataclass(frozen=True, slots=True)
class Expectation:
    """A rule for rows."""

    name: str
    sql: str
    action: Action = Action.WARN
    is_constraint: bool = False
    """Whether it is a rule of the table's owner: NULL passes an expectation, but not a
    constraint."""


@dataclass(frozen=True, slots=True)
class TriggerSettings:
    """The commit interval of the table."""

    interval_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class StateSettings:
    """The time of a stateful function: it gets a stream with a watermark, and keeps state."""

    event_time: str
    """The column with the time of a record."""
    delay_ms: int
    """How far the watermark is behind the newest event time."""
    late: LateRecords = LateRecords.REJECT
    future_max_ms: int = FUTURE_MAX_MS
    """How far an event time may be ahead of the clock when its batch is planned."""


@dataclass(frozen=True, slots=True)
class MaintenanceSettings:
    """The maintenance of the table."""

    is_enabled: bool | None = None
    """None: the table is maintained if Penstock created it."""
    target_file_bytes: int = 134_217_728
    expire_snapshots_ms: int = 86_400_000
    snapshots_max: int = SNAPSHOTS_MAX
    """The maximum number of kept snapshots, all younger than the age limit; 0: all of them."""


@dataclass(frozen=True, slots=True)
class PipelineDefinition:
    """All settings of a pipeline."""

    pipeline: PipelineSettings
    source: SourceSettings
    table: TableSettings
    value: ValueSettings = field(default_factory=ValueSettings)
    expectations: tuple[Expectation, ...] = ()
    trigger: TriggerSettings = field(default_factory=TriggerSettings)
    maintenance: MaintenanceSettings = field(default_factory=MaintenanceSettings)
    state: StateSettings | None = None
    """None: the function, if there is one, gets each batch alone."""

    def source_options(self) -> dict[str, str]:
        """Return the options of `format("penstock")` for this pipeline's source.

        If the user sets no limit, a batch has at most a default number of offsets. So a backlog is
        written in portions, each of which is durable when it is committed.
        """
        source = self.source
        limits = {"maxoffsetspertrigger", "maxbytespertrigger"}
        is_limited = any(name.lower() in limits for name, _ in source.options)
        offsets_max = (
            UPSERT_OFFSETS_MAX if self.table.mode is WriteMode.UPSERT else APPEND_OFFSETS_MAX
        )
        chosen = (
            {"subscribe": ",".join(source.topics)}
            if source.pattern is None
            else {"subscribePattern": source.pattern}
        )
        return {
            "kafka.bootstrap.servers": self.pipeline.bootstrap_servers,
            "startingOffsets": source.starting_offsets.value,
            # A table holds committed records; aborted records are never read.
            "kafka.isolation.level": "read_committed",
            **({} if is_limited else {"maxOffsetsPerTrigger": str(offsets_max)}),
            **chosen,
            **dict(source.options),
        }
