"""The watermark follows the durable records, and a caller must name this leader and epoch."""

import pytest

from penstock.core.errors import (
    FencedLeaderEpochError,
    NotLeaderError,
    UnknownLeaderEpochError,
)
from penstock.core.types import TopicPartition
from penstock.replication.partition import PartitionState


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
