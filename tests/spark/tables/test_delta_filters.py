"""A filter over a Delta table finds all matching rows, for every writer and every reader.

For every type of column the rows are written by appends (our files), by upserts and by a compaction
(files of `deltalake`). The readers use the bounds in the log: `deltalake`, DuckDB over its dataset,
and in `make spark` Delta's own jar and DuckDB's extension. Each must find all matching rows.
"""

import datetime
import json
import operator
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.spark.tables.files.data_files import write_files
from penstock.spark.tables.files.file_partitions import PartitionField, Transform
from penstock.spark.tables.formats.delta.actions import add_action
from penstock.spark.tables.formats.delta.bounds import COLUMNS_KEY, COUNT_KEY, bounded_columns
from penstock.spark.tables.formats.port import Table
from tests.oracle.spark_jars import delta_jars
from tests.oracle.table_engines import engine_python
from tests.spark.tables.change_batches import written_changes
from tests.spark.tables.table_kinds import DeltaKind, commit_of, taken

pytestmark = pytest.mark.slow

APP = Path(__file__).parent / "engine_app.py"
INFINITY, NAN = float("inf"), float("nan")
UTC = datetime.UTC
MOMENT = datetime.datetime(2026, 1, 31, 23, 59, 59, 999_999, tzinfo=UTC)
PLAIN = MOMENT.replace(tzinfo=None)
LAST_CHARACTERS = "\U0010ffff" * 40

COLUMNS: dict[str, tuple[pa.DataType, Sequence[object]]] = {
    "tinyint": (pa.int8(), [-128, 0, 127]),
    "smallint": (pa.int16(), [-(2**15), 7, 2**15 - 1]),
    "int": (pa.int32(), [-(2**31), 7, 2**31 - 1]),
    "bigint": (pa.int64(), [-(2**63), 2**53 + 1, 2**63 - 1]),
    "float": (pa.float32(), [-1.5, 0.25, 3e38]),
    "double": (pa.float64(), [-1.5, 0.1, 1e300]),
    "double with NaN": (pa.float64(), [-1.5, NAN, 7.5]),
    "double with infinity": (pa.float64(), [-INFINITY, 7.5, INFINITY]),
    "small decimal": (pa.decimal128(10, 2), [Decimal("-9.50"), Decimal("0.01"), Decimal(20)]),
    "decimal of a double": (
        pa.decimal128(15, 4),
        [Decimal("-99999999999.9999"), Decimal("0.0001"), Decimal("99999999999.9999")],
    ),
    "decimal that is a small part": (
        pa.decimal128(15, 10),
        [Decimal("-0.0000000001"), Decimal("0.0000000001"), Decimal("12345.0000000001")],
    ),
    "large decimal": (
        pa.decimal128(18, 2),
        [Decimal("-9007199254740999.06"), Decimal(1), Decimal("9007199254740999.06")],
    ),
    "largest decimal": (
        pa.decimal128(38, 0),
        [Decimal("-" + "9" * 38), Decimal(2**64 + 1), Decimal("9" * 38)],
    ),
    "text": (pa.string(), ["", "Ä", "z'"]),
    "text of rare characters": (pa.string(), ["\U0001f600", "\U00020bb7", "\U0002ffff"]),
    "long text": (pa.string(), ["a" * 70, "a" * 70 + "b", "a" * 5_000]),
    "text of the last characters": (pa.string(), ["a", "b" + LAST_CHARACTERS, LAST_CHARACTERS]),
    "date": (
        pa.date32(),
        [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(9999, 12, 31)],
    ),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [
            datetime.datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
            MOMENT,
            datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        ],
    ),
    "timestamp_ntz": (pa.timestamp("us"), [PLAIN.replace(year=1969), PLAIN, PLAIN]),
    "boolean": (pa.bool_(), [False, True, True]),
    "binary": (pa.binary(), [b"", b"\x00\xff", b"\xff" * 70]),
}
OPERATORS: dict[str, Callable[[Any, Any], ds.Expression]] = {
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
}
WAYS = ["append", "upsert", "compaction"]


def schema_of(kind: pa.DataType) -> pa.Schema:
    return pa.schema([("id", pa.int64()), ("x", kind)])


