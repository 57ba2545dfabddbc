"""Slices of an unfolded batch: all records in order, whatever the sizes; bounded windows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import CorruptBatchError
from penstock.records import section_slices
from penstock.records.record import Record, encode_record
from penstock.records.section_slices import span_slices
from penstock.records.span_walk import record_spans

WINDOW = 64
RECORDS_MAX = 3


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(section_slices, "SCAN_WINDOW_BYTES", WINDOW)
    monkeypatch.setattr(section_slices, "SCAN_SLICE_RECORDS", RECORDS_MAX)


def section_of(sizes: list[tuple[int | None, int | None]]) -> bytes:
    """Records with keys and values of these sizes."""
    output = bytearray()
    for number, (key, value) in enumerate(sizes):
        record = Record(
            None if key is None else bytes([number % 251]) * key,
            None if value is None else b"v" * value,
        )
        encode_record(output, record, timestamp_delta_ms=number, offset_delta=number * 2)
    return bytes(output)


SIZES = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(0, 90)), st.one_of(st.none(), st.integers(0, 150))),
    max_size=12,
)


@given(SIZES)
def test_slices_are_the_records(sizes: list[tuple[int | None, int | None]]) -> None:
    """Guards compaction in slices: no record is lost, repeated or cut at the edge of a window."""
    section = section_of(sizes)
    wanted = record_spans(section, len(sizes))
    found = []
    for window, spans in span_slices(memoryview(section), len(sizes)):
        assert 0 < len(spans) <= RECORDS_MAX
        if isinstance(window, bytes):
            assert len(window) <= WINDOW
        else:
            assert len(spans) == 1
        found += [
            (bytes(window[span.start : span.end]), bytes(window[span.rest : span.end]), span)
            for span in spans
        ]
    assert len(found) == len(wanted)
    for (whole, rest, span), original in zip(found, wanted, strict=True):
        assert whole == section[original.start : original.end]
        assert rest == section[original.rest : original.end]
        assert (span.key, span.has_value) == (original.key, original.has_value)
        assert span.timestamp_delta_ms == original.timestamp_delta_ms
        assert span.offset_delta == original.offset_delta


@given(SIZES, st.data())
def test_damage_is_found_as_in_one_look(
    sizes: list[tuple[int | None, int | None]], data: st.DataObject
) -> None:
    section = bytearray(section_of(sizes))
    for _ in range(data.draw(st.integers(0, 3))):
        if section:
            place = data.draw(st.integers(0, len(section) - 1))
            section[place] = data.draw(st.integers(0, 255))
    section = section[: data.draw(st.integers(0, len(section)))]
    count = data.draw(st.integers(0, len(sizes) + 1))

    def found(look: str) -> list[object] | str:
        try:
            if look == "whole":
                spans = record_spans(bytes(section), count)
            else:
                slices = span_slices(memoryview(bytes(section)), count)
                spans = [span for piece in slices for span in piece.spans]
        except CorruptBatchError:
            return "damaged"
        return [(span.key, span.offset_delta, span.timestamp_delta_ms) for span in spans]

    assert found("slices") == found("whole")


def test_a_long_key_of_a_large_record_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the bound on copies: a key may be as long as an unfolded batch, 128 MiB."""
    section = section_of([(70_000, 5), (3, 70_000)])
    (first, second) = [
        span for piece in span_slices(memoryview(section), 2) for span in piece.spans
    ]
    assert isinstance(first.key, memoryview)
    assert len(first.key) == 70_000
    assert second.key == b"\x01\x01\x01"
