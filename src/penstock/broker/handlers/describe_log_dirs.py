"""DescribeLogDirs: the data directory, the space on its disk, and the size of each partition.

Sizes are those of the segment files, without indexes, as in Kafka. Deleted files that are still on
the disk are not counted.
"""

from collections.abc import Iterable

from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import code_of
from penstock.broker.ports import LogDirectoryState
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from penstock.replication.hosted_partition import HostedPartition
from penstock.security.acls.values import Operation


async def handle(
    request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    """Describe every directory, with the requested partitions that this broker has."""
    if not context.allows_cluster(Operation.DESCRIBE):
        return DescribeLogDirsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=()
        )
    directories = await context.services.log_directories.describe()
    # All logs lie in the first directory: a broker has one.
    topics = _topics(_asked(request, context))
    return DescribeLogDirsResponse(
        error_code=ErrorCode.NONE,
        results=tuple(
            _result(directory, topics if place == 0 else ())
            for place, directory in enumerate(directories)
        ),
    )


def _asked(request: DescribeLogDirsRequest, context: RequestContext) -> Iterable[HostedPartition]:
    replicas = context.services.replicas
    if request.topics is None:
        return replicas
    names = dict.fromkeys(
        TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions
    )
    found = (replicas.find(name.topic, name.partition) for name in names)
    return [partition for partition in found if partition is not None]


def _topics(partitions: Iterable[HostedPartition]) -> tuple[DescribeLogDirsTopic, ...]:
    by_topic: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition in partitions:
        log = partition.log
        by_topic.setdefault(partition.name.topic, []).append(
            DescribeLogDirsPartition(
                partition_index=partition.name.partition,
                partition_size=sum(segment.size for segment in log.segments),
                offset_lag=max(0, partition.state.high_watermark - log.end_offset),
                is_future_key=False,
            )
        )
    return tuple(
        DescribeLogDirsTopic(name=name, partitions=tuple(described))
        for name, described in by_topic.items()
    )


def _result(
    directory: LogDirectoryState, topics: tuple[DescribeLogDirsTopic, ...]
) -> DescribeLogDirsResult:
    if directory.problem is not None:
        return DescribeLogDirsResult(
            error_code=code_of(directory.problem), log_dir=directory.path, topics=()
        )
    return DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=directory.path,
        topics=topics,
        total_bytes=directory.total_bytes,
        usable_bytes=directory.free_bytes,
    )
