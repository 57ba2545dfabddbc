"""A definition: the file of the guide reads as it stands; a wrong key is named with a remedy."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.source.options import Mode, read_source_options
from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.file import FILE_BYTES_MAX, load_definition
from penstock.spark.tables.definition.model import (
    Action,
    Expectation,
    MaintenanceSettings,
    Metadata,
    PartitionField,
    PipelineDefinition,
    RunMode,
    SchemaSource,
    SortField,
    StartingOffsets,
    TableFormat,
    Transform,
    TriggerSettings,
    ValueFormat,
    WriteMode,
)
from penstock.spark.tables.definition.reader import read_definition
from penstock.spark.tables.files.file_partitions import PartitionField as FilePartition
from penstock.spark.tables.files.file_partitions import Transform as FileTransform
from penstock.spark.tables.files.file_partitions import read_partition_fields

FILE = """
[pipeline]
name = "orders"
bootstrap_servers = "127.0.0.1:9092"
checkpoint = "/var/lib/penstock/orders"

[source]
topics = ["orders"]                       # or pattern = "orders\\\\..*"

[table]
format = "iceberg"                        # or "delta"
name = "shop.orders"                      # bad records go to shop.orders__dlq
catalog = { type = "sql", uri = "sqlite:///catalog.db", warehouse = "file:///warehouse" }
partition_by = ["day(_kafka.timestamp)"]        # optional, like everything below
mode = "append"                           # or "upsert", with key = ["id"]

[value]
format = "json"                           # raw | json | avro | protobuf
schema = "id bigint, amount double"       # Spark DDL, or a file, or a registry URL

[[expectations]]
name = "positive_amount"
sql = "amount > 0"
action = "quarantine"                     # warn | drop | quarantine | fail

[trigger]
interval = "30 seconds"

