"""The index of keys in memory: the places of any keys, and its bound."""

from collections.abc import Sequence

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.tables.formats.iceberg.key_places import (
    KeyPlaces,
    SharedBound,
    _Index,
    _sorted,
    matches,
    sortable,
)

TYPES = pa.schema([("a", pa.string()), ("b", pa.binary()), ("c", pa.int64())])
TEXTS = st.text(alphabet="ab:1\x00", max_size=4)
ROWS = st.lists(
    st.tuples(TEXTS, st.binary(max_size=3), st.integers(-3, 30)), min_size=1, max_size=12
)


def table_of(rows: Sequence[tuple[object, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(TYPES.names, one, strict=True)) for one in rows], TYPES)


@given(rows=ROWS)
def test_keys_of_several_columns_are_equal_as_one_if_and_only_if_they_are_equal(
    rows: list[tuple[str, bytes, int]],
) -> None:
    joined = sortable(table_of(rows)).to_pylist()
    for one, left in zip(joined, rows, strict=True):
        for other, right in zip(joined, rows, strict=True):
            assert (one == other) == (left == right)


def test_a_key_with_a_null_is_no_key() -> None:
    assert sortable(table_of([("a", b"", None), ("a", b"", 1)])).null_count == 1


@given(
    held=st.lists(st.none() | st.integers(0, 9), max_size=20),
    wanted=st.sets(st.integers(-2, 12), max_size=8),
)
def test_every_row_of_a_key_is_found_and_no_other(held: list[int | None], wanted: set[int]) -> None:
    types = pa.schema([("id", pa.int64())])
    index = _sorted(pa.table({"id": pa.array(held, pa.int64())}), types)
    keys = sorted(wanted)
    places, numbers = matches(index, pa.array(keys, pa.int64()))
    found = {
        (index.positions[place].as_py(), keys[number])
        for place, number in zip(places.to_pylist(), numbers.to_pylist(), strict=True)
    }
    assert len(found) == len(places)
    assert found == {(at, key) for at, key in enumerate(held) if key in wanted}


def index_of(count: int) -> _Index:
    return _sorted(pa.table({"id": pa.arange(0, count)}), pa.schema([("id", pa.int64())]))


def test_the_index_keeps_within_its_bound_and_evicts_idle_files_first() -> None:
    one = index_of(100)
    bound = SharedBound(3 * one.size_bytes)
    places = KeyPlaces(bound)
    places.begin()
    for name in "abc":
        places._keep((name,), one, one.size_bytes)
    places.begin()
    assert places._used(("a",)) is one
    places._keep(("d",), one, one.size_bytes)
    assert [name for name in "abcd" if places._used((name,))] == ["a", "c", "d"]
    places._keep(("e",), one, one.size_bytes)  # all others are in use: it is not kept
    assert places._used(("e",)) is None
    assert places.size_bytes == 3 * one.size_bytes
    other = KeyPlaces(bound)  # another table of the process
    other._keep(("f",), one, one.size_bytes)
    assert other.size_bytes == 0
    places.clear()
    other._keep(("f",), one, one.size_bytes)
    assert (places.size_bytes, other.size_bytes) == (0, one.size_bytes)
