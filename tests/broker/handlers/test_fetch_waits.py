"""Fetch that waits: the awaited records wake it at once, and it ends after its timeout."""

import time
from collections.abc import Iterator

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.fetch import FetchResponse, PartitionData
from tests.broker.handlers.asker import NAMED, Asker, batch_of, fetch_request, fresh_name, values_in

LONG_MS = 5_000
AT_ONCE_SECONDS = 0.1
"""Of five: what a wake-up may take on a busy machine."""


@pytest.fixture
def topic(asker: Asker) -> str:
    name = fresh_name()
    asker.create(name, partitions=2)
    return name


@pytest.fixture
def writer(asker: Asker) -> Iterator[Asker]:
    with asker.another() as connection:
        yield connection


def found_in(answer: FetchResponse) -> dict[int, PartitionData]:
    return {data.partition_index: data for data in answer.responses[0].partitions}


def test_an_append_wakes_it_at_once(asker: Asker, writer: Asker, topic: str) -> None:
    asker.send(fetch_request({topic: {0: 0, 1: 0}}, wait_ms=LONG_MS), NAMED)
    begun = time.monotonic()
    assert writer.produce(topic, batch_of(b"new"), partition=1).base_offset == 0
    answer = asker.receive(FetchResponse)
    assert time.monotonic() - begun < (1.0 if asker.is_kafka else AT_ONCE_SECONDS)
    assert values_in(found_in(answer)[1]) == [b"new"]


def test_no_wake_up_is_lost(penstock: Asker) -> None:
    """The fetch and the append race a hundred times; one lost wake-up would cost five seconds."""
    name = fresh_name()
    penstock.create(name)
    slowest = 0.0
    with penstock.another() as writer:
        for offset in range(100):
            begun = time.monotonic()
            penstock.send(fetch_request({name: {0: offset}}, wait_ms=LONG_MS), NAMED)
            writer.produce(name, batch_of(b"new"))
            answer = penstock.receive(FetchResponse)
            slowest = max(slowest, time.monotonic() - begun)
            assert found_in(answer)[0].high_watermark == offset + 1
    assert slowest < 1.0


def test_it_waits_for_as_many_bytes_as_it_wants(asker: Asker, writer: Asker, topic: str) -> None:
    batch = batch_of(b"x" * 500)
    wanted = 2 * len(batch) + 1
    asker.send(fetch_request({topic: {0: 0, 1: 0}}, wait_ms=LONG_MS, min_bytes=wanted), NAMED)
    for partition in (0, 1):
        writer.produce(topic, batch, partition=partition)
    assert asker.is_silent(0.02)
    writer.produce(topic, batch, partition=1)
    found = found_in(asker.receive(FetchResponse))
    assert [len(values_in(found[index])) for index in (0, 1)] == [1, 2]


def test_what_is_there_counts(asker: Asker, writer: Asker, topic: str) -> None:
    batch = batch_of(b"x" * 500)
    writer.produce(topic, batch)
    request = fetch_request({topic: {0: 0}}, wait_ms=LONG_MS, min_bytes=2 * len(batch))
    asker.send(request, NAMED)
    assert asker.is_silent(0.02)
    writer.produce(topic, batch)
    assert len(values_in(found_in(asker.receive(FetchResponse))[0])) == 2


def test_its_time_runs_out(asker: Asker, topic: str) -> None:
    begun = time.monotonic()
    request = fetch_request({topic: {0: 0}}, wait_ms=40)
    answer = asker.ask(request, NAMED, FetchResponse)
    assert 0.035 < time.monotonic() - begun < 2.0
    assert found_in(answer)[0].error_code == ErrorCode.NONE
    assert not found_in(answer)[0].records


@pytest.mark.parametrize(("wait_ms", "min_bytes"), [(0, 1), (LONG_MS, 0), (-1, 1)])
def test_it_does_not_wait_when_it_need_not(
    asker: Asker, topic: str, wait_ms: int, min_bytes: int
) -> None:
    begun = time.monotonic()
    request = fetch_request({topic: {0: 0}}, wait_ms=wait_ms, min_bytes=min_bytes)
    asker.ask(request, NAMED, FetchResponse)
    assert time.monotonic() - begun < 1.0


def test_an_error_does_not_wait(asker: Asker, topic: str) -> None:
    begun = time.monotonic()
    request = fetch_request({topic: {0: 9, 1: 0}}, wait_ms=LONG_MS)
    found = found_in(asker.ask(request, NAMED, FetchResponse))
    assert found[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert time.monotonic() - begun < 1.0


def test_a_deleted_topic_ends_the_wait(penstock: Asker) -> None:
    """Kafka lets the client wait until its time is up."""
    name = fresh_name()
    penstock.create(name)
    penstock.send(fetch_request({name: {0: 0}}, wait_ms=LONG_MS), NAMED)
    begun = time.monotonic()
    with penstock.another() as other:
        other.delete(name)
    found = found_in(penstock.receive(FetchResponse))[0]
    assert time.monotonic() - begun < 1.0
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_two_that_wait_are_both_woken(asker: Asker, writer: Asker, topic: str) -> None:
    with asker.another() as second:
        for one in (asker, second):
            one.send(fetch_request({topic: {0: 0}}, wait_ms=LONG_MS), NAMED)
        writer.produce(topic, batch_of(b"new"))
        for one in (asker, second):
            assert values_in(found_in(one.receive(FetchResponse))[0]) == [b"new"]
