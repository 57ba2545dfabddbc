"""Requests that name thousands of partitions are handled in slices, with the same answers.

Each test compares with the same request for few partitions, or provokes an error that only a sliced
request could have: a wake-up between its last slice and its wait.
"""

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator
from dataclasses import replace

import pytest

from penstock.broker.answers import WaitingAnswer
from penstock.broker.handlers import fetch
from penstock.core.limits import FETCH_PARTITIONS_AT_ONCE_MAX, OFFSETS_PER_COMMIT_MAX
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.fetch import FetchResponse, PartitionData
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from penstock.testing import Broker
from tests.broker.handlers.asker import NAMED, Asker, batch_of, fetch_request, values_in
from tests.broker.handlers.fakes import FakeServices
from tests.storage.logs import PARTITION

COUNT = FETCH_PARTITIONS_AT_ONCE_MAX + 200
LONG_MS = 20_000
TOPIC = "wide"
WRITTEN = range(10, 50)
"""Partitions that one test writes to; tests run in any order."""


@pytest.fixture(scope="module")
def wide() -> Iterator[Broker]:
    """A broker with one topic of many partitions; two of them have a record."""
    with Broker() as running:
        with Asker(running.port) as connection:
            connection.create(TOPIC, partitions=COUNT)
            for partition in (3, COUNT - 1):
                assert (
                    connection.produce(TOPIC, batch_of(b"x"), partition=partition).error_code == 0
                )
        yield running


@pytest.fixture
def penstock(wide: Broker) -> Iterator[Asker]:
    with Asker(wide.port) as connection:
        yield connection


def fetched(answer: FetchResponse) -> dict[int, PartitionData]:
    return {data.partition_index: data for topic in answer.responses for data in topic.partitions}


def everything(count: int = COUNT) -> dict[int, int]:
    return dict.fromkeys(range(count), 0)


def test_a_wide_fetch_finds_what_a_narrow_one_finds(penstock: Asker) -> None:
    found = fetched(penstock.ask(fetch_request({TOPIC: everything()}), NAMED, FetchResponse))
    assert len(found) == COUNT
    with_records = {index for index, data in found.items() if data.records}
    assert with_records - set(WRITTEN) == {3, COUNT - 1}
    assert values_in(found[3]) == [b"x"]
    assert {data.error_code for data in found.values()} == {ErrorCode.NONE}


def test_partitions_that_do_not_exist(penstock: Asker) -> None:
    request = fetch_request({TOPIC: everything(count=2 * COUNT)})
    found = fetched(penstock.ask(request, NAMED, FetchResponse))
    assert len(found) == 2 * COUNT
    missing = {index for index, data in found.items() if data.error_code}
    assert missing == set(range(COUNT, 2 * COUNT))


def test_an_append_wakes_a_wide_fetch(penstock: Asker) -> None:
    waiting = {index: 1 if index in (3, COUNT - 1) else 0 for index in range(COUNT)}
    penstock.send(fetch_request({TOPIC: waiting}, wait_ms=LONG_MS), NAMED)
    with penstock.another() as writer:
        # Before, while and after it is read: whenever it comes, the fetch must not miss it.
        for partition in WRITTEN:
            begun = time.monotonic()
            assert writer.produce(TOPIC, batch_of(b"new"), partition=partition).error_code == 0
            found = fetched(penstock.receive(FetchResponse))
            assert time.monotonic() - begun < LONG_MS / 2_000
            for index, data in found.items():
                waiting[index] += len(values_in(data))
            penstock.send(fetch_request({TOPIC: waiting}, wait_ms=LONG_MS), NAMED)
    penstock.finish_sending()
    fetched(penstock.receive(FetchResponse))


def test_a_wide_fetch_of_a_client_that_sends_no_more_is_answered(penstock: Asker) -> None:
    empty = dict.fromkeys(range(60, COUNT - 1), 0)
    penstock.send(fetch_request({TOPIC: empty}, wait_ms=LONG_MS), NAMED)
    begun = time.monotonic()
    penstock.finish_sending()
    penstock.receive(FetchResponse)
    assert time.monotonic() - begun < LONG_MS / 2_000


