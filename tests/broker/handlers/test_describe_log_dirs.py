"""DescribeLogDirs: the data directory and the size of each partition in it."""

from collections.abc import Mapping

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from tests.broker.handlers.asker import Asker, batch_of, fresh_name


def described(
    asker: Asker, topics: Mapping[str, tuple[int, ...]] | None, version: int = 5
) -> DescribeLogDirsResult:
    asked = (
        None
        if topics is None
        else tuple(
            DescribableLogDirTopic(topic=name, partitions=indexes)
            for name, indexes in topics.items()
        )
    )
    answer = asker.ask(DescribeLogDirsRequest(topics=asked), version, DescribeLogDirsResponse)
    assert answer.error_code == ErrorCode.NONE
    (result,) = answer.results
    assert result.error_code == ErrorCode.NONE
    assert result.log_dir.startswith("/")
    return result


def partitions_in(result: DescribeLogDirsResult) -> dict[tuple[str, int], DescribeLogDirsPartition]:
    return {
        (topic.name, partition.partition_index): partition
        for topic in result.topics
        for partition in topic.partitions
    }


def test_a_partition_takes_what_was_written_to_it(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name, 2)
    batch = batch_of(b"x" * 1000)
    asker.produce(name, batch)
    found = partitions_in(described(asker, {name: (0, 1)}))
    assert set(found) == {(name, 0), (name, 1)}
    assert found[name, 0].partition_size == len(batch)
    assert found[name, 1].partition_size == 0
    for partition in found.values():
        assert (partition.offset_lag, partition.is_future_key) == (0, False)


def test_what_does_not_exist_is_passed_over(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    found = partitions_in(described(asker, {name: (0, 9), "nobody": (0,)}))
    assert set(found) == {(name, 0)}


def test_all_partitions_or_none(asker: Asker) -> None:
    names = [fresh_name(), fresh_name()]
    for name in names:
        asker.create(name)
    assert {(name, 0) for name in names} <= set(partitions_in(described(asker, None)))
    assert described(asker, {}).topics == ()


def test_the_room_on_the_disk(asker: Asker) -> None:
    result = described(asker, {})
    assert 0 < result.usable_bytes <= result.total_bytes
    assert not result.is_cordoned
    old = described(asker, {}, version=3)
    assert (old.usable_bytes, old.total_bytes) == (-1, -1)
