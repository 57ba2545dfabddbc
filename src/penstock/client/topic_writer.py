"""`TopicWriter`: collects records into batches and appends them, each once.

With acks=all (-1) it takes a producer id and numbers its batches, so that a batch whose answer was
lost is sent again without harm: the broker knows it. With acks=1 and acks=0 it has no numbers,
and a lost answer is an `AnswerLostError`: the records may be there or not.

A batch is sent when it is full or when the caller flushes; there is no timer and no thread. Between
two flushes records without a key go to one partition, then to the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.client import calls
from penstock.client.addresses import Address
from penstock.client.call import raise_error
from penstock.client.calls import ProducerIdentity
from penstock.client.cluster import Cluster
from penstock.client.partitioner import partition_of_key
from penstock.core.errors import UnknownTopicOrPartitionError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.records.builder import BatchBuilder
from penstock.records.record import Header, Record

BATCH_BYTES_DEFAULT: Final = 524_288
"""Half of what a broker takes by default: its last record must not take a batch past the limit."""

ACKS_ALL: Final = -1
_SEQUENCE_MASK: Final = 0x7FFFFFFF
_DONE: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
"""A duplicate is a batch of ours that was appended before its answer was lost."""


@dataclass(frozen=True, slots=True)
class _Batch:
    data: bytearray
    record_count: int


class TopicWriter:
    """Appends records to one topic, which is created if the broker does that."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        partition: int | None = None,
        acks: int = ACKS_ALL,
        codec: int = 0,
        batch_bytes_max: int = BATCH_BYTES_DEFAULT,
    ) -> None:
        assert acks in {-1, 0, 1}
        self._cluster = cluster
        self._topic = topic
        self._acks = acks
        self._codec = codec
        self._batch_bytes_max = batch_bytes_max
        self._partitions = sorted(
            part.partition_index for part in cluster.topic(topic, auto_create=True).partitions
        )
        if partition is not None and partition not in self._partitions:
            raise UnknownTopicOrPartitionError(
                f"{topic} has no partition {partition}; it has 0 to {self._partitions[-1]}."
            )
        self._fixed_partition = partition
        self._turn = 0
        self._identity: ProducerIdentity | None = (
            cluster.start_producer() if acks == ACKS_ALL else None
        )
        self._sequences: dict[int, int] = {}
        self._builders: dict[int, BatchBuilder] = {}
        self.records_sent = 0
        """Records that were acknowledged; with acks=0, that were sent."""

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """Add a record to its batch; a full batch is sent."""
        partition = self._partition_of(key)
        builder = self._builders.get(partition)
        if builder is None:
            builder = self._builders[partition] = BatchBuilder()
        builder.append(
            Record(
                key,
                value,
                tuple(Header(name, content) for name, content in headers),
                self._cluster.clock.now_ms(),
            )
        )
        if builder.size_bytes >= self._batch_bytes_max:
            self.flush()

    def flush(self) -> None:
        """Send every batch and wait until all are acknowledged."""
        waiting = {
            TopicPartition(self._topic, partition): self._built(partition, builder)
            for partition, builder in self._builders.items()
        }
        self._builders.clear()
        self._turn += 1
        if not waiting:
            return

        def attempt() -> None:
            for leader, partitions in self._cluster.by_leader(list(waiting)).items():
                self._send_to(leader, {at: waiting[at] for at in partitions}, waiting)

        self._cluster.repeat(attempt, repeatable=self._identity is not None)

    def _partition_of(self, key: bytes | None) -> int:
        if self._fixed_partition is not None:
            return self._fixed_partition
        if key is not None:
            return partition_of_key(key, len(self._partitions))
        return self._partitions[self._turn % len(self._partitions)]

    def _built(self, partition: int, builder: BatchBuilder) -> _Batch:
        if self._identity is None:
            return _Batch(builder.build(codec=self._codec), builder.record_count)
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = (sequence + builder.record_count) & _SEQUENCE_MASK
        data = builder.build(
            codec=self._codec,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=sequence,
        )
        return _Batch(data, builder.record_count)

    def _send_to(
        self,
        leader: Address,
        batches: dict[TopicPartition, _Batch],
        waiting: dict[TopicPartition, _Batch],
    ) -> None:
        """Send to one leader; what is acknowledged leaves `waiting`, so it is never sent again."""
        data = {at: batch.data for at, batch in batches.items()}
        answers = self._cluster.at(
            leader,
            calls.send_batches(data, acks=self._acks, timeout_ms=self._cluster.timeout_ms),
        )
        failed = []
        for at, batch in batches.items():
            answer = answers.get(at)
            if answer is None and self._acks != 0:
                failed.append((at, ErrorCode.UNKNOWN_SERVER_ERROR, "the answer does not name it"))
            elif answer is not None and answer.error_code not in _DONE:
                failed.append((at, answer.error_code, answer.error_message or ""))
            else:
                del waiting[at]
                self.records_sent += batch.record_count
        for at, code, message in failed:
            raise_error(code, message, str(at))
