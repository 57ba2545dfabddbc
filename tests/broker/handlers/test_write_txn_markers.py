"""WriteTxnMarkers: accepted markers, and their effect on producers."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.produce import ProduceResponse
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.broker.handlers.asker import Asker, batch_of, fresh_name, headers_in, produce_request
from tests.broker.handlers.transactional import Transactional, until_written


@pytest.fixture
def topic(asker: Asker) -> str:
    name = fresh_name()
    asker.create(name, partitions=2)
    return name


def marker(
    producer_id: int,
    epoch: int,
    topic: str,
    *partitions: int,
    commits: bool = True,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commits,
        topics=(WritableTxnMarkerTopic(name=topic, partition_indexes=partitions),),
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )


def write(asker: Asker, *markers: WritableTxnMarker, version: int = 1) -> dict[int, ErrorCode]:
    """The codes by partition, of all markers together."""
    answer = asker.ask(WriteTxnMarkersRequest(markers=markers), version, WriteTxnMarkersResponse)
    return {
        found.partition_index: found.error_code
        for result in answer.markers
        for topic in result.topics
        for found in topic.partitions
    }


def test_a_marker_is_a_control_batch(asker: Asker, topic: str) -> None:
    producer = asker.producer_id()
    assert write(asker, marker(producer, 3, topic, 0, 1)) == {
        0: ErrorCode.NONE,
        1: ErrorCode.NONE,
    }
    (header,) = headers_in(asker.fetch(topic, 0))
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (producer, 3, -1)


def test_partitions_that_do_not_exist_are_told_of(asker: Asker, topic: str) -> None:
    producer = asker.producer_id()
    codes = write(asker, marker(producer, 0, topic, 0, 7))
    assert codes == {0: ErrorCode.NONE, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_no_markers_at_all(asker: Asker) -> None:
    answer = asker.ask(WriteTxnMarkersRequest(markers=()), 1, WriteTxnMarkersResponse)
    assert answer.markers == ()


def test_an_old_epoch_is_refused(asker: Asker, topic: str) -> None:
    producer = asker.producer_id()
    write(asker, marker(producer, 3, topic, 0))
    assert write(asker, marker(producer, 2, topic, 0)) == {0: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert write(asker, marker(producer, 3, topic, 0)) == {0: ErrorCode.NONE}


def test_with_transactions_of_version_2_the_epoch_of_the_records_is_refused(
    asker: Asker, topic: str
) -> None:
    bank = Transactional(asker, fresh_name("bank")).init()
    batch = batch_of(
        b"a",
        producer_id=bank.producer_id,
        producer_epoch=bank.epoch,
        sequence=0,
        transactional=True,
    )
    request = produce_request(topic, {0: batch}, transactional_id=bank.name)
    answer = asker.ask(request, 12, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    late = marker(*bank.producer, topic, 0, transaction_version=2)
    assert write(asker, late, version=2) == {0: ErrorCode.INVALID_PRODUCER_EPOCH}
    right = marker(bank.producer_id, bank.epoch + 1, topic, 0, transaction_version=2)
    for _ in range(2):
        assert write(asker, right, version=2) == {0: ErrorCode.NONE}


def test_an_old_coordinator_is_fenced(asker: Asker, topic: str) -> None:
    producer = asker.producer_id()
    write(asker, marker(producer, 0, topic, 0, coordinator_epoch=5))
    refused = write(asker, marker(producer, 0, topic, 0, coordinator_epoch=4))
    assert refused == {0: ErrorCode.TRANSACTION_COORDINATOR_FENCED}


def test_a_client_that_claims_to_be_a_later_coordinator_does_not_stop_ours(
    penstock: Asker,
) -> None:
    # Kafka's own coordinator is fenced then, and the transaction stays open for good: only a peer
    # that may act as a broker can send this to it. Here every client may.
    topic = fresh_name()
    penstock.create(topic)
    bank = Transactional(penstock, fresh_name("bank")).init()
    claim = marker(*bank.producer, topic, 0, commits=False, coordinator_epoch=2**31 - 1)
    assert write(penstock, claim) == {0: ErrorCode.NONE}
    batch = batch_of(
        b"a",
        producer_id=bank.producer_id,
        producer_epoch=bank.epoch,
        sequence=0,
        transactional=True,
    )
    request = produce_request(topic, {0: batch}, transactional_id=bank.name)
    answer = penstock.ask(request, 12, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    bank.end(commits=True)
    until_written(penstock, topic, 3)
    assert penstock.fetch(topic, 0).last_stable_offset == 3


def test_a_marker_with_a_new_epoch_begins_sequences_anew(asker: Asker, topic: str) -> None:
    producer = asker.producer_id()
    asker.produce(topic, batch_of(b"a", producer_id=producer, sequence=0))
    write(asker, marker(producer, 1, topic, 0))
    for epoch, sequence, code in (
        (0, 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (1, 0, ErrorCode.NONE),
    ):
        batch = batch_of(b"b", producer_id=producer, producer_epoch=epoch, sequence=sequence)
        answer = asker.ask(produce_request(topic, {0: batch}), 12, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == code
