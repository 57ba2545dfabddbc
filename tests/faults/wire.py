"""`Wire`: one connection to a broker, with the two calls that faults are seen by.

It retries nothing: a test checks the error code. `FaultyRoom` is a disk whose faults do not show in
the free space, so that the guard against a filling disk does not interfere.
"""

from types import TracebackType
from typing import Self

from penstock.client import calls
from penstock.client.transport.addresses import Address
from penstock.client.transport.blocking import connect
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.records.batch import iterate_headers
from penstock.records.builder import build_batch, read_records
from penstock.records.record import Record
from penstock.storage.disk.filesystem import Space
from penstock.testing.faulty_disk import FaultyDisk

TOPIC = "faults"
PRODUCER = calls.ProducerIdentity(4_000, 0)
"""Any id will do: a partition takes a producer that it does not know."""
TIMEOUT_SECONDS = 10.0


class FaultyRoom(FaultyDisk):
    """A faulty disk that always claims to have room."""

    def space(self, path: str) -> Space:
        return Space(10**12, 10**12)


class Wire:
    """A connection that produces and fetches one record at a time."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._connection = connect(Address(host, port), timeout_seconds=TIMEOUT_SECONDS)

    def create(
        self, topic: str = TOPIC, partitions: int = 1, configs: dict[str, str] | None = None
    ) -> ErrorCode:
        """Create a topic; by default its records are kept, however old their timestamps are."""
        new = calls.NewTopic(topic, partitions, 1, {"retention.ms": "-1", **(configs or {})})
        (result,) = self._connection.carry(calls.create([new], 10_000))
        return result.error_code

    def delete(self, topic: str) -> ErrorCode:
        """Delete a topic."""
        (result,) = self._connection.carry(calls.delete([topic], 10_000))
        return result.error_code

    def produce(
        self,
        *values: bytes,
        topic: str = TOPIC,
        sequence: int = -1,
        timestamp_ms: int = 1_000,
        timeout_ms: int = 5_000,
    ) -> tuple[ErrorCode, int]:
        """Send one batch to partition 0 (with a sequence: idempotent); error and base offset."""
        return self.produce_to({0: values}, topic, sequence, timestamp_ms, timeout_ms)[0]

    def produce_to(
        self,
        values: dict[int, tuple[bytes, ...]],
        topic: str = TOPIC,
        sequence: int = -1,
        timestamp_ms: int = 1_000,
        timeout_ms: int = 5_000,
    ) -> dict[int, tuple[ErrorCode, int]]:
        """Send a batch to each of several partitions in one request."""
        is_idempotent = sequence >= 0
        batches = {
            TopicPartition(topic, partition): build_batch(
                [Record(value=value, timestamp_ms=timestamp_ms) for value in of_partition],
                producer_id=PRODUCER.producer_id if is_idempotent else -1,
                producer_epoch=PRODUCER.producer_epoch if is_idempotent else -1,
                base_sequence=sequence,
            )
            for partition, of_partition in values.items()
        }
        answers = self._connection.carry(
            calls.send_batches(batches, acks=-1, timeout_ms=timeout_ms)
        )
        return {
            at.partition: (answer.error_code, answer.base_offset) for at, answer in answers.items()
        }

    def fetch(
        self, offset: int = 0, *, topic: str = TOPIC, partition: int = 0
    ) -> tuple[ErrorCode, list[bytes | None]]:
        """Everything that is visible from `offset` on, without waiting."""
        at = TopicPartition(topic, partition)
        bounds = calls.FetchBounds(wait_ms_max=0)
        values: list[bytes | None] = []
        while True:
            answer = self._connection.carry(calls.fetch_batches({at: offset}, bounds))[at]
            records = bytes(answer.records or b"")
            for position, header in iterate_headers(records):
                values += [record.value for record in read_records(records, position)]
                offset = header.next_offset
            if not records:
                return answer.error_code, values

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
