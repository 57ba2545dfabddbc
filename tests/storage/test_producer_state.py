"""Producer state: sequences, repetitions, epochs, wrap-around, snapshots, bounds."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core import limits
from penstock.core.errors import (
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
    StorageError,
)
from penstock.records.batch import BatchHeader
from penstock.records.control import Marker
from penstock.storage.log import open_transactions, producer_state
from penstock.storage.log.open_transactions import Verifications
from penstock.storage.log.producer_entry import ProducerEntry
from penstock.storage.log.producer_state import ProducerStates

LAST = 2**31 - 1


def header(
    sequence: int,
    count: int = 1,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    attributes: int = 0,
    timestamp_ms: int = 5_000,
    offset: int = 0,
) -> BatchHeader:
    last = count - 1
    return BatchHeader(
        offset, 100, 0, 2, 0, attributes, last, 0, timestamp_ms, producer_id, epoch, sequence, count
    )


class Log:
    """Just enough of a log: the next offset."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.end_offset = 0

    def append(self, made: BatchHeader) -> tuple[int, bool]:
        guard = 0
        if made.is_transactional and made.producer_id not in self.states.transactions:
            guard = self.states.verifications.begin(
                made.producer_id, made.base_sequence, made.producer_epoch, 0, adds=False
            )
        original = self.states.check(made, guard)
        if original is not None:
            self.states.note_repeated(made.producer_id)
            return original.base_offset, True
        base_offset = self.end_offset
        self.states.update(made, base_offset, made.max_timestamp_ms)
        self.end_offset += made.record_count
        self.states.validate()
        return base_offset, False


def test_sequences_follow_each_other() -> None:
    log = Log()
    assert log.append(header(0, 3)) == (0, False)
    assert log.append(header(3, 2)) == (3, False)
    with pytest.raises(OutOfOrderSequenceError):
        log.append(header(7))
    assert log.append(header(5)) == (5, False)


def test_the_last_five_batches_are_recognised() -> None:
    log = Log()
    for number in range(6):
        log.append(header(number * 2, 2))
    for number in range(1, 6):
        assert log.append(header(number * 2, 2)) == (number * 2, True)
    with pytest.raises(OutOfOrderSequenceError):
        log.append(header(0, 2))
    with pytest.raises(OutOfOrderSequenceError):
        log.append(header(10, 1))


def test_sequences_wrap() -> None:
    log = Log()
    log.append(header(LAST - 1, 2))
    assert log.append(header(0, 2)) == (2, False)
    assert log.append(header(LAST - 1, 2)) == (0, True)
    other = Log()
    other.append(header(LAST, 3))
    assert other.append(header(2)) == (3, False)


def test_an_unknown_producer_begins_anywhere() -> None:
    assert Log().append(header(500)) == (0, False)


def test_epochs() -> None:
    log = Log()
    log.append(header(0, epoch=1))
    with pytest.raises(InvalidProducerEpochError):
        log.append(header(1, epoch=0))
    with pytest.raises(OutOfOrderSequenceError):
        log.append(header(1, epoch=2))
    assert log.append(header(0, epoch=2)) == (1, False)


def test_markers_close_a_transaction_and_need_no_sequence() -> None:
    log = Log()
    log.append(header(0, attributes=0x10))
    assert log.states.entries[7].open_offset == 0
    log.append(header(-1, attributes=0x30))
    assert log.states.entries[7].open_offset == -1
    assert log.append(header(1, attributes=0x10)) == (2, False)


class CountedTable(dict[int, ProducerEntry]):
    """A table of producers that counts how many of them are looked at."""

    looks = 0

    def items(self) -> Iterator[tuple[int, ProducerEntry]]:  # type: ignore[override]
        for item in super().items():
            self.looks += 1
            yield item


