"""Values beyond a table's limits: by every parser, after a user's function, and in a sample."""

import io
import json
import pickle
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from penstock.spark.tables.definition.ddl import parse_ddl
from penstock.spark.tables.definition.model import (
    Action,
    Expectation,
    Metadata,
    SchemaSource,
    ValueFormat,
    ValueSettings,
)
from penstock.spark.tables.files.data_files import FileLayout
from penstock.spark.tables.files.partition_limits import PartitionLimits
from penstock.spark.tables.formats.rejects import REJECTS
from penstock.spark.tables.inspection.sample import parse_sample
from penstock.spark.tables.run.dataframe_stage import (
    StageOrder,
    StageReport,
    _write_rows,
)
from penstock.spark.tables.run.spark_rules import answer_name
from penstock.spark.tables.tasks.judging import newest_timestamp_ms
from penstock.spark.tables.values.columns import table_schema, with_metadata
from penstock.spark.tables.values.leaves import leaves
from penstock.spark.tables.values.limits import time_rejects
from penstock.spark.tables.values.parser import ErrorClass, Parsed, ValueParser
from penstock.spark.tables.values.value_parsers import new_parser, plan_parser
from tests.spark.tables.pipeline_world import World
from tests.spark.tables.registry_stub import RegistryStub, registry_stub
from tests.spark.tables.value_world import GOOD_US, records

