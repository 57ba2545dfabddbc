"""OffsetForLeaderEpoch: where an epoch ends in the log."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.handlers.asker import Asker, batch_of, fresh_name


def ask(
    asker: Asker, topic: str, epoch: int, *, current: int = -1, partition: int = 0
) -> EpochEndOffset:
    asked = OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current, leader_epoch=epoch
    )
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=(OffsetForLeaderTopic(topic=topic, partitions=(asked,)),)
    )
    answer = asker.ask(request, 4, OffsetForLeaderEpochResponse)
    assert answer.topics[0].topic == topic
    return answer.topics[0].partitions[0]


@pytest.fixture
def topic(asker: Asker) -> str:
    name = fresh_name()
    asker.create(name)
    asker.produce(name, batch_of(b"a", b"b", b"c"))
    return name


def test_the_current_epoch_ends_at_the_end(asker: Asker, topic: str) -> None:
    found = ask(asker, topic, 0, current=0)
    assert (found.error_code, found.partition) == (ErrorCode.NONE, 0)
    assert (found.leader_epoch, found.end_offset) == (0, 3)


@pytest.mark.parametrize("epoch", [1, 99, -1])
def test_an_epoch_that_never_was(asker: Asker, topic: str, epoch: int) -> None:
    found = ask(asker, topic, epoch)
    assert found.error_code == ErrorCode.NONE
    assert (found.leader_epoch, found.end_offset) == (-1, -1)


def test_a_log_without_records(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    found = ask(asker, name, 0)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (ErrorCode.NONE, 0, 0)
    assert ask(asker, name, 1).leader_epoch == -1


def test_a_leader_that_is_not_yet(asker: Asker, topic: str) -> None:
    found = ask(asker, topic, 0, current=1)
    assert found.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (found.leader_epoch, found.end_offset) == (-1, -1)


def test_topics_and_partitions_that_nobody_has(asker: Asker, topic: str) -> None:
    for name, partition in ((topic, 1), (fresh_name(), 0)):
        found = ask(asker, name, 0, partition=partition)
        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert found.partition == partition
