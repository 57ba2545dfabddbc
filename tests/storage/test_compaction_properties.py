"""Compaction against a model: any records, any batches, any transactions, any passes.

The model is a list of committed records. However the log was cut into batches, segments and passes,
a reader sees the model's records: below the boundary the last record of each key, above it all.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.records import section_slices
from penstock.records.batch import read_header
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log_manager import LogManager
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.compacted import (
    COMPACTED,
    Model,
    Seen,
    all_batches,
    all_records,
    append_marker,
    clean,
    compacted_log,
    keyed,
    put_in_transaction,
)
from tests.storage.logs import PARTITION, open_manager, sync

Pairs = list[tuple[bytes | None, bytes | None]]


class Write(NamedTuple):
    """One batch."""

    pairs: Pairs
    codec: int
    producer: int
    """-1 for none; 1 and 2 write in transactions, 3 is idempotent."""


class End(NamedTuple):
    """The end of a transaction, if one is open."""

    producer: int
    is_commit: bool


class Roll(NamedTuple):
    """A new segment."""


class Clean(NamedTuple):
    """A pass."""

    keys_max: int
    hours: int
    """Time that goes by before it."""


class Restart(NamedTuple):
    """The broker is stopped and started, or killed and started."""

    is_clean: bool


KEYS = st.sampled_from([b"a", b"b", b"c", b"a longer key than sixteen bytes", b""])
VALUES = st.one_of(st.none(), st.binary(max_size=40))
PAIRS = st.lists(st.tuples(st.one_of(KEYS, KEYS, st.none()), VALUES), min_size=1, max_size=5)
STEPS = st.lists(
    st.one_of(
        st.builds(Write, PAIRS, st.integers(0, 4), st.sampled_from([-1, 1, 2, 3])),
        st.builds(Write, PAIRS, st.integers(0, 4), st.sampled_from([-1, 1, 2, 3])),
        st.builds(End, st.sampled_from([1, 2]), st.booleans()),
        st.builds(Roll),
        st.builds(Clean, st.sampled_from([1, 2, 100]), st.integers(0, 2)),
        st.builds(Restart, st.booleans()),
    ),
    min_size=1,
    max_size=40,
)
HOUR_MS = 3_600_000


@pytest.fixture(autouse=True, scope="module")
def small_slices() -> Iterator[None]:
    """A slice is two records and a window smaller than some: passes stop and go on in a batch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(section_slices, "SCAN_SLICE_RECORDS", 2)
        patch.setattr(section_slices, "SCAN_WINDOW_BYTES", 48)
        yield


@dataclass
class Open:
    """A transaction of the model."""

    records: list[Seen]


class World:
    """The log and the model, step by step."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.manager: LogManager = open_manager(self.disk, COMPACTED)
        self.log: PartitionLog = compacted_log(self.manager)
        self.model = Model()
        self.open: dict[int, Open] = {}
        self.sequences = {1: 0, 2: 0, 3: 0}
        self.now_ms = 1_000
        self.cleaned = 0

    def write(self, step: Write) -> None:
        log, producer = self.log, step.producer
        timestamp_ms = self.now_ms
        if producer in (1, 2):
            base = put_in_transaction(
                log,
                producer,
                self.sequences[producer],
                step.pairs,
                timestamp_ms=timestamp_ms,
                codec=step.codec,
            )
        else:
            sequence = self.sequences[3] if producer == 3 else -1
            made = keyed(
                step.pairs,
                timestamp_ms=timestamp_ms,
                codec=step.codec,
                producer_id=producer,
                sequence=sequence,
            )
            base = log.append(made, leader_epoch=0).base_offset
        if producer > 0:
            self.sequences[producer] += len(step.pairs)
        seen = [
            Seen(base + number, key, value, timestamp_ms + number)
            for number, (key, value) in enumerate(step.pairs)
        ]
        if producer in (1, 2):
            self.open.setdefault(producer, Open([])).records += seen
        else:
            self.model.records += seen

    def end(self, step: End) -> None:
        transaction = self.open.pop(step.producer, None)
        if transaction is None:
            return
        append_marker(self.log, step.producer, is_commit=step.is_commit, timestamp_ms=self.now_ms)
        if step.is_commit:
            self.model.records = sorted(self.model.records + transaction.records)

    def clean(self, step: Clean) -> None:
        sync(self.manager)
        self.now_ms += step.hours * HOUR_MS
        job = clean(self.manager, self.log, self.now_ms, keys_max=step.keys_max)
        assert job.end_offset >= self.cleaned
        self.cleaned = job.end_offset

    def restart(self, step: Restart) -> None:
        sync(self.manager)
        if step.is_clean:
            self.manager.close()
        else:
            self.manager.unlock()
        self.manager = open_manager(self.disk, COMPACTED)
        assert self.manager.problems == []
        log = self.manager.get_log(PARTITION)
        assert log is not None
        self.log = log

    def check(self) -> None:
        """A reader of committed data sees the model; the last of each producer is known."""
        undecided = {seen for transaction in self.open.values() for seen in transaction.records}
        seen = [record for record in all_records(self.log) if record not in undecided]
        expected = self.model.latest(self.cleaned)
        last = {
            record.key: record.offset
            for record in self.model.records
            if record.offset < self.cleaned
        }
        # A tombstone may be gone, if it was the last of its key below the boundary.
        missing = [record for record in expected if record not in seen]
        assert all(
            record.value is None and last.get(record.key) == record.offset for record in missing
        ), f"lost: {missing}"
        assert [record for record in seen if record in expected] == seen, "more than should be"
        for producer, sequence in self.sequences.items():
            if sequence:
                assert self.log.producers.summary()[producer][1] == sequence - 1
        offsets = [read_header(batch).base_offset for batch in all_batches(self.log)]
        assert offsets == sorted(set(offsets))


@given(STEPS)
@settings(max_examples=40, deadline=None)
def test_a_reader_sees_the_last_record_of_each_key(steps: list[NamedTuple]) -> None:
    world = World()
    for step in [*steps, Clean(100, 1), Restart(is_clean=False)]:
        match step:
            case Write():
                world.write(step)
            case End():
                world.end(step)
            case Roll():
                world.log.roll()
            case Clean():
                world.clean(step)
            case Restart():
                world.restart(step)
    world.check()
    found = []
    for _ in range(3):
        # Records due at this moment are removed in the first of them.
        world.manager.home_of(PARTITION).cleaned_offsets[PARTITION] = 0
        world.clean(Clean(1_000, 0))
        found.append(all_records(world.log))
    assert found == [found[0]] * 3, "cleaning again changes nothing"
