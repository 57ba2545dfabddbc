"""The walker of searches by time: slices have the result of a decoder, compiled or not."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock.records.time_scan as time_scan
from penstock.core.errors import CorruptBatchError
from penstock.records.record import Header, Record, encode_record


def load_uncompiled() -> ModuleType:
    """The same file as plain Python, under another name."""
    source = Path(time_scan.__file__).with_name("time_scan.py")
    spec = importlib.util.spec_from_file_location("time_scan_uncompiled", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


UNCOMPILED = load_uncompiled()
BOTH = pytest.mark.parametrize("module", [time_scan, UNCOMPILED], ids=["compiled", "uncompiled"])

TIMES = st.one_of(st.integers(0, 200), st.integers(-(2**62), 2**62))
RECORDS = st.lists(
    st.builds(
        Record,
        st.one_of(st.none(), st.binary(max_size=80)),
        st.one_of(st.none(), st.binary(max_size=200)),
        st.sampled_from([(), (Header("h", None), Header("", b"x"))]),
        TIMES,
    ),
    max_size=12,
)


def section_of(records: list[Record], *, offset_step: int = 1) -> memoryview:
    """Records one after the other, relative to 0."""
    output = bytearray()
    for number, record in enumerate(records):
        encode_record(
            output,
            record,
            offset_delta=number * offset_step,
            timestamp_delta_ms=record.timestamp_ms,
        )
    return memoryview(bytes(output))


@BOTH
@given(records=RECORDS, target=TIMES, step=st.integers(1, 90), first=st.integers(0, 300))
def test_slices_find_what_a_look_at_every_record_finds(
    module: ModuleType, records: list[Record], target: int, step: int, first: int
) -> None:
    section = section_of(records, offset_step=step)
    wanted = next(
        (
            (record.timestamp_ms, number * step)
            for number, record in enumerate(records)
            if record.timestamp_ms >= target and number * step >= first
        ),
        (0, -1),
    )
    for slice_records in (1, 2, 5, 100):
        position = walked = 0
        found = (0, -1)
        while found[1] < 0 and walked < len(records):
            count = min(slice_records, len(records) - walked)
            position, went, *found = module.find_time(section, position, count, target, first)
            assert 0 < went <= count
            walked += went
            found = tuple(found)
        assert found == wanted
        if found[1] < 0:
            assert (walked, position) == (len(records), len(section))


@given(
    data=st.binary(max_size=60),
    count=st.integers(0, 20),
    target=st.integers(-(2**63), 2**63 - 1),
    first=st.integers(0, 2**31),
)
def test_hostile_bytes_are_refused_alike(data: bytes, count: int, target: int, first: int) -> None:
    outcomes = []
    for module in (time_scan, UNCOMPILED):
        try:
            outcomes.append(module.find_time(memoryview(data), 0, count, target, first))
        except CorruptBatchError:
            outcomes.append("corrupt")
    assert outcomes[0] == outcomes[1]


@BOTH
def test_a_record_that_is_cut_off_is_damage(module: ModuleType) -> None:
    section = section_of([Record(b"k", b"v", (), 5), Record(b"k", b"v", (), 6)])
    for end in range(1, len(section)):
        with pytest.raises(CorruptBatchError, match="is damaged"):
            module.find_time(section[:end], 0, 2, 100, 0)
