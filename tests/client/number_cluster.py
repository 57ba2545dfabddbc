"""Topics that are only numbers: a cluster in memory whose partitions have no records.

Each has a start, an end, a size and leader epochs that a test sets, and may be as long as a test
likes. It counts the requests that it gets.
"""

import uuid
from collections.abc import Mapping
from dataclasses import replace

from penstock.client.cluster import Cluster
from penstock.client.transport.addresses import Address
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    describe_log_dirs,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
)
from tests.client.conftest import StepClock
from tests.client.fake_broker import FakeCluster, FakeConnection


class NumberCluster(FakeCluster):
    """A cluster of partitions without records."""

    def __init__(self, broker_ids: tuple[int, ...] = (1,)) -> None:
        super().__init__(broker_ids)
        self.cluster_id = "fake-cluster"
        self.ends: dict[TopicPartition, int] = {}
        self.times: dict[tuple[TopicPartition, int], int] = {}
        """Which offset is at a time; nothing is after the last record."""
        self.epoch_ends: dict[tuple[TopicPartition, int], int] = {}
        self.sizes: dict[TopicPartition, int] = {}
        self.sizes_code = ErrorCode.NONE
        self.clock = StepClock()
        self.handlers = {
            metadata.MetadataRequest: self._describe,
            list_offsets.ListOffsetsRequest: self._find_offsets,
            describe_log_dirs.DescribeLogDirsRequest: self._describe_sizes,
            offset_for_leader_epoch.OffsetForLeaderEpochRequest: self._find_epoch_ends,
        }

    def set_topic(self, name: str, *ends: int, starts: Mapping[int, int] | None = None) -> None:
        """Make or change a topic: it has these ends."""
        if name not in self.topic_ids:
            self.add_topic(name, len(ends))
        for index, end in enumerate(ends):
            at = TopicPartition(name, index)
            if at not in self.logs:
                self.logs[at] = []
                self.leaders[at] = self.broker_ids[index % len(self.broker_ids)]
            self.ends[at] = end
            self.log_starts[at] = (starts or {}).get(index, self.log_starts.get(at, 0))

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        del self.topic_ids[name]
        for at in [at for at in self.logs if at.topic == name]:
            del self.logs[at], self.ends[at]
            self.log_starts.pop(at, None)

    def recreate_topic(self, name: str, *ends: int) -> None:
        """Delete a topic and create it again: a new id."""
        self.delete_topic(name)
        self.set_topic(name, *ends)
        self.topic_ids[name] = uuid.uuid4()

    def counted(self) -> dict[str, int]:
        """How many requests of each kind came since the last time this was asked."""
        found: dict[str, int] = {}
        for request in self.requests:
            name = type(request).__name__.removesuffix("Request")
            found[name] = found.get(name, 0) + 1
        self.requests.clear()
        return found

    def end_offset(self, at: TopicPartition) -> int:
        return self.ends[at]

    def client(self) -> Cluster:
        """A client of this cluster that never sleeps."""
        return Cluster(
            [Address("fake", 9000)], self.connect, clock=self.clock, sleep=self.clock.sleep
        )

    def _describe(self, broker_id: int, request: object, code: ErrorCode) -> object:
        assert isinstance(request, metadata.MetadataRequest)
        answer = FakeConnection(self, broker_id)._metadata(request, code)
        return replace(answer, cluster_id=self.cluster_id)

    def _find_offsets(self, broker_id: int, request: object, code: ErrorCode) -> object:
        assert isinstance(request, list_offsets.ListOffsetsRequest)
        return list_offsets.ListOffsetsResponse(
            topics=tuple(
                list_offsets.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=tuple(
                        self._found_offset(
                            TopicPartition(topic.name, part.partition_index),
                            part.timestamp,
                            broker_id,
                            is_read_committed=request.isolation_level == 1,
                        )
                        for part in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )

    def _found_offset(
        self, at: TopicPartition, timestamp: int, broker_id: int, *, is_read_committed: bool
    ) -> list_offsets.ListOffsetsPartitionResponse:
        if at not in self.logs:
            return list_offsets.ListOffsetsPartitionResponse(
                partition_index=at.partition, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        assert self.leaders[at] == broker_id
        end = self.stable_offset(at) if is_read_committed else self.ends[at]
        edges = {-1: end, -2: self.log_starts[at]}
        return list_offsets.ListOffsetsPartitionResponse(
            partition_index=at.partition,
            error_code=ErrorCode.NONE,
            offset=edges.get(timestamp, self.times.get((at, timestamp), -1)),
            leader_epoch=self.leader_epochs.get(at, 0),
        )

    def _describe_sizes(self, broker_id: int, request: object, code: ErrorCode) -> object:
        assert isinstance(request, describe_log_dirs.DescribeLogDirsRequest)
        topics = tuple(
            describe_log_dirs.DescribeLogDirsTopic(
                name=topic.topic,
                partitions=tuple(
                    describe_log_dirs.DescribeLogDirsPartition(
                        partition_index=index,
                        partition_size=self.sizes.get(TopicPartition(topic.topic, index), 0),
                        offset_lag=0,
                        is_future_key=False,
                    )
                    for index in topic.partitions
                ),
            )
            for topic in request.topics or ()
        )
        return describe_log_dirs.DescribeLogDirsResponse(
            error_code=self.sizes_code,
            results=(describe_log_dirs.DescribeLogDirsResult(log_dir="logs", topics=topics),),
        )

    def _find_epoch_ends(self, broker_id: int, request: object, code: ErrorCode) -> object:
        assert isinstance(request, offset_for_leader_epoch.OffsetForLeaderEpochRequest)
        return offset_for_leader_epoch.OffsetForLeaderEpochResponse(
            topics=tuple(
                offset_for_leader_epoch.OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=tuple(
                        offset_for_leader_epoch.EpochEndOffset(
                            error_code=code,
                            partition=part.partition,
                            leader_epoch=part.leader_epoch,
                            end_offset=self.epoch_ends.get(
                                (TopicPartition(topic.topic, part.partition), part.leader_epoch), -1
                            ),
                        )
                        for part in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )
