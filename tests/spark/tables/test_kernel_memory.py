"""The memory of the value kernels: limits, growth, and failures in the middle of a batch."""

import json
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from penstock.spark.tables.definition.ddl import parse_ddl
from penstock.spark.tables.values.avro.values import avro_file_values
from penstock.spark.tables.values.columnar import memory
from penstock.spark.tables.values.columnar.reading import KernelReading
from penstock.spark.tables.values.columnar.rooms import GROWTHS_MAX, SIZE_MAX, Rooms
from penstock.spark.tables.values.json.buffers import KernelReader
from tests.spark.decode.uncompiled import load_uncompiled
from tests.spark.tables.avro_kernels import varint
from tests.spark.tables.test_avro_values import record

BYTES_MAX = 100_000
BOOLEANS = {"type": "array", "items": "boolean"}


def reading_of(schema: dict[str, Any]) -> KernelReading:
    found = avro_file_values(json.dumps(schema), "s")._compiled.read
    assert isinstance(found, KernelReading)
    return found


def text(size: int) -> bytes:
    return varint(size) + b"x" * size


def total(sizes: Mapping[int, int]) -> int:
    return sum(sizes.values())


def test_text_rooms_stay_within_the_limit() -> None:
    """Each batch fills its room, and asks for an eighth more in the next one."""
    read = reading_of(record(("a", "string"), ("b", "string")))
    texts = read._memory._text_rooms
    with patch.object(memory, "BYTES_MAX", BYTES_MAX):
        for _ in range(40):
            size = texts.sizes[1]
            rows, _, doubts = read.by_kernel(pa.array([text(size) + text(1)], pa.binary()))
            used = sum(column.buffers()[2].size for column in rows.columns)
            assert used <= BYTES_MAX
            assert len(doubts) + rows.num_rows == 1
        assert read.by_kernel(pa.array([text(9) * 2], pa.binary()))[0].num_rows == 1


def test_rooms_of_items_stay_within_the_limit() -> None:
    items = {"type": "array", "items": "double"}
    read = reading_of(record(("a", items)))
    levels = read._memory._items
    with patch.object(memory, "BYTES_MAX", BYTES_MAX):
        for _ in range(40):
            count = levels.sizes[1]
            value = varint(count) + b"\0" * 8 * count + b"\0"
            rows, _, doubts = read.by_kernel(pa.array([value], pa.binary()))
            assert rows.nbytes <= BYTES_MAX
            assert len(doubts) + rows.num_rows == 1


def test_no_size_is_above_the_largest_offset() -> None:
    sizes = Rooms([1, 2], 10, total)
    sizes.begin(2**40, 2**60)
    assert sizes.sizes == {1: SIZE_MAX, 2: SIZE_MAX}
    sizes.remember(lambda _: SIZE_MAX)
    assert sizes.sizes == {1: SIZE_MAX, 2: SIZE_MAX}
    assert not sizes.grow(1, lambda _: SIZE_MAX, 2**60)
    sizes.sizes[2] = SIZE_MAX - 5
    assert sizes.grow(2, lambda _: 0, 2**60)
    assert sizes.sizes[2] == SIZE_MAX


def test_remembered_sizes_above_the_limit_are_forgotten() -> None:
    sizes = Rooms([1, 2], 10, total)
    sizes.remember(lambda _: 800)
    sizes.begin(0, 1_000)
    assert sizes.sizes == {1: 10, 2: 10}
    # A share that is too large is left out; the remembered sizes stay.
    sizes.remember(lambda _: 400)
    sizes.begin(501, 1_000)
    assert sizes.sizes == {1: 450, 2: 450}
    sizes.begin(500, 1_000)
    assert sizes.sizes == {1: 500, 2: 500}


def test_remembered_sizes_shrink_by_half_at_most() -> None:
    sizes = Rooms([1], 10, total)
    sizes.remember(lambda _: 1_000)
    found = []
    for used in (0, 0, 500, 0, 0, 0, 0, 0, 0):
        sizes.remember(lambda _, used=used: used)  # type: ignore[misc]
        found.append(sizes.sizes[1])
    assert found == [562, 281, 562, 281, 140, 70, 35, 17, 10]


def test_busy_parts_grow_with_the_full_one_and_then_all() -> None:
    sizes = Rooms(range(4), 10, total)
    assert sizes.grow(0, {0: 10, 1: 6, 2: 5, 3: 0}.__getitem__, 10_000)
    assert sizes.sizes == {0: 20, 1: 20, 2: 10, 3: 10}
    for _ in range(3):
        assert sizes.grow(0, lambda _: 0, 10_000)
    assert sizes.sizes == {0: 160, 1: 20, 2: 10, 3: 10}
    assert sizes.grow(1, lambda _: 0, 10_000)
    assert sizes.sizes == {0: 320, 1: 40, 2: 20, 3: 20}
    # Within the limit only the full one has room.
    assert sizes.grow(2, lambda _: 10_000, 420)
    assert sizes.sizes == {0: 320, 1: 40, 2: 40, 3: 20}
    assert not sizes.grow(2, lambda _: 10_000, 420)


def test_a_batch_has_a_limited_number_of_growths() -> None:
    sizes = Rooms(range(GROWTHS_MAX + 1), 10, total)
    limit = 2 * total(sizes.sizes) - 1
    found = [sizes.grow(one, lambda _: 0, limit) for one in range(GROWTHS_MAX + 1)]
    assert found == [True] * GROWTHS_MAX + [False]
    sizes.begin(0, 10 * limit)
    assert sizes.grow(GROWTHS_MAX, lambda _: 0, 10 * limit)


