"""The replica that a consumer reads from (KIP-392), and reads of consumers from a follower."""

from dataclasses import replace
from types import MappingProxyType

import pytest

from penstock.cluster.image import BrokerImage, BrokerState, Endpoint, PartitionImage
from penstock.core.errors import FencedLeaderEpochError, NotLeaderError, UnknownLeaderEpochError
from penstock.replication.followers.read_replicas import READER_SECONDS, RemoteReaders, nearest
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.isr import InSyncReplicas
from penstock.replication.partition import PartitionState
from penstock.replication.read_result import PartitionRead
from penstock.replication.waits import FetchWait
from tests.replication.replicas import Node
from tests.replication.test_replicated_partition import FOLLOWER, follow, lead
from tests.storage.logs import batch

LISTENER = "PLAINTEXT"


def broker(
    broker_id: int,
    rack: str | None,
    *,
    state: BrokerState = BrokerState.RUNNING,
    listener: str = LISTENER,
) -> BrokerImage:
    endpoint = Endpoint(listener, "127.0.0.1", 9000 + broker_id)
    return BrokerImage(broker_id, (endpoint,), rack, "d", 10 + broker_id, state=state)


def led(isr: tuple[int, ...] = (1, 2, 3)) -> HostedPartition:
    """Broker 1 leads; 2 has synced 10 records and 3 has synced 8."""
    node = Node()
    image = PartitionImage(
        (1, 2, 3), 1, 1, isr, 100, isr_epochs=tuple([10 + one for one in isr]), min_isr=1
    )
    log = node.partition.log
    in_sync = InSyncReplicas(1, image, log.end_offset, 0.0)
    for broker_id, offset in ((2, 10), (3, 8)):
        in_sync.report(broker_id, 10 + broker_id, offset, 10, 1.0)
    role = PartitionState(
        log.topic_partition, leader_epoch=1, is_leader=True, durable_offset=0, in_sync=in_sync
    )
    return node.replicas.change_role(node.partition, role)


def choose(partition: HostedPartition, *brokers: BrokerImage, offset: int = 5) -> int | None:
    images = MappingProxyType({one.id: one for one in brokers})
    return nearest(partition, images, rack="b", listener=LISTENER, offset=offset)


def test_the_replica_of_the_rack_with_the_most_records_is_chosen() -> None:
    one, two, three = broker(1, "a"), broker(2, "b"), broker(3, "b")
    assert choose(led(), one, two, three) == 2
    assert choose(led(), one, broker(2, "c"), three) == 3
    assert choose(led(), one, broker(2, None), broker(3, None)) is None


def test_a_leader_in_the_rack_serves_the_consumer() -> None:
    assert choose(led(), broker(1, "b"), broker(2, "b"), broker(3, "b")) is None


@pytest.mark.parametrize(
    "changed",
    [
        broker(2, "b", state=BrokerState.DRAINING),
        broker(2, "b", state=BrokerState.STARTING),
        broker(2, "b", listener="SASL"),
        replace(broker(2, "b"), epoch=99),
        None,
    ],
)
def test_a_replica_that_cannot_serve_is_not_chosen(changed: BrokerImage | None) -> None:
    brokers = [broker(1, "a"), broker(3, "c")]
    assert choose(led(), *brokers, *([] if changed is None else [changed])) is None


def test_a_replica_behind_the_consumer_or_out_of_sync_is_not_chosen() -> None:
    brokers = broker(1, "a"), broker(2, "c"), broker(3, "b")
    assert choose(led(), *brokers, offset=8) == 3
    assert choose(led(), *brokers, offset=9) is None
    assert choose(led(isr=(1, 2)), *brokers, offset=1) is None


def test_readers_are_forgotten_after_a_time_and_with_the_role() -> None:
    node = Node()
    partition = lead(node)
    readers = RemoteReaders()
    readers.note(partition, 0.0)
    assert readers.has(partition, READER_SECONDS - 1)
    assert not readers.has(partition, READER_SECONDS + 1)
    assert not readers
    node.replicas.readers.note(partition, 0.0)
    follow(node)
    assert not node.replicas.readers


# --- Reads from a follower ---


def following(committed: int) -> tuple[Node, HostedPartition]:
    """A follower in epoch 1 with 5 records, of which it knows some as committed."""
    node = Node()
    leader = Node()
    lead(leader)
    partition = follow(node)
    for _ in range(5):
        leader.append(batch(1))
    found = leader.partition.log.read(0, 10_000, offset_limit=5, at_least_one=True, nowait=True)
    node.replicas.append_copied(partition, memoryview(bytes(found.records)))
    node.sync()
    node.replicas.follower_learned(partition, committed)
    return node, partition


def read(node: Node, partition: HostedPartition, offset: int, epoch: int = 1) -> PartitionRead:
    return node.replicas.read(
        partition,
        offset,
        10_000,
        current_leader_epoch=epoch,
        last_fetched_epoch=-1,
        at_least_one=True,
    )


def test_a_follower_serves_the_records_below_its_high_watermark() -> None:
    node, partition = following(3)
    found = read(node, partition, 0)
    assert (found.high_watermark, found.last_stable_offset) == (3, 3)
    assert len(found.records) == 3 * len(batch(1).buffer)
    assert not read(node, partition, 3).records
    assert not read(node, partition, 5).records, "known, and not committed yet"


def test_a_follower_checks_the_epoch_of_the_consumer() -> None:
    node, partition = following(3)
    with pytest.raises(FencedLeaderEpochError):
        read(node, partition, 0, epoch=0)
    with pytest.raises(UnknownLeaderEpochError):
        read(node, partition, 0, epoch=2)


def test_a_follower_does_not_serve_followers_and_one_without_a_leader_serves_nobody() -> None:
    node, partition = following(3)
    with pytest.raises(NotLeaderError):
        node.replicas.read(
            partition,
            0,
            1_000,
            current_leader_epoch=1,
            last_fetched_epoch=1,
            at_least_one=True,
            fetcher=FOLLOWER,
        )
    partition.state.resign()
    with pytest.raises(NotLeaderError):
        read(node, partition, 0)


def test_a_moved_high_watermark_wakes_the_consumers_of_a_follower() -> None:
    """Guards `wake_fetches`: a consumer at the end got records only after its longest wait."""
    node, partition = following(3)
    woken: list[int] = []
    wait = FetchWait(1, lambda: woken.append(1))
    node.replicas.wait_bytes(wait, [partition], 500)
    node.replicas.follower_learned(partition, 3)
    assert not woken
    node.replicas.follower_learned(partition, 5)
    assert woken
