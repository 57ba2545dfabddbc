"""Upserts with keys and columns of every type, on real tables.

Among them texts longer than statistics, names with spaces and capitals, columns that must have a
value, and a key that was widened.
"""

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.tables.files.data_files import write_files
from penstock.spark.tables.files.upsert import Changes
from penstock.spark.tables.formats.port import Table
from tests.spark.tables.change_batches import written_changes
from tests.spark.tables.table_kinds import (
    DeltaKind,
    IcebergKind,
    Kind,
    MergeOnReadKind,
    commit_of,
    taken,
)

pytestmark = pytest.mark.slow

KINDS: dict[str, Callable[..., Kind]] = {
    "delta": DeltaKind,
    "iceberg": IcebergKind,
    "merge_on_read": MergeOnReadKind,
}
ICEBERG = pytest.mark.parametrize("iceberg", [IcebergKind, MergeOnReadKind])
DAY = datetime.date(2026, 1, 31)
MOMENT = datetime.datetime(2026, 1, 31, 23, 59, 59, 999_999, tzinfo=datetime.UTC)

KEYS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "int": (pa.int32(), lambda n: n - 5),
    "bigint": (pa.int64(), lambda n: n * 2**57 - 2**60),
    "string": (pa.string(), lambda n: f"key {n}"),
    "long string": (
        pa.string(),
        lambda n: "the same beginning, " * 5 + f"{n:03d}" + "\U0010ffff" * n,
    ),
    "odd string": (
        pa.string(),
        lambda n: ["", " ", "'", '"', "\\", "%", "\x00a", "Ä", "ä", "Z"][n],
    ),
    "binary": (pa.binary(), lambda n: b"\xff" * n + b"\x00"),
    "date": (pa.date32(), lambda n: DAY + datetime.timedelta(days=n)),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        lambda n: MOMENT + datetime.timedelta(microseconds=n),
    ),
    "timestamp_ntz": (
        pa.timestamp("us"),
        lambda n: MOMENT.replace(tzinfo=None) + datetime.timedelta(microseconds=n),
    ),
    "decimal": (pa.decimal128(20, 3), lambda n: Decimal(n * 1000 - 5) / 1000),
    "small decimal": (pa.decimal128(10, 2), lambda n: Decimal(n * 100 - 255) / 100),
    "large decimal": (pa.decimal128(18, 2), lambda n: Decimal(f"900719925474{n}999.06") - 1000),
    "largest decimal": (pa.decimal128(38, 0), lambda n: Decimal(10**38 - 1 - n * 10**18)),
    "tiny decimal": (pa.decimal128(38, 18), lambda n: Decimal(n - 5).scaleb(-18)),
}
VALUES = [
    pa.field("amount", pa.int32(), nullable=False),
    pa.field("Order Name", pa.string()),
    pa.field("place", pa.struct([("city", pa.string()), ("lines", pa.list_(pa.int32()))])),
    pa.field("labels", pa.map_(pa.string(), pa.string())),
]


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[pa.Schema], Kind]:
    return lambda schema: KINDS[request.param](tmp_path, schema=schema)


def change(offset: int, is_deleted: bool, **columns: object) -> dict[str, Any]:
    return {
        **columns,
        "_change_deleted": is_deleted,
        "_change_topic": "orders",
        "_change_partition": 0,
        "_change_offset": offset,
    }


def commit_rows(table: Table, rows: list[dict[str, Any]], key: tuple[str, ...]) -> None:
    """One upsert with these changes, whose offsets follow each other."""
    driver, state = taken(table, f"run at {rows[0]['_change_offset']}")
    span = (0, rows[0]["_change_offset"], rows[-1]["_change_offset"] + 1)
    table.upsert(commit_of(state, driver, span), written_changes(table, rows, key=key))


@pytest.mark.parametrize("name", KEYS)
def test_keys_of_each_type(make: Callable[[pa.Schema], Kind], name: str) -> None:
    type_, key = KEYS[name]
    kind = make(pa.schema([pa.field("The Key", type_), *VALUES]))
    table = kind.create()

    def row(number: int, amount: int) -> dict[str, Any]:
        return {
            "The Key": key(number),
            "amount": amount,
            "Order Name": None if amount % 2 else f"order {amount}",
            "place": {"city": "Bern", "lines": [amount, None]},
            "labels": [("a", str(amount))],
        }

    for start in range(0, 9, 3):  # several files, with keys of a range each
        rows = [change(at, False, **row(at, at)) for at in range(start, start + 3)]
        commit_rows(table, rows, ("The Key",))
    changes = [
        change(9, False, **row(1, 100)),
        change(10, True, **{"The Key": key(4)}),
        change(11, True, **{"The Key": key(9)}),
        change(12, False, **row(8, 101)),
        change(13, False, **row(8, 102)),
    ]
    commit_rows(table, changes, ("The Key",))
    expected = {number: row(number, number) for number in range(9) if number != 4}
    expected |= {1: row(1, 100), 8: row(8, 102)}
    found = sorted(kind.read().to_pylist(), key=lambda one: one["amount"])
    assert found == sorted(expected.values(), key=lambda one: one["amount"])


@pytest.mark.parametrize("name", KEYS)
def test_a_key_alone_is_found_again(make: Callable[[pa.Schema], Kind], name: str) -> None:
    """Bounds of a file with one key are that key: any other would hide it from the next change."""
    type_, key = KEYS[name]
    kind = make(pa.schema([pa.field("The Key", type_), pa.field("key", type_), VALUES[0]]))
    table = kind.create()
    for at in range(4):
        number = 8 if at < 3 else 7
        row = {"The Key": key(number), "key": key(number), "amount": at}
        commit_rows(table, [change(at, False, **row)], ("key", "The Key"))
    assert sorted(kind.read()["amount"].to_pylist()) == [2, 3]


