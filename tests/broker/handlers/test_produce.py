"""Produce: accepted and rejected batches, and the answers to an idempotent producer."""

import time
from uuid import uuid4

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.records.builder import build_batch
from penstock.records.record import Record
from tests.broker.handlers.asker import (
    Asker,
    batch_of,
    fresh_name,
    headers_in,
    produce_request,
    values_in,
)


@pytest.fixture
def topic(asker: Asker) -> str:
    name = fresh_name()
    asker.create(name, partitions=2)
    return name


def broken_batch() -> bytes:
    data = bytearray(batch_of(b"broken"))
    data[-1] ^= 1
    return bytes(data)


def by_partition(answer: ProduceResponse) -> dict[int, PartitionProduceResponse]:
    return {found.index: found for found in answer.responses[0].partition_responses}


# --- Acknowledgements ---


@pytest.mark.parametrize("acks", [1, -1])
def test_offsets_follow_each_other(asker: Asker, topic: str, acks: int) -> None:
    offsets = [
        asker.produce(topic, batch_of(*values), acks=acks).base_offset
        for values in ([b"a"], [b"b", b"c"], [b"d"])
    ]
    assert offsets == [0, 1, 3]
    assert values_in(asker.fetch(topic, 0)) == [b"a", b"b", b"c", b"d"]


def test_what_an_answer_says(asker: Asker, topic: str) -> None:
    answer = asker.produce(topic, batch_of(b"a"))
    assert answer.error_code == ErrorCode.NONE
    assert (answer.log_append_time_ms, answer.log_start_offset) == (-1, 0)
    assert (answer.record_errors, answer.error_message) == ((), None)
    assert answer.current_leader.leader_id == -1


def test_the_brokers_time_is_told(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name, configs={"message.timestamp.type": "LogAppendTime"})
    answer = asker.produce(name, batch_of(b"a", timestamps_ms=[5]))
    assert answer.log_append_time_ms > 1_700_000_000_000
    (header,) = headers_in(asker.fetch(name, 0))
    assert header.max_timestamp_ms == answer.log_append_time_ms
    assert header.is_log_append_time


def test_without_acknowledgement_there_is_no_answer(asker: Asker, topic: str) -> None:
    asker.send(produce_request(topic, {0: batch_of(b"quiet")}, acks=0), 12, is_answered=False)
    # The next answer on the connection is the next request's.
    assert asker.produce(topic, batch_of(b"loud")).base_offset == 1
    assert values_in(asker.fetch(topic, 0)) == [b"quiet", b"loud"]


def test_without_acknowledgement_an_error_ends_the_connection(asker: Asker, topic: str) -> None:
    asker.send(produce_request(topic, {0: broken_batch()}, acks=0), 12, is_answered=False)
    assert asker.is_closed()


@pytest.mark.parametrize("acks", [2, -2, 32_767])
def test_acknowledgements_that_cannot_be(asker: Asker, topic: str, acks: int) -> None:
    answer = asker.produce(topic, batch_of(b"a"), acks=acks)
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert answer.base_offset == -1
    assert asker.fetch(topic, 0).high_watermark == 0


# --- Which partition ---


def test_topics_and_partitions_that_nobody_has(asker: Asker, topic: str) -> None:
    for name, partition in ((fresh_name(), 0), (topic, 2), (topic, -1)):
        answer = asker.produce(name, batch_of(b"a"), partition=partition)
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (answer.index, answer.base_offset) == (partition, -1)
        assert (answer.log_append_time_ms, answer.log_start_offset) == (-1, -1)


