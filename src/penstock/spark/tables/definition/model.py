"""The definition of a pipeline, as frozen values: the same from a TOML file and from Python.

Guarantees: a value here was checked by `definition.reader`, so it is not checked again; two
definitions with the same content are equal, and each one can be pickled and hashed. Times are in
milliseconds and sizes in bytes, whatever unit was written.

It is not a plan: the existence of topic, table and schema is checked later, by the run.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

DLQ_SUFFIX: Final = "__dlq"
"""Bad records of `shop.orders` go to `shop.orders__dlq`."""


KAFKA: Final = "_kafka"
"""The column with the record that a row came from."""
METADATA_FIELDS: Final = ("topic", "partition", "offset", "timestamp", "key", "headers")
"""The fields of that column."""

APPEND_OFFSETS_MAX: Final = 10_000_000
"""Of a batch, when the definition sets no limit: some seconds of work on two cores."""
UPSERT_OFFSETS_MAX: Final = 1_000_000
"""The same where the keys of a batch are held in memory."""


SNAPSHOTS_MAX: Final = 1_000
"""Each commit to an Iceberg table writes all its snapshots again: 1,000 cost some 50 ms of CPU,
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
    """It adds a row."""
    UPSERT = "upsert"
    """It replaces the row of its key."""


class Metadata(Enum):
    """How a row identifies its record."""

    STRUCT = "struct"
    """One column `_kafka` with the fields of `METADATA_FIELDS`."""
    FLAT = "flat"
    """A column for each field: `_kafka_topic`, `_kafka_partition` and so on."""
    NONE = "none"
    """The table has no such column."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields, as `partition_by` and rules write them."""
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
    """They are left out, and counted in a sample of the values."""
    RESCUE = "rescue"
    """They are kept as JSON in the column `_rescued_data`."""
    REJECT = "reject"
    """Their record is a reject."""
    IGNORE = "ignore"
    """They are left out."""


class SchemaSource(Enum):
    """The source of the values' schema."""

    NONE = "none"
    """Raw bytes have none."""
    INFERRED = "inferred"
    """From the first records, and pinned."""
    DDL = "ddl"
    """Written in the definition, in Spark's words."""
    FILE = "file"
    REGISTRY = "registry"


class Transform(Enum):
    """How a column's value becomes a partition's."""

    IDENTITY = "identity"
    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


class Action(Enum):
    """What happens to a row that breaks an expectation."""

    WARN = "warn"
    """It is counted and written."""
    DROP = "drop"
    """It is counted and not written."""
    QUARANTINE = "quarantine"
    """It goes to the table of bad records."""
    FAIL = "fail"
    """The batch is not committed and the pipeline stops."""


class StartingOffsets(Enum):
    """Where a pipeline begins when its table holds nothing yet."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """The pipeline's name and locations."""

    name: str
    bootstrap_servers: str
    checkpoint: str
    mode: RunMode = RunMode.AUTO


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """The source."""

    topics: tuple[str, ...] = ()
    """Names; empty when there is a pattern."""
    pattern: str | None = None
    starting_offsets: StartingOffsets = StartingOffsets.EARLIEST
    options: tuple[tuple[str, str], ...] = ()
    """Further options of the source, by name, such as `maxOffsetsPerTrigger`."""


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field of a table's partitioning."""

    transform: Transform
    column: str

    def __str__(self) -> str:
        if self.transform is Transform.IDENTITY:
            return self.column
        return f"{self.transform.value}({self.column})"


@dataclass(frozen=True, slots=True)
class TableSettings:
    """The table."""

    format: TableFormat
    name: str
    """With its namespace: `shop.orders`."""
    catalog: tuple[tuple[str, str], ...]
    """The catalog's properties by name; Delta needs `warehouse` alone."""
    partition_by: tuple[PartitionField, ...] = ()
    mode: WriteMode = WriteMode.APPEND
    key: tuple[str, ...] = ()
    """The columns of the key, for upserts."""
    metadata: Metadata = Metadata.STRUCT

    @property
    def dlq_name(self) -> str:
        """The table of bad records."""
        return self.name + DLQ_SUFFIX


@dataclass(frozen=True, slots=True)
class ValueSettings:
    """How bytes become columns."""

    format: ValueFormat = ValueFormat.RAW
    schema_source: SchemaSource = SchemaSource.NONE
    schema: str | None = None
    """The DDL, the file's path or the registry's address, as written."""
    subject: str | None = None
    """The registry's name for the schema; without it `<topic>-value`."""
    message: str | None = None
    """Which message of a Protobuf file."""
    unknown_fields: UnknownFields = UnknownFields.COUNT
    reject_share_max: float = 0.5
    """The circuit breaker: the pipeline stops when more than this share cannot be read ..."""
    reject_window_records: int = 10_000
    """... of at least this many last records."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """A rule for rows."""

    name: str
    sql: str
    action: Action = Action.WARN
    is_constraint: bool = False
    """A rule of the table's owner: only true passes it, while NULL passes an expectation."""


@dataclass(frozen=True, slots=True)
class TriggerSettings:
    """How often the table is committed."""

    interval_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class MaintenanceSettings:
    """How the table is maintained."""

    is_enabled: bool | None = None
    """None: a table is maintained if Penstock created it."""
    target_file_bytes: int = 134_217_728
    expire_snapshots_ms: int = 86_400_000
    snapshots_max: int = SNAPSHOTS_MAX
    """Newest snapshots that are kept, if they are younger than that; 0: all of them."""


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

    def source_options(self) -> dict[str, str]:
        """Return the options of `format("penstock")` for this pipeline's source.

        Without a limit of the user's a batch has at most a default number of offsets: a backlog is
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
            # A table holds committed records; aborted ones never existed.
            "kafka.isolation.level": "read_committed",
            **({} if is_limited else {"maxOffsetsPerTrigger": str(offsets_max)}),
            **chosen,
            **dict(source.options),
        }
