"""The fold of partial changes against a dictionary: any subset of columns, any cut into batches.

The model applies one record after the other. The fold gets batches, whose files lie in any order.
"""

import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.spark.tables.files import partial_rows
from penstock.spark.tables.files.partial_rows import Fold, fold
from penstock.spark.tables.files.upsert import CHANGE_COLUMNS
from penstock.spark.tables.values.cdc.carried_columns import CARRIED, carried_field

NAMES = ("a", "b", "c")
KEY = ("id", "part")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("part", pa.string()),
        *(pa.field(name, pa.int64()) for name in NAMES),
        pa.field("_sequence", pa.string()),
        *CHANGE_COLUMNS,
        carried_field(NAMES),
    ]
)
Row = dict[str, Any]


@dataclass
class Model:
    """The rows after each record, one by one."""

    is_sequenced: bool
    rows: dict[Any, Row] = field(default_factory=dict)
    orders: dict[Any, str] = field(default_factory=dict)
    """The order of the newest change of a key, also of a deletion."""

    def apply(self, change: Row) -> None:
        key = tuple(change[name] for name in KEY)
        if self.is_sequenced:
            if change["_sequence"] < self.orders.get(key, ""):
                return
            self.orders[key] = change["_sequence"]
        if change["_change_deleted"]:
            self.rows.pop(key, None)
            return
        row = dict(self.rows.get(key, dict.fromkeys(NAMES)))
        row |= {name: change[name] for name, is_there in change[CARRIED].items() if is_there}
        self.rows[key] = row


def log(chance: random.Random, count: int) -> list[Row]:
    """Records of one partition; their orders go back sometimes."""
    found = []
    for offset in range(count):
        is_deleted = chance.random() < 0.15
        carried = {name: chance.random() < 0.4 for name in NAMES}
        at = max(0, offset + chance.choice([0, 0, 0, -1, -3, -9, 2]))
        found.append(
            {
                "id": chance.randrange(4),
                "part": chance.choice(["x", "y"]),
                **{name: chance.choice([None, offset]) for name in NAMES},
                "_sequence": f"{at:04}@{offset:04}",
                "_change_deleted": is_deleted,
                "_change_topic": "orders",
                "_change_partition": 0,
                "_change_offset": offset,
                CARRIED: None if is_deleted else carried,
            }
        )
    return found


def after(rows: dict[Any, Row], orders: dict[Any, str] | None, batch: list[Row]) -> None:
    """Apply a batch to the rows by its fold."""
    changes = pa.Table.from_pylist(batch, SCHEMA)
    held = None
    if orders is not None:
        known = [dict(zip(KEY, key, strict=True)) | {"_sequence": at} for key, at in orders.items()]
        held = pa.Table.from_pylist(
            known, pa.schema([SCHEMA.field(one) for one in (*KEY, "_sequence")])
        )
    found = fold(changes, KEY, NAMES, held)
    needed = found.needs_row().to_pylist()
    for number, one in enumerate(found.keys.to_pylist()):
        key = tuple(one[name] for name in KEY)
        last = batch[found.last[number].as_py()]
        if orders is not None:
            orders[key] = last["_sequence"]
        if last["_change_deleted"]:
            rows.pop(key, None)
            continue
        base = rows.get(key, {}) if needed[number] else {}
        row = {}
        for name in NAMES:
            source = found.sources[name][number].as_py()
            row[name] = base.get(name) if source is None else batch[source][name]
        rows[key] = row


def require_equal(seed: int, *, is_sequenced: bool) -> None:
    """A history in batches; fails unless the rows are those of the model after each of them."""
    chance = random.Random(seed)
    records = log(chance, 80)
    model = Model(is_sequenced)
    rows: dict[Any, Row] = {}
    orders: dict[Any, str] | None = {} if is_sequenced else None
    while records:
        size = chance.choice([1, 2, 7, 30])
        batch, records = records[:size], records[size:]
        for one in batch:
            model.apply(one)
        after(rows, orders, chance.sample(batch, len(batch)))
        assert rows == model.rows


@pytest.mark.parametrize("is_sequenced", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_any_division_into_batches(seed: int, is_sequenced: bool) -> None:
    require_equal(seed, is_sequenced=is_sequenced)


def some_fail(*, is_sequenced: bool) -> None:
    for seed in range(40):
        require_equal(seed, is_sequenced=is_sequenced)


def test_without_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def every(_sequences: object, ids: pa.Array, _held: object) -> pa.Array:
        return pa.repeat(pa.scalar(value=True), len(ids))

    monkeypatch.setattr(partial_rows, "_not_older", every)
    with pytest.raises(AssertionError):
        some_fail(is_sequenced=True)


def test_with_the_order_of_the_table_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then an older change counts in the batch of the newer one, and not in a later batch."""

    def against_held(sequences: pa.ChunkedArray, ids: pa.Array, held: pa.Array) -> pa.Array:
        newest = pc.fill_null(held, "").take(ids)
        return pc.greater_equal(pa.concat_arrays(sequences.chunks), newest)

    monkeypatch.setattr(partial_rows, "_not_older", against_held)
    with pytest.raises(AssertionError):
        some_fail(is_sequenced=True)


def test_without_the_empty_row_after_a_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    def always(found: Fold) -> pa.Array:
        return pc.invert(pa.repeat(pa.scalar(value=False), len(found.last)))

    monkeypatch.setattr(Fold, "needs_row", always)
    with pytest.raises(AssertionError):
        some_fail(is_sequenced=False)


def test_a_column_of_another_writer_is_kept() -> None:
    batch = log(random.Random(1), 1)
    batch[0] |= {"_change_deleted": False, CARRIED: dict.fromkeys(NAMES, True)}
    found = fold(pa.Table.from_pylist(batch, SCHEMA), KEY, (*NAMES, "other"))
    assert found.sources["other"].to_pylist() == [None]
    assert found.needs_row().to_pylist() == [True]


def test_a_whole_change_needs_no_row_of_the_table() -> None:
    batch = log(random.Random(1), 1)
    batch[0] |= {"_change_deleted": False, CARRIED: dict.fromkeys(NAMES, True)}
    found = fold(pa.Table.from_pylist(batch, SCHEMA), KEY, NAMES)
    assert found.needs_row().to_pylist() == [False]
