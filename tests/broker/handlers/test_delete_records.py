"""DeleteRecords: deleted records stay deleted, and forbidden deletions are rejected as in Kafka."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tests.broker.handlers.asker import Asker, batch_of, fresh_name

EARLIEST = -2


def delete(
    asker: Asker, topic: str, offset: int, *, partition: int = 0, version: int = 2
) -> tuple[ErrorCode, int]:
    """Error and low watermark of one partition."""
    request = DeleteRecordsRequest(
        topics=(
            DeleteRecordsTopic(
                name=topic,
                partitions=(DeleteRecordsPartition(partition_index=partition, offset=offset),),
            ),
        ),
        timeout_ms=10_000,
    )
    answer = asker.ask(request, version, DeleteRecordsResponse)
    (found,) = answer.topics
    assert found.name == topic
    (result,) = found.partitions
    assert result.partition_index == partition
    return result.error_code, result.low_watermark


@pytest.fixture
def topic(asker: Asker) -> str:
    """Five records in two batches."""
    name = fresh_name()
    asker.create(name)
    for values in ((b"a", b"b", b"c"), (b"d", b"e")):
        assert asker.produce(name, batch_of(*values)).error_code == ErrorCode.NONE
    return name


def start_of(asker: Asker, topic: str) -> int:
    return asker.list_offsets(topic, {0: EARLIEST})[0].offset


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_start_moves_to_the_offset(asker: Asker, topic: str, version: int) -> None:
    assert delete(asker, topic, 2, version=version) == (ErrorCode.NONE, 2)
    assert start_of(asker, topic) == 2


def test_minus_one_is_the_high_watermark(asker: Asker, topic: str) -> None:
    assert delete(asker, topic, -1) == (ErrorCode.NONE, 5)
    assert start_of(asker, topic) == 5
    assert asker.produce(topic, batch_of(b"f")).base_offset == 5


def test_a_start_never_goes_back(asker: Asker, topic: str) -> None:
    assert delete(asker, topic, 4) == (ErrorCode.NONE, 4)
    assert delete(asker, topic, 1) == (ErrorCode.NONE, 4)


@pytest.mark.parametrize("offset", [6, -2, 2**62])
def test_an_offset_that_is_not_there_is_out_of_range(asker: Asker, topic: str, offset: int) -> None:
    assert delete(asker, topic, offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert start_of(asker, topic) == 0


def test_an_unknown_partition_is_told(asker: Asker, topic: str) -> None:
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete(asker, topic, 1, partition=7) == unknown
    assert delete(asker, "no-such-topic", 1) == unknown


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("compact", ErrorCode.POLICY_VIOLATION),
        ("compact,delete", ErrorCode.NONE),
        ("", ErrorCode.NONE),
    ],
)
def test_a_topic_that_is_only_compacted_keeps_its_records(
    asker: Asker, policy: str, code: ErrorCode
) -> None:
    name = fresh_name()
    asker.create(name, configs={"cleanup.policy": policy})
    assert delete(asker, name, 0)[0] == code


def test_several_partitions_are_answered_together(asker: Asker, topic: str) -> None:
    request = DeleteRecordsRequest(
        topics=(
            DeleteRecordsTopic(
                name=topic,
                partitions=(
                    DeleteRecordsPartition(partition_index=0, offset=3),
                    DeleteRecordsPartition(partition_index=9, offset=3),
                ),
            ),
        ),
        timeout_ms=10_000,
    )
    (found,) = asker.ask(request, 2, DeleteRecordsResponse).topics
    assert {result.partition_index: result.error_code for result in found.partitions} == {
        0: ErrorCode.NONE,
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
