"""Clients that read: one reads existing records repeatedly, one follows new records.

Both count records by the headers of batches and decode no records, so that reading costs the client
little: the speed of the broker is measured. Transaction markers are not records. Readers belong to
no group and commit nothing.

`Reader` fetches all partitions of a leader at once, and fetches again as soon as the answer has
arrived; at the end of a partition it starts again at the beginning. `Follower` starts at the ends,
so that it sees new records. It reads the stamp of each batch of this run and measures the time
since the batch was due.
"""

import time
from collections.abc import Callable, Mapping
from struct import Struct
from typing import NamedTuple

from penstock.bench.assignment import Assignment
from penstock.bench.batches import read_stamp
from penstock.bench.lanes import Lanes
from penstock.bench.measurement import ClientResult
from penstock.bench.observing import Observer, Report
from penstock.bench.pacing import SECOND_NS, Shares
from penstock.bench.producing import open_cluster
from penstock.client import calls
from penstock.client.calls import FetchBounds
from penstock.client.records.range_reader import whole_batches
from penstock.client.transport.addresses import Address
from penstock.client.transport.call import raise_error
from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition
from penstock.protocol.messages.fetch import PartitionData
from penstock.records.batch import CONTROL, LOG_OVERHEAD_BYTES, iterate_headers

READ_BOUNDS = FetchBounds(wait_ms_max=500, bytes_min=1, bytes_max=8_388_608)
FOLLOW_BOUNDS = FetchBounds(wait_ms_max=100, bytes_min=1, bytes_max=8_388_608)
"""A short wait: the client notices the end of a run between two answers."""
_IDLE_SECONDS = 0.1
_NO_END = 2**62
_COUNTED = Struct(">8xi9xh34xi")
"""Fields of a batch header: its length, its attributes and its record count."""

Answer = dict[TopicPartition, PartitionData]


class NothingToReadError(PenstockError):
    """The topic has no records to read."""


class RecordsMissingError(PenstockError):
    """Acknowledged records never reached a reader."""


class Asked(NamedTuple):
    """A request in flight: its leader and its time."""

    address: Address
    asked_ns: int


class Places:
    """The partitions of one client: their start and end offsets, and its positions."""

    def __init__(self, assignment: Assignment) -> None:
        self.topic = assignment.topic
        places = [TopicPartition(self.topic, one) for one in assignment.partitions]
        with open_cluster(assignment) as cluster:
            leaders = cluster.leaders(places)
            self.first = cluster.find_offsets(dict.fromkeys(places, calls.EARLIEST_TIMESTAMP))
            self.end = cluster.find_offsets(dict.fromkeys(places, calls.LATEST_TIMESTAMP))
        self.by_leader: dict[Address, list[TopicPartition]] = {}
        for at, leader in leaders.items():
            self.by_leader.setdefault(leader.address, []).append(at)
        self.lanes: Lanes[Address, Asked] = Lanes(
            1, assignment.workload.timeout_seconds, assignment.security
        )

    def connect(self) -> None:
        """Open a connection to every leader."""
        for address in self.by_leader:
            self.lanes.open(address, address)


class Reader:
    """One client that reads existing records repeatedly."""

    def __init__(self, assignment: Assignment) -> None:
        """Connect, and find the offsets of the partitions."""
        self._assignment = assignment
        self._places = Places(assignment)
        self._first = self._places.first
        self._end = self._places.end
        if all(self._first[at] >= self._end[at] for at in self._first):
            raise NothingToReadError(nothing_to_read(assignment.topic))
        self._position = dict(self._first)
        self._read_whole: set[TopicPartition] = set()
        self._places.connect()

    def run(self, begin_ns: int, report: Report) -> ClientResult:
        """Read until the work is done."""
        workload = self._assignment.workload
        measured_ns = begin_ns + round(workload.warmup_seconds * SECOND_NS)
        wanted = None
        end_ns: int | None = measured_ns + round(workload.duration_seconds * SECOND_NS)
        if workload.count is not None:
            shares = Shares(self._assignment.clients, self._assignment.client)
            wanted, end_ns = shares.of_count(workload.count), None
        observer = Observer(measured_ns, end_ns, report)
        lanes = self._places.lanes

        def take(answer: Answer, asked: Asked) -> None:
            records, size_bytes = self._take(answer)
            now_ns = time.monotonic_ns()
            observer.done(now_ns, asked.asked_ns, records, size_bytes)
            if not observer.result.records_in_all and self._is_read_whole():
                # The partitions have only transaction markers, so no number of records is ever
                # reached.
                raise NothingToReadError(nothing_to_read(self._assignment.topic))
            is_more = end_ns is None or now_ns < end_ns
            if is_more and (wanted is None or observer.result.records < wanted):
                self._ask(asked.address)

        sleep_until(begin_ns)
        for address in self._places.by_leader:
            self._ask(address)
        while not lanes.is_idle:
            lanes.collect(take)
            observer.tick(time.monotonic_ns())
            lanes.wait(_IDLE_SECONDS)
        return observer.finish(time.monotonic_ns())

    def close(self) -> None:
        """Close the connections."""
        self._places.lanes.close()

    def _is_read_whole(self) -> bool:
        """Whether each partition was read to its end at least once."""
        return all(at in self._read_whole or self._first[at] >= self._end[at] for at in self._first)

    def _ask(self, address: Address) -> None:
        offsets = {at: self._position[at] for at in self._places.by_leader[address]}
        note = Asked(address, time.monotonic_ns())
        self._places.lanes.send(address, calls.fetch_batches(offsets, READ_BOUNDS), note)

    def _take(self, answer: Answer) -> tuple[int, int]:
        """Return records and bytes of an answer; advance positions, at the end to the start."""
        records = size_bytes = 0
        for at, part in answer.items():
            raise_error(part.error_code, None, str(at))
            data = memoryview(part.records or b"")
            if not data:
                continue
            position = self._position[at]
            size, following = whole_batches(data, position, _NO_END)
            # Offsets are not counted: compaction leaves gaps, and transaction markers have offsets
            # too.
            records += records_in(data, size)
            size_bytes += size
            is_at_end = following >= self._end[at]
            if is_at_end:
                self._read_whole.add(at)
            self._position[at] = self._first[at] if is_at_end else following
        return records, size_bytes


