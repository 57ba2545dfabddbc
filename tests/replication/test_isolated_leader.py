"""A leader that does not reach the metadata store: produces that wait learn it in seconds."""

from penstock.core.errors import NotLeaderError, PenstockError, RequestTimedOutError
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.isr_writer import give_up_if_isolated
from penstock.replication.manager import ISOLATED_WAIT_SECONDS
from penstock.replication.waits import CommitWait
from tests.replication.replicas import Node
from tests.replication.test_replicated_partition import FOLLOWER, lead
from tests.storage.logs import batch


def wait(node: Node, partition: HostedPartition, last: int) -> list[PenstockError | None]:
    """Wait for a record with a timeout of 30 s; the list gets the outcome."""
    outcomes: list[PenstockError | None] = []
    waiting = CommitWait(lambda: outcomes.append(waiting.errors.get(partition.name)))
    node.replicas.wait_committed(waiting, [(partition, last)], 30_000)
    return outcomes


def test_a_record_that_followers_do_not_confirm_is_not_waited_for() -> None:
    """Guards `ISOLATED_WAIT_SECONDS`: another broker leads, and the client waited in vain."""
    node = Node()
    partition = lead(node)
    node.replicas.is_isolated = lambda: True
    outcomes = wait(node, partition, node.append(batch(1)))
    node.sync()
    node.timer.advance(ISOLATED_WAIT_SECONDS - 0.1)
    assert outcomes == []
    node.timer.advance(0.2)
    assert [type(one) for one in outcomes] == [NotLeaderError]


def test_a_record_that_followers_confirm_is_acknowledged() -> None:
    """An outage of the store alone stops no data."""
    node = Node()
    partition = lead(node)
    node.replicas.is_isolated = lambda: True
    outcomes = wait(node, partition, node.append(batch(1)))
    node.sync()
    node.replicas.read(
        partition,
        1,
        1_000,
        current_leader_epoch=1,
        last_fetched_epoch=1,
        at_least_one=True,
        fetcher=FOLLOWER,
    )
    assert outcomes == [None]


def test_a_leader_that_reaches_the_store_waits_as_long_as_the_client() -> None:
    node = Node()
    partition = lead(node)
    outcomes = wait(node, partition, node.append(batch(1)))
    node.timer.advance(29.9)
    assert outcomes == []
    node.timer.advance(0.2)
    assert [type(one) for one in outcomes] == [RequestTimedOutError]


def test_a_partition_with_one_replica_waits_for_its_disk() -> None:
    node = Node()
    node.replicas.is_isolated = lambda: True
    outcomes = wait(node, node.partition, node.append(batch(1)))
    node.timer.advance(ISOLATED_WAIT_SECONDS + 1)
    assert outcomes == []
    node.sync()
    assert outcomes == [None]


def test_older_waits_end_when_followers_are_late() -> None:
    """Guards `give_up_if_isolated`: a leader that is cut off from all notices it later."""
    node = Node()
    partition = lead(node)
    outcomes = wait(node, partition, node.append(batch(1)))
    give_up_if_isolated(node.replicas, partition)
    assert outcomes == [], "not isolated: the follower is slow"
    node.replicas.is_isolated = lambda: True
    give_up_if_isolated(node.replicas, partition)
    assert [type(one) for one in outcomes] == [NotLeaderError]
    assert partition.waits.failure is None, "later records may be confirmed"