def rows_of(values: Sequence[object]) -> list[list[dict[str, object]]]:
    """Three batches: each value once, all of them, and nothing but null."""
    batches: list[list[object]] = [[values[0]], list(values), [None, None]]
    numbers = iter(range(100))
    return [[{"id": next(numbers), "x": one} for one in batch] for batch in batches]


def commit(table: Table, batches: Sequence[Sequence[dict[str, object]]], way: str) -> None:
    driver, state = taken(table, "run-a")
    offset = 0
    for batch in batches:
        commit = commit_of(state, driver, (0, offset, offset + len(batch)))
        if way == "upsert":
            changes = [
                {
                    **row,
                    "_change_deleted": False,
                    "_change_topic": "orders",
                    "_change_partition": 0,
                    "_change_offset": offset + number,
                }
                for number, row in enumerate(batch)
            ]
            state = table.upsert(commit, written_changes(table, changes))
        else:
            rows = pa.Table.from_pylist(list(batch), table.schema())
            files = write_files(rows.to_batches(), table.layout(table.schema()), "task")
            state = table.append(commit, files)
        offset += len(batch)
    if way == "compaction":
        assert table.compact(state, target_bytes=2**20).added_count == 1


def ids(found: pa.Table) -> list[int]:
    return sorted(found["id"].to_pylist())


def missed(uri: str, values: Sequence[object]) -> list[str]:
    """The filters by which a reader finds other rows than there are."""
    table = DeltaTable(uri)
    filtered = table.to_pyarrow_dataset()
    whole = filtered.to_table()
    wrong = []
    for value in values:
        for name, compare in OPERATORS.items():
            question = f"SELECT id FROM {{}} WHERE x {name} ? ORDER BY id"
            condition = compare(ds.field("x"), value)
            by_arrow = ids(ds.dataset(whole).to_table(filter=condition))
            by_duckdb = duckdb.execute(question.format("whole"), [value]).fetchall()
            found = {
                "filters": (ids(table.to_pyarrow_table(filters=[("x", name, value)])), by_arrow),
                "pandas": (sorted(table.to_pandas(filters=condition)["id"]), by_arrow),
                "duckdb": (
                    duckdb.execute(question.format("filtered"), [value]).fetchall(),
                    by_duckdb,
                ),
            }
            wrong += [
                f"{reader} x {name} {value!r:.50}: {one} instead of {other}"
                for reader, (one, other) in found.items()
                if one != other
            ]
    nulls = duckdb.execute("SELECT count(*) FROM filtered WHERE x IS NULL").fetchall()
    return wrong if nulls == [(2,)] else [*wrong, f"duckdb x IS NULL: {nulls} instead of 2"]


def is_refused(kind: pa.DataType, way: str) -> bool:
    """Whether Arrow refuses a filter: a merge writes texts of a kind that it cannot compare."""
    return way == "upsert" and (pa.types.is_string(kind) or pa.types.is_binary(kind))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", COLUMNS)
def test_readers_find_every_row(tmp_path: Path, name: str, way: str) -> None:
    kind, values = COLUMNS[name]
    delta_kind = DeltaKind(tmp_path, schema=schema_of(kind))
    commit(delta_kind.create(), rows_of(values), way)
    if is_refused(kind, way):
        with pytest.raises(pa.ArrowNotImplementedError, match="_view"):
            missed(delta_kind.uri, values)
    else:
        assert missed(delta_kind.uri, values) == []


# --- Which columns have bounds ---


def properties_of(kind: DeltaKind) -> dict[str, str]:
    return dict(DeltaTable(kind.uri).metadata().configuration)


def set_property(kind: DeltaKind, name: str, value: str) -> None:
    DeltaTable(kind.uri).alter.set_table_properties({name: value}, raise_if_not_exists=False)


def test_the_table_says_which_columns_have_bounds(tmp_path: Path) -> None:
    fields = [pa.field(name.replace(" ", "_"), kind) for name, (kind, _) in COLUMNS.items()]
    place = pa.field("place", pa.struct([("city", pa.string())]))
    kind = DeltaKind(tmp_path, schema=pa.schema([*fields, place, ("Order `Name`, Ä", pa.int8())]))
    kind.create([PartitionField("date"), PartitionField("timestamp", Transform.DAY)])
    assert bounded_columns(properties_of(kind)) == {
        "tinyint", "smallint", "int", "bigint", "small_decimal", "decimal_of_a_double",
        "text", "text_of_rare_characters", "long_text", "text_of_the_last_characters",
        "timestamp", "timestamp_ntz", "Order `Name`, Ä",
    }  # fmt: skip


