"""Ends of leader epochs: one call for each leader, repeated when a leader moved."""

from penstock.client.epoch_ends import find_epoch_ends
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.client.number_cluster import NumberCluster

A, B, C = (TopicPartition("orders", index) for index in range(3))


def test_each_leader_is_asked_once() -> None:
    cluster = NumberCluster((1, 2))
    cluster.set_topic("orders", 10, 20, 30)
    cluster.epoch_ends = {(A, 4): 7, (B, 4): 20}
    found = find_epoch_ends(cluster.client(), {A: 4, B: 4, C: 1})
    assert found == {A: 7, B: 20, C: -1}
    assert cluster.counted() == {"Metadata": 1, "OffsetForLeaderEpoch": 2}


def test_a_leader_that_moved_is_found_again() -> None:
    cluster = NumberCluster()
    cluster.set_topic("orders", 10)
    cluster.epoch_ends = {(A, 4): 7}
    for how in (ErrorCode.NOT_LEADER_OR_FOLLOWER, "lost", "unreachable"):
        cluster.fail_next(OffsetForLeaderEpochRequest, how)
    assert find_epoch_ends(cluster.client(), {A: 4}) == {A: 7}
