"""After an unclean election: each replica returns, also one with records that the leader lacks."""

import logging

import pytest

from penstock.cluster.controller import NewTopic
from penstock.cluster.image import PartitionImage, Replica, TopicImage
from penstock.replication.partition_roles import lacks_committed
from tests.node.peers.test_replication import TOPIC, isr, logs, produce
from tests.node.peers.three_brokers import IDS, ThreeBrokers, run, until


def state(isr_: tuple[int, ...], elr: tuple[int, ...], *, is_recovering: bool) -> PartitionImage:
    return PartitionImage(
        (1, 2, 3),
        1,
        7,
        isr_,
        1,
        isr_epochs=(5,) * len(isr_),
        elr=tuple([Replica(one, 5) for one in elr]),
        is_recovering=is_recovering,
    )


@pytest.mark.parametrize(
    ("members", "eligible", "is_recovering", "expected"),
    [
        ((1, 3), (), False, False),
        ((1,), (3,), False, False),
        ((1, 2), (), False, True),
        ((1, 3), (), True, True),
    ],
)
def test_only_a_replica_without_a_promise_may_lose_committed_records(
    members: tuple[int, ...],
    eligible: tuple[int, ...],
    is_recovering: bool,
    expected: bool,
) -> None:
    found = state(members, eligible, is_recovering=is_recovering)
    assert lacks_committed(found, 3) is expected


async def create(brokers: ThreeBrokers) -> None:
    """Create a topic whose leaders may be elected uncleanly."""
    parts = brokers.servers[1]._parts
    assert parts is not None
    settings = {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"}
    (created,) = await parts.metadata.create_topics(
        [NewTopic(name=TOPIC, partition_count=1, replication_factor=3, settings=settings)]
    )
    assert isinstance(created, TopicImage), created
    await brokers.until_served(TOPIC)
    await until(lambda: isr(brokers) == set(IDS))


def test_a_replica_that_comes_after_the_recovery_is_cut(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Guards `lacks_committed`: such a replica was refused for ever."""

    async def act(brokers: ThreeBrokers) -> None:
        await create(brokers)
        first = brokers.leader(TOPIC, 0)
        last, late = (one for one in IDS if one != first)
        await brokers.stop(last)
        await until(lambda: len(isr(brokers)) == 2)
        for number in range(3):
            assert not await produce(brokers, b"committed %d" % number)
        # A follower learns with the next record that the ones before are committed.
        assert not await produce(brokers, b"the last one")
        await until(lambda: brokers.replica(late, TOPIC, 0).state.high_watermark >= 3)
        await brokers.stop(late)
        await brokers.stop(first)
        # It has none of the committed records, and is the only broker that runs.
        await brokers.start_one(last)
        await until(lambda: brokers.leader(TOPIC, 0) == last)
        await brokers.until_served(TOPIC)
        assert brokers.topic(TOPIC).partitions[0].is_recovering
        assert not await produce(brokers, b"of the unclean leader", acks=1)
        await brokers.start_one(first)
        await until(lambda: isr(brokers) == {first, last})
        assert not brokers.topic(TOPIC).partitions[0].is_recovering
        with caplog.at_level(logging.WARNING):
            await brokers.start_one(late)
            await until(lambda: isr(brokers) == set(IDS))
        assert "is cut at offset 0, below its high watermark" in caplog.text
        contents = logs(brokers)
        assert contents == contents[:1] * 3
        assert not brokers.served(late).replicas.refused_cuts

    run(act)
