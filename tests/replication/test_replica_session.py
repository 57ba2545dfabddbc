"""The fetch session of a follower broker: all partitions once, then changes."""

from uuid import UUID

from penstock.broker.fetch_sessions import FetchSessionCache
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.fetch import FetchRequest
from penstock.replication.replica_session import FetchPosition, PartitionKey, ReplicaSession

TOPIC = UUID(int=1)


def positions(**offsets: int) -> dict[PartitionKey, FetchPosition]:
    """Return the positions of partitions: `p1=10` is partition 1 at offset 10."""
    return {(TOPIC, int(name[1:])): FetchPosition(3, at, 2, 0) for name, at in offsets.items()}


def named(request: FetchRequest) -> dict[int, int]:
    return {
        asked.partition: asked.fetch_offset
        for topic in request.topics
        for asked in topic.partitions
    }


def forgotten(request: FetchRequest) -> list[int]:
    return [index for topic in request.forgotten_topics_data for index in topic.partitions]


def test_after_the_first_request_only_changes_are_named() -> None:
    session = ReplicaSession()
    first = session.request(positions(p0=1, p1=2), 7, 70)
    assert named(first) == {0: 1, 1: 2}
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (7, 70)
    session.answered(99)
    second = session.request(positions(p0=5, p1=2), 7, 70)
    assert named(second) == {0: 5}
    assert (second.session_id, second.session_epoch) == (99, 1)
    session.answered(99)
    third = session.request(positions(p1=2), 7, 70)
    assert (named(third), forgotten(third)) == ({}, [0])
    session.answered(99)
    fourth = session.request(positions(p0=5, p1=2), 7, 70)
    assert named(fourth) == {0: 5}, "a forgotten partition is named again"


def test_another_leader_epoch_is_a_change() -> None:
    session = ReplicaSession()
    session.request(positions(p0=1), 7, 70)
    session.answered(99)
    moved = {(TOPIC, 0): FetchPosition(4, 1, 2, 0)}
    assert named(session.request(moved, 7, 70)) == {0: 1}


def test_without_a_session_each_request_names_all() -> None:
    session = ReplicaSession()
    session.request(positions(p0=1), 7, 70)
    session.answered(0)
    again = session.request(positions(p0=1), 7, 70)
    assert (named(again), again.session_epoch) == ({0: 1}, 0)


def test_a_reset_names_all_again() -> None:
    session = ReplicaSession()
    session.request(positions(p0=1), 7, 70)
    session.answered(99)
    session.reset()
    again = session.request(positions(p0=1), 7, 70)
    assert (named(again), again.session_id, again.session_epoch) == ({0: 1}, 0, 0)


def test_a_leader_reads_exactly_the_positions_of_each_request() -> None:
    session, leader = ReplicaSession(), FetchSessionCache(lambda: 5)
    for wanted in (
        positions(p0=1, p1=2, p2=3),
        positions(p0=1, p2=4),
        positions(p0=1, p1=9, p2=4),
        positions(p1=9),
    ):
        plan = leader.begin(session.request(wanted, 7, 70), 0.0)
        assert plan.error is ErrorCode.NONE
        read = {(one.topic_id, one.partition): one.fetch_offset for one in plan.partitions}
        assert read == {key: at.offset for key, at in wanted.items()}
        session.answered(plan.session_id)


def test_a_request_that_does_not_wait_is_answered_at_once() -> None:
    session = ReplicaSession()
    assert session.request(positions(p0=1), 7, 70).max_wait_ms > 0
    assert session.request(positions(p0=1), 7, 70, wait_ms=0).max_wait_ms == 0
