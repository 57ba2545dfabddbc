"""Which ranges of a pipeline's batch are read by one task, and which batch needs none."""

import math
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.types import TopicPartition
from penstock.spark.offsets import PartitionPosition, StreamOffset
from penstock.spark.planning import OffsetRange, ReadTask
from penstock.spark.tables.run.plan_file import PlanFile, leave_batch
from penstock.spark.tables.run.small_batches import Allowance, NotSmallError, are_next
from penstock.spark.tables.tasks.orders import (
    SMALL_OFFSETS_MAX,
    TaskOrder,
    is_small,
    small_together,
)

ALL = SMALL_OFFSETS_MAX


def orders_of(*sizes: int) -> list[TaskOrder]:
    return [
        TaskOrder(
            ReadTask(OffsetRange(TopicPartition("t", number), 5, 5 + size), None, 0), None, ""
        )
        for number, size in enumerate(sizes)
    ]


def sizes_of(*sizes: int) -> list[list[int]]:
    return [
        [order.task.range.until_offset - order.task.range.from_offset for order in group]
        for group in small_together(orders_of(*sizes))
    ]


def test_few_offsets_of_many_partitions_are_one_task() -> None:
    assert sizes_of(1, 2, 3, 4) == [[1, 2, 3, 4]]
    assert sizes_of(ALL - 1, 1) == [[ALL - 1, 1]]


def test_many_offsets_are_a_task_each() -> None:
    assert sizes_of(ALL, 1, ALL * 9, 1) == [[ALL], [1], [ALL * 9], [1]]
    assert sizes_of() == []


@given(st.lists(st.integers(0, 2 * ALL)))
def test_every_order_is_in_one_task_in_its_place(sizes: list[int]) -> None:
    orders = orders_of(*sizes)
    groups = small_together(orders)
    assert [order for group in groups for order in group] == orders
    assert all(groups)
    for group in groups:
        held = sum(one.task.range.until_offset - one.task.range.from_offset for one in group)
        assert len(group) == 1 or held <= ALL


def test_a_batch_of_few_records_to_write_is_small() -> None:
    written = [one._replace(plan=b"plan") for one in orders_of(ALL - 1, 1)]
    assert is_small(written)
    assert not is_small([*written, orders_of(1)[0]._replace(plan=b"plan")])
    assert not is_small(orders_of(1)), "the way through Spark SQL only says what there is"


def test_a_batch_that_was_left_is_taken_once() -> None:
    file = PlanFile()
    try:
        assert file.take_batch() == ()
        leave_batch(file.path, orders_of(1, 2))
        leave_batch(file.path, orders_of(3))
        assert list(file.take_batch()) == orders_of(3)
        assert file.take_batch() == ()
        leave_batch(file.path, orders_of(1))
        leave_batch(file.path, ())
        assert file.take_batch() == (), "the next batch was not small"
    finally:
        file.close()


def held_up_to(offset: int, topic_id: str | None = None) -> StreamOffset:
    positions = {TopicPartition("t", 0): PartitionPosition(offset, 0)}
    return StreamOffset(positions, {} if topic_id is None else {"t": topic_id})


def test_orders_are_next_when_the_table_has_none_of_them() -> None:
    (order,) = orders_of(3)
    assert are_next([order], StreamOffset({}))
    assert are_next([order], held_up_to(5))
    assert not are_next([order], held_up_to(6)), "the first of them is there"
    assert are_next([order], held_up_to(6, "another topic of this name")), "the commit stops it"


def batches(count: int) -> Iterator[pa.RecordBatch]:
    return (pa.RecordBatch.from_pydict({"a": pa.array([1], pa.int64())}) for _ in range(count))


def test_an_allowance_ends_by_bytes_and_by_time() -> None:
    assert len(list(Allowance(24, math.inf).spent(batches(3)))) == 3
    with pytest.raises(NotSmallError, match="MiB"):
        list(Allowance(23, math.inf).spent(batches(3)))
    with pytest.raises(NotSmallError, match="seconds"):
        list(Allowance(24, 0.0).spent(batches(1)))
    shared = Allowance(24, math.inf)
    assert len(list(shared.spent(batches(2)))) == 2
    with pytest.raises(NotSmallError):
        list(shared.spent(batches(2)))
