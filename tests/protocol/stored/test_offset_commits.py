"""Committed offsets are read by hand as the generated decoders read them, or left to those."""

from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.core.errors import StoredRecordError
from penstock.protocol.stored.codec import GROUP_TYPES, _decode, decode_group_record, encode
from penstock.protocol.stored.group_records import (
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from penstock.protocol.stored.offset_commits import decode_offset_commit

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
keys = st.builds(
    OffsetCommitKey, group=st.text(max_size=300), topic=st.text(max_size=20), partition=int32
)
values = st.builds(
    OffsetCommitValue,
    offset=int64,
    leader_epoch=int32,
    metadata=st.text(max_size=200),
    commit_timestamp=int64,
    topic_id=st.none() | st.uuids().filter(lambda topic_id: topic_id.int != 0),
)
KEY = OffsetCommitKey(group="g", topic="t", partition=1)
VALUE = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9, topic_id=UUID(int=7))


@given(keys, st.none() | values)
def test_what_was_written_is_read_by_hand_as_by_the_generated_decoder(
    key: OffsetCommitKey, value: OffsetCommitValue | None
) -> None:
    encoded = encode((key, value))

    by_hand = decode_offset_commit(*encoded)

    assert decode_group_record(*encoded) == _decode(GROUP_TYPES, *encoded) == (key, value)
    assert by_hand == (key, value) or len((value.metadata if value else "").encode()) > 126


def test_the_usual_record_is_read_by_hand() -> None:
    assert decode_offset_commit(*encode((KEY, VALUE))) == (KEY, VALUE)


@given(st.integers(0, 60), st.integers(0, 255), st.booleans())
@example(0, 1, True)
def test_a_changed_byte_is_read_or_refused_as_by_the_generated_decoder(
    place: int, byte: int, in_key: bool
) -> None:
    key, value = encode((KEY, VALUE))
    assert value is not None
    changed = bytearray(key if in_key else value)
    changed[place % len(changed)] = byte
    pair = (bytes(changed), value) if in_key else (key, bytes(changed))
    try:
        expected = _decode(GROUP_TYPES, *pair)
    except StoredRecordError:
        assert decode_offset_commit(*pair) is None
        return
    by_hand = decode_offset_commit(*pair)
    assert by_hand is None or by_hand == expected


@given(st.integers(0, 60), st.booleans())
def test_a_record_that_ends_early_is_not_read_by_hand(kept: int, in_key: bool) -> None:
    key, value = encode((KEY, VALUE))
    assert value is not None
    short = (key if in_key else value)[:kept]
    if short in (key, value):
        return
    assert decode_offset_commit(*((short, value) if in_key else (key, short))) is None


def test_records_of_other_types_are_left_to_the_generated_decoders() -> None:
    key, _ = encode((GroupMetadataKey(group="g"), None))

    assert decode_offset_commit(key, None) is None
    assert decode_group_record(key, None) == (GroupMetadataKey(group="g"), None)
