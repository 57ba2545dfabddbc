"""`TopicWriter`: collects records into batches and appends them, each once.

With acks=all (-1) it uses a producer id and numbers its batches. So a batch whose answer was lost
is sent again without harm: the broker recognizes it. With acks=1 and acks=0 batches have no
numbers, and a lost answer raises `AnswerLostError`: the records may be stored or not.

A batch is sent when it is full or when the caller flushes; there is no timer and no thread. A
record that would increase a batch above the topic's limit begins the next batch. So a batch exceeds
the limit only if its one record does. Between two flushes all records without a key go to one
partition, after the flush to the next.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from penstock.client import calls
from penstock.client.calls import ProducerIdentity
from penstock.client.cluster import Cluster
from penstock.client.records.partitioner import partition_of_key
from penstock.client.transport.addresses import Address
from penstock.client.transport.call import raise_error
from penstock.core.errors import (
    BrokerAnswerError,
    ClientError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from penstock.core.limits import BATCH_BYTES_MAX_DEFAULT
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.metadata import MetadataResponseTopic
from penstock.records.builder import BatchBuilder
from penstock.records.record import Header, Record

BATCH_BYTES_DEFAULT: Final = 524_288
"""Half of a broker's default limit; a batch of this size is sent."""

RECORD_OVERHEAD_BYTES: Final = 40
"""The largest size of lengths, deltas and attributes of a record; the same for each header."""

MESSAGE_LIMIT: Final = "max.message.bytes"
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_MEBIBYTE: Final = 1_048_576

ACKS_ALL: Final = -1
_SEQUENCE_MASK: Final = 0x7FFFFFFF
_DONE: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
"""A duplicate is a batch of this writer that was appended before its answer was lost."""


@dataclass(frozen=True, slots=True)
class _Batch:
    data: bytearray
    record_count: int


class TopicWriter:
    """Appends records to one topic; the broker may create the topic automatically."""

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
        self._limit_bytes: int | None = None
        """The topic's max.message.bytes; None before it is requested."""
        self.is_new_topic = False
        """Whether the broker created the topic because of this writer's request."""
        self._partitions = sorted(part.partition_index for part in self._topic_now().partitions)
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
        """Records that were acknowledged; with acks=0, records that were sent."""

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """Add a record to its batch; a full batch is sent.

        Raise `RecordTooLargeError` when the topic's limit is known and the record exceeds it.
        """
        partition = self._partition_of(key)
        builder = self._builders.get(partition)
        size_bytes = _record_bytes_max(key, value, headers)
        limit_bytes = self._limit_bytes or BATCH_BYTES_MAX_DEFAULT
        if builder is not None and builder.size_bytes + size_bytes > limit_bytes:
            self.flush()
            partition = self._partition_of(key)
            builder = None
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
            self._check_alone(partition, builder)
            self.flush()

    @property
    def partition_count(self) -> int:
        """Return the number of partitions of the topic."""
        return len(self._partitions)

    def learn_limit(self) -> None:
        """Request the topic's max.message.bytes, and keep batches below it.

        A missing answer is not an error: the broker rejects batches that are too large.
        """
        with suppress(ClientError):
            found = self._cluster.topic_configs([self._topic])[self._topic].configs
            value = next((one.value for one in found if one.name == MESSAGE_LIMIT), None)
            if value is not None and value.isdecimal():
                self._limit_bytes = int(value)
                self._batch_bytes_max = min(self._batch_bytes_max, self._limit_bytes)

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

    def _topic_now(self) -> MetadataResponseTopic:
        try:
            return self._cluster.topic(self._topic)
        except UnknownTopicOrPartitionError:
            created = self._cluster.topic(self._topic, auto_create=True)
            self.is_new_topic = True
            return created

    def _check_alone(self, partition: int, builder: BatchBuilder) -> None:
        """Reject a record that exceeds the limit by itself; a compressed record might still fit."""
        limit = self._limit_bytes
        if limit is None or self._codec != 0 or builder.size_bytes <= limit:
            return
        assert builder.record_count == 1, "a batch of several records is kept below the limit"
        del self._builders[partition]
        raise RecordTooLargeError(
            f"a record of {builder.size_bytes:,} bytes is larger than {MESSAGE_LIMIT} of topic "
            f"{self._topic} ({limit:,}).",
            hint=self._larger_limit(builder.size_bytes),
        )

    def _larger_limit(self, size_bytes: int) -> str:
        enough = -(-size_bytes // _MEBIBYTE) * _MEBIBYTE
        return (
            f"Raise the limit with `penstock topic configure {self._topic} "
            f"{MESSAGE_LIMIT}={enough}`, or send smaller records."
        )

    def _refused(self, at: TopicPartition, code: ErrorCode, batch: _Batch) -> BrokerAnswerError:
        """Return the error for a rejected batch that is too large, with size and limit."""
        if self._limit_bytes is None:
            self.learn_limit()
        limit = "unknown" if self._limit_bytes is None else f"{self._limit_bytes:,}"
        size_bytes, count = len(batch.data), batch.record_count
        records = "1 record" if count == 1 else f"{count} records"
        error = BrokerAnswerError(
            code.value,
            code.name,
            f"{at}: a batch of {size_bytes:,} bytes ({records}) is too large; {MESSAGE_LIMIT} of "
            f"the topic is {limit}.",
        )
        error.hint = self._larger_limit(size_bytes)
        return error

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
        """Send to one leader; remove acknowledged batches from `waiting`: they are sent once."""
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
            if code in _TOO_LARGE and not message:
                raise self._refused(at, code, batches[at])
            raise_error(code, message, str(at))


def _record_bytes_max(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes]]
) -> int:
    size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    # A character of a name has at most four bytes.
    return size + sum(
        RECORD_OVERHEAD_BYTES + 4 * len(name) + len(content) for name, content in headers
    )
