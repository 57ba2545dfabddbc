"""Log sizes of partitions in bytes: one DescribeLogDirs for each leader.

A size is the sum of the segment files of the leader's replica, as stored. The sizes are for
estimates. Data in tiered storage is not counted. A broker that may not or cannot report sizes is
left out, so that the caller's planning does not fail.
"""

from collections.abc import Iterable, Sequence

from penstock.client.calls import by_topic
from penstock.client.cluster import Cluster
from penstock.client.transport.call import Call, raise_error
from penstock.core.errors import BrokerAnswerError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import describe_log_dirs

CANNOT_TELL = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
    }
)
"""Error codes of a broker that does not report sizes to this client at all."""


def find_log_sizes(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return bytes by partition; partitions of brokers that do not report sizes are absent."""
    wanted = list(partitions)

    def attempt() -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for address, led in cluster.by_leader(wanted).items():
            try:
                found.update(cluster.at(address, describe_sizes(led)))
            except BrokerAnswerError as error:
                if error.code not in CANNOT_TELL:
                    raise
        return found

    return cluster.repeat(attempt, repeatable=True)


def describe_sizes(partitions: Sequence[TopicPartition]) -> Call[dict[TopicPartition, int]]:
    """Request the sizes of these partitions on one broker."""
    request = describe_log_dirs.DescribeLogDirsRequest(
        topics=tuple(
            describe_log_dirs.DescribableLogDirTopic(
                topic=topic, partitions=tuple(at.partition for at in of_topic)
            )
            for topic, of_topic in by_topic(partitions).items()
        )
    )

    def read(answer: describe_log_dirs.DescribeLogDirsResponse) -> dict[TopicPartition, int]:
        raise_error(answer.error_code, None, "sizes of logs")
        return {
            TopicPartition(topic.name, partition.partition_index): partition.partition_size
            for directory in answer.results
            if directory.error_code == ErrorCode.NONE
            for topic in directory.topics
            for partition in topic.partitions
            if not partition.is_future_key
        }

    return Call(request, describe_log_dirs.DescribeLogDirsResponse, read)
