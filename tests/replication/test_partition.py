"""The watermark follows the durable records, and a caller must name this leader and epoch."""

import pytest

from penstock.core.errors import (
    FencedLeaderEpochError,
    NotLeaderError,
    UnknownLeaderEpochError,
)
from penstock.core.types import TopicPartition
from penstock.replication.partition import PartitionState, Role


def state(*, is_leader: bool = True) -> PartitionState:
    return PartitionState(
        TopicPartition("t", 0), leader_epoch=3, is_leader=is_leader, durable_offset=5
    )


def test_the_watermark_is_what_is_durable() -> None:
    partition = state()
    assert partition.high_watermark == 5
    assert partition.local_durable(9)
    assert not partition.local_durable(9)
    assert partition.high_watermark == 9
    partition.validate()


def test_what_is_durable_stays_durable() -> None:
    partition = state()
    with pytest.raises(AssertionError):
        partition.local_durable(4)
    follower = state(is_leader=False)
    assert not follower.local_durable(4), "a follower may be cut"


def test_epochs_are_compared() -> None:
    partition = state()
    partition.require_leader(-1)
    partition.require_leader(3)
    with pytest.raises(FencedLeaderEpochError):
        partition.require_leader(2)
    with pytest.raises(UnknownLeaderEpochError):
        partition.require_leader(4)
    with pytest.raises(NotLeaderError):
        state(is_leader=False).require_leader(3)


def follower() -> PartitionState:
    return PartitionState(
        TopicPartition("t", 0),
        leader_epoch=3,
        is_leader=False,
        durable_offset=20,
        high_watermark=5,
        leader_id=2,
    )


def test_a_follower_takes_over_the_leaders_watermark_within_its_log() -> None:
    partition = follower()
    assert partition.role is Role.FOLLOWER
    assert not partition.local_durable(30)
    assert partition.high_watermark == 5
    assert partition.leader_committed(12, 30)
    assert not partition.leader_committed(11, 30)
    assert partition.high_watermark == 12
    assert partition.leader_committed(50, 30)
    assert partition.high_watermark == 30


def test_a_cut_keeps_the_watermark_within_the_log() -> None:
    partition = follower()
    partition.leader_committed(20, 20)
    partition.cut(0, 10, 10)
    assert (partition.high_watermark, partition.local_durable_offset) == (10, 10)
    partition.cut(40, 40, 40)
    assert partition.high_watermark == 40, "it begins anew behind the end"


def test_who_resigned_leads_no_more() -> None:
    partition = state()
    partition.resign()
    assert partition.role is Role.IDLE
    with pytest.raises(NotLeaderError):
        partition.require_leader(3)
    assert not partition.local_durable(100)
    assert partition.high_watermark == 5