def test_by_id(asker: Asker) -> None:
    topic_id, unknown = asker.create(fresh_name()), uuid4()
    for asked, partition, code in (
        (topic_id, 0, ErrorCode.NONE),
        (topic_id, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (unknown, 0, ErrorCode.UNKNOWN_TOPIC_ID),
    ):
        request = produce_request(asked, {partition: batch_of(b"a")})
        answer = asker.ask(request, 13, ProduceResponse)
        assert answer.responses[0].topic_id == asked
        assert answer.responses[0].partition_responses[0].error_code == code


def test_one_refused_partition_leaves_the_others(asker: Asker, topic: str) -> None:
    request = produce_request(topic, {0: batch_of(b"a"), 1: broken_batch(), 7: batch_of(b"b")})
    answers = by_partition(asker.ask(request, 12, ProduceResponse))
    assert {index: answer.error_code for index, answer in answers.items()} == {
        0: ErrorCode.NONE,
        1: ErrorCode.CORRUPT_MESSAGE,
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert [answers[index].base_offset for index in (0, 1, 7)] == [0, -1, -1]
    assert values_in(asker.fetch(topic, 0)) == [b"a"]


def test_several_topics_in_one_request(asker: Asker, topic: str) -> None:
    other = fresh_name()
    asker.create(other)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=tuple(
            TopicProduceData(
                name=name,
                partition_data=(PartitionProduceData(index=0, records=batch_of(name.encode())),),
            )
            for name in (topic, other)
        ),
    )
    answer = asker.ask(request, 9, ProduceResponse)
    assert {found.name for found in answer.responses} == {topic, other}
    for name in (topic, other):
        assert values_in(asker.fetch(name, 0)) == [name.encode()]


def test_a_partition_twice_in_a_request_is_refused(penstock: Asker) -> None:
    """Kafka appends one of the two; a producer that sends this is not a Kafka client."""
    name = fresh_name()
    penstock.create(name)
    data = tuple(
        PartitionProduceData(index=0, records=batch_of(value)) for value in (b"first", b"second")
    )
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=(TopicProduceData(name=name, partition_data=data),),
    )
    answer = penstock.ask(request, 12, ProduceResponse)
    assert [found.error_code for found in answer.responses[0].partition_responses] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert values_in(penstock.fetch(name, 0)) == [b"first"]


# --- Which records ---


@pytest.mark.parametrize(
    ("configs", "records", "code"),
    [
        ({}, b"", ErrorCode.INVALID_RECORD),
        ({}, broken_batch(), ErrorCode.CORRUPT_MESSAGE),
        ({}, batch_of(b"a") + batch_of(b"b"), ErrorCode.INVALID_RECORD),
        ({"max.message.bytes": "100"}, batch_of(b"x" * 100), ErrorCode.MESSAGE_TOO_LARGE),
        ({"cleanup.policy": "compact"}, batch_of(b"no key"), ErrorCode.INVALID_RECORD),
        (
            {"message.timestamp.before.max.ms": "1000"},
            batch_of(b"old", timestamps_ms=[1_000_000]),
            ErrorCode.INVALID_TIMESTAMP,
        ),
    ],
    ids=["empty", "checksum", "two-batches", "too-large", "no-key", "too-old"],
)
def test_records_that_are_refused(
    asker: Asker, configs: dict[str, str], records: bytes | None, code: ErrorCode
) -> None:
    name = fresh_name()
    asker.create(name, configs=configs)
    answer = asker.produce(name, records)
    assert answer.error_code == code
    assert answer.base_offset == -1
    assert asker.fetch(name, 0).high_watermark == 0


def test_null_for_records_is_refused(penstock: Asker) -> None:
    """Kafka never answers this."""
    name = fresh_name()
    penstock.create(name)
    assert penstock.produce(name, None).error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ({"message.timestamp.before.max.ms": "60000"}, ErrorCode.INVALID_TIMESTAMP),
        ({"cleanup.policy": "compact"}, ErrorCode.INVALID_RECORD),
    ],
)
def test_the_record_to_blame_is_named(
    asker: Asker, configs: dict[str, str], code: ErrorCode
) -> None:
    name = fresh_name()
    asker.create(name, configs=configs)
    now_ms = time.time_ns() // 1_000_000
    records = [
        Record(key=b"key", value=b"good", timestamp_ms=now_ms),
        Record(value=b"bad", timestamp_ms=now_ms - 3_600_000),
    ]
    answer = asker.produce(name, bytes(build_batch(records)))
    assert answer.error_code == code
    (blamed,) = answer.record_errors
    assert blamed.batch_index == 1
    assert blamed.batch_index_error_message
    assert answer.error_message


# --- Idempotence ---