def test_a_table_of_floats_alone_has_no_bounds(tmp_path: Path) -> None:
    kind = DeltaKind(tmp_path, schema=pa.schema([("x", pa.float64())]))
    kind.create()
    assert properties_of(kind)[COUNT_KEY] == "0"
    assert COLUMNS_KEY not in properties_of(kind)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("id", {"id"}),
        (" id , x ", {"id", "x"}),
        ("`id`,`a,b`, `c``d` ,place.city", {"id", "a,b", "c`d", "place.city"}),
    ],
)
def test_lists_of_columns_are_read(text: str, names: set[str]) -> None:
    assert bounded_columns({COLUMNS_KEY: text}) == names


def test_a_table_of_somebody_else_gets_the_property(tmp_path: Path) -> None:
    kind = DeltaKind(tmp_path, schema=schema_of(pa.float64()))
    rows = pa.table({"id": [0], "x": [1.0]}, kind.schema)
    write_deltalake(kind.uri, rows)
    taken(kind.open(), "run-a")
    assert bounded_columns(properties_of(kind)) == {"id"}


@pytest.mark.parametrize("setting", [(COLUMNS_KEY, "id"), (COUNT_KEY, "2")], ids=["names", "count"])
@pytest.mark.parametrize("way", WAYS)
def test_what_a_user_has_set_stays(tmp_path: Path, setting: tuple[str, str], way: str) -> None:
    kind = DeltaKind(tmp_path, schema=schema_of(pa.decimal128(18, 2)))
    write_deltalake(kind.uri, kind.schema.empty_table())
    set_property(kind, *setting)
    large = COLUMNS["large decimal"][1]
    commit(kind.open(), rows_of(large), way)
    found = properties_of(kind)
    assert {key: found[key] for key in (COLUMNS_KEY, COUNT_KEY) if key in found} == dict([setting])
    told = pa.table(DeltaTable(kind.uri).get_add_actions(flatten=True)).to_pylist()
    assert all(one.get("max.x") is None for one in told), "a double of it would be wrong"
    if setting[0] == COLUMNS_KEY:
        assert missed(kind.uri, large) == []


def test_columns_that_come_later_have_no_bounds(tmp_path: Path) -> None:
    kind = DeltaKind(tmp_path, schema=schema_of(pa.int32()))
    table = kind.create()
    driver, state = taken(table, "run-a")
    wider = pa.schema(
        [("id", pa.int64()), ("y", pa.string()), ("z", pa.float64()), ("x", pa.int32())]
    )
    for start, schema in ((0, kind.schema), (2, wider)):
        numbers = [start, start + 1]
        columns = {"id": numbers, "x": numbers, "y": ["a", "b"], "z": [0.5, NAN]}
        rows = pa.Table.from_pydict({name: columns[name] for name in schema.names}, schema)
        files = write_files(rows.to_batches(), table.layout(schema), "task")
        state = table.append(commit_of(state, driver, (0, start, start + 2)), files, schema)
    assert bounded_columns(properties_of(kind)) == {"id", "x"}
    assert ids(DeltaTable(kind.uri).to_pyarrow_table(filters=[("y", ">", "a")])) == [3]
    assert ids(DeltaTable(kind.uri).to_pyarrow_table(filters=[("z", "<", 1.0)])) == [2]
    without = DeltaTable(kind.uri).to_pyarrow_table(filters=ds.field("y").is_null())
    assert ids(without) == [0, 1], "with bounds in newer files, older ones would be passed over"