class Follower:
    """One client that reads new records."""

    def __init__(self, assignment: Assignment) -> None:
        """Connect, and find the end offsets."""
        self._assignment = assignment
        self._places = Places(assignment)
        self._position = dict(self._places.end)
        self._places.connect()

    def run(
        self,
        begin_ns: int,
        report: Report,
        ends: Callable[[], Mapping[int, int] | None],
    ) -> ClientResult:
        """Read until all records before `ends` are read; `ends` is known after the last write."""
        workload = self._assignment.workload
        measured_ns = begin_ns + round(workload.warmup_seconds * SECOND_NS)
        is_counted = workload.count is not None
        end_ns = None if is_counted else measured_ns + round(workload.duration_seconds * SECOND_NS)
        observer = Observer(measured_ns, end_ns, report)
        lanes = self._places.lanes
        until: dict[TopicPartition, int] | None = None
        given_up_ns: int | None = None

        def take(answer: Answer, asked: Asked) -> None:
            self._take(answer, observer)
            if until is None or not self._is_read(until):
                self._ask(asked.address)

        for address in self._places.by_leader:
            self._ask(address)
        while not lanes.is_idle:
            lanes.collect(take)
            now_ns = time.monotonic_ns()
            observer.tick(now_ns)
            if until is None and (offsets := ends()) is not None:
                topic = self._assignment.topic
                until = {TopicPartition(topic, part): offset for part, offset in offsets.items()}
                given_up_ns = now_ns + round(workload.timeout_seconds * SECOND_NS)
            if given_up_ns is not None and now_ns > given_up_ns:
                raise RecordsMissingError(self._missing(until or {}))
            lanes.wait(_IDLE_SECONDS)
        return observer.finish(time.monotonic_ns())

    def close(self) -> None:
        """Close the connections."""
        self._places.lanes.close()

    def _ask(self, address: Address) -> None:
        offsets = {at: self._position[at] for at in self._places.by_leader[address]}
        note = Asked(address, time.monotonic_ns())
        self._places.lanes.send(address, calls.fetch_batches(offsets, FOLLOW_BOUNDS), note)

    def _take(self, answer: Answer, observer: Observer) -> None:
        now_ns = time.monotonic_ns()
        for at, part in answer.items():
            raise_error(part.error_code, None, str(at))
            data = memoryview(part.records or b"")
            for start, header in iterate_headers(data):
                if header.base_offset < self._position[at]:
                    continue
                self._position[at] = header.next_offset
                due_ns = read_stamp(data, start, header, self._assignment.run)
                if due_ns is not None:
                    size_bytes = header.record_count * self._assignment.workload.size_bytes
                    observer.done(now_ns, due_ns, header.record_count, size_bytes)

    def _is_read(self, until: Mapping[TopicPartition, int]) -> bool:
        return all(self._position[at] >= until[at] for at in self._position)

    def _missing(self, until: Mapping[TopicPartition, int]) -> str:
        behind = sum(max(0, until[at] - self._position[at]) for at in self._position)
        return (
            f"{behind} records of {self._assignment.topic} were acknowledged and did not come to "
            f"their reader within {self._assignment.workload.timeout_seconds:g} s. Look at the "
            "broker's log; nothing was measured."
        )


def records_in(data: memoryview, size: int) -> int:
    """Return the records of the whole batches in `size` bytes, without control batches."""
    records = position = 0
    unpack = _COUNTED.unpack_from
    while position < size:
        length, attributes, count = unpack(data, position)
        if not attributes & CONTROL:
            records += count
        position += LOG_OVERHEAD_BYTES + length
    return records


def nothing_to_read(topic: str) -> str:
    """Return the error message for a topic without records."""
    return (
        f"{topic} has no records: there is nothing to read. Leave the topic out to have one "
        "filled, or produce to it first."
    )


def sleep_until(at_ns: int) -> None:
    """Sleep until a time of the monotonic clock."""
    time.sleep(max(0, at_ns - time.monotonic_ns()) / SECOND_NS)