@pytest.mark.uncompiled
def test_making_room_looks_at_few_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the loop against an eviction that walks over the whole table."""
    monkeypatch.setattr(producer_state, "PRODUCER_IDS_PER_PARTITION_MAX", 2_000)
    log = Log()
    for producer_id in range(2_000):
        log.append(header(0, producer_id=producer_id))
    table = log.states.entries = CountedTable(log.states.entries)
    log.states._make_room()
    assert len(table) == 2_000 - 64
    assert table.looks <= 64


def test_expiry_keeps_open_transactions() -> None:
    log = Log()
    log.append(header(0))
    log.append(header(0, producer_id=8, attributes=0x10))
    assert log.states.expire(50) == 0
    assert log.states.expire(50 + limits.PRODUCER_EXPIRATION_MS - 1) == 0
    assert log.states.expire(50 + limits.PRODUCER_EXPIRATION_MS) == 1
    assert list(log.states.entries) == [8]


@pytest.mark.parametrize("timestamp_ms", [-1, 0, 5_000, 2**62])
def test_expiry_counts_from_when_the_broker_heard_of_a_producer(timestamp_ms: int) -> None:
    """A backfill of old records keeps its sequences; a wild timestamp does not keep any longer."""
    day_ms = limits.PRODUCER_EXPIRATION_MS
    log = Log()
    batch = header(0, timestamp_ms=timestamp_ms)
    following = header(1, timestamp_ms=timestamp_ms)
    log.append(batch)
    now_ms = 2**41
    assert log.states.expire(now_ms) == 0
    assert log.append(batch) == (0, True), "a retry is known"
    with pytest.raises(OutOfOrderSequenceError):
        log.append(header(9))
    assert log.states.expire(now_ms + day_ms) == 0, "the retry began its time anew"
    log.append(following)
    assert log.states.expire(now_ms + 2 * day_ms) == 0, "and so did the next batch"
    assert log.states.expire(now_ms + 3 * day_ms - 1) == 0
    assert log.states.expire(now_ms + 3 * day_ms) == 1


def test_a_load_begins_the_time_of_every_producer_anew() -> None:
    """A snapshot keeps client timestamps, as Kafka's; none of them decides after a restart."""
    log = Log()
    log.append(header(0))
    log.states.expire(1_000)
    loaded = ProducerStates.from_bytes(log.states.to_bytes(), log.end_offset)
    now_ms = 1_000 + 10 * limits.PRODUCER_EXPIRATION_MS
    assert loaded.expire(now_ms) == 0
    assert loaded.expire(now_ms + limits.PRODUCER_EXPIRATION_MS) == 1


@pytest.mark.uncompiled
def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "PRODUCER_IDS_PER_PARTITION_MAX", 100)
    log = Log()
    for producer_id in range(300):
        log.append(header(0, producer_id=producer_id))
    assert len(log.states.entries) <= 100
    assert 299 in log.states.entries


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[BatchHeader, Marker | None]]:
    """A log of many producers: plain batches, transactions, and markers without any batch."""
    batches: list[tuple[BatchHeader, Marker | None]] = []
    sequences: dict[int, int] = {}
    steps = st.tuples(
        st.integers(0, 11),
        st.sampled_from(["plain", "transactional", "marker"]),
        st.integers(-1, 9),
    )
    drawn = draw(st.lists(steps, max_size=60))
    for offset, (producer_id, kind, timestamp_ms) in enumerate(drawn):
        sequence, attributes = -1, 0x30
        if kind != "marker":
            sequence = sequences.get(producer_id, 0)
            sequences[producer_id] = sequence + 1
            attributes = 0x10 if kind == "transactional" else 0
        made = header(
            sequence,
            producer_id=producer_id,
            attributes=attributes,
            timestamp_ms=timestamp_ms,
            offset=offset,
        )
        batches.append(
            (made, Marker(is_commit=True, coordinator_epoch=0) if sequence < 0 else None)
        )
    return batches


