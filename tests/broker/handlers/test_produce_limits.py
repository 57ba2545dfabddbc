"""The cost of one Produce request: names, unfolded bytes and time are bounded."""

import zlib

import pytest

from penstock.broker.answers import Answer, HoldingAnswer, WaitingAnswer
from penstock.broker.handlers import produce
from penstock.core.deferred import Deferred
from penstock.core.limits import (
    DECOMPRESSED_REQUEST_BYTES_MAX,
    PRODUCE_WAIT_MS_MAX,
    UNFOLD_ON_LOOP_BYTES_MAX,
)
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.records import compression, validation
from penstock.records.batch import CRC_START, HEADER_BYTES
from penstock.records.compression import GZIP
from penstock.records.crc32c import checksum
from tests.broker.handlers.asker import batch_of, produce_request
from tests.broker.handlers.fakes import FakeServices
from tests.storage.logs import PARTITION

TOPIC = PARTITION.topic
VERSION = 12
UNFOLDED_BYTES = 1_000_000


def repeated(count: int, records: bytes) -> ProduceRequest:
    """A request that names one partition several times."""
    data = tuple(PartitionProduceData(index=0, records=records) for _ in range(count))
    topic = TopicProduceData(name=TOPIC, topic_id=None, partition_data=data)
    return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1_000, topic_data=(topic,))


def bomb() -> bytes:
    """A batch that unfolds to much more than it is, and then is no record."""
    data = bytearray(batch_of(b"x", timestamps_ms=[0], codec=GZIP)[:HEADER_BYTES])
    data += zlib.compress(bytes(UNFOLDED_BYTES), wbits=31)
    data[8:12] = (len(data) - 12).to_bytes(4)
    data[17:21] = checksum(memoryview(data)[CRC_START:]).to_bytes(4)
    return bytes(data)


def codes(outcome: Answer | Deferred[Answer]) -> list[int]:
    assert isinstance(outcome, ProduceResponse)
    return [found.error_code for found in outcome.responses[0].partition_responses]


def answered(fake: FakeServices, request: ProduceRequest) -> Answer:
    """The answer, after workers and later turns of the event loop had their part."""
    answers: list[Answer] = []
    outcome = produce.handle(request, fake.context(VERSION))
    assert isinstance(outcome, HoldingAnswer)
    outcome.then(answers.append)
    fake.run_turns()
    return answers[0]


@pytest.fixture
def fake() -> FakeServices:
    return FakeServices()


@pytest.fixture
def unfolded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What each batch was allowed to unfold to."""
    allowed: list[int] = []

    def note(codec: int, data: memoryview, output_bytes_max: int) -> object:
        if output_bytes_max > UNFOLD_ON_LOOP_BYTES_MAX:
            allowed.append(output_bytes_max)
        return compression.decompress(codec, data, output_bytes_max)

    monkeypatch.setattr(validation, "decompress", note)
    return allowed


def test_a_partition_that_was_refused_is_not_looked_at_again(
    fake: FakeServices, unfolded: list[int]
) -> None:
    outcome = answered(fake, repeated(20, bomb()))
    assert codes(outcome) == [ErrorCode.INVALID_RECORD, *[ErrorCode.INVALID_REQUEST] * 19]
    assert len(unfolded) == 1
    assert fake.heavy.jobs == 1


def test_batches_of_a_request_share_what_they_unfold_to(
    fake: FakeServices, unfolded: list[int]
) -> None:
    for index in (1, 2):
        fake.node.add(TOPIC, index)
    request = produce_request(TOPIC, dict.fromkeys(range(3), bomb()))
    assert codes(answered(fake, request)) == [ErrorCode.INVALID_RECORD] * 3
    whole = DECOMPRESSED_REQUEST_BYTES_MAX
    assert unfolded == [whole, whole - UNFOLDED_BYTES, whole - 2 * UNFOLDED_BYTES]


def test_a_wait_for_the_disk_is_bounded(fake: FakeServices) -> None:
    request = produce_request(TOPIC, {0: batch_of(b"x", timestamps_ms=[0])}, timeout_ms=2**31 - 1)
    answers: list[Answer] = []
    outcome = produce.handle(request, fake.context(VERSION))
    assert isinstance(outcome, Deferred)
    outcome.then(answers.append)
    fake.node.timer.advance(PRODUCE_WAIT_MS_MAX / 1000 - 1)
    assert not answers
    fake.node.timer.advance(2)
    assert codes(answers[0]) == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_producer_that_is_gone_waits_for_nothing(fake: FakeServices) -> None:
    outcome = produce.handle(
        produce_request(TOPIC, {0: batch_of(b"x", timestamps_ms=[0])}), fake.context(VERSION)
    )
    assert isinstance(outcome, WaitingAnswer)
    outcome.waiter.hurry()
    assert len(fake.node.replicas.waits) == 1
    outcome.waiter.abandon()
    assert len(fake.node.replicas.waits) == 0
    fake.node.sync()
    assert not outcome.is_set
    assert fake.node.partition.state.high_watermark == 1