class LaterTasks:
    """Keeps started tasks until the test runs them."""

    def __init__(self) -> None:
        self.kept: list[Coroutine[object, object, None]] = []

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        self.kept.append(coroutine)


def test_a_wide_fetch_whose_client_went_between_two_slices_is_not_parked() -> None:
    """Guards `_Fetch.abandon`: a client could leave half a million partitions waited for."""
    fake = FakeServices()
    for index in range(1, COUNT):
        fake.node.add(PARTITION.topic, index)
    tasks = LaterTasks()
    context = fake.context(NAMED)._replace(services=replace(fake.services, tasks=tasks))
    request = fetch_request({PARTITION.topic: everything()}, wait_ms=LONG_MS)
    answer = fetch.handle(request, context)
    assert isinstance(answer, WaitingAnswer)
    answer.waiter.abandon()
    for task in tasks.kept:
        asyncio.run(task)
    assert len(fake.node.replicas.waits) == 0
    assert not answer.is_set


def test_a_neighbour_is_served_between_the_slices(penstock: Asker) -> None:
    """A small request does not wait for all of a fetch of twenty thousand partitions."""
    request = fetch_request({TOPIC: everything(count=20_000)})
    done = threading.Event()

    def ask_widely() -> None:
        penstock.ask(request, NAMED, FetchResponse)
        done.set()

    with penstock.another() as neighbour:
        thread = threading.Thread(target=ask_widely)
        thread.start()
        answers = 0
        while not done.is_set():
            neighbour.fetch(TOPIC, 0)
            answers += 1
        thread.join()
    assert answers >= 5


def test_wide_metadata(penstock: Asker) -> None:
    names = [TOPIC, *(f"none-{number}" for number in range(500))]
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=name) for name in names),
        allow_auto_topic_creation=False,
    )
    answer = penstock.ask(request, 5, MetadataResponse)
    assert [topic.name for topic in answer.topics] == names
    assert [p.partition_index for p in answer.topics[0].partitions] == list(range(COUNT))
    codes = {topic.error_code for topic in answer.topics[1:]}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_wide_offsets(penstock: Asker) -> None:
    asked = tuple(
        ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(60, 2 * COUNT)
    )
    topic = ListOffsetsTopic(name=TOPIC, partitions=asked)
    answer = penstock.ask(
        ListOffsetsRequest(replica_id=-1, topics=(topic,)), 4, ListOffsetsResponse
    )
    found = answer.topics[0].partitions
    assert [one.partition_index for one in found] == list(range(60, 2 * COUNT))
    assert {one.error_code for one in found[: COUNT - 60]} == {ErrorCode.NONE}
    assert {one.error_code for one in found[COUNT - 60 :]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("version", [8, 9])
def test_an_offset_commit_above_the_bound_is_refused_whole(penstock: Asker, version: int) -> None:
    """One event of a group's shard must stay short, so a commit has a bound."""
    partitions = tuple(
        OffsetCommitRequestPartition(partition_index=index, committed_offset=1)
        for index in range(OFFSETS_PER_COMMIT_MAX + 1)
    )
    request = OffsetCommitRequest(
        group_id="wide",
        member_id="",
        topics=(OffsetCommitRequestTopic(name=TOPIC, partitions=partitions),),
    )
    answer = penstock.ask(request, version, OffsetCommitResponse)
    (topic,) = answer.topics
    assert len(topic.partitions) == OFFSETS_PER_COMMIT_MAX + 1
    codes = {partition.error_code for partition in topic.partitions}
    assert codes == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}


def test_a_transactional_offset_commit_has_the_same_bound(penstock: Asker) -> None:
    partitions = tuple(
        TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=1, committed_metadata=None
        )
        for index in range(OFFSETS_PER_COMMIT_MAX + 1)
    )
    request = TxnOffsetCommitRequest(
        transactional_id="wide",
        group_id="wide",
        producer_id=1,
        producer_epoch=0,
        topics=(TxnOffsetCommitRequestTopic(name=TOPIC, partitions=partitions),),
    )
    (topic,) = penstock.ask(request, 3, TxnOffsetCommitResponse).topics
    codes = {partition.error_code for partition in topic.partitions}
    assert codes == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
