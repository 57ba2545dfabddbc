"""Which ranges of a pipeline's batch are read by one task."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.types import TopicPartition
from penstock.spark.planning import OffsetRange, ReadTask
from penstock.spark.tables.run.source import SMALL_OFFSETS_MAX, TaskOrder, small_together

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
