"""The primitives of the wire: varints and tags, at their edges."""

import uuid

import pytest

from penstock.core.limits import TAGGED_FIELDS_MAX
from penstock.protocol import wire

VARINTS = [
    (0, "00"),
    (1, "01"),
    (127, "7f"),
    (128, "8001"),
    (300, "ac02"),
    (16_383, "ff7f"),
    (16_384, "808001"),
    (2**31, "8080808008"),
    (2**32 - 1, "ffffffff0f"),
]


@pytest.mark.parametrize(("value", "encoded"), VARINTS)
def test_varint_both_ways(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert wire.unsigned_varint(value) == data
    assert wire.read_unsigned_varint(memoryview(data + b"\xff"), 0) == (value, len(data))


@pytest.mark.parametrize("encoded", ["ffffffff10", "ffffffffff01", "ffffffff7f", "80808080808000"])
def test_a_varint_of_more_than_32_bits_is_refused(encoded: str) -> None:
    with pytest.raises(wire.WireError):
        wire.read_unsigned_varint(memoryview(bytes.fromhex(encoded)), 0)


@pytest.mark.parametrize("encoded", ["", "80", "ffffffff"])
def test_a_varint_that_ends_early_is_refused(encoded: str) -> None:
    with pytest.raises(wire.WIRE_ERRORS):
        wire.read_unsigned_varint(memoryview(bytes.fromhex(encoded)), 0)


def test_a_long_varint_is_refused_after_five_bytes() -> None:
    class Counting:
        reads = 0

        def __getitem__(self, position: int) -> int:
            self.reads += 1
            return 0xFF

    endless = Counting()
    with pytest.raises(wire.WireError):
        wire.read_unsigned_varint(endless, 0)  # type: ignore[arg-type]
    assert endless.reads == 5


def skip(encoded: str, count: int) -> int:
    data = memoryview(bytes.fromhex(encoded))
    return wire.skip_tags(data, 0, len(data), count)


def test_unknown_tags_are_skipped() -> None:
    assert skip("0002abcd 05 00 07 01 ff".replace(" ", ""), 3) == 9


@pytest.mark.parametrize(
    ("encoded", "count"),
    [
        ("0501610501 62".replace(" ", ""), 2),
        ("06016105 0162".replace(" ", ""), 2),
        ("0509 61".replace(" ", ""), 1),
        ("05ffffffff0f61", 1),
        ("", 1),
        ("00", 1),
    ],
)
def test_tags_that_repeat_fall_or_run_past_the_end_are_refused(encoded: str, count: int) -> None:
    with pytest.raises(wire.WIRE_ERRORS):
        skip(encoded, count)


def test_more_tags_than_any_schema_has_are_refused_before_they_are_read() -> None:
    with pytest.raises(wire.WireError):
        skip("", TAGGED_FIELDS_MAX + 1)


def test_a_uuid_of_zeros_is_none() -> None:
    value = uuid.UUID(int=1)
    assert wire.uuid_or_none(bytes(16)) is None
    assert wire.uuid_bytes(None) == bytes(16)
    assert wire.uuid_or_none(wire.uuid_bytes(value)) == value


def test_a_string_that_no_schema_can_hold_is_our_own_mistake() -> None:
    assert wire.compact_string("a" * 32_767)[1] == b"a" * 32_767
    with pytest.raises(ValueError, match="32768"):
        wire.compact_string("a" * 32_768)
