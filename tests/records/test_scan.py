"""The record walker: each fault by hand, and compiled against uncompiled on hostile bytes."""

import importlib.util
import random
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock.records.scan as scan
from penstock.core.errors import CorruptBatchError
from penstock.records.record import Header, Record, append_varint, decode_records, encode_record

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
NOW = 1_700_000_000_000


def load_uncompiled() -> ModuleType:
    """The same file as plain Python, under another name."""
    source = Path(scan.__file__).with_name("scan.py")
    spec = importlib.util.spec_from_file_location("scan_uncompiled", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


UNCOMPILED = load_uncompiled()
BOTH = pytest.mark.parametrize("module", [scan, UNCOMPILED], ids=["compiled", "uncompiled"])


def section_of(*records: Record) -> bytes:
    output = bytearray()
    for index, record in enumerate(records):
        encode_record(
            output, record, timestamp_delta_ms=record.timestamp_ms - NOW, offset_delta=index
        )
    return bytes(output)


def walk(
    module: ModuleType,
    section: bytes,
    count: int = 1,
    *,
    base_timestamp_ms: int = NOW,
    earliest_ms: int = INT64_MIN,
    latest_ms: int = INT64_MAX,
    key_required: bool = False,
) -> tuple[int, int, int, int]:
    result: tuple[int, int, int, int] = module.scan_records(
        memoryview(section),
        0,
        len(section),
        count,
        base_timestamp_ms,
        earliest_ms,
        latest_ms,
        key_required,
    )
    return result


def reason(module: ModuleType, section: bytes, count: int = 1) -> str:
    code, *_ = walk(module, section, count)
    text: str = module.REASONS[code]
    return text


def raw_record(
    *,
    timestamp: int = 0,
    offset: int = 0,
    key: tuple[int, bytes] = (1, b"k"),
    value: tuple[int, bytes] = (1, b"v"),
    headers: tuple[int, bytes] = (0, b""),
    length_error: int = 0,
) -> bytes:
    """One record whose lengths say what the test wants them to say."""
    body = bytearray(1)
    append_varint(body, timestamp)
    append_varint(body, offset)
    for length, data in (key, value, headers):
        append_varint(body, length)
        body += data
    output = bytearray()
    append_varint(output, len(body) + length_error)
    return bytes(output + body)


def test_uncompiled_copy_is_uncompiled() -> None:
    assert not UNCOMPILED.COMPILED


def test_compiled_walker_has_its_c_types() -> None:
    # Compiled without scan.pxd it would work, fifty times slower; C methods are hidden from Python.
    assert hasattr(scan._Walker, "number") != scan.COMPILED
    assert hasattr(UNCOMPILED._Walker, "number")


@BOTH
def test_largest_timestamp_and_the_first_record_that_has_it(module: ModuleType) -> None:
    times = [NOW + 3, NOW + 9, NOW - 4, NOW + 9]
    section = section_of(*(Record(value=b"v", timestamp_ms=time) for time in times))
    assert walk(module, section, 4) == (0, 0, NOW + 9, 1)


@BOTH
def test_no_timestamps(module: ModuleType) -> None:
    assert walk(module, section_of(Record(timestamp_ms=-1))) == (0, 0, -1, -1)


@BOTH
def test_reads_only_between_its_ends(module: ModuleType) -> None:
    section = section_of(Record(b"k", b"v", timestamp_ms=NOW))
    data = memoryview(b"\xff" * 7 + section + b"\xff" * 9)
    found = module.scan_records(data, 7, 7 + len(section), 1, NOW, INT64_MIN, INT64_MAX, False)
    assert found == (0, 0, NOW, 0)


@BOTH
@pytest.mark.parametrize(
    ("section", "expected"),
    [
        (raw_record(), "valid"),
        (raw_record(key=(-1, b""), value=(-1, b"")), "valid"),
        (raw_record(key=(-9, b"")), "valid"),
        (raw_record(headers=(1, b"\x02h\x01")), "valid"),
        (b"", "it runs past its end"),
        (raw_record()[:-1], "it runs past its end"),
        (raw_record(length_error=1), "it runs past its end"),
        (b"\x00", "its parts do not fill the length it declares"),
        (b"\x01" + raw_record()[1:], "its parts do not fill the length it declares"),
        (raw_record(length_error=-1), "it runs past its end"),
        (raw_record(headers=(0, b"\x00")), "its parts do not fill the length it declares"),
        (raw_record(key=(100, b"k")), "its parts do not fill the length it declares"),
        (raw_record(value=(2**31 - 1, b"v")), "its parts do not fill the length it declares"),
        (raw_record(offset=1), "its offset delta does not follow on from the one before"),
        (raw_record(offset=-1), "its offset delta does not follow on from the one before"),
        (raw_record(headers=(-1, b"")), "its header count or a header key length is impossible"),
        (raw_record(headers=(7, b"")), "its header count or a header key length is impossible"),
        (
            raw_record(headers=(2**31 - 1, b"")),
            "its header count or a header key length is impossible",
        ),
        (
            raw_record(headers=(1, b"\x01\x01")),
            "its header count or a header key length is impossible",
        ),
        (
            raw_record(headers=(1, b"\x7eh\x01")),
            "its parts do not fill the length it declares",
        ),
        (raw_record() + b"\x00", "bytes follow after the last record"),
        (b"\x80" * 5 + b"\x00" + raw_record(), "a number in it is too long or too large"),
        (b"\xff\xff\xff\xff\x1f", "a number in it is too long or too large"),
        (b"\xff" * 200, "a number in it is too long or too large"),
        (raw_record(timestamp=INT64_MAX), "its timestamp does not fit 64 bits"),
    ],
)
def test_each_fault(module: ModuleType, section: bytes, expected: str) -> None:
    assert reason(module, section) == expected


@BOTH
def test_number_of_64_bits_may_have_ten_bytes_and_no_bit_more(module: ModuleType) -> None:
    def section(last_byte: int) -> bytes:
        return b"\x1e\x00" + b"\x80" * 9 + bytes((last_byte,)) + b"\x00\x01\x01\x00"

    assert walk(module, section(1), base_timestamp_ms=0)[0] == 0
    assert module.REASONS[walk(module, section(2), base_timestamp_ms=0)[0]].startswith("a number")


@BOTH
@pytest.mark.parametrize("count", [1, 3])
def test_record_count_must_be_right(module: ModuleType, count: int) -> None:
    assert walk(module, raw_record() + raw_record(offset=1), count)[0] != 0


@BOTH
def test_key_is_required_on_a_compacted_topic(module: ModuleType) -> None:
    section = section_of(Record(b"k", timestamp_ms=NOW), Record(None, timestamp_ms=NOW))
    assert walk(module, section, 2)[0] == 0
    assert walk(module, section, 2, key_required=True)[:2] == (module.NULL_KEY, 1)


@BOTH
@pytest.mark.parametrize(
    ("time", "accepted"),
    [(NOW, True), (NOW - 1, False), (NOW + 5, True), (NOW + 6, False), (-1, True)],
)
def test_timestamps_within_a_range(module: ModuleType, time: int, accepted: bool) -> None:
    section = section_of(Record(timestamp_ms=time))
    code, index, *_ = walk(module, section, earliest_ms=NOW, latest_ms=NOW + 5)
    assert (code, index) == (0 if accepted else module.BAD_TIMESTAMP, 0)


@BOTH
def test_broken_bytes_win_over_a_fault_of_an_earlier_record(module: ModuleType) -> None:
    section = raw_record(key=(-1, b"")) + raw_record(offset=1, headers=(-1, b""))
    code, index, *_ = walk(module, section, 2, key_required=True)
    assert (module.REASONS[code][:10], index) == ("its header", 1)


@BOTH
def test_ends_outside_the_buffer_are_our_mistake(module: ModuleType) -> None:
    for position, end in ((0, 5), (3, 2), (-1, 2)):
        with pytest.raises(AssertionError):
            module.scan_records(memoryview(b"1234"), position, end, 1, 0, 0, 0, False)


records = st.builds(
    Record,
    st.none() | st.binary(max_size=80),
    st.none() | st.binary(max_size=80),
    st.lists(
        st.builds(Header, st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3
    ).map(tuple),
    st.sampled_from([-1, 0, NOW, NOW + 5]),
    st.just(-1),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(records, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_compiled_and_uncompiled_agree_on_damaged_records(
    written: list[Record], chance: random.Random
) -> None:
    section = bytearray(section_of(*written))
    for _ in range(chance.randrange(3)):
        section[chance.randrange(len(section))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, 2, 3])
    if chance.random() < 0.2:
        del section[chance.randrange(len(section)) :]
    compare(bytes(section), len(written), chance)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=64), st.randoms(use_true_random=False))
def test_compiled_and_uncompiled_agree_on_anything(data: bytes, chance: random.Random) -> None:
    compare(data, chance.randrange(4), chance)


def compare(section: bytes, count: int, chance: random.Random) -> None:
    """Both walkers say the same; what is valid, the decoder of objects reads, and no more."""
    base_timestamp_ms = chance.choice([NOW, 0, -1, INT64_MAX, INT64_MIN])
    arguments = {
        "base_timestamp_ms": base_timestamp_ms,
        "earliest_ms": chance.choice([INT64_MIN, 0]),
        "latest_ms": chance.choice([INT64_MAX, NOW + 4]),
        "key_required": chance.random() < 0.5,
    }
    found = walk(scan, section, count, **arguments)  # type: ignore[arg-type]
    assert found == walk(UNCOMPILED, section, count, **arguments)  # type: ignore[arg-type]
    try:
        decoded = list(
            decode_records(section, count, base_offset=0, base_timestamp_ms=base_timestamp_ms)
        )
    except CorruptBatchError:
        assert found[0] not in (scan.VALID, scan.NULL_KEY, scan.BAD_TIMESTAMP)
    else:
        in_order = [record.offset for record in decoded] == list(range(count))
        assert in_order == (found[0] in (scan.VALID, scan.NULL_KEY, scan.BAD_TIMESTAMP))
        if in_order:
            assert found[2] == max([-1, *(record.timestamp_ms for record in decoded)])
