"""Runs of records: what consumers see of stored batches, and the bounded cache of runs."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import PenstockError
from penstock.edge.push import limits
from penstock.edge.push.record_runs import (
    Aborted,
    LogRead,
    Run,
    RunCache,
    Version,
    _unfold_slowly,
    batch_run,
    is_heavy,
    record_run,
)
from penstock.edge.push.unfolding import unfold
from penstock.protocol.push.data import decode_data
from penstock.records.batch import HEADER_BYTES, read_header
from penstock.records.builder import LOG_APPEND_TIME, BatchBuilder, build_batch
from penstock.records.record import Header, Record
from tests.edge.push.push_scene import VERSION


def read_of(
    *batches: bytes | bytearray, offset: int = 0, aborted: Sequence[Aborted] = ()
) -> LogRead:
    return LogRead(3, offset, b"".join(batches), aborted, VERSION)


def offsets(run: Run) -> list[int]:
    return [decode_data(b"\0\0" + tail).offset for tail in run.tails]


def batch(
    base_offset: int, count: int = 2, *, codec: int = 0, timestamp_type: int = 0
) -> bytearray:
    records = [Record(b"k", b"%d" % number, (), 10 + number) for number in range(count)]
    return build_batch(
        records,
        base_offset=base_offset,
        leader_epoch=7,
        codec=codec,
        timestamp_type=timestamp_type,
    )


def test_records_have_all_their_fields() -> None:
    record = Record(b"k", b"v", (Header("a", b"1"), Header("b", None)), 99)
    run = record_run(read_of(build_batch([record], base_offset=40, leader_epoch=7)))
    found = decode_data(b"\0\0" + run.tails[0])
    assert (found.partition, found.offset, found.timestamp_ms, found.leader_epoch) == (3, 40, 99, 7)
    assert (found.key, found.value, found.headers) == (b"k", b"v", (("a", b"1"), ("b", None)))
    assert (run.offset, run.next_offset, run.nexts) == (0, 41, [41])


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_each_codec_is_unfolded(codec: int) -> None:
    run = record_run(read_of(batch(0, 3, codec=codec), batch(3, 2, codec=codec)))
    assert offsets(run) == [0, 1, 2, 3, 4]
    assert run.next_offset == 5


def test_the_time_of_the_broker_is_that_of_all_records() -> None:
    run = record_run(read_of(batch(0, 3, timestamp_type=LOG_APPEND_TIME)))
    assert {decode_data(b"\0\0" + tail).timestamp_ms for tail in run.tails} == {12}


def control(base_offset: int) -> bytearray:
    builder = BatchBuilder()
    builder.append(Record(b"\0\0\0\0", b"\0\0\0\0\0\0"))
    return builder.build(base_offset=base_offset, control=True, transactional=True, producer_id=5)


@pytest.mark.parametrize("unfold", [record_run, batch_run])
def test_markers_and_aborted_records_are_left_out(unfold: type) -> None:
    records = [Record(b"k", b"v", (), 1)]
    kept = build_batch(records, base_offset=0, producer_id=5, transactional=True)
    dropped = build_batch(records, base_offset=2, producer_id=5, transactional=True)
    other = build_batch(records, base_offset=3, producer_id=6, transactional=True)
    read = read_of(kept, control(1), dropped, other, control(4), aborted=[Aborted(5, 2, 4)])
    run = unfold(read)
    assert offsets(run) == [0, 3]
    assert run.next_offset == 5


def test_a_batch_is_sent_unchanged() -> None:
    first, second = batch(0, 3, codec=4), batch(3, 2)
    run = batch_run(read_of(first, second))
    assert [decode_data(b"\0\0" + tail).value for tail in run.tails] == [
        bytes(first),
        bytes(second),
    ]
    assert (list(run.counts), run.nexts) == ([3, 2], [3, 5])


def test_a_read_that_ends_in_a_batch_is_refused() -> None:
    whole = bytes(batch(0))
    broken = whole[:8] + b"\x7f\xff\xff\xff" + whole[12:]
    with pytest.raises(PenstockError):
        record_run(read_of(broken))


def test_many_or_compressed_records_are_heavy() -> None:
    assert not is_heavy(read_of(batch(0)))
    assert is_heavy(read_of(batch(0, limits.UNFOLD_ON_LOOP_RECORDS_MAX + 1)))
    large = build_batch([Record(None, bytes(range(256)) * 400, (), 1)], codec=1)
    assert not is_heavy(read_of(large))
    packed = build_batch([Record(None, b"%d" % n, (), 1) for n in range(1_999)], codec=1)
    assert is_heavy(read_of(*[packed] * 8))


def run_at(offset: int, count: int, size: int = 10, version: Version = VERSION) -> Run:
    nexts = list(range(offset + 1, offset + count + 1))
    return Run(offset, offset + count, nexts, (1,) * count, [bytes(size)] * count, version)


def test_a_run_is_found_by_each_of_its_offsets() -> None:
    cache = RunCache()
    run = run_at(5, 3)
    cache.add("t", 0, run, is_batch_format=False)
    found = [cache.find("t", 0, at, VERSION, is_batch_format=False) for at in range(4, 9)]
    assert found == [None, run, run, run, None]
    assert cache.find("t", 1, 5, VERSION, is_batch_format=False) is None
    assert cache.find("t", 0, 5, VERSION, is_batch_format=True) is None


def test_a_run_of_another_epoch_topic_or_cut_is_not_found() -> None:
    cache = RunCache()
    cache.add("t", 0, run_at(0, 3), is_batch_format=False)
    assert cache.find("t", 0, 0, (b"topic", 1, 0), is_batch_format=False) is None
    assert cache.find("t", 0, 0, (b"again", 0, 0), is_batch_format=False) is None
    assert cache.find("t", 0, 0, (b"topic", 0, 1), is_batch_format=False) is None


def test_a_large_run_is_kept_while_it_is_used() -> None:
    cache = RunCache(bytes_max=1_000)
    run = run_at(0, 2, size=400)
    cache.add("t", 0, run, is_batch_format=False)
    assert cache.size_bytes == 0
    assert cache.find("t", 0, 1, VERSION, is_batch_format=False) is run
    del run
    assert cache.find("t", 0, 1, VERSION, is_batch_format=False) is None


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(1, 8), st.integers(0, 300)),
        max_size=60,
    )
)
def test_the_cache_is_bounded_and_returns_no_wrong_run(
    added: list[tuple[int, int, int, int]],
) -> None:
    cache = RunCache(bytes_max=4_000)
    for partition, offset, count, size in added:
        cache.add("t", partition, run_at(offset, count, size), is_batch_format=False)
        cache.validate()
        for at in range(70):
            found = cache.find("t", partition, at, VERSION, is_batch_format=False)
            assert found is None or found.offset <= at < found.next_offset


RECORDS = st.lists(
    st.builds(
        Record,
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        st.just(()) | st.just((Header("h", b"x"),)),
        st.integers(0, 2**40),
    ),
    min_size=1,
    max_size=8,
)


@given(RECORDS, st.integers(0, 2**50), st.sampled_from([0, LOG_APPEND_TIME]), st.booleans())
def test_the_fast_way_unfolds_as_the_slow_one(
    records: list[Record], base_offset: int, timestamp_type: int, is_plain: bool
) -> None:
    if is_plain:
        records = [one._replace(headers=()) for one in records]
    stored = build_batch(records, base_offset=base_offset, timestamp_type=timestamp_type)
    header = read_header(stored)
    section = bytes(stored[HEADER_BYTES:])
    fixed_ms = header.max_timestamp_ms if timestamp_type else None
    slow = _unfold_slowly(section, header, 3, fixed_ms)
    fast = unfold(
        section,
        len(records),
        partition=3,
        base_offset=base_offset,
        base_timestamp_ms=header.base_timestamp_ms,
        fixed_timestamp_ms=fixed_ms,
        leader_epoch=-1,
    )
    assert fast == (None if any(one.headers for one in records) else slow)
    run = record_run(read_of(stored))
    assert (run.nexts, run.tails) == slow


@given(RECORDS, st.data())
def test_damage_is_not_unfolded_the_fast_way(records: list[Record], data: st.DataObject) -> None:
    stored = build_batch([one._replace(headers=()) for one in records])
    section = bytearray(stored[HEADER_BYTES:])
    section[data.draw(st.integers(0, len(section) - 1))] ^= data.draw(st.integers(1, 255))
    header = read_header(stored)
    fast = unfold(
        bytes(section),
        len(records),
        partition=3,
        base_offset=0,
        base_timestamp_ms=header.base_timestamp_ms,
        fixed_timestamp_ms=None,
        leader_epoch=-1,
    )
    try:
        slow = _unfold_slowly(bytes(section), header, 3, None)
    except PenstockError:
        assert fast is None
    else:
        assert fast in (None, slow)