@pytest.mark.parametrize(
    ("kind", "large", "small"),
    [("string", text(4_100), b"\0"), (BOOLEANS, varint(1_025) + b"\1" * 1_025 + b"\0", b"\0")],
    ids=["texts", "items"],
)
def test_many_columns_grow_together(kind: object, large: bytes, small: bytes) -> None:
    """Each growth copies all columns, so that there must not be one for each column."""
    count = 300
    read = reading_of(record(*((f"c{number}", kind) for number in range(count))))
    growths, batches = [], [small * count, large * count, large * count, small * count]
    skewed = text(40_000) if kind == "string" else large
    for one in (*batches, large * count, (skewed + small) * (count // 2)):
        with patch.object(memory.ColumnMemory, "grow", autospec=True) as grow:
            grow.side_effect = _GROW
            rows, _, doubts = read.by_kernel(pa.array([one], pa.binary()))
        assert (rows.num_rows, len(doubts)) == (1, 0)
        growths.append(grow.call_count)
    assert max(growths) <= 8, growths


_GROW = memory.ColumnMemory.grow


def test_columns_of_short_texts_have_room_at_once() -> None:
    count, rows = 100, 5_000
    read = reading_of(record(*((f"c{number}", "string") for number in range(count))))
    with patch.object(memory.ColumnMemory, "grow", side_effect=AssertionError):
        found, _, _ = read.by_kernel(pa.array([text(10) * count] * rows, pa.binary()))
    assert found.num_rows == rows


def test_the_end_of_a_text_is_an_offset_of_32_bits() -> None:
    """Rooms are within this limit; the memory does not rely on it."""
    read = reading_of(record(("a", "string"), ("b", "string")))
    found, columns = read._memory, read._memory.columns
    found._text_rooms.sizes[2] = 2**40
    with patch.object(pa, "allocate_buffer", return_value=pa.py_buffer(bytearray(64))):
        found._place_texts()
    assert columns.text_ends[2] - columns.text_bases[2] == SIZE_MAX


def test_a_text_that_ends_beyond_its_room_is_not_written() -> None:
    module: ModuleType = load_uncompiled(["tables.values.columnar.columns"])
    columns = module.ArrowColumns(2, 1)
    columns.kinds[1] = module.BINARY
    columns.set_buffer(memoryview(bytearray(16)))
    columns.text_bases[1], columns.text_ends[1] = 2**35, 2**35 + SIZE_MAX
    columns.integers[0] = SIZE_MAX - 9
    assert columns.text_room(1, 9) == 2**35 + SIZE_MAX - 9
    assert columns.full_field == 0
    assert columns.text_room(1, 10) == -1
    assert columns.full_field == 1


def failing(number: int) -> Callable[[int], pa.Buffer]:
    """Return a function that allocates buffers, and fails at this one."""
    real, calls = pa.allocate_buffer, iter(range(100))

    def allocate(size: int) -> pa.Buffer:
        if next(calls) == number:
            raise MemoryError("no memory")
        return real(size)

    return allocate


SCHEMA = record(("n", ["null", "long"]), ("a", {"type": "array", "items": "int"}), ("t", "string"))
MIXED = [
    *[b"\0\0" + text(1)] * 8,
    b"\0" + varint(1_100) + b"\0" * 1_100 + b"\0" + text(1),
    b"\0\0" + text(20_000),
]
GOOD = [b"\0\0" + text(1), *(varint(1) + varint(n) + b"\0" + text(n) for n in range(4))]
NUMBERS = [None, 0, 1, 2, 3]


@pytest.mark.parametrize("number", range(5))
def test_a_batch_that_fails_leaves_nothing_for_the_next_one(number: int) -> None:
    """The nulls of the failed batch would be those of the next one."""
    read = reading_of(SCHEMA)
    # The fixed columns, the texts, the numbers of rows and of doubts, and then more items.
    allocate = patch.object(pa, "allocate_buffer", failing(number))
    with allocate, pytest.raises(MemoryError):
        read(pa.array(MIXED, pa.binary()))
    check_next(read)


def test_a_failure_while_the_batch_is_built() -> None:
    read = reading_of(SCHEMA)
    for name in ("batch", "grow"):
        failure = patch.object(memory.ColumnMemory, name, side_effect=MemoryError)
        with failure, pytest.raises(MemoryError):
            read(pa.array(MIXED, pa.binary()))
        check_next(read)


def check_next(read: KernelReading) -> None:
    assert len(read._kernel.row_numbers) == 0, "the kernel holds no buffer"
    assert read._memory._fixed is None
    for _ in range(2):
        parsed = read(pa.array(GOOD, pa.binary()))
        assert parsed.rows.column("n").to_pylist() == NUMBERS
        assert parsed.rows.column("t").to_pylist() == ["x", "", "x", "xx", "xxx"]


def test_a_batch_of_json_that_fails_leaves_nothing_for_the_next_one() -> None:
    reader = KernelReader(parse_ddl("n bigint, a array<int>"))
    whole = b'{"n":1,"a":[%b]}' % b",".join([b"7"] * 1_100)
    bad = pa.array([*[b"{}"] * 8, whole], pa.binary())
    good = pa.array([b'{"n":%d}' % number for number in range(5)], pa.binary())
    for name in ("batch", "grow", "_place_texts"):
        failure = patch.object(memory.ColumnMemory, name, side_effect=MemoryError)
        with failure, pytest.raises(MemoryError):
            reader.read(bad)
        assert len(reader._kernel.row_numbers) == 0, "the kernel holds no buffer"
        assert reader.read(good).rows.column("n").to_pylist() == list(range(5))
