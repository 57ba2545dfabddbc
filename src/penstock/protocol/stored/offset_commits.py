"""Records of committed offsets, read by hand: a coordinator reads a million of them at its start.

Guarantees: it returns the same values as the generated decoders, in a third of the time; tests
compare the two. It knows only the form that this broker and Apache Kafka 4 write (a key of type 0
or 1, a value of version 4, no unknown tags). Any other record, also an invalid one, is None: the
caller passes it to the generated decoders, which know every form and every error. It writes
NOTHING.
"""

import struct
from typing import Final

from penstock.protocol.stored.group_records import OffsetCommitKey, OffsetCommitValue
from penstock.protocol.wire import uuid_or_none

_KEY_BYTES_MIN: Final = 10
"""Type, two lengths, partition."""
_VALUE_VERSION: Final = 4
_METADATA_START: Final = 15
_VALUE_BYTES_MIN: Final = 24
"""Version, offset, leader epoch, one byte of length, timestamp, number of tags."""
_TOPIC_ID_TAG: Final = b"\x01\x00\x10"
"""One tag: number 0, of 16 bytes."""
_TOPIC_ID_BYTES: Final = 16
_offset_and_epoch = struct.Struct(">qi")
_int32 = struct.Struct(">i")
_int64 = struct.Struct(">q")


def decode_offset_commit(
    key: bytes, value: bytes | None
) -> tuple[OffsetCommitKey, OffsetCommitValue | None] | None:
    """Key and value of a committed offset; None for any other record."""
    try:
        decoded = _key(key)
        if decoded is None or value is None:
            return None if decoded is None else (decoded, None)
        decoded_value = _value(value)
        return None if decoded_value is None else (decoded, decoded_value)
    except UnicodeDecodeError:
        return None


def _key(key: bytes) -> OffsetCommitKey | None:
    size = len(key)
    if size < _KEY_BYTES_MIN or key[0] != 0 or key[1] > 1 or key[2] > 127:
        return None
    group_end = 4 + (key[2] << 8) + key[3]
    topic_start = group_end + 2
    if topic_start + 4 > size or key[group_end] > 127:
        return None
    topic_end = topic_start + (key[group_end] << 8) + key[group_end + 1]
    if topic_end + 4 != size:
        return None
    return OffsetCommitKey(
        group=key[4:group_end].decode(),
        topic=key[topic_start:topic_end].decode(),
        partition=_int32.unpack_from(key, topic_end)[0],
    )


def _value(value: bytes) -> OffsetCommitValue | None:
    size = len(value)
    if size < _VALUE_BYTES_MIN or value[0] != 0 or value[1] != _VALUE_VERSION:
        return None
    length = value[_METADATA_START - 1]
    if length == 0 or length > 127:
        return None
    metadata_end = _METADATA_START + length - 1
    tags = metadata_end + 8
    topic_id = None
    if size == tags + len(_TOPIC_ID_TAG) + _TOPIC_ID_BYTES:
        if value[tags : tags + len(_TOPIC_ID_TAG)] != _TOPIC_ID_TAG:
            return None
        topic_id = uuid_or_none(value[tags + len(_TOPIC_ID_TAG) :])
    elif size != tags + 1 or value[tags] != 0:
        return None
    offset, leader_epoch = _offset_and_epoch.unpack_from(value, 2)
    return OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=value[_METADATA_START:metadata_end].decode(),
        commit_timestamp=_int64.unpack_from(value, metadata_end)[0],
        topic_id=topic_id,
    )