[maintenance]
target_file_mb = 128
expire_snapshots = "7 days"
"""


ICEBERG = {"format": "iceberg", "catalog": {"type": "sql", "uri": "sqlite:////c.db"}}


def least() -> dict[str, Any]:
    return {
        "pipeline": {"name": "orders", "bootstrap_servers": "one:9092", "checkpoint": "/c"},
        "source": {"topics": ["orders"]},
        "table": {"format": "delta", "name": "shop.orders", "catalog": {"warehouse": "/w"}},
    }


def read(**sections: dict[str, object]) -> PipelineDefinition:
    document = least()
    for name, keys in sections.items():
        document[name] = {**document.get(name, {}), **keys}
    return read_definition(document, "orders.toml")


def refused(document: object) -> DefinitionError:
    with pytest.raises(DefinitionError) as caught:
        read_definition(document, "orders.toml")
    assert caught.value.remedy, "an error without a remedy"
    assert str(caught.value).startswith("orders.toml")
    return caught.value


def test_the_file_of_the_guide_reads_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "orders.toml"
    path.write_text(FILE)
    definition = load_definition(path)
    assert definition.pipeline.name == "orders"
    assert definition.pipeline.mode is RunMode.AUTO
    assert definition.source.topics == ("orders",)
    assert definition.table.format is TableFormat.ICEBERG
    assert definition.table.dlq_name == "shop.orders__dlq"
    assert dict(definition.table.catalog)["uri"] == "sqlite:///catalog.db"
    assert definition.table.partition_by == (PartitionField(Transform.DAY, "_kafka.timestamp"),)
    assert definition.table.mode is WriteMode.APPEND
    assert definition.table.metadata is Metadata.STRUCT
    assert definition.value.format is ValueFormat.JSON
    assert definition.value.schema_source is SchemaSource.DDL
    assert definition.expectations == (
        Expectation("positive_amount", "amount > 0", Action.QUARANTINE),
    )
    assert definition.trigger == TriggerSettings(30_000)
    assert definition.maintenance == MaintenanceSettings(
        target_file_bytes=128 * 1_048_576, expire_snapshots_ms=7 * 86_400_000, snapshots_max=0
    )


def test_only_three_sections_are_needed() -> None:
    definition = read()
    assert definition.value.schema_source is SchemaSource.NONE
    assert definition.source.starting_offsets is StartingOffsets.EARLIEST
    assert definition.expectations == ()
    assert definition.maintenance == MaintenanceSettings()


def test_a_definition_is_a_value() -> None:
    definition = read(value={"format": "json"})
    assert pickle.loads(pickle.dumps(definition)) == definition
    assert hash(definition) == hash(read(value={"format": "json"}))
    assert definition != read()


def test_the_source_gets_its_options_and_reads_committed_records_only() -> None:
    definition = read(source={"options": {"maxOffsetsPerTrigger": 1000}})
    options = read_source_options(definition.source_options(), Mode.STREAM)
    assert options.is_read_committed
    assert options.limits.offsets_max == 1000
    assert options.subscription.topics == ("orders",)
    document = least()
    document["source"] = {"pattern": r"orders\..*"}
    pattern = read_definition(document, "orders.toml").source_options()
    assert pattern["subscribePattern"] == r"orders\..*"


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("500 ms", 500),
        ("30 seconds", 30_000),
        ("30s", 30_000),
        ("1 Second", 1_000),
        ("5 minutes", 300_000),
        ("2 hours", 7_200_000),
        ("1 day", 86_400_000),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert read(trigger={"interval": text}).trigger.interval_ms == milliseconds


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("country", PartitionField(Transform.IDENTITY, "country")),
        ("identity(country)", PartitionField(Transform.IDENTITY, "country")),
        ("hour( at )", PartitionField(Transform.HOUR, "at")),
        ("month(at)", PartitionField(Transform.MONTH, "at")),
        ("year(at)", PartitionField(Transform.YEAR, "at")),
        ("bucket(16, id)", PartitionField(Transform.BUCKET, "id", 16)),
        ("truncate( 4 ,_kafka.offset )", PartitionField(Transform.TRUNCATE, "_kafka.offset", 4)),
    ],
)
def test_partitions(text: str, field: PartitionField) -> None:
    found = read(table={**ICEBERG, "partition_by": [text]}).table
    assert found.partition_by == (field,)
    assert not found.keeps_partitions
    assert read_partition_fields([str(field)]) == (
        FilePartition(field.column, FileTransform(field.transform.value), field.width),
    )


def test_a_sort_order() -> None:
    found = read(table={**ICEBERG, "sort_by": ["customer", "at DESC"]}).table
    assert found.sort_by == (SortField("customer"), SortField("at", is_descending=True))
    assert (found.keeps_sort, found.keeps_partitions) == (False, True)
    assert [str(one) for one in found.sort_by] == ["customer", "at desc"]


def test_no_partitions_and_no_order_are_a_choice() -> None:
    found = read(table={**ICEBERG, "partition_by": [], "sort_by": []}).table
    assert (found.partition_by, found.sort_by) == ((), ())
    assert (found.keeps_partitions, found.keeps_sort) == (False, False)


@pytest.mark.parametrize(
    ("format_", "schema", "source"),
    [
        ("json", "orders.json", SchemaSource.FILE),
        ("json", "https://registry:8081", SchemaSource.REGISTRY),
        ("json", "id bigint", SchemaSource.DDL),
        ("avro", "orders.avsc", SchemaSource.FILE),
        ("avro", "http://registry:8081", SchemaSource.REGISTRY),
        ("protobuf", "orders.proto", SchemaSource.FILE),
    ],
)
def test_where_a_schema_comes_from(format_: str, schema: str, source: SchemaSource) -> None:
    value = read(value={"format": format_, "schema": schema}).value
    assert (value.schema_source, value.schema) == (source, schema)


def test_json_without_a_schema_is_inferred() -> None:
    assert read(value={"format": "json"}).value.schema_source is SchemaSource.INFERRED


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"pipeline": {"name": "a b"}}, "pipeline.name", "cannot be a name"),
    ({"pipeline": {"name": 3}}, "pipeline.name", "a number, not a text"),
    ({"pipeline": {"name": " "}}, "pipeline.name", "empty"),
    ({"pipeline": {"nme": "x"}}, "pipeline.nme", "no such key"),
    ({"pipeline": {"mode": "fast"}}, "pipeline.mode", "not a choice"),
    ({"pipeline": {"bootstrap_servers": "one:port"}}, "pipeline.bootstrap_servers", "port"),
    ({"source": {"topics": []}}, "source.topics", "empty"),
    ({"source": {"topics": "orders"}}, "source.topics", "not a list"),
    ({"source": {"topics": ["a b"]}}, "source.topics", "cannot be the name of a topic"),
    ({"source": {"topics": ["a", "a"]}}, "source.topics", "twice"),
    ({"source": {"pattern": "x"}}, "source.topics", "together with pattern"),
    ({"source": {"options": {"subscribe": "x"}}}, "source.options.subscribe", "elsewhere"),
    (
        {"source": {"options": {"maxOffsetsPerTriger": "1"}}},
        "source.options.maxoffsetspertriger",
        "no such option",
    ),
    ({"source": {"options": {"kafka.ssl.x": "1"}}}, "source.options", "ssl.x"),
    ({"source": {"starting_offsets": "now"}}, "source.starting_offsets", "not a choice"),
    ({"table": {"format": "hudi"}}, "table.format", "not a choice"),
    ({"table": {"name": "orders"}}, "table.name", "cannot be the name of a table"),
    ({"table": {"name": "a.b-c"}}, "table.name", "cannot be the name of a table"),
    ({"table": {"catalog": {}}}, "table.catalog", "missing"),
    ({"table": {"catalog": {"type": "sql"}}}, "table.catalog.warehouse", "needs it"),
    ({"table": {"format": "iceberg"}}, "table.catalog.type", "needs it"),
    ({"table": {"partition_by": ["day(x"]}}, "table.partition_by", "cannot be read"),
    ({"table": {"partition_by": ["week(x)"]}}, "table.partition_by", "no transform"),
    ({"table": {"partition_by": ["bucket(x)"]}}, "table.partition_by", "no number"),
    ({"table": {"partition_by": ["day(4, x)"]}}, "table.partition_by", "has a number"),
    ({"table": {"partition_by": ["bucket(0, x)"]}}, "table.partition_by", "out of range"),
    ({"table": {"partition_by": ["truncate(2147483648, x)"]}}, "table.partition_by", "of range"),
    ({"table": {"partition_by": ["bucket(4, x)"]}}, "table.partition_by", "Delta has no transform"),
    ({"table": {"partition_by": ["truncate(4, x)"]}}, "table.partition_by", "transform truncate"),
    ({"table": {"sort_by": ["x"]}}, "table.sort_by", "stores no sort order"),
    ({"table": {"sort_by": ["x down"]}}, "table.sort_by", "cannot be read"),
    ({"table": {"sort_by": ["x", "x desc"]}}, "table.sort_by", "one of them twice"),
    ({"table": {"sort_by": [f"c{n}" for n in range(9)]}}, "table.sort_by", "9 columns"),
    ({"table": {"cluster_by": ["x"]}}, "table.cluster_by", "liquid clustering"),
    ({"table": {"partition_by": [f"c{n}" for n in range(9)]}}, "table.partition_by", "9 parts"),
    (
        {"table": {"partition_by": ["day(_kafka.timestamp)"], "metadata": "none"}},
        "table.partition_by",
        "no column _kafka.timestamp",
    ),
    (
        {"table": {"partition_by": ["day(_kafka.timestamp)"], "metadata": "flat"}},
        "table.partition_by",
        'metadata is "flat"',
    ),
    (
        {"table": {"mode": "upsert", "key": ["_kafka.key"]}},
        "table.key",
        "no column '_kafka.key'",
    ),
    ({"table": {"mode": "upsert"}}, "table.key", "needs it"),
    ({"table": {"key": ["id"]}}, "table.key", "does not use it"),
    ({"table": {"mode": "upsert", "key": ["id"]}}, "table.key", "raw values have no column"),
    ({"table": {"metadata": "no"}}, "table.metadata", "not a choice"),
    ({"value": {"schema": "id int"}}, "value.schema", "raw values have no schema"),
    ({"value": {"format": "avro"}}, "value.schema", "without it"),
    ({"value": {"format": "avro", "schema": "id int"}}, "value.schema", "neither a file"),
    ({"value": {"format": "json", "schema": "id bigit"}}, "value.schema", "'bigit'"),
    ({"value": {"format": "json", "subject": "x"}}, "value.subject", "registry"),
    ({"value": {"format": "json", "message": "x"}}, "value.message", "no messages"),
    ({"value": {"unknown_fields": "rescue"}}, "value.unknown_fields", "only JSON values"),
    ({"value": {"reject_share_max": 0}}, "value.reject_share_max", "out of range"),
    ({"value": {"reject_share_max": True}}, "value.reject_share_max", "a boolean"),
    ({"value": {"reject_window_records": 0}}, "value.reject_window_records", "out of range"),
    ({"trigger": {"interval": "soon"}}, "trigger.interval", "no time"),
    ({"trigger": {"interval": "3 fortnights"}}, "trigger.interval", "no time"),
    ({"trigger": {"interval": "1 ms"}}, "trigger.interval", "out of range"),
    ({"trigger": {"interval": 30}}, "trigger.interval", "a number"),
    ({"maintenance": {"target_file_mb": 0}}, "maintenance.target_file_mb", "out of range"),
    ({"maintenance": {"target_file_mb": "1"}}, "maintenance.target_file_mb", "a text"),
    ({"tables": {}}, "tables", "no such key"),
]


@pytest.mark.parametrize(("sections", "key", "problem"), WRONG)
def test_what_is_wrong_is_named(sections: dict[str, Any], key: str, problem: str) -> None:
    document = least()
    for name, keys in sections.items():
        document[name] = {**document.get(name, {}), **keys}
    error = refused(document)
    assert error.key == key
    assert problem in error.problem


def test_what_is_missing_is_named() -> None:
    assert refused({}).key == "pipeline.name"
    for section, key in [
        ("pipeline", "bootstrap_servers"),
        ("pipeline", "checkpoint"),
        ("source", "topics"),
        ("table", "format"),
        ("table", "name"),
        ("table", "catalog"),
    ]:
        document = least()
        del document[section][key]
        assert refused(document).key == f"{section}.{key}"


def test_wrong_expectations_are_named_by_their_number() -> None:
    good = {"name": "one", "sql": "a > 0"}
    for wrong, key in [
        ({"name": "one", "sql": "b > 0"}, "expectations[1].name"),
        ({"name": "two"}, "expectations[1].sql"),
        ({"name": "two", "sql": "b", "action": "stop"}, "expectations[1].action"),
        ({"name": "two", "sql": "b", "acton": "drop"}, "expectations[1].acton"),
    ]:
        assert refused({**least(), "expectations": [good, wrong]}).key == key
    many = [{"name": f"r{n}", "sql": "a > 0"} for n in range(101)]
    assert refused({**least(), "expectations": many}).key == "expectations"


def test_a_section_must_be_a_table() -> None:
    assert refused({**least(), "table": "orders"}).key == "table"
    assert refused({**least(), "expectations": {"name": "x"}}).key == "expectations"
    assert refused([]).key == ""


def test_a_typing_error_gets_the_closest_key() -> None:
    document = least()
    document["table"]["partitionby"] = ["x"]
    assert refused(document).remedy == "Did you mean 'partition_by'?"


@pytest.mark.parametrize(
    ("sections", "remedy"),
    [
        ({"table": {"format": "detla"}}, "Did you mean 'delta'?"),
        ({"table": {"catalog": {"wharehouse": "/w"}}}, "Did you mean it by 'wharehouse'?"),
        ({"table": {"catalog": {"type": "sql"}}}, 'Write catalog = { warehouse = "/data/'),
        ({"trigger": {"interval": "5 secs"}}, "one of ms, seconds, minutes"),
        ({"value": {"format": "json", "schema": "localhost:8081"}}, '"http://localhost:8081"'),
        ({"value": {"format": "json", "schema": "orders.jsn"}}, "a file that ends in .json"),
    ],
)
def test_remedies_are_for_what_was_written(sections: dict[str, Any], remedy: str) -> None:
    document = least()
    for name, keys in sections.items():
        document[name] = {**document.get(name, {}), **keys}
    assert remedy in refused(document).remedy


def test_a_wrong_column_is_not_taken_for_a_file() -> None:
    value = {"format": "json", "schema": "id bigint, id string"}
    text = str(refused({**least(), "value": value}))
    assert "the column 'id' is there twice" in text
    assert ".json" not in text


def test_a_wrong_address_has_one_name() -> None:
    document = least()
    document["pipeline"]["bootstrap_servers"] = "host:99999"
    assert "kafka.bootstrap" not in str(refused(document))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.toml"
    for content, problem in [
        (None, "cannot be read"),
        (b"[pipeline", "not TOML"),
        (b"\xff", "not TOML"),
        (b"#" * (FILE_BYTES_MAX + 1), "more than"),
    ]:
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(DefinitionError, match=problem) as caught:
            load_definition(path)
        assert str(path) in str(caught.value)