def test_a_repeated_batch_is_answered_with_its_first_offset(asker: Asker, topic: str) -> None:
    producer = asker.producer_id()
    batches = [
        batch_of(b"a", b"b", producer_id=producer, sequence=sequence, timestamps_ms=[7, 8])
        for sequence in (0, 2, 4, 6, 8)
    ]
    first = [asker.produce(topic, batch).base_offset for batch in batches]
    assert first == [0, 2, 4, 6, 8]
    for acks in (1, -1):
        again = [asker.produce(topic, batch, acks=acks) for batch in batches]
        assert [answer.error_code for answer in again] == [ErrorCode.NONE] * 5
        assert [answer.base_offset for answer in again] == first
        assert {answer.log_append_time_ms for answer in again} == {8}
    assert asker.fetch(topic, 0).high_watermark == 10


def test_a_batch_older_than_five_is_out_of_order(asker: Asker, topic: str) -> None:
    producer = asker.producer_id()
    batches = [batch_of(b"a", producer_id=producer, sequence=number) for number in range(6)]
    for batch in batches:
        assert asker.produce(topic, batch).error_code == ErrorCode.NONE
    assert asker.produce(topic, batches[1]).base_offset == 1
    answer = asker.produce(topic, batches[0])
    assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert asker.fetch(topic, 0).high_watermark == 6


def test_a_gap_is_out_of_order_and_costs_nothing(asker: Asker, topic: str) -> None:
    producer = asker.producer_id()
    assert asker.produce(topic, batch_of(b"a", producer_id=producer, sequence=0)).base_offset == 0
    answer = asker.produce(topic, batch_of(b"c", producer_id=producer, sequence=2))
    assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert asker.produce(topic, batch_of(b"b", producer_id=producer, sequence=1)).base_offset == 1
    assert asker.produce(topic, batch_of(b"c", producer_id=producer, sequence=2)).base_offset == 2
    assert values_in(asker.fetch(topic, 0)) == [b"a", b"b", b"c"]


def test_a_producer_that_nobody_knows_may_begin_anywhere(asker: Asker, topic: str) -> None:
    batch = batch_of(b"a", producer_id=asker.producer_id(), sequence=17)
    assert asker.produce(topic, batch).error_code == ErrorCode.NONE


def test_each_partition_counts_for_itself(asker: Asker, topic: str) -> None:
    batch = batch_of(b"a", producer_id=asker.producer_id(), sequence=0)
    for partition in (0, 1):
        assert asker.produce(topic, batch, partition=partition).base_offset == 0
    assert asker.fetch(topic, 0).high_watermark == 1


def test_epochs(asker: Asker, topic: str) -> None:
    producer = asker.producer_id()

    def send(epoch: int, sequence: int) -> ErrorCode:
        batch = batch_of(b"a", producer_id=producer, producer_epoch=epoch, sequence=sequence)
        return asker.produce(topic, batch).error_code

    assert send(1, 0) == ErrorCode.NONE
    assert send(0, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(2, 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(2, 0) == ErrorCode.NONE
    assert send(2, 1) == ErrorCode.NONE
    assert send(1, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert asker.fetch(topic, 0).high_watermark == 3


def test_sequences_wrap(asker: Asker, topic: str) -> None:
    producer = asker.producer_id()
    last = 2**31 - 1
    for sequence, values in ((last - 1, [b"a"]), (last, [b"b", b"c"]), (1, [b"d"])):
        batch = batch_of(*values, producer_id=producer, sequence=sequence)
        assert asker.produce(topic, batch).error_code == ErrorCode.NONE
    assert asker.fetch(topic, 0).high_watermark == 4


# --- Transactions; more of them in test_transactional_produce.py ---


def test_a_transactional_batch_needs_a_transactional_id(asker: Asker, topic: str) -> None:
    batch = batch_of(b"a", producer_id=asker.producer_id(), sequence=0, transactional=True)
    refused = asker.produce(topic, batch)
    assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert asker.fetch(topic, 0).high_watermark == 0


def test_a_transactional_id_without_transactional_batches_changes_nothing(
    asker: Asker, topic: str
) -> None:
    request = produce_request(topic, {0: batch_of(b"a")}, transactional_id="bank")
    answer = asker.ask(request, 12, ProduceResponse)
    assert by_partition(answer)[0].error_code == ErrorCode.NONE
