"""Lag by partition, for every mixture of assigned and committed."""

from penstock.client.groups.group_calls import Committed
from penstock.client.groups.group_lag import LagRow, lag_rows, partitions_of, total_lag
from penstock.client.groups.groups import GroupMember
from penstock.core.types import TopicPartition

P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))
FIRST = GroupMember("m-1", "app", "/10.0.0.1", partitions=(P0, P1))
SECOND = GroupMember("m-2", "app", "/10.0.0.2", partitions=(P1,))
WORKER = GroupMember("m-3", "connect", "/10.0.0.3")


def test_a_row_for_everything_assigned_or_committed() -> None:
    committed = {P0: Committed(5), P2: Committed(7)}
    ends = {P0: 8, P1: 4, P2: 7}
    assert partitions_of([FIRST], committed) == [P0, P1, P2]
    rows = lag_rows([FIRST], committed, ends)
    assert rows == [LagRow(P0, 5, 8, FIRST), LagRow(P1, None, 4, FIRST), LagRow(P2, 7, 7, None)]
    assert [row.lag for row in rows] == [3, None, 0]
    assert total_lag(rows) == 3


def test_a_partition_that_two_members_have_counts_once() -> None:
    rows = lag_rows([FIRST, SECOND], {P1: Committed(1)}, {P0: 0, P1: 4})
    assert [(row.at, row.member) for row in rows] == [(P0, FIRST), (P1, FIRST), (P1, SECOND)]
    assert total_lag(rows) == 3


def test_lag_is_unknown_when_the_partition_is_gone() -> None:
    (row,) = lag_rows([], {P0: Committed(5)}, {})
    assert (row.committed, row.end_offset, row.lag) == (5, None, None)
    assert total_lag([row]) == 0


def test_a_log_that_lost_its_end_gives_a_lag_below_zero() -> None:
    (row,) = lag_rows([], {P0: Committed(5)}, {P0: 3})
    assert row.lag == -2


def test_members_without_partitions_have_no_rows() -> None:
    assert lag_rows([WORKER], {}, {}) == []
