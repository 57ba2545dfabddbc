"""Batches with fewer records: everything else stays unchanged."""

import pytest

from penstock.records.batch import BatchHeader, checksum_matches, read_header
from penstock.records.builder import (
    LOG_APPEND_TIME,
    build_batch,
    read_records,
    records_section,
)
from penstock.records.record import Header, Record
from penstock.records.shrinking import BatchRewriter, empty_batch
from penstock.records.span_walk import RecordSpan, record_spans
from tests.records.steps import finished

RECORDS = [
    Record(b"a", b"1", (Header("h", b"x"),), 100),
    Record(b"b", None, (), 300),
    Record(None, b"3", (), 200),
]
KEPT_FIELDS = (
    "base_offset",
    "last_offset_delta",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "base_sequence",
)


def parts(data: bytearray) -> tuple[BatchHeader, bytes, list[RecordSpan]]:
    header = read_header(data)
    section = bytes(records_section(data, header))
    return header, section, record_spans(section, header.record_count)


def rewritten_batch(
    header: BatchHeader, section: bytes, kept: list[RecordSpan], horizon_ms: int | None
) -> bytearray:
    rewriter = BatchRewriter(header, horizon_ms)
    for number, span in enumerate(kept):
        if number % 2:
            list(rewriter.add_large(memoryview(section), span))
        else:
            rewriter.add(section, span)
    return finished(rewriter.build())


def original(codec: int = 0, timestamp_type: int = 0) -> bytearray:
    return build_batch(
        RECORDS,
        base_offset=50,
        codec=codec,
        producer_id=9,
        producer_epoch=2,
        base_sequence=7,
        transactional=True,
        timestamp_type=timestamp_type,
        leader_epoch=4,
    )


def same(one: BatchHeader, other: BatchHeader) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in KEPT_FIELDS)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("horizon_ms", [None, 5_000])
def test_kept_records_are_what_they_were(codec: int, horizon_ms: int | None) -> None:
    data = original(codec)
    header, section, spans = parts(data)
    made = rewritten_batch(header, section, [spans[0], spans[2]], horizon_ms)
    changed = read_header(made)
    assert same(changed, header)
    assert checksum_matches(made, 0, changed)
    assert changed.codec == codec
    assert changed.is_transactional
    assert (changed.record_count, changed.max_timestamp_ms) == (2, 200)
    assert changed.has_delete_horizon == (horizon_ms is not None)
    assert changed.base_timestamp_ms == (100 if horizon_ms is None else horizon_ms)
    assert read_records(made) == [
        RECORDS[0]._replace(offset=50),
        RECORDS[2]._replace(offset=52),
    ]


def test_a_second_horizon_may_follow_a_first() -> None:
    header, section, spans = parts(original())
    first = rewritten_batch(header, section, spans, 5_000)
    header, section, spans = parts(first)
    second = rewritten_batch(header, section, spans[:2], None)
    assert read_header(second).base_timestamp_ms == 5_000
    assert read_header(second).has_delete_horizon
    assert [record.timestamp_ms for record in read_records(second)] == [100, 300]


def test_the_time_of_the_append_stays() -> None:
    header, section, spans = parts(original(timestamp_type=LOG_APPEND_TIME))
    made = rewritten_batch(header, section, spans[:1], 9_000)
    assert read_header(made).max_timestamp_ms == header.max_timestamp_ms == 300
    assert read_records(made)[0].timestamp_ms == 300


@pytest.mark.parametrize("codec", range(5))
def test_an_empty_batch_keeps_offsets_and_sequences(codec: int) -> None:
    header = read_header(original(codec))
    made = empty_batch(header)
    changed = read_header(made)
    assert len(made) == 61
    assert same(changed, header)
    assert checksum_matches(made, 0, changed)
    assert (changed.codec, changed.record_count, changed.base_timestamp_ms) == (0, 0, -1)
    assert changed.max_timestamp_ms == header.max_timestamp_ms
    assert changed.is_transactional
    assert read_records(made) == []
