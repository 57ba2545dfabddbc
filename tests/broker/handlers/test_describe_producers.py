"""DescribeProducers: the active producers, their positions, and open transactions."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from penstock.protocol.messages.produce import ProduceResponse
from tests.broker.handlers.asker import NAMED, Asker, batch_of, fresh_name, produce_request
from tests.broker.handlers.transactional import Transactional, until_written


@pytest.fixture
def topic(asker: Asker) -> str:
    name = fresh_name()
    asker.create(name)
    return name


def describe(asker: Asker, topic: str, partition: int = 0) -> PartitionResponse:
    request = DescribeProducersRequest(
        topics=(TopicRequest(name=topic, partition_indexes=(partition,)),)
    )
    answer = asker.ask(request, 0, DescribeProducersResponse)
    (found,) = answer.topics[0].partitions
    assert found.partition_index == partition
    return found


def test_nobody_wrote(asker: Asker, topic: str) -> None:
    found = describe(asker, topic)
    assert (found.error_code, found.error_message, found.active_producers) == (0, None, ())


def test_an_idempotent_producer(asker: Asker, topic: str) -> None:
    producer = asker.producer_id()
    for sequence in (0, 1):
        batch = batch_of(b"a", timestamps_ms=[1_000], producer_id=producer, sequence=sequence)
        asker.produce(topic, batch)
    (found,) = describe(asker, topic).active_producers
    assert (found.producer_id, found.producer_epoch) == (producer, 0)
    assert (found.last_sequence, found.last_timestamp) == (1, 1_000)
    assert (found.coordinator_epoch, found.current_txn_start_offset) == (-1, -1)


def test_an_open_transaction_and_its_end(asker: Asker, topic: str) -> None:
    asker.produce(topic, batch_of(b"before"))
    bank = Transactional(asker, fresh_name("bank")).init()
    batch = batch_of(
        b"a",
        producer_id=bank.producer_id,
        producer_epoch=bank.epoch,
        sequence=0,
        transactional=True,
    )
    request = produce_request(topic, {0: batch}, transactional_id=bank.name)
    answer = asker.ask(request, NAMED, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    (found,) = describe(asker, topic).active_producers
    assert (found.producer_id, found.producer_epoch) == bank.producer
    assert (found.last_sequence, found.current_txn_start_offset) == (0, 1)
    bank.end(commits=False)
    until_written(asker, topic, 3)
    (ended,) = describe(asker, topic).active_producers
    assert (ended.producer_id, ended.producer_epoch) == bank.producer
    assert (ended.last_sequence, ended.current_txn_start_offset) == (-1, -1)
    assert ended.coordinator_epoch >= 0


@pytest.mark.parametrize(
    ("name", "partition", "code"),
    [
        ("", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("nowhere", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("not/allowed", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_what_does_not_exist(
    asker: Asker, topic: str, name: str, partition: int, code: ErrorCode
) -> None:
    found = describe(asker, name or topic, partition)
    assert (found.error_code, found.active_producers) == (code, ())
