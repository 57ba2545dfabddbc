"""A leader and its follower over real logs: reads, reports, watermarks, waits, changed roles."""

import pytest

from penstock.cluster.image import PartitionImage
from penstock.core.errors import (
    FencedLeaderEpochError,
    NotEnoughReplicasError,
    NotLeaderError,
    UnknownLeaderEpochError,
)
from penstock.replication.admission import Fetcher, require_enough
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.isr import InSyncReplicas
from penstock.replication.partition import PartitionState
from penstock.replication.read_result import DivergingEpoch, PartitionRead
from penstock.replication.waits import CommitWait, FetchWait
from tests.replication.replicas import Node
from tests.storage.logs import batch, read_all

FOLLOWER = Fetcher(2, 12, is_counted=True)
SECOND_MS = 1_000


def image(isr: tuple[int, ...] = (1, 2), *, epoch: int = 1, min_isr: int = 2) -> PartitionImage:
    return PartitionImage(
        (1, 2),
        1,
        epoch,
        isr,
        100,
        broker_epoch=11,
        isr_epochs=(11, 12)[: len(isr)],
        min_isr=min_isr,
    )


def lead(node: Node, state: PartitionImage | None = None) -> HostedPartition:
    """Let the node lead, with broker 2 as its follower."""
    found = state or image()
    log = node.partition.log
    node.partition = node.replicas.change_role(
        node.partition,
        PartitionState(
            log.topic_partition,
            leader_epoch=found.leader_epoch,
            is_leader=True,
            durable_offset=log.durable_offset,
            high_watermark=min(log.high_watermark, log.durable_offset),
            in_sync=InSyncReplicas(1, found, log.end_offset, 0.0),
        ),
    )
    return node.partition


def follow(node: Node, epoch: int = 1) -> HostedPartition:
    """Let the node follow broker 1."""
    log = node.partition.log
    node.partition = node.replicas.change_role(
        node.partition,
        PartitionState(
            log.topic_partition,
            leader_epoch=epoch,
            is_leader=False,
            durable_offset=log.durable_offset,
            high_watermark=min(log.high_watermark, log.durable_offset),
            leader_id=1,
        ),
    )
    return node.partition


def fetch(
    leader: Node, offset: int, *, epoch: int = 1, last: int = -1, fetcher: Fetcher = FOLLOWER
) -> PartitionRead:
    return leader.replicas.read(
        leader.partition,
        offset,
        1_000_000,
        current_leader_epoch=epoch,
        last_fetched_epoch=last,
        at_least_one=True,
        fetcher=fetcher,
    )


def copy(leader: Node, follower: Node) -> PartitionRead:
    """One fetch of the follower, with its records appended."""
    log = follower.partition.log
    found = fetch(leader, log.end_offset, last=log.latest_epoch)
    if found.records:
        follower.replicas.append_copied(follower.partition, memoryview(found.records))
    follower.replicas.follower_learned(follower.partition, found.high_watermark)
    return found


def read(node: Node, offset: int = 0) -> bytes:
    found = node.replicas.read(
        node.partition,
        offset,
        1_000_000,
        current_leader_epoch=-1,
        last_fetched_epoch=-1,
        at_least_one=True,
    )
    return bytes(found.records)


@pytest.fixture
def leader() -> Node:
    node = Node()
    lead(node)
    return node


@pytest.fixture
def follower() -> Node:
    node = Node()
    follow(node)
    return node


def test_a_record_is_committed_when_both_have_synced_it(leader: Node, follower: Node) -> None:
    leader.append(batch(3))
    answers: list[str] = []
    alone = CommitWait(lambda: answers.append("leader"), is_local=True)
    both = CommitWait(lambda: answers.append("all"))
    for wait in (alone, both):
        leader.replicas.wait_committed(wait, [(leader.partition, 2)], SECOND_MS)
    copy(leader, follower)
    assert answers == [], "neither has synced it"
    leader.sync()
    assert answers == ["leader"]
    assert read(leader) == b"", "a consumer sees only committed records"
    follower.sync()
    copy(leader, follower)
    assert answers == ["leader", "all"]
    assert leader.partition.state.high_watermark == 3
    assert follower.partition.state.high_watermark == 3
    assert read(leader) == read_all(follower.partition.log)


def test_the_followers_sync_alone_commits_nothing(leader: Node, follower: Node) -> None:
    leader.append(batch(3))
    copy(leader, follower)
    follower.sync()
    copy(leader, follower)
    assert leader.partition.state.high_watermark == 0
    leader.sync()
    assert leader.partition.state.high_watermark == 3


def test_a_report_of_an_unknown_registration_does_not_count(leader: Node) -> None:
    leader.append(batch(3))
    leader.sync()
    fetch(leader, 3, last=1, fetcher=Fetcher(2, 99, is_counted=False))
    assert leader.partition.state.high_watermark == 0


