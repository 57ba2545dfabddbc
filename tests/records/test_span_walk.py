"""The walker of compaction: spans are records, and compiled it does the same as uncompiled."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock.records.span_walk as span_walk
from penstock.core.errors import CorruptBatchError
from penstock.records.record import Header, Record, decode_records, encode_record


def load_uncompiled() -> ModuleType:
    """The same file as plain Python, under another name."""
    source = Path(span_walk.__file__).with_name("span_walk.py")
    spec = importlib.util.spec_from_file_location("span_walk_uncompiled", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


UNCOMPILED = load_uncompiled()
BOTH = pytest.mark.parametrize("module", [span_walk, UNCOMPILED], ids=["compiled", "uncompiled"])

RECORDS = st.lists(
    st.builds(
        Record,
        st.one_of(st.none(), st.binary(max_size=80)),
        st.one_of(st.none(), st.binary(max_size=80)),
        st.sampled_from([(), (Header("h", None), Header("", b"x"))]),
        st.integers(-(2**63), 2**63 - 1),
    ),
    max_size=4,
)


def section_of(records: list[Record]) -> bytes:
    output = bytearray()
    for index, record in enumerate(records):
        encode_record(
            output, record, timestamp_delta_ms=record.timestamp_ms, offset_delta=index * 3
        )
    return bytes(output)


def fields(module: ModuleType, section: bytes, count: int) -> list[tuple[object, ...]] | str:
    """What the walker finds, or that it found damage."""
    try:
        spans = module.record_spans(section, count)
    except CorruptBatchError:
        return "damaged"
    return [
        (
            span.start,
            span.end,
            span.rest,
            span.timestamp_delta_ms,
            span.offset_delta,
            span.key,
            span.has_value,
        )
        for span in spans
    ]


@BOTH
@given(RECORDS)
def test_spans_are_the_records(module: ModuleType, records: list[Record]) -> None:
    section = section_of(records)
    found = fields(module, section, len(records))
    decoded = list(decode_records(section, len(records), base_offset=0, base_timestamp_ms=0))
    assert not isinstance(found, str)
    assert [entry[3:] for entry in found] == [
        (record.timestamp_ms, record.offset, record.key, record.value is not None)
        for record in decoded
    ]
    edges = [0, *[entry[1] for entry in found]]
    assert [entry[0] for entry in found] == edges[:-1]
    assert edges[-1] == len(section)


@given(RECORDS, st.data())
def test_compiled_and_uncompiled_agree_on_hostile_bytes(
    records: list[Record], data: st.DataObject
) -> None:
    section = bytearray(section_of(records))
    for _ in range(data.draw(st.integers(0, 4))):
        if section:
            place = data.draw(st.integers(0, len(section) - 1))
            section[place] = data.draw(st.integers(0, 255))
    section = section[: data.draw(st.integers(0, len(section)))]
    count = data.draw(st.integers(0, len(records) + 1))
    assert fields(span_walk, bytes(section), count) == fields(UNCOMPILED, bytes(section), count)


@given(st.binary(max_size=60), st.integers(0, 5))
def test_any_bytes_are_records_or_damage(section: bytes, count: int) -> None:
    assert fields(span_walk, section, count) == fields(UNCOMPILED, section, count)


@BOTH
def test_bytes_behind_the_last_record_are_damage(module: ModuleType) -> None:
    section = section_of([Record(b"k", b"v", (), 5)])
    assert len(module.record_spans(section, 1)) == 1
    for wrong, count in ((section + b"\0", 1), (section, 2), (section, 0), (section[:-1], 1)):
        with pytest.raises(CorruptBatchError, match="damaged"):
            module.record_spans(wrong, count)
