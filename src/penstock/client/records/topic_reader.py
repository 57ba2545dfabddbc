"""`TopicReader`: the records of a topic's partitions, from a start to the end or for ever.

It works without a group: the caller names the partitions, and the reader keeps its own positions.
Records of one partition arrive in order; there is no order between partitions. Without `follow` it
stops at the end offsets of its start, so that it stops although producers write. With `follow` it
continues.

Control batches are skipped. Records of open and aborted transactions are returned, as by Kafka's
console consumer by default.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock.client import calls
from penstock.client.calls import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, FetchBounds
from penstock.client.cluster import Cluster
from penstock.client.records.positions import (
    AT_OFFSET,
    AT_TIMESTAMP,
    BEFORE_END,
    EARLIEST,
    LATEST,
    Start,
)
from penstock.client.transport.addresses import Address
from penstock.client.transport.call import raise_error
from penstock.core.types import TopicPartition
from penstock.records.batch import iterate_headers
from penstock.records.builder import iterate_records
from penstock.records.record import Header

WAIT_MS_MAX = 500


class ReadRecord(NamedTuple):
    """A record with its topic, partition and offset."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class TopicReader:
    """Reads some partitions starting at their start offsets."""

    def __init__(
        self,
        cluster: Cluster,
        partitions: Sequence[TopicPartition],
        start: Start,
        *,
        follow: bool = False,
        bounds: FetchBounds | None = None,
    ) -> None:
        self._cluster = cluster
        self._bounds = bounds or FetchBounds(wait_ms_max=WAIT_MS_MAX)
        first = cluster.find_offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP))
        end = cluster.find_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP))
        self._next = self._starts(start, first, end)
        self._ends: Mapping[TopicPartition, int] = {} if follow else end
        self._follow = follow

    def _starts(
        self,
        start: Start,
        first: Mapping[TopicPartition, int],
        end: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Return the start offset of each partition, within the bounds of the log."""
        if start.kind == EARLIEST:
            return dict(first)
        if start.kind == LATEST:
            return dict(end)
        if start.kind == AT_TIMESTAMP:
            found = self._cluster.find_offsets(dict.fromkeys(first, start.value))
            return {at: end[at] if offset < 0 else offset for at, offset in found.items()}
        if start.kind == BEFORE_END:
            return {at: max(first[at], end[at] - start.value) for at in first}
        assert start.kind == AT_OFFSET
        return {at: min(max(first[at], start.value), end[at]) for at in first}

    def records(self) -> Iterator[ReadRecord]:
        """Return every record, in order within each partition."""
        while open_partitions := self._open():
            for at, data in self._fetch_round(open_partitions):
                yield from self._records_of(at, data)

    def _open(self) -> list[TopicPartition]:
        return [at for at, offset in self._next.items() if self._follow or offset < self._ends[at]]

    def _fetch_round(
        self, partitions: Sequence[TopicPartition]
    ) -> list[tuple[TopicPartition, bytes | bytearray | memoryview]]:
        """Fetch once from each leader. A round that fails half-way is retried as a whole."""

        def attempt() -> list[tuple[TopicPartition, bytes | bytearray | memoryview]]:
            leaders = self._cluster.by_leader(partitions)
            return [
                found
                for leader, of_leader in leaders.items()
                for found in self._fetch_from(leader, of_leader, len(leaders))
            ]

        return self._cluster.repeat(attempt, repeatable=True)

    def _fetch_from(
        self, leader: Address, partitions: Sequence[TopicPartition], leader_count: int
    ) -> Iterator[tuple[TopicPartition, bytes | bytearray | memoryview]]:
        # Leaders are asked one after another, so each may wait only for its share of the time.
        bounds = FetchBounds(
            wait_ms_max=self._bounds.wait_ms_max // leader_count,
            bytes_min=self._bounds.bytes_min,
            bytes_max=self._bounds.bytes_max,
            partition_bytes_max=self._bounds.partition_bytes_max,
        )
        offsets = {at: self._next[at] for at in partitions}
        answers = self._cluster.at(leader, calls.fetch_batches(offsets, bounds))
        for at, answer in answers.items():
            raise_error(answer.error_code, None, f"{at} at offset {self._next[at]}")
            if answer.records:
                yield at, answer.records

    def _records_of(
        self, at: TopicPartition, data: bytes | bytearray | memoryview
    ) -> Iterator[ReadRecord]:
        end = self._ends.get(at)
        for position, header in iterate_headers(data):
            if not header.is_control:
                for record in iterate_records(data, position):
                    if record.offset < self._next[at]:
                        continue
                    if end is not None and record.offset >= end:
                        break
                    self._next[at] = record.offset + 1
                    yield ReadRecord(
                        at.topic,
                        at.partition,
                        record.offset,
                        record.timestamp_ms,
                        record.key,
                        record.value,
                        record.headers,
                    )
            self._next[at] = max(self._next[at], header.next_offset)
