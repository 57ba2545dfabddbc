"""Logs of a broker's storage on a real disk, read as Fetch reads them and as leased files.

No broker, no sockets, no Spark: the log, the leases, the plan and the decoder are the real ones.
Segments have about 2 KB and index entries are 200 bytes apart, so that every edge is met often.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.client.transport.addresses import Address
from penstock.client.transport.options import ClientOptions
from penstock.core.types import TopicPartition
from penstock.records.batch import read_header
from penstock.records.builder import build_batch
from penstock.records.record import Header, Record
from penstock.spark.decode.columns import BatchDecoder
from penstock.spark.planning import OffsetRange, SealedSplit, Splitting
from penstock.spark.sealed.lease_answers import LeaseAnswer, read_answer
from penstock.spark.sealed.sealed_batches import SealedBatches
from penstock.spark.sealed.sealed_options import SealedOptions, SegmentsUse
from penstock.spark.sealed.sealed_segments import Known, SealedSegments
from penstock.storage.disk.disk_guard import DiskGuard
from penstock.storage.disk.filesystem import DiskFileSystem
from penstock.storage.leases.lease_book import Lease, LeaseBook
from penstock.storage.leases.lease_rules import LeaseWish
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log.partition_log import PartitionLog
from tests.storage.compacted import append_marker, clean
from tests.storage.leases.leasing import OPEN, at_once, no_rest, run
from tests.storage.logs import PARTITION, TOPIC_ID, Batch, Clock, open_manager, sync

TOPIC_ID_TEXT = "EjRWeBI0VngSNFZ4EjRWeA"
CLUSTER = "c1"
SETTINGS = LogSettings(
    segment_bytes=2_000,
    index_interval_bytes=200,
    retention_ms=-1,
    delete_retention_ms=1_000,
    dirty_ratio_min=0.0,
)
COMPACTED = LogSettings(
    segment_bytes=2_000,
    index_interval_bytes=200,
    retention_ms=-1,
    is_compacted=True,
    compacts=True,
    dirty_ratio_min=0.0,
    delete_retention_ms=1_000,
)
CLIENT = ClientOptions((Address("127.0.0.1", 9),))
Row = dict[str, Any]
Plan = list[tuple[OffsetRange, SealedSplit | None]]


class LogWorld:
    """One log with leases over it."""

    def __init__(self, path: Path, settings: LogSettings = SETTINGS, seed: int = 0) -> None:
        self.path = str(path)
        self.manager = open_manager(DiskFileSystem(), settings, path=self.path)
        self.log: PartitionLog = self.manager.create_log(PARTITION, TOPIC_ID, settings)
        self.draw = random.Random(seed)
        self.clock = Clock()
        guard = DiskGuard()
        guard.sample(OPEN)
        self.book = LeaseBook(
            self.manager, self.clock, {self.path: guard}, at_once, asyncio.Lock(), no_rest
        )
        self._sequences: dict[int, int] = {}
        self._open: set[int] = set()

    # --- Writing ---

    def fill(self, steps: int, *, codecs: Sequence[int] = (0, 1, 2, 3, 4)) -> None:
        """Append random batches: plain ones and three producers with transactions."""
        for _ in range(steps):
            kind = self.draw.randrange(10)
            producer_id = self.draw.choice((7, 8, 9))
            if kind < 5:
                self.append(self._batch(self.draw.choice(codecs)))
            elif kind < 8 or producer_id not in self._open:
                self._append_transactional(producer_id, self.draw.choice(codecs))
            else:
                self.end(producer_id, is_commit=self.draw.random() < 0.4)
        sync(self.manager)

    def append(self, made: Batch) -> None:
        self.log.append(made, leader_epoch=0)

    def end(self, producer_id: int, *, is_commit: bool) -> None:
        self._open.discard(producer_id)
        append_marker(self.log, producer_id, is_commit=is_commit)

    def settle(self, *, is_commit: bool = False) -> None:
        """End all transactions, and seal everything so far."""
        for producer_id in sorted(self._open):
            self.end(producer_id, is_commit=is_commit)
        self.log.roll()
        sync(self.manager)

    def compact(self) -> None:
        """Compact all sealed segments: offsets vanish."""
        clean(self.manager, self.log, now_ms=10_000_000)

    def _batch(self, codec: int, **words: Any) -> Batch:  # noqa: ANN401 - of the builder
        draw = self.draw
        data = build_batch(
            [
                Record(
                    key=draw.choice((None, b"", b"k%d" % draw.randrange(9))),
                    value=draw.choice((None, b"", draw.randbytes(draw.randrange(90)))),
                    timestamp_ms=1_000 + draw.randrange(1_000),
                    headers=draw.choice(((), (Header("h", b"1"), Header("", None)))),
                )
                for _ in range(draw.randrange(1, 6))
            ],
            codec=codec,
            **words,
        )
        header = read_header(data)
        return Batch(header, memoryview(data), header.max_timestamp_ms, 0)

    def _append_transactional(self, producer_id: int, codec: int) -> None:
        sequence = self._sequences.get(producer_id, 0)
        made = self._batch(
            codec,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        verifications = self.log.producers.verifications
        guard = verifications.begin(producer_id, sequence, 0, 0, adds=False)
        if producer_id not in self._open:
            verifications.confirm(producer_id, guard)
        self.log.append(made, leader_epoch=0, guard=guard)
        self._open.add(producer_id)
        self._sequences[producer_id] = sequence + made.header.last_offset_delta + 1

    # --- Reading ---

    @property
    def stable_offset(self) -> int:
        return self.log.first_undecided(self.log.end_offset)

    def whole(self, *, is_committed: bool = True) -> OffsetRange:
        end = self.stable_offset if is_committed else self.log.end_offset
        return OffsetRange(PARTITION, self.log.log_start_offset, end)

    def by_fetch(self, wanted: OffsetRange, *, is_committed: bool = True) -> list[Row]:
        """The rows as fetch answers have them."""
        decoder = decoder_of(wanted, is_committed=is_committed)
        batches: list[pa.RecordBatch] = []
        offset = wanted.from_offset
        while offset < wanted.until_offset:
            found = self.log.read(
                offset, 900, offset_limit=wanted.until_offset, at_least_one=True, nowait=False
            )
            if not found.records:
                found = self.log.read(
                    offset, 900, offset_limit=self.log.end_offset, at_least_one=True, nowait=False
                )
            aborted = self.log.aborted_transactions(offset, found.next_offset, nowait=False)
            batches += decoder.feed(bytes(found.records), aborted if is_committed else ())
            assert found.next_offset > offset
            offset = found.next_offset
        return rows_of([*batches, *decoder.finish()])

    def grant(self, ranges: Sequence[OffsetRange]) -> Lease:
        """A lease, as the broker grants it."""
        wishes = [
            LeaseWish(one.at, one.from_offset, one.until_offset, partial(self._stable, self.log))
            for one in ranges
        ]
        return run(self.book.grant(wishes, 3_600, "User:a"))

    @staticmethod
    def _stable(log: PartitionLog) -> int:
        return log.first_undecided(log.end_offset)

    def segments(
        self,
        *,
        is_committed: bool = True,
        splitting: Splitting | None = None,
        use: SegmentsUse = SegmentsUse.AUTO,
        changes: Mapping[str, object] | None = None,
    ) -> SealedSegments:
        """The planner of a query over this log."""
        return SealedSegments(
            SealedOptions(use, "http://127.0.0.1:1", self.path),
            CLIENT,
            splitting or Splitting(bytes_max=700),
            is_read_committed=is_committed,
            open_port=lambda _options, _client: LogPort(self, changes or {}),  # type: ignore[arg-type,return-value]
        )

    def plan(self, wanted: OffsetRange, *, is_committed: bool = True, bytes_max: int = 700) -> Plan:
        """The tasks of a range."""
        segments = self.segments(
            is_committed=is_committed, splitting=Splitting(bytes_max=bytes_max)
        )
        known = {wanted.at: Known(TOPIC_ID_TEXT, 0)}
        return segments.plan([wanted], known, CLUSTER, {})

    def by_files(self, plan: Plan, *, is_committed: bool = True) -> list[Row]:
        """The rows of tasks, from files where they have some."""
        rows: list[Row] = []
        for wanted, split in plan:
            if split is None:
                rows += self.by_fetch(wanted, is_committed=is_committed)
            else:
                rows += rows_of_split(wanted, split, is_committed=is_committed)
        return rows


class LogPort:
    """`LeasePort` over a log in this process; `changes` replaces fields of each answer."""

    def __init__(self, world: LogWorld, changes: Mapping[str, object]) -> None:
        self._world = world
        self._changes = changes

    def grant(self, topic: str, ranges: list[OffsetRange], seconds: int) -> LeaseAnswer:
        assert seconds > 0
        document = document_of(self._world.grant(ranges), self._world)
        return read_answer({**document, **self._changes}, topic)

    def release(self, lease_id: str) -> None:
        run(self._world.book.release(lease_id))


def document_of(lease: Lease, world: LogWorld) -> dict[str, Any]:
    """The answer of the admin port."""
    return {
        "id": lease.note.lease_id if lease.partitions else "",
        "cluster_id": CLUSTER,
        "topic": lease.note.topic,
        "topic_id": TOPIC_ID_TEXT,
        "directory": f"{world.path}/leases/{lease.note.lease_id}",
        "partitions": [
            {
                "partition": one.partition,
                "leader_epoch": 0,
                "log_start_offset": one.log_start_offset,
                "segments": [segment._asdict() for segment in one.segments],
                "aborted": [
                    {
                        "producer_id": each.producer_id,
                        "first_offset": each.first_offset,
                        "last_offset": each.last_offset,
                    }
                    for each in one.aborted
                ],
            }
            for one in lease.partitions
        ],
        "skipped": [
            {"partition": number, "code": code.name, "reason": code.value}
            for number, code in lease.skipped
        ],
    }


def decoder_of(wanted: OffsetRange, *, is_committed: bool) -> BatchDecoder:
    return BatchDecoder(
        wanted.at.topic,
        wanted.at.partition,
        wanted.from_offset,
        wanted.until_offset,
        include_headers=True,
        is_read_committed=is_committed,
    )


def rows_of_split(
    wanted: OffsetRange, split: SealedSplit, *, is_committed: bool, chunk_bytes: int = 500
) -> list[Row]:
    """The rows of one task, read from its files in small chunks."""
    decoder = decoder_of(wanted, is_committed=is_committed)
    batches: list[pa.RecordBatch] = []
    for chunk in SealedBatches(split, chunk_bytes):
        batches += decoder.feed(chunk.data, chunk.aborted if is_committed else ())
    return rows_of([*batches, *decoder.finish()])


def rows_of(batches: Sequence[pa.RecordBatch]) -> list[Row]:
    """The rows of Arrow batches."""
    return [row for batch in batches for row in batch.to_pylist()]


def at(number: int) -> TopicPartition:
    return TopicPartition(PARTITION.topic, number)
