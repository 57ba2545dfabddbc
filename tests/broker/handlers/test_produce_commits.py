"""Produce between append and commit: when the answer is sent, and the error if it fails.

The disk and the clock are the test's, so every moment can be looked at.
"""

import pytest

from penstock.broker.answers import CLOSE_CONNECTION, NO_ANSWER, Answer
from penstock.broker.handlers import produce
from penstock.core.deferred import Deferred
from penstock.core.errors import DiskFullError, StorageError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.broker.handlers.asker import batch_of, produce_request
from tests.broker.handlers.fakes import FakeServices
from tests.storage.logs import PARTITION

TOPIC = PARTITION.topic
VERSION = 12


class Waiting:
    """A produce request that was handled."""

    def __init__(self, fake: FakeServices, request: ProduceRequest) -> None:
        self.answers: list[Answer] = []
        outcome = produce.handle(request, fake.context(VERSION))
        if isinstance(outcome, Deferred):
            outcome.then(self.answers.append)
        else:
            self.answers.append(outcome)

    @property
    def results(self) -> dict[int, PartitionProduceResponse]:
        (answer,) = self.answers
        assert isinstance(answer, ProduceResponse)
        return {found.index: found for found in answer.responses[0].partition_responses}


@pytest.fixture
def fake() -> FakeServices:
    return FakeServices()


def one(
    fake: FakeServices, *, acks: int = -1, sequence: int = -1, timeout_ms: int = 1_000
) -> Waiting:
    producer_id = -1 if sequence < 0 else 7
    batch = batch_of(b"value", producer_id=producer_id, sequence=sequence, timestamps_ms=[0])
    return Waiting(fake, produce_request(TOPIC, {0: batch}, acks=acks, timeout_ms=timeout_ms))


@pytest.mark.parametrize("acks", [1, -1])
def test_the_answer_leaves_when_the_records_are_on_the_disk(fake: FakeServices, acks: int) -> None:
    waiting = one(fake, acks=acks)
    assert waiting.answers == []
    fake.node.sync()
    assert waiting.results[0].error_code == ErrorCode.NONE
    assert waiting.results[0].base_offset == 0


def test_who_wants_no_answer_does_not_wait(fake: FakeServices) -> None:
    assert one(fake, acks=0).answers == [NO_ANSWER]
    broken = produce_request(TOPIC, {0: b"", 1: batch_of(b"x")}, acks=0)
    assert Waiting(fake, broken).answers == [CLOSE_CONNECTION]


def test_time_that_runs_out_is_told(fake: FakeServices) -> None:
    waiting = one(fake, timeout_ms=100)
    fake.node.timer.advance(0.11)
    assert waiting.results[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert waiting.results[0].base_offset == -1
    # The batch stays: it may be committed later, and its producer may send it again.
    fake.node.sync()
    assert len(waiting.answers) == 1
    assert fake.node.partition.state.high_watermark == 1


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_no_time_at_all_still_lets_the_disk_answer_first(
    fake: FakeServices, timeout_ms: int
) -> None:
    first = one(fake, timeout_ms=timeout_ms)
    fake.node.sync()
    assert first.results[0].error_code == ErrorCode.NONE
    second = one(fake, timeout_ms=timeout_ms)
    fake.node.timer.advance(0.011)
    assert second.results[0].error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_repeated_batch_is_answered_no_sooner_than_the_first(fake: FakeServices) -> None:
    first, again = one(fake, sequence=0), one(fake, sequence=0)
    assert first.answers == again.answers == []
    fake.node.sync()
    assert first.results[0].base_offset == again.results[0].base_offset == 0
    assert one(fake, sequence=0).results[0].base_offset == 0


def test_a_dead_disk_is_told(fake: FakeServices) -> None:
    waiting = one(fake)
    fake.node.replicas.on_failure([fake.node.partition.log], StorageError("dead"))
    assert waiting.results[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert waiting.results[0].base_offset == -1


def test_a_topic_deleted_meanwhile_is_told(fake: FakeServices) -> None:
    waiting = one(fake)
    fake.node.replicas.drop(PARTITION)
    assert waiting.results[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_disk_without_room_refuses_before_anything_is_written(fake: FakeServices) -> None:
    fake.refusal = DiskFullError("full")
    assert one(fake).results[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert one(fake, acks=0).answers == [CLOSE_CONNECTION]
    assert fake.node.partition.log.end_offset == 0


def test_one_answer_for_all_partitions_when_all_are_done(fake: FakeServices) -> None:
    other = fake.node.add(TOPIC, 1)
    batches: dict[int, bytes | None] = {
        index: batch_of(b"value", timestamps_ms=[0]) for index in range(3)
    }
    waiting = Waiting(fake, produce_request(TOPIC, batches))
    fake.node.replicas.on_failure([other.log], StorageError("dead"))
    assert waiting.answers == []
    fake.node.sync()
    codes = {index: found.error_code for index, found in waiting.results.items()}
    assert codes == {
        0: ErrorCode.NONE,
        1: ErrorCode.KAFKA_STORAGE_ERROR,
        2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_a_request_of_which_nothing_is_taken_does_not_wait(fake: FakeServices) -> None:
    waiting = Waiting(fake, produce_request(TOPIC, {7: batch_of(b"a")}))
    assert waiting.results[7].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_request_with_no_partitions_is_answered(fake: FakeServices) -> None:
    assert Waiting(fake, produce_request(TOPIC, {})).results == {}


def test_when_too_many_wait_the_client_is_told_to_come_again(fake: FakeServices) -> None:
    fake.node.replicas.waits.parked_max = 1
    first, second = one(fake, sequence=0), one(fake, sequence=1)
    assert first.answers == []
    assert second.results[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    fake.node.sync()
    assert first.results[0].error_code == ErrorCode.NONE
    # The client retries, and the batch is stored already.
    assert one(fake, sequence=1).results[0].base_offset == 1


def code_of(waiting: Waiting, fake: FakeServices) -> int:
    if not waiting.answers:
        fake.node.sync()
    return waiting.results[0].error_code


def test_a_batch_behind_a_refused_one_gets_its_error(fake: FakeServices) -> None:
    """Both are sent again in order; an epoch raised by the client would repeat other records."""
    assert code_of(one(fake, sequence=0), fake) == ErrorCode.NONE
    fake.refusal = DiskFullError("full")
    assert code_of(one(fake, sequence=1), fake) == ErrorCode.KAFKA_STORAGE_ERROR
    fake.refusal = None
    assert code_of(one(fake, sequence=2), fake) == ErrorCode.KAFKA_STORAGE_ERROR
    assert [code_of(one(fake, sequence=number), fake) for number in (1, 2)] == [ErrorCode.NONE] * 2
    # Nothing is missing before this one but what its producer never sent.
    assert code_of(one(fake, sequence=4), fake) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert fake.node.partition.log.end_offset == 3