def test_a_fetch_without_this_epoch_or_a_replica_is_refused(leader: Node) -> None:
    with pytest.raises(UnknownLeaderEpochError):
        fetch(leader, 0, epoch=-1)
    with pytest.raises(FencedLeaderEpochError):
        fetch(leader, 0, epoch=0)
    with pytest.raises(NotLeaderError, match="broker 3 has no replica"):
        fetch(leader, 0, fetcher=Fetcher(3, 13, is_counted=True))


def test_too_few_replicas_take_no_records() -> None:
    node = Node()
    lead(node, image((1,)))
    with pytest.raises(NotEnoughReplicasError, match=r"in-sync replicas \[1\].*needs 2"):
        require_enough(node.partition.state)


def test_a_changed_role_fails_the_requests_that_wait(leader: Node) -> None:
    former = leader.partition
    leader.append(batch(1))
    done: list[str] = []
    waits = [CommitWait(lambda: done.append("commit"), is_local=local) for local in (True, False)]
    for wait in waits:
        leader.replicas.wait_committed(wait, [(former, 0)], SECOND_MS)
    leader.replicas.wait_bytes(FetchWait(1, lambda: done.append("fetch")), [former], SECOND_MS)
    parked = FetchWait(1, lambda: done.append("replica"), is_from_replica=True)
    leader.replicas.wait_bytes(parked, [former], SECOND_MS)
    follow(leader, epoch=2)
    assert sorted(done) == ["commit", "commit", "fetch", "replica"]
    assert all(isinstance(wait.errors[former.name], NotLeaderError) for wait in waits)
    late = CommitWait(lambda: done.append("late"))
    leader.replicas.wait_committed(late, [(former, 0)], SECOND_MS)
    assert isinstance(late.errors[former.name], NotLeaderError)


def test_a_later_epoch_does_not_acknowledge_the_records_of_an_earlier_one(leader: Node) -> None:
    former = leader.partition
    last = leader.append(batch(1))
    lead(leader, image((1,), epoch=3, min_isr=1))
    leader.append(batch(5))
    leader.sync()
    assert leader.partition.state.high_watermark == 6
    assert former.state.high_watermark == 0
    wait = CommitWait(lambda: None)
    leader.replicas.wait_committed(wait, [(former, last)], SECOND_MS)
    assert isinstance(wait.errors[former.name], NotLeaderError)


def test_followers_are_woken_once_in_a_turn() -> None:
    node = Node()
    soon: list[object] = []
    node.replicas._call_soon = soon.append
    lead(node)
    woken: list[int] = []
    wait = FetchWait(1, lambda: woken.append(1), is_from_replica=True)
    node.replicas.wait_bytes(wait, [node.partition], SECOND_MS)
    node.append(batch(1))
    node.append(batch(1))
    assert (len(soon), woken) == (1, [])
    node.replicas._answer_followers()
    assert woken == [1]


def test_the_histories_of_two_leaders_part_where_the_first_ended(
    leader: Node, follower: Node
) -> None:
    leader.append(batch(2))
    copy(leader, follower)
    follower.sync()
    leader.append(batch(5))
    leader.sync()
    # The follower is elected, without the last five records.
    lead(follower, image(epoch=2))
    found = fetch(follower, 7, epoch=2, last=1)
    assert found.diverging_epoch == DivergingEpoch(1, 2)
    assert not found.records
    follower.append(batch(1))
    assert fetch(follower, 7, epoch=2, last=1).diverging_epoch == DivergingEpoch(1, 2)
    assert fetch(follower, 2, epoch=2, last=1).diverging_epoch is None


def test_an_epoch_without_records_ends_where_the_log_ends(leader: Node) -> None:
    leader.append(batch(2))
    lead(leader, image(epoch=5))
    assert leader.partition.end_offset_for_epoch(4) == (1, 2)
    assert fetch(leader, 9, epoch=5, last=4).diverging_epoch == DivergingEpoch(1, 2)


def test_a_leader_without_records_says_where_to_begin(leader: Node) -> None:
    assert fetch(leader, 9, last=-1).diverging_epoch == DivergingEpoch(-1, 0)
    assert fetch(leader, 9, last=0).diverging_epoch == DivergingEpoch(-1, 0)
    assert fetch(leader, 0, last=-1).diverging_epoch is None


def test_a_fetch_below_the_start_shows_the_start_and_reports_nothing(leader: Node) -> None:
    leader.append(batch(5))
    leader.sync()
    fetch(leader, 5, last=1)
    leader.partition.log.advance_start(5)
    found = fetch(leader, 2, last=-1)
    assert (found.log_start_offset, bytes(found.records)) == (5, b"")
    assert leader.partition.state.in_sync is not None
    assert leader.partition.state.in_sync.followers[2].offset == 5


def test_more_replicas_in_the_same_epoch_hold_the_watermark() -> None:
    node = Node()
    node.append(batch(1))
    node.sync()
    in_sync = InSyncReplicas(1, image(epoch=0), node.partition.log.end_offset, 0.0)
    node.replicas.add_followers(node.partition, in_sync)
    node.append(batch(1))
    node.sync()
    assert node.partition.state.high_watermark == 1
    fetch(node, 2, epoch=0, last=0)
    assert node.partition.state.high_watermark == 2
