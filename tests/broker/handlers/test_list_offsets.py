"""ListOffsets: ends, the newest record, and the first record at or after a time."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.broker.handlers.asker import Asker, batch_of, fresh_name, list_offsets_request

LATEST, EARLIEST, NEWEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = range(-1, -7, -1)
NOTHING = (-1, -1, -1)
T = 1_700_000_000_000
"""A time long ago; the topic keeps records for ever."""


@pytest.fixture
def topic(asker: Asker) -> str:
    """Records at T, T+20, T+10, T+40 and T+30, in batches of two, one and two."""
    name = fresh_name()
    asker.create(name, configs={"retention.ms": "-1"})
    for times in ([T, T + 20], [T + 10], [T + 40, T + 30]):
        batch = batch_of(*[b"x"] * len(times), timestamps_ms=times)
        assert asker.produce(name, batch).error_code == ErrorCode.NONE
    return name


def find(asker: Asker, topic: str, timestamp: int, version: int = 11) -> tuple[int, int, int]:
    found = asker.list_offsets(topic, {0: timestamp}, version)[0]
    assert found.error_code == ErrorCode.NONE
    return found.timestamp, found.offset, found.leader_epoch


@pytest.mark.parametrize("version", [1, 3, 4, 7, 11])
def test_both_ends(asker: Asker, topic: str, version: int) -> None:
    epoch = 0 if version >= 4 else -1
    assert find(asker, topic, EARLIEST, version) == (-1, 0, epoch)
    assert find(asker, topic, LATEST, version) == (-1, 5, epoch)


def test_the_end_is_the_same_for_who_reads_committed(asker: Asker, topic: str) -> None:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1,
        topics=list_offsets_request(topic, {0: LATEST}).topics,
    )
    found = asker.ask(request, 11, ListOffsetsResponse).topics[0].partitions[0]
    assert (found.error_code, found.offset) == (ErrorCode.NONE, 5)


@pytest.mark.parametrize(
    ("asked", "timestamp", "offset"),
    [
        (0, T, 0),
        (T, T, 0),
        (T + 1, T + 20, 1),
        (T + 20, T + 20, 1),
        (T + 21, T + 40, 3),
        (T + 40, T + 40, 3),
    ],
)
def test_the_first_record_at_or_after_a_time(
    asker: Asker, topic: str, asked: int, timestamp: int, offset: int
) -> None:
    assert find(asker, topic, asked) == (timestamp, offset, 0)


def test_a_time_after_all_records(asker: Asker, topic: str) -> None:
    assert find(asker, topic, T + 41) == NOTHING
    assert find(asker, topic, 2**62) == NOTHING


def test_the_newest_record(asker: Asker, topic: str) -> None:
    assert find(asker, topic, NEWEST, 7) == (T + 40, 3, 0)


def test_a_topic_without_records(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    assert find(asker, name, EARLIEST) == (-1, 0, 0)
    assert find(asker, name, EARLIEST_LOCAL) == (-1, 0, 0)
    assert find(asker, name, LATEST) == (-1, 0, 0)
    assert find(asker, name, NEWEST) == NOTHING
    assert find(asker, name, 0) == NOTHING


def test_what_only_tiered_storage_has(asker: Asker, topic: str) -> None:
    assert find(asker, topic, EARLIEST_LOCAL) == (-1, 0, 0)
    assert find(asker, topic, LATEST_TIERED) == NOTHING
    assert find(asker, topic, EARLIEST_PENDING) == NOTHING


@pytest.mark.parametrize(
    ("asked", "lowest"),
    [(NEWEST, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (EARLIEST_PENDING, 11)],
)
def test_special_times_need_a_version_that_knows_them(
    asker: Asker, topic: str, asked: int, lowest: int
) -> None:
    before = asker.list_offsets(topic, {0: asked}, lowest - 1)[0]
    assert before.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (before.timestamp, before.offset) == (-1, -1)
    assert asker.list_offsets(topic, {0: asked}, lowest)[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [1, 11])
def test_a_special_time_that_nobody_knows(asker: Asker, topic: str, version: int) -> None:
    found = asker.list_offsets(topic, {0: -99}, version)[0]
    assert found.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_topics_and_partitions_that_nobody_has(asker: Asker, topic: str) -> None:
    for name, partition in ((topic, 1), (fresh_name(), 0)):
        found = asker.list_offsets(name, {partition: LATEST})[partition]
        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (found.timestamp, found.offset, found.leader_epoch) == NOTHING


def test_a_partition_asked_twice(asker: Asker, topic: str) -> None:
    twice = tuple(
        ListOffsetsPartition(partition_index=0, timestamp=asked) for asked in (LATEST, EARLIEST)
    )
    request = ListOffsetsRequest(
        replica_id=-1, topics=(ListOffsetsTopic(name=topic, partitions=twice),)
    )
    answer = asker.ask(request, 11, ListOffsetsResponse)
    found: list[ListOffsetsPartitionResponse] = list(answer.topics[0].partitions)
    assert {one.error_code for one in found} == {ErrorCode.INVALID_REQUEST}


def test_the_leader_epoch_is_compared(asker: Asker, topic: str) -> None:
    for epoch, code in ((0, ErrorCode.NONE), (3, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        request = list_offsets_request(topic, {0: LATEST}, leader_epoch=epoch)
        answer = asker.ask(request, 11, ListOffsetsResponse)
        assert answer.topics[0].partitions[0].error_code == code