@pytest.mark.uncompiled
@settings(deadline=None)
@given(logs(), st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_replicas_of_one_log_evict_the_same_producers(
    batches: list[tuple[BatchHeader, Marker | None]], snapshots: set[int], looks: set[int]
) -> None:
    """One replica reads the log at once; another one reloads from snapshots and looks at clocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer_state, "PRODUCER_IDS_PER_PARTITION_MAX", 5)
        patch.setattr(producer_state, "_EVICTED_AT_ONCE", 2)
        steady, restless = ProducerStates(), ProducerStates()
        for number, (made, marker) in enumerate(batches):
            # Nothing idle is left to evict where every known producer has an open transaction.
            if len(steady.transactions) >= 4 and made.attributes == 0x10:
                continue
            steady.replay(made, marker)
            if number in snapshots:
                restless = ProducerStates.from_bytes(restless.to_bytes(), made.base_offset)
            if number in looks:
                restless.expire(number)
            restless.replay(made, marker)
            restless.validate()
        assert list(steady.entries) == list(restless.entries)
        assert steady.summary() == restless.summary()


@pytest.mark.uncompiled
def test_eviction_follows_the_log_and_not_timestamps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "PRODUCER_IDS_PER_PARTITION_MAX", 3)
    monkeypatch.setattr(producer_state, "_EVICTED_AT_ONCE", 1)
    log = Log()
    for producer_id in (1, 2, 3):
        log.append(header(0, producer_id=producer_id, timestamp_ms=100 - producer_id))
    log.append(header(1, producer_id=1, timestamp_ms=-1))
    log.append(header(0, producer_id=4))
    assert list(log.states.entries) == [3, 1, 4], "producer 2 wrote longest ago"


@settings(deadline=None)
@given(
    st.dictionaries(
        st.integers(0, 2**62),
        st.tuples(st.integers(0, LAST), st.integers(1, 50), st.integers(0, 30_000)),
        max_size=8,
    )
)
def test_a_snapshot_comes_back(producers: dict[int, tuple[int, int, int]]) -> None:
    log = Log()
    for producer_id, (sequence, count, epoch) in producers.items():
        log.append(header(sequence, count, producer_id=producer_id, epoch=epoch))
    again = ProducerStates.from_bytes(log.states.to_bytes(), log.end_offset)
    assert again.summary() == log.states.summary()
    assert again.to_bytes() == log.states.to_bytes()
    for producer_id, (sequence, count, epoch) in producers.items():
        repeated = header(sequence, count, producer_id=producer_id, epoch=epoch)
        assert again.check(repeated) == log.states.check(repeated) is not None


def test_kafkas_bytes() -> None:
    log = Log()
    log.append(header(0, 3))
    data = log.states.to_bytes()
    assert data[:2] == b"\x00\x01"
    assert data[6:10] == b"\x00\x00\x00\x01"
    assert len(data) == 10 + 46


@settings(deadline=None)
@given(st.integers(0, 55), st.integers(0, 7))
def test_any_flipped_bit_is_seen(position: int, bit: int) -> None:
    log = Log()
    log.append(header(0, 3))
    data = bytearray(log.states.to_bytes())
    data[position] ^= 1 << bit
    with pytest.raises(StorageError):
        ProducerStates.from_bytes(bytes(data), 3)


def test_a_short_snapshot_is_refused() -> None:
    with pytest.raises(StorageError):
        ProducerStates.from_bytes(b"\x00\x01", 0)


def test_a_snapshot_stays_what_it_was() -> None:
    log = Log()
    for producer_id in (7, 8):
        log.append(header(0, producer_id=producer_id))
    snapshot = log.states.snapshot()
    before = snapshot.to_bytes()
    for sequence in (1, 2):
        log.append(header(sequence, producer_id=7))
    log.append(header(0, producer_id=8, epoch=1, attributes=0x10))
    log.append(header(0, producer_id=9))
    log.states.expire(0)
    log.states.expire(10**12)
    assert snapshot.to_bytes() == before
    assert log.states.to_bytes() != before
    assert list(log.states.summary()) == [8]


def test_an_entry_is_copied_once_for_each_snapshot() -> None:
    log = Log()
    log.append(header(0))
    log.states.snapshot()
    shared = log.states.entries[7]
    log.append(header(1))
    own = log.states.entries[7]
    assert own is not shared
    log.append(header(2))
    assert log.states.entries[7] is own


def test_old_questions_are_forgotten_some_at_a_time_and_the_first_young_one_ends_the_look() -> None:
    """Guards the loop: a client can leave 100,000 questions in one partition."""
    verifications = Verifications()
    for producer_id in range(10):
        verifications.begin(producer_id, 0, 0, producer_id, adds=False)

    def left() -> list[int]:
        return [number for number in range(10) if verifications.get(number) is not None]

    verifications.expire(5, 4)
    assert left() == [4, 5, 6, 7, 8, 9]
    verifications.expire(5, 4)
    assert left() == [6, 7, 8, 9]
    verifications.expire(5, 4)
    assert left() == [6, 7, 8, 9]


def test_one_look_forgets_a_bounded_number_of_questions() -> None:
    verifications = Verifications()
    for producer_id in range(open_transactions.EXPIRED_AT_ONCE + 1):
        verifications.begin(producer_id, 0, 0, 0, adds=False)
    verifications.expire(0)
    assert verifications.get(open_transactions.EXPIRED_AT_ONCE - 1) is None
    assert verifications.get(open_transactions.EXPIRED_AT_ONCE) is not None


def test_a_partition_keeps_a_bounded_number_of_questions() -> None:
    """Guards `Verifications.begin`: a client may ask for as many producer ids as it likes."""
    verifications = Verifications()
    last = limits.PRODUCER_IDS_PER_PARTITION_MAX
    guards = [verifications.begin(number, 0, 0, 0, adds=False) for number in range(last + 1)]
    assert verifications.get(0) is None, "the oldest goes"
    assert [verifications.begin(number, 0, 0, 9, adds=False) for number in (1, last)] == [
        guards[1],
        guards[last],
    ]
    verifications.confirm(0, guards[0])
    assert verifications.begin(0, 0, 0, 9, adds=False) > guards[last], "it must be asked again"
    assert verifications.get(1) is None
