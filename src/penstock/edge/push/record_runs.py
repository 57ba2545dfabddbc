"""`Run`: records that were read from one partition, in the form that sessions send. Pure.

A read returns stored batches. `batch_run` sends them as they are; `record_run` unfolds them into
one payload for each record, once for all sessions. Both leave out control batches and batches of
aborted transactions. `RunCache` keeps recent runs, which sessions at the same position share.

Guarantees: a run has the records of `[offset, next_offset)` that a consumer with `read_committed`
sees. The cache is bounded in bytes and in runs of one partition. It returns no run of an earlier
leader epoch or of a deleted topic.

It reads no log: `ports.PushLog` does.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple
from weakref import WeakValueDictionary

from penstock.core.errors import CorruptBatchError
from penstock.core.limits import UNFOLD_ON_LOOP_BYTES_MAX
from penstock.edge.push.limits import (
    RUN_CACHE_BYTES_MAX,
    RUNS_PER_PARTITION_MAX,
    UNFOLD_ON_LOOP_RECORDS_MAX,
)
from penstock.edge.push.unfolding import unfold
from penstock.protocol.push.data import encode_batch_tail, encode_tail
from penstock.records import batch as layout
from penstock.records.batch import BatchHeader
from penstock.records.builder import records_section
from penstock.records.record import decode_records


class Aborted(NamedTuple):
    """An aborted transaction in a partition."""

    producer_id: int
    first_offset: int
    last_offset: int


class LogRead(NamedTuple):
    """Stored batches of one partition, which start at or before `offset`."""

    partition: int
    offset: int
    records: memoryview | bytes
    aborted: Sequence[Aborted]
    version: "Version"


Version = tuple[bytes, int, int]
"""The id of the topic, the leader epoch of its partition, and the number of cuts of its log:
another one may have other records at the same offsets."""


class Run:
    """Payloads of DATA without their subscription, in the order of offsets. Never changed."""

    __slots__ = (
        "__weakref__",
        "counts",
        "next_offset",
        "nexts",
        "offset",
        "size_bytes",
        "tails",
        "version",
    )

    def __init__(
        self,
        offset: int,
        next_offset: int,
        nexts: list[int],
        counts: Sequence[int],
        tails: list[bytes],
        version: Version,
    ) -> None:
        self.offset = offset
        self.next_offset = next_offset
        self.nexts = nexts
        """The offset behind each payload."""
        self.counts = counts
        """Records of each payload."""
        self.tails = tails
        self.size_bytes = sum(map(len, tails))
        self.version = version


def _batches(read: LogRead) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and headers of the batches of a read."""
    view, position = memoryview(read.records), 0
    while position + layout.HEADER_BYTES <= len(view):
        header = layout.read_header(view, position)
        end = position + header.size_bytes
        if header.size_bytes < layout.HEADER_BYTES or end > len(view):
            raise CorruptBatchError(
                f"a batch at {header.base_offset} has {header.size_bytes} bytes"
            )
        yield position, header
        position = end


def _is_hidden(header: BatchHeader, aborted: Sequence[Aborted]) -> bool:
    """Whether consumers do not see a batch."""
    if header.is_control:
        return True
    return header.is_transactional and any(
        one.producer_id == header.producer_id
        and one.first_offset <= header.base_offset <= one.last_offset
        for one in aborted
    )


def is_heavy(read: LogRead) -> bool:
    """Whether unfolding needs more time than the event loop may spend."""
    records = plain_bytes = 0
    for _, header in _batches(read):
        records += header.record_count
        if header.codec:
            # The size that a compressed batch unfolds to is not known; ten times is usual.
            plain_bytes += header.size_bytes * 10
    return records > UNFOLD_ON_LOOP_RECORDS_MAX or plain_bytes > UNFOLD_ON_LOOP_BYTES_MAX


def batch_run(read: LogRead) -> Run:
    """Return the stored batches of a read, unchanged."""
    nexts: list[int] = []
    counts: list[int] = []
    tails: list[bytes] = []
    next_offset, view = read.offset, memoryview(read.records)
    for position, header in _batches(read):
        next_offset = header.next_offset
        if _is_hidden(header, read.aborted) or not header.record_count:
            continue
        tail = encode_batch_tail(
            read.partition,
            header.base_offset,
            header.max_timestamp_ms,
            header.leader_epoch,
            view[position : position + header.size_bytes],
        )
        nexts.append(next_offset)
        counts.append(header.record_count)
        tails.append(tail)
    return Run(read.offset, next_offset, nexts, counts, tails, read.version)


