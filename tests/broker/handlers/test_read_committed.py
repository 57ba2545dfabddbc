"""Fetch and ListOffsets with read_committed: the last stable offset, and aborted transactions.

Everything here holds for Apache Kafka as well.
"""

import time
from collections.abc import Iterator

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.fetch import FetchResponse, PartitionData
from penstock.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from penstock.protocol.messages.produce import ProduceResponse
from tests.broker.handlers.asker import (
    NAMED,
    Asker,
    batch_of,
    fetch_request,
    fresh_name,
    headers_in,
    list_offsets_request,
    produce_request,
    values_in,
)
from tests.broker.handlers.transactional import Transactional, retried, until_written

COMMITTED = 1
LONG_MS = 5_000
LATEST = -1


@pytest.fixture
def topic(asker: Asker) -> str:
    name = fresh_name()
    asker.create(name)
    return name


@pytest.fixture
def bank(asker: Asker) -> Transactional:
    return Transactional(asker, fresh_name("bank")).init()


def write(
    bank: Transactional, topic: str, *values: bytes, sequence: int = 0, version: int = NAMED
) -> None:
    """One batch of the open transaction; from version 12 on it begins one."""
    batch = batch_of(
        *values,
        producer_id=bank.producer_id,
        producer_epoch=bank.epoch,
        sequence=sequence,
        transactional=True,
    )
    request = produce_request(topic, {0: batch}, transactional_id=bank.name)

    def attempt() -> ErrorCode:
        answer = bank.asker.ask(request, version, ProduceResponse)
        code = answer.responses[0].partition_responses[0].error_code
        # The answer to a producer while its last transaction is still being ended.
        is_busy = code == ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.CONCURRENT_TRANSACTIONS if is_busy else code

    assert retried(attempt, lambda code: code) == ErrorCode.NONE


def read(asker: Asker, topic: str, offset: int = 0, **bounds: int) -> PartitionData:
    request = fetch_request({topic: {0: offset}}, isolation_level=COMMITTED, **bounds)
    (data,) = asker.ask(request, NAMED, FetchResponse).responses[0].partitions
    assert data.error_code == ErrorCode.NONE
    return data


def until_stable(asker: Asker, topic: str, offset: int) -> PartitionData:
    """Markers come a moment after the answer to EndTxn."""
    deadline = time.monotonic() + 10
    while True:
        data = read(asker, topic)
        if data.last_stable_offset == offset:
            return data
        assert time.monotonic() < deadline, data.last_stable_offset


def latest(asker: Asker, topic: str, isolation_level: int, timestamp: int = LATEST) -> int:
    (asked,) = list_offsets_request(topic, {0: timestamp}).topics
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=(asked,))
    answer = asker.ask(request, 8, ListOffsetsResponse)
    return answer.topics[0].partitions[0].offset


def test_an_open_transaction_is_hidden_with_all_that_follows(
    asker: Asker, bank: Transactional, topic: str
) -> None:
    asker.produce(topic, batch_of(b"before"))
    write(bank, topic, b"inside", b"too")
    asker.produce(topic, batch_of(b"after"))
    found = read(asker, topic)
    assert values_in(found) == [b"before"]
    assert (found.last_stable_offset, found.high_watermark) == (1, 4)
    assert found.aborted_transactions == ()
    assert read(asker, topic, offset=1).records == b""
    everything = asker.fetch(topic, 0)
    assert values_in(everything) == [b"before", b"inside", b"too", b"after"]
    assert (everything.last_stable_offset, everything.aborted_transactions) == (1, None)
    assert latest(asker, topic, COMMITTED) == 1
    assert latest(asker, topic, 0) == 4
    bank.end(commits=True)


def test_a_commit_shows_it(asker: Asker, bank: Transactional, topic: str) -> None:
    write(bank, topic, b"inside")
    bank.end(commits=True)
    found = until_stable(asker, topic, 2)
    assert found.aborted_transactions == ()
    assert [header.is_control for header in headers_in(found)] == [False, True]
    assert latest(asker, topic, COMMITTED) == 2


def test_an_abort_is_listed_for_the_ranges_it_touches(
    asker: Asker, bank: Transactional, topic: str
) -> None:
    asker.produce(topic, batch_of(b"before"))
    first = bank.producer_id
    write(bank, topic, b"gone")
    bank.end(commits=False)
    until_stable(asker, topic, 3)
    write(bank, topic, b"kept")
    bank.end(commits=True)
    found = until_stable(asker, topic, 5)
    listed = found.aborted_transactions
    assert listed is not None
    assert [(entry.producer_id, entry.first_offset) for entry in listed] == [(first, 1)]
    behind = read(asker, topic, offset=3).aborted_transactions
    assert behind == ()


def test_the_oldest_transaction_holds_the_others_back(
    asker: Asker, bank: Transactional, topic: str
) -> None:
    other = Transactional(asker, fresh_name("other")).init()
    write(bank, topic, b"first")
    write(other, topic, b"second")
    other.end(commits=True)
    until_written(asker, topic, 3)
    assert read(asker, topic).last_stable_offset == 0
    bank.end(commits=True)
    assert values_in(until_stable(asker, topic, 4))[:2] == [b"first", b"second"]


def test_a_transaction_of_an_older_client_is_added_by_itself(
    asker: Asker, bank: Transactional, topic: str
) -> None:
    bank.add(topic, 0)
    write(bank, topic, b"old", version=11)
    write(bank, topic, b"school", sequence=1, version=11)
    bank.end(commits=True, version=4)
    assert values_in(until_stable(asker, topic, 3))[:2] == [b"old", b"school"]


def test_a_partition_that_was_not_added_is_refused(
    asker: Asker, bank: Transactional, topic: str
) -> None:
    batch = batch_of(
        b"x",
        producer_id=bank.producer_id,
        producer_epoch=bank.epoch,
        sequence=0,
        transactional=True,
    )
    request = produce_request(topic, {0: batch}, transactional_id=bank.name)
    for version, code in (
        (10, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE),
    ):
        answer = asker.ask(request, version, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == code
    assert asker.fetch(topic, 0).high_watermark == 0


def test_a_time_is_looked_up_below_the_last_stable_offset(
    asker: Asker, bank: Transactional, topic: str
) -> None:
    write(bank, topic, b"inside")
    assert latest(asker, topic, 0, timestamp=1) == 0
    assert latest(asker, topic, COMMITTED, timestamp=1) == -1
    bank.end(commits=True)
    until_stable(asker, topic, 2)
    assert latest(asker, topic, COMMITTED, timestamp=1) == 0


@pytest.fixture
def reader(asker: Asker) -> Iterator[Asker]:
    with asker.another() as connection:
        yield connection


@pytest.mark.parametrize("min_bytes", [1, 1_000])
def test_a_waiting_fetch_is_woken_by_the_marker(
    asker: Asker, reader: Asker, bank: Transactional, topic: str, min_bytes: int
) -> None:
    request = fetch_request(
        {topic: {0: 0}}, isolation_level=COMMITTED, wait_ms=LONG_MS, min_bytes=min_bytes
    )
    reader.send(request, NAMED)
    write(bank, topic, b"x" * 2_000)
    assert reader.is_silent(0.2)
    begun = time.monotonic()
    bank.end(commits=True)
    (data,) = reader.receive(FetchResponse).responses[0].partitions
    assert time.monotonic() - begun < LONG_MS / 2_000
    assert values_in(data)[0] == b"x" * 2_000