def test_the_first_columns_have_bounds_in_whatever_order_a_file_has_them(tmp_path: Path) -> None:
    names = [f"c{number:02d}" for number in range(40)]
    kind = DeltaKind(tmp_path, schema=pa.schema([(name, pa.int64()) for name in names]))
    table = kind.create()
    driver, state = taken(table, "run-a")
    backwards = pa.schema(list(reversed(list(kind.schema))))
    rows = pa.table({name: [number, 100] for number, name in enumerate(names)}).select(
        backwards.names
    )
    files = write_files(rows.to_batches(), table.layout(backwards), "task")
    table.append(commit_of(state, driver, (0, 0, 2)), files, backwards)
    assert bounded_columns(properties_of(kind)) == set(names[:32])
    for name in names:
        assert DeltaTable(kind.uri).to_pyarrow_table(filters=[(name, ">", 50)]).num_rows == 1
    told = json.loads(add_action(files[0], (), 0, bounded_columns(properties_of(kind))).stats)
    assert sorted(told["maxValues"]) == names[:32]


# --- Engines with their own way to Delta's log ---

SQL_TYPES = {
    "timestamp": {"duckdb": "TIMESTAMPTZ"},
    "timestamp_ntz": {"duckdb": "TIMESTAMP", "spark": "TIMESTAMP_NTZ"},
}
ASKED = [name for name, (kind, _) in COLUMNS.items() if not pa.types.is_binary(kind)]


def literal(name: str, value: object, engine: str) -> str:
    """A value in the SQL of an engine."""
    kind, _ = COLUMNS[name]
    if pa.types.is_string(kind):
        text = str(value).replace("'", "''" if engine == "duckdb" else "\\'")
        return f"'{text}'"
    if pa.types.is_decimal(kind):
        return f"CAST('{value:f}' AS DECIMAL({kind.precision}, {kind.scale}))"
    sql_type = SQL_TYPES.get(name, {}).get(engine, name.split(" ", maxsplit=1)[0].upper())
    return f"CAST('{value}' AS {sql_type})"


def is_greater(one: object, other: object) -> bool:
    """As both engines have it: NaN is above all numbers."""
    pair: Any = ((one != one, one), (other != other, other))
    return bool(pair[0] > pair[1])


def whole_rows() -> list[list[dict[str, object]]]:
    """The batches of all types side by side."""
    by_name = {name: rows_of(values) for name, (_, values) in COLUMNS.items()}
    batches = []
    for number, batch in enumerate(rows_of([0, 0, 0])):
        batches.append(
            [
                {"id": row["id"]} | {name: by_name[name][number][at]["x"] for name in COLUMNS}
                for at, row in enumerate(batch)
            ]
        )
    return batches


def questions(engine: str) -> Iterator[tuple[str, list[int]]]:
    """Conditions, and the rows that are to be found."""
    rows: list[dict[str, Any]] = [row for batch in whole_rows() for row in batch]
    for name in ASKED:
        quote = '"' if engine == "duckdb" else "`"
        for value in COLUMNS[name][1]:
            told = [row for row in rows if row[name] is not None]
            for sign, wanted in {
                ">": [row["id"] for row in told if is_greater(row[name], value)],
                "<": [row["id"] for row in told if is_greater(value, row[name])],
            }.items():
                yield f"{quote}{name}{quote} {sign} {literal(name, value, engine)}", wanted


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_engines_find_every_row(tmp_path: Path, engine: str) -> None:
    schema = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _) in COLUMNS.items())])
    jobs, expected = [], {}
    # A question takes Spark seconds, and a merge writes as a compaction does.
    ways, every = (["append", "compaction"], 3) if engine == "spark" else (WAYS, 1)
    for way in ways:
        kind = DeltaKind(tmp_path / way, schema=schema)
        commit(kind.create(), whole_rows(), way)
        for number, (condition, wanted) in enumerate(list(questions(engine))[::every]):
            name = f"{way}-{number}"
            jobs.append({"name": name, "format": "delta", "location": kind.uri, "where": condition})
            expected[name] = (condition, wanted)
    folder = tmp_path / "found"
    done = subprocess.run(
        [engine_python(), str(APP), str(folder), engine],
        input=json.dumps(jobs),
        env={**os.environ, "ENGINE_JARS": ",".join(map(str, delta_jars("4.1"))), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    wrong = []
    for name, (condition, wanted) in expected.items():
        with pa.memory_map(str(folder / f"{name}.arrow")) as source:
            found = ids(pa.ipc.open_file(source).read_all())
        if found != wanted:
            wrong.append(f"{name} {condition:.100}: {found} instead of {wanted}")
    assert wrong == []
