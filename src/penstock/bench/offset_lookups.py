"""A client that looks records up: each request fetches the batch of one offset.

The offsets are drawn at random, with the workload's seed, from all records of the client's
partitions. One request is in flight for each leader, so a latency is that of one lookup. Each
answer must contain the offset: a broker that answers with other records ends the measurement.
Offsets that compaction removed are answered with the next batch. It is NOT a lookup by key.
"""

import random
import time

from penstock.bench.assignment import Assignment
from penstock.bench.measurement import ClientResult
from penstock.bench.observing import Observer, Report
from penstock.bench.pacing import SECOND_NS, Shares
from penstock.bench.reading import (
    Answer,
    Asked,
    NothingToReadError,
    Places,
    nothing_to_read,
    sleep_until,
)
from penstock.client import calls
from penstock.client.calls import FetchBounds
from penstock.client.records.range_reader import whole_batches
from penstock.client.transport.addresses import Address
from penstock.client.transport.call import raise_error
from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition

LOOKUP_BOUNDS = FetchBounds(wait_ms_max=500, bytes_min=1, bytes_max=1)
"""A broker answers with one whole batch, however small the bound is."""
_IDLE_SECONDS = 0.1
_NO_END = 2**62


class OffsetNotFoundError(PenstockError):
    """An answer did not reach the offset that was asked for."""


class Finder:
    """One client that asks for random offsets."""

    def __init__(self, assignment: Assignment) -> None:
        """Connect, and find the offsets of the partitions."""
        self._assignment = assignment
        self._places = Places(assignment)
        first, end = self._places.first, self._places.end
        self._readable = {
            address: filled
            for address, places in self._places.by_leader.items()
            if (filled := [at for at in places if first[at] < end[at]])
        }
        if not self._readable:
            raise NothingToReadError(nothing_to_read(assignment.topic))
        self._random = random.Random(f"{assignment.workload.seed}/{assignment.client}")  # noqa: S311
        self._asked: dict[TopicPartition, int] = {}
        self._places.connect()

    def run(self, begin_ns: int, report: Report) -> ClientResult:
        """Look offsets up until the work is done."""
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
            size_bytes = self._take(answer)
            now_ns = time.monotonic_ns()
            observer.done(now_ns, asked.asked_ns, 1, size_bytes)
            is_more = end_ns is None or now_ns < end_ns
            if is_more and (wanted is None or observer.result.records < wanted):
                self._ask(asked.address)

        sleep_until(begin_ns)
        for address in self._readable:
            self._ask(address)
        while not lanes.is_idle:
            lanes.collect(take)
            observer.tick(time.monotonic_ns())
            lanes.wait(_IDLE_SECONDS)
        return observer.finish(time.monotonic_ns())

    def close(self) -> None:
        """Close the connections."""
        self._places.lanes.close()

    def _ask(self, address: Address) -> None:
        at = self._random.choice(self._readable[address])
        offset = self._random.randrange(self._places.first[at], self._places.end[at])
        self._asked[at] = offset
        note = Asked(address, time.monotonic_ns())
        self._places.lanes.send(address, calls.fetch_batches({at: offset}, LOOKUP_BOUNDS), note)

    def _take(self, answer: Answer) -> int:
        """Return the bytes of an answer, which contains the offset or a later batch."""
        size_bytes = 0
        for at, part in answer.items():
            raise_error(part.error_code, None, str(at))
            data = memoryview(part.records or b"")
            offset = self._asked[at]
            size, following = whole_batches(data, offset, _NO_END) if data else (0, offset)
            if following <= offset:
                raise OffsetNotFoundError(
                    f"{at} was asked for offset {offset}, and the answer of {len(data)} bytes ends "
                    f"before {following}. Look at the log of the broker; nothing was measured."
                )
            size_bytes += size
        return size_bytes
