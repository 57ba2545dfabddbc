"""Fetch from a disk that has to be waited for, and from one that fails meanwhile.

Records outside the page cache are read on a thread; a failure there affects only that fetch.
"""

import asyncio
import errno
from collections.abc import Iterator
from dataclasses import replace

import pytest

from penstock.broker.answers import DEFECT, Answer
from penstock.broker.handlers import fetch
from penstock.broker.quotas.meter import RequestMeter
from penstock.broker.quotas.quotas import Quotas
from penstock.cluster.quota_entities import entity_of
from penstock.core.deferred import Deferred
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.fetch import FetchResponse
from penstock.replication.read_result import PartitionRead
from penstock.testing import Broker
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from tests.broker.handlers.asker import (
    NAMED,
    Asker,
    batch_of,
    fetch_request,
    fresh_name,
    values_in,
)
from tests.broker.handlers.fakes import FakeServices, Nobody
from tests.storage.logs import PARTITION, Clock, batch


@pytest.fixture(scope="module")
def disk() -> FaultyDisk:
    return FaultyDisk(MemoryDisk())


@pytest.fixture(scope="module")
def cold_broker(disk: FaultyDisk) -> Iterator[Broker]:
    with Broker(filesystem=disk) as broker:
        yield broker


@pytest.fixture
def asker(cold_broker: Broker, disk: FaultyDisk) -> Iterator[Asker]:
    with Asker(cold_broker.port) as connection:
        yield connection
    disk.is_cold = False
    disk.failures.clear()


@pytest.fixture
def topic(asker: Asker, disk: FaultyDisk) -> str:
    """Five batches that are not in the page cache."""
    name = fresh_name()
    asker.create(name)
    for number in range(5):
        asker.produce(name, batch_of(b"%d" % number, b"x" * 1_000))
    disk.is_cold = True
    return name


def test_what_is_cold_is_read_all_the_same(asker: Asker, topic: str) -> None:
    assert len(values_in(asker.fetch(topic, 0))) == 10
    assert values_in(asker.fetch(topic, 5))[0] == b"2"
    assert len(values_in(asker.fetch(topic, 0, max_bytes=2_500))) == 4
    assert len(values_in(asker.fetch(topic, 0, max_bytes=1))) == 2


def test_errors_are_told_beside_what_is_cold(asker: Asker, topic: str) -> None:
    request = fetch_request({topic: {0: 0, 1: 0}})
    found = asker.ask(request, NAMED, FetchResponse).responses[0].partitions
    assert [data.error_code for data in found] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_a_long_poll_is_woken_by_what_is_cold(asker: Asker, topic: str) -> None:
    asker.send(fetch_request({topic: {0: 10}}, wait_ms=5_000), NAMED)
    with asker.another() as writer:
        writer.produce(topic, batch_of(b"new"))
    (data,) = asker.receive(FetchResponse).responses[0].partitions
    assert values_in(data) == [b"new"]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOENT])
def test_a_read_that_fails_is_told(asker: Asker, topic: str, disk: FaultyDisk, number: int) -> None:
    disk.failures["read"] = [number] * 8
    assert asker.fetch(topic, 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.is_cold = False
    disk.failures["read"] = [number] * 8
    assert asker.fetch(topic, 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.failures.clear()
    assert len(values_in(asker.fetch(topic, 0))) == 10


# --- A defect of ours, put in by hand ---


class Waiting:
    """A fetch of one partition that is answered later."""

    def __init__(self, fake: FakeServices, offset: int, wait_ms: int = 0) -> None:
        self.answers: list[Answer] = []
        request = fetch_request({PARTITION.topic: {0: offset}}, wait_ms=wait_ms)
        outcome = fetch.handle(request, fake.context(NAMED))
        assert isinstance(outcome, Deferred)
        outcome.then(self.answers.append)


def defect(operation: str, path: str) -> None:
    if operation == "read":
        raise RuntimeError("a defect")


@pytest.fixture
def fake() -> FakeServices:
    services = FakeServices()
    services.node.append(batch())
    services.node.sync()
    return services


def test_a_defect_in_a_cold_read_costs_that_request_only(
    fake: FakeServices, caplog: pytest.LogCaptureFixture
) -> None:
    fake.cold.outcome = RuntimeError("a defect")
    fake.node.disk.is_cold = True
    assert Waiting(fake, 0).answers == [DEFECT]
    assert "a defect" in caplog.text


def test_a_defect_in_a_woken_fetch_is_not_the_producers(
    fake: FakeServices, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Waiting(fake, 1, wait_ms=1_000), Waiting(fake, 1, wait_ms=1_000)
    fake.node.append(batch())
    fake.node.disk.hook = defect
    fake.node.sync()
    assert first.answers == second.answers == [DEFECT]
    assert "a defect" in caplog.text


# --- Cost ---


class SlowDisk(Nobody):
    """A disk that needs a minute, with a little work of the broker's before."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    async def read_cold(self, *_asked: object, **_more: object) -> PartitionRead:
        self.clock.seconds += 0.05
        asyncio.get_running_loop().call_soon(self.wait)
        await asyncio.sleep(0)
        return PartitionRead(0, 0, b"")

    def wait(self) -> None:
        self.clock.seconds += 60.0


@pytest.mark.parametrize("is_woken", [False, True])
def test_the_time_that_a_disk_takes_is_not_its_clients(fake: FakeServices, is_woken: bool) -> None:
    clock = Clock()
    quotas = Quotas(clock)
    quotas.put(entity_of([("client-id", None)]), {"request_percentage": 1.0})
    meter = RequestMeter(quotas, "a")
    services = replace(fake.services, cold_reader=SlowDisk(clock))
    context = fake.context(NAMED)._replace(services=services, meter=meter)
    fake.node.disk.is_cold = not is_woken
    request = fetch_request({PARTITION.topic: {0: int(is_woken)}}, wait_ms=1_000)
    outcome = fetch.handle(request, context)
    assert isinstance(outcome, Deferred)
    if is_woken:
        meter.end()
        clock.seconds += 1.0
        fake.node.append(batch())
        fake.node.disk.is_cold = True
        fake.node.sync()
    answers: list[Answer] = []
    outcome.then(answers.append)
    (answer,) = answers
    assert isinstance(answer, FetchResponse)
    assert answer.throttle_time_ms == 0
    meter.finish()
    # A twentieth of a second is five percent of one.
    (used, _), *_ = quotas.request_time._ledger._entries.values()
    assert sum(sample.amount for sample in used._samples) == pytest.approx(5.0)


# --- When too many wait ---


def test_a_fetch_that_finds_no_place_to_wait_is_answered_at_once(fake: FakeServices) -> None:
    fake.node.replicas.waits.parked_max = 0
    request = fetch_request({PARTITION.topic: {0: 1}}, wait_ms=1_000)
    answer = fetch.handle(request, fake.context(NAMED))
    assert isinstance(answer, FetchResponse)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