def test_a_boolean_is_part_of_a_key(make: Callable[[pa.Schema], Kind]) -> None:
    schema = pa.schema([("id", pa.int64()), ("is_open", pa.bool_()), ("amount", pa.int32())])
    kind = make(schema)
    table = kind.create()
    rows = [change(at, False, id=at // 2, is_open=bool(at % 2), amount=at) for at in range(4)]
    commit_rows(table, rows, ("id", "is_open"))
    later = [change(4, False, id=0, is_open=True, amount=9), change(5, True, id=1, is_open=False)]
    commit_rows(table, later, ("id", "is_open"))
    found = [tuple(one.values()) for one in kind.read().to_pylist()]
    assert sorted(found) == [(0, False, 0), (0, True, 9), (1, True, 3)]


@ICEBERG
def test_a_key_that_was_widened(iceberg: type[IcebergKind], tmp_path: Path) -> None:
    """Statistics of older files have fewer bytes than those of newer ones."""
    narrow = pa.schema([("id", pa.int32()), ("amount", pa.int32())])
    wide = pa.schema([("id", pa.int64()), ("amount", pa.int32())])
    kind = iceberg(tmp_path, schema=narrow)
    table = kind.create()
    commit_rows(
        table, [change(0, False, id=1, amount=1), change(1, False, id=2, amount=2)], ("id",)
    )
    driver, state = taken(table, "run-b")
    rows = [change(2, False, id=2, amount=20), change(3, False, id=2**40, amount=3)]
    changes = written_changes(table, rows, schema=wide)
    table.upsert(commit_of(state, driver, (0, 2, 4)), changes, wide)
    commit_rows(table, [change(4, False, id=1, amount=10), change(5, True, id=2**40)], ("id",))
    found = sorted(zip(*(kind.read()[one].to_pylist() for one in ("id", "amount")), strict=True))
    assert found == [(1, 10), (2, 20)]


@ICEBERG
@pytest.mark.parametrize(
    ("narrow", "wide", "large"),
    [
        (pa.int32(), pa.int64(), 2**40),
        (pa.decimal128(6, 2), pa.decimal128(12, 2), Decimal("1234567.25")),
    ],
)
def test_a_key_that_is_widened_beside_deletions_that_have_the_old_one(
    iceberg: type[IcebergKind],
    tmp_path: Path,
    narrow: pa.DataType,
    wide: pa.DataType,
    large: object,
) -> None:
    """Deletions of a batch with rows of a function are written before the rows are known."""
    kind = iceberg(tmp_path, schema=pa.schema([("id", narrow), ("amount", pa.int32())]))
    wider = pa.schema([("id", wide), ("amount", pa.int32())])
    table = kind.create()
    commit_rows(
        table, [change(0, False, id=1, amount=1), change(1, False, id=2, amount=2)], ("id",)
    )
    driver, state = taken(table, "run-b")
    gone = written_changes(table, [change(2, True, id=2)])
    come = written_changes(table, [change(3, False, id=large, amount=3)], schema=wider)
    both = Changes(come.directory, come.receipts + gone.receipts, ("id",))
    table.upsert(commit_of(state, driver, (0, 2, 4)), both, wider)
    found = sorted(zip(*(kind.read()[one].to_pylist() for one in ("id", "amount")), strict=True))
    assert found == [(1, 1), (large, 3)]


@pytest.mark.parametrize("key", [("code",), ("id", "code")])
def test_a_key_that_comes_with_the_commit(
    make: Callable[[pa.Schema], Kind], key: tuple[str, ...]
) -> None:
    """Rows from before have no such key, and stay."""
    kind = make(pa.schema([("id", pa.int64()), ("amount", pa.int32())]))
    table = kind.create()
    commit_rows(
        table, [change(0, False, id=1, amount=1), change(1, False, id=2, amount=2)], ("id",)
    )
    wider = table.schema().append(pa.field("code", pa.string()))
    driver, state = taken(table, "run-b")
    rows = [change(2, False, id=1, amount=10, code="a"), change(3, True, id=2, code="b")]
    changes = written_changes(table, rows, key=key, schema=wider)
    table.upsert(commit_of(state, driver, (0, 2, 4)), changes, wider)
    commit_rows(table, [change(4, False, id=1, amount=11, code="a")], key)
    found = [(one["id"], one["amount"], one["code"]) for one in kind.read().to_pylist()]
    assert sorted(found, key=repr) == [(1, 1, None), (1, 11, "a"), (2, 2, None)]


@pytest.mark.parametrize("name", KINDS)
def test_keys_that_were_there_twice(name: str, tmp_path: Path) -> None:
    """A table that was appended to before: Iceberg has one row afterwards, Delta changes both."""
    schema = pa.schema([("id", pa.int64()), ("amount", pa.int32())])
    kind = KINDS[name](tmp_path, schema=schema)
    table = kind.create()
    driver, state = taken(table, "run-a")
    rows = pa.table({"id": [1, 1, 2], "amount": pa.array([1, 2, 3], pa.int32())}, schema=schema)
    files = write_files(rows.to_batches(), table.layout(schema), "task")
    state = table.append(commit_of(state, driver, (0, 0, 3)), files)
    changes = written_changes(table, [change(3, False, id=1, amount=9)])
    state = table.upsert(commit_of(state, driver, (0, 3, 4)), changes)
    found = sorted(kind.read()["amount"].to_pylist())
    assert found == ([3, 9, 9] if name == "delta" else [3, 9])
    changes = written_changes(table, [change(4, True, id=1)])
    table.upsert(commit_of(state, driver, (0, 4, 5)), changes)
    assert kind.read()["amount"].to_pylist() == [3]