def record_run(read: LogRead) -> Run:
    """Return the records of a read, one payload for each."""
    nexts: list[int] = []
    tails: list[bytes] = []
    next_offset, partition, view = read.offset, read.partition, memoryview(read.records)
    for position, header in _batches(read):
        next_offset = header.next_offset
        if _is_hidden(header, read.aborted):
            continue
        section = bytes(records_section(view, header, position=position))
        fixed_ms = header.max_timestamp_ms if header.is_log_append_time else None
        found = unfold(
            section,
            header.record_count,
            partition=partition,
            base_offset=header.base_offset,
            base_timestamp_ms=header.base_timestamp_ms,
            fixed_timestamp_ms=fixed_ms,
            leader_epoch=header.leader_epoch,
        )
        more_nexts, more_tails = found or _unfold_slowly(section, header, partition, fixed_ms)
        nexts += more_nexts
        tails += more_tails
    return Run(read.offset, next_offset, nexts, (1,) * len(tails), tails, read.version)


def _unfold_slowly(
    section: bytes, header: BatchHeader, partition: int, fixed_ms: int | None
) -> tuple[list[int], list[bytes]]:
    """As `unfolding.unfold`, also for records with headers; raise an error for damage."""
    nexts: list[int] = []
    tails: list[bytes] = []
    for key, value, headers, timestamp_ms, offset in decode_records(
        section,
        header.record_count,
        base_offset=header.base_offset,
        base_timestamp_ms=header.base_timestamp_ms,
    ):
        time_ms = timestamp_ms if fixed_ms is None else fixed_ms
        tails.append(
            encode_tail(partition, offset, time_ms, header.leader_epoch, 0, key, value, headers)
        )
        nexts.append(offset + 1)
    return nexts, tails


class _Key(NamedTuple):
    topic: str
    partition: int
    is_batch_format: bool


class RunCache:
    """Recent runs, which sessions share."""

    def __init__(self, bytes_max: int = RUN_CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._runs: dict[_Key, list[Run]] = {}
        """Runs of a partition by their offset; they do not overlap."""
        self._ages: OrderedDict[tuple[_Key, int], int] = OrderedDict()
        """(partition, offset of a run) to its bytes, the oldest first."""
        self._large: WeakValueDictionary[_Key, Run] = WeakValueDictionary()
        """Runs above the bound, as long as a session uses them."""
        self.size_bytes = 0
        self.hits = self.misses = 0

    def __len__(self) -> int:
        return len(self._ages)

    def find(
        self, topic: str, partition: int, offset: int, version: Version, *, is_batch_format: bool
    ) -> Run | None:
        """Return a run with records at or after an offset, if there is one."""
        key = _Key(topic, partition, is_batch_format)
        run = self._find(key, offset)
        if run is not None and run.version == version:
            self.hits += 1
            return run
        self.misses += 1
        return None

    def _find(self, key: _Key, offset: int) -> Run | None:
        runs = self._runs.get(key, ())
        index = bisect_right(runs, offset, key=_offset) - 1
        if index >= 0 and offset < runs[index].next_offset:
            return runs[index]
        large = self._large.get(key)
        return large if large is not None and large.offset <= offset < large.next_offset else None

    def add(self, topic: str, partition: int, run: Run, *, is_batch_format: bool) -> None:
        """Keep a run; older ones make room. A large run is kept while a session uses it."""
        size = run.size_bytes + 100 * len(run.tails)
        key = _Key(topic, partition, is_batch_format)
        if size > self._bytes_max // 4 or run.next_offset <= run.offset:
            self._large[key] = run
            return
        runs = self._runs.setdefault(key, [])
        for other in [one for one in runs if _overlaps(one, run)]:
            self._drop(key, other)
        if len(runs) >= RUNS_PER_PARTITION_MAX:
            self._drop(key, runs[0])
        runs = self._runs.setdefault(key, [])
        runs.insert(bisect_right(runs, run.offset, key=_offset), run)
        self._ages[key, run.offset] = size
        self.size_bytes += size
        while self.size_bytes > self._bytes_max:
            oldest, offset = next(iter(self._ages))
            found = next(one for one in self._runs[oldest] if one.offset == offset)
            self._drop(oldest, found)

    def _drop(self, key: _Key, run: Run) -> None:
        runs = self._runs[key]
        runs.remove(run)
        self.size_bytes -= self._ages.pop((key, run.offset))
        if not runs:
            del self._runs[key]

    def validate(self) -> None:
        """Assert the invariants."""
        assert self.size_bytes == sum(self._ages.values()) <= self._bytes_max
        assert sum(map(len, self._runs.values())) == len(self._ages)
        for runs in self._runs.values():
            assert 0 < len(runs) <= RUNS_PER_PARTITION_MAX
            for one, other in pairwise(runs):
                assert one.next_offset <= other.offset


def _offset(run: Run) -> int:
    return run.offset


def _overlaps(one: Run, other: Run) -> bool:
    return one.offset < other.next_offset and other.offset < one.next_offset