LAST_US = 253_402_300_799_999_999
BEYOND_US = 1_700_000_000_000_000_000
AVRO_TIMES = {
    ("long", "timestamp-micros"): (LAST_US, LAST_US + 1, -BEYOND_US),
    ("long", "timestamp-millis"): (LAST_US // 1_000, LAST_US // 1_000 + 1, -BEYOND_US),
    ("long", "local-timestamp-micros"): (LAST_US, LAST_US + 1, -BEYOND_US),
    ("long", "local-timestamp-millis"): (LAST_US // 1_000, LAST_US // 1_000 + 1, -BEYOND_US),
    ("int", "date"): (2_932_896, 2_932_897, -719_163),
}
"""A number that is shown, and two that are not."""
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Order { int64 id = 1; google.protobuf.Timestamp at = 2; }
"""


@pytest.fixture
def stub() -> Iterator[RegistryStub]:
    with registry_stub() as running:
        yield running


def file_parser(folder: Path, format_: ValueFormat, text: str) -> ValueParser:
    path = folder / ("order.proto" if format_ is ValueFormat.PROTOBUF else "order.avsc")
    path.write_text(text)
    return new_parser(plan_parser(ValueSettings(format_, SchemaSource.FILE, str(path)), ()))


def parsed(parser: ValueParser, values: list[bytes]) -> Parsed:
    found = parser.parse(pa.array(values, pa.binary()))
    assert found.rows.num_rows + len(found.rejects) == len(values)
    assert [one.row for one in found.rejects] == sorted(one.row for one in found.rejects)
    return found


def avro(kind: str, logical: str | None) -> dict[str, Any]:
    held = {"type": kind} if logical is None else {"type": kind, "logicalType": logical}
    return {"type": "record", "name": "Order", "fields": [{"name": "at", "type": held}]}


def avro_bytes(kind: str, number: int) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(avro(kind, None)), {"at": number})
    return stream.getvalue()


@pytest.mark.parametrize(("kind", "numbers"), AVRO_TIMES.items(), ids=lambda one: str(one[-1]))
def test_times_in_avro(tmp_path: Path, kind: tuple[str, str], numbers: tuple[int, ...]) -> None:
    parser = file_parser(tmp_path, ValueFormat.AVRO, json.dumps(avro(*kind)))
    found = parsed(parser, [avro_bytes(kind[0], one) for one in numbers])
    assert [one.row for one in found.rejects] == [1, 2]
    assert {one.error for one in found.rejects} == {ErrorClass.TYPE_MISMATCH}
    assert all("years 1 to 9999" in one.message for one in found.rejects)
    assert found.rows["at"][0].as_py().year == 9999


def test_times_in_protobuf(tmp_path: Path) -> None:
    parser = file_parser(tmp_path, ValueFormat.PROTOBUF, PROTO)
    seconds = [253_402_300_799, 253_402_300_800, -62_135_596_801, 0]
    values = []
    for one in seconds:
        inner = Timestamp(seconds=one).SerializeToString()
        values.append(b"\x12" + bytes([len(inner)]) + inner)
    found = parsed(parser, values)
    assert [one.row for one in found.rejects] == [1, 2]
    assert "column 'at' holds 253402300800000000 microseconds since 1970" in (
        found.rejects[0].message
    )
    assert found.row_numbers is not None
    assert found.row_numbers.to_pylist() == [0, 3]


def test_a_reject_of_a_registry_has_the_id_of_its_schema(stub: RegistryStub) -> None:
    schema = {"type": "object", "properties": {"at": {"type": "string", "format": "date-time"}}}
    answer = {"id": 3, "schema": json.dumps(schema), "schemaType": "JSON"}
    stub.answer("/subjects/orders-value/versions/latest", (200, answer))
    stub.answer("/schemas/ids/3", (200, answer))
    settings = ValueSettings(ValueFormat.JSON, SchemaSource.REGISTRY, stub.address)
    parser = new_parser(plan_parser(settings, ("orders",)))
    texts = ["2026-01-01T00:00:00Z", "9999-12-31T23:59:59-05:00"]
    values = [struct.pack(">bI", 0, 3) + json.dumps({"at": one}).encode() for one in texts]
    found = parsed(parser, [b"unframed", *values])
    assert [(one.row, one.schema_id) for one in found.rejects] == [(0, None), (2, 3)]


def test_all_rows_may_be_bad_and_slices_count_from_their_beginning() -> None:
    kind = pa.map_(pa.string(), pa.list_(pa.timestamp("us", "UTC")))
    good, bad = [("a", [0, None])], [("a", [0]), ("b", [BEYOND_US])]
    rows = pa.RecordBatch.from_arrays([pa.array([bad, good, None, bad, bad], kind)], names=["m"])
    assert [one.row for one in time_rejects(rows)] == [0, 3, 4]
    assert [one.row for one in time_rejects(rows.slice(1, 3))] == [2]
    assert time_rejects(rows.slice(1, 2)) == []
    assert time_rejects(rows.slice(0, 0)) == []
    paths = [path for path, _ in leaves("m", rows.column(0), pa.types.is_timestamp)]
    assert paths == ["m.key_value.value.list.element"]


def test_the_newest_record_is_one_whose_timestamp_can_be_true() -> None:
    assert newest_timestamp_ms(records([{}, {}], [GOOD_US, BEYOND_US])) == GOOD_US // 1_000
    assert newest_timestamp_ms(records([{}], [BEYOND_US])) is None


# --- After a function ---

COLUMNS = parse_ddl("id bigint, at timestamp, country string")


def staged(folder: Path, rows: pa.RecordBatch, **more: Any) -> StageReport:  # noqa: ANN401
    order = StageOrder(
        rows=FileLayout(str(folder / "rows"), COLUMNS),
        rejects=FileLayout(str(folder / "rejects"), REJECTS),
        **{"expectations": (), **more},
        pipeline="orders",
        key=(),
        metadata=Metadata.STRUCT,
    )
    [answer] = _write_rows(order, iter([rows]))
    report = pickle.loads(answer.column("report")[0].as_py())
    assert isinstance(report, StageReport)
    return report


def rows_of(times_us: list[int], countries: list[str | None], *, whole: bool) -> pa.RecordBatch:
    """Rows as Spark hands them on, with their records or without."""
    columns = {
        "id": pa.array(range(len(times_us)), pa.int64()),
        "at": pa.array(times_us, pa.timestamp("us", "UTC")),
        "country": pa.array(countries, pa.string()),
    }
    if whole:
        source = records([{}] * len(times_us))
        columns["_value"] = source.column("value")
        return with_metadata(pa.RecordBatch.from_pydict(columns), source, Metadata.STRUCT)
    return pa.RecordBatch.from_pydict(columns)


def test_rows_of_a_function_are_looked_at_again(tmp_path: Path) -> None:
    times, countries = [0, BEYOND_US, 0, 0], ["DE", "DE", "", None]
    report = staged(
        tmp_path, rows_of(times, countries, whole=True), limits=PartitionLimits(("country",))
    )
    assert (report.rows, report.rejects) == (2, 2)


def test_a_row_whose_record_is_not_known_is_an_error_that_says_so(tmp_path: Path) -> None:
    refused = staged(tmp_path, rows_of([BEYOND_US], ["DE"], whole=False)).refused
    assert re.search(r"column 'at' holds .* Correct the function", refused or "")
    limits = PartitionLimits(("country",))
    assert "empty text" in (
        staged(tmp_path, rows_of([0], [""], whole=False), limits=limits).refused or ""
    )
    assert not list(tmp_path.glob("rows/*.parquet"))
    assert staged(tmp_path, rows_of([0], [""], whole=False)).rows == 1


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ({"times": BEYOND_US, "country": "DE"}, "column 'at' holds"),
        ({"times": 0, "country": ""}, "empty text"),
        ({"times": 0, "country": None}, "NOT NULL country"),
    ],
)
def test_a_result_with_state_is_never_a_reject(
    tmp_path: Path, bad: dict[str, Any], problem: str, *, whole: bool
) -> None:
    limits, required = PartitionLimits(("country",)), ("country",)
    given: dict[str, Any] = {"limits": limits, "required": required, "is_stateful": True}
    rows = rows_of([0, bad["times"]], ["DE", bad["country"]], whole=whole)
    refused = staged(tmp_path, rows, **given).refused or ""
    assert problem in refused
    assert (
        'Correct the function, or drop such results by an expectation with the action "drop".'
        in (refused)
    )
    assert "_kafka" not in refused
    assert not list(tmp_path.glob("*/*.parquet"))
    rule = Expectation("fits", "it fits", Action.DROP)
    answered = rows.append_column(answer_name(0), pa.array([True, False]))
    report = staged(tmp_path, answered, expectations=(rule,), **given)
    assert (report.refused, report.rows, report.rejects, report.broken) == (None, 1, 0, {"fits": 1})


# --- In a sample ---


@pytest.mark.parametrize("form", Metadata)
def test_a_sample_has_the_rejects_of_the_pipeline(tmp_path: Path, form: Metadata) -> None:
    definition = World(tmp_path, "delta", "127.0.0.1:1", "orders").definition(
        value={"format": "json", "schema": "at timestamp, country string"},
        table={"metadata": form.value, "partition_by": ["country"]},
    )
    parser = new_parser(plan_parser(definition.value, ("orders",)))
    values = [{"at": 0}, {"at": 0}, {"at": 1 << 40}, {"country": ""}]
    given = pa.Table.from_batches([records(values, [GOOD_US, BEYOND_US, GOOD_US, GOOD_US])])
    sample = parse_sample(given, parser, definition, asks_rules=True)
    assert [one.offset for one in sample.rejects] == (
        [2, 3] if form is Metadata.NONE else [1, 2, 3]
    )
    sample = parse_sample(given, parser, definition, asks_rules=False, has_transform=True)
    assert 3 not in [one.offset for one in sample.rejects], "a function may fill it"
    columns = table_schema(parser.schema, form)
    assert sample.columns == tuple(columns.names)
