"""Stored records to bytes and back, as Apache Kafka 4.3 writes them.

The first two bytes of a key are the type of the record, the first two of a value the version of its
schema. `__consumer_offsets`, `__transaction_state` and `__share_group_state` have separate type
numbers, so there is a `decode` for each. An unknown type is None: the known records of a newer
broker's log are read. A known record that cannot be read is a `StoredRecordError`; a load skips it.

This file does NOT know batches, offsets or the meaning of a record.
"""

import dataclasses
import struct
from collections.abc import Mapping
from functools import cache
from typing import Final, TypeAlias, cast

from penstock.core.errors import StoredRecordError
from penstock.protocol.codec import Decoder, Encoder, Message
from penstock.protocol.decoder_source import DecoderSource
from penstock.protocol.encoder_source import Buffer, EncoderSource
from penstock.protocol.schema import StructShape
from penstock.protocol.stored import group_records as group
from penstock.protocol.stored import share_records as share
from penstock.protocol.stored import transaction_records as transaction
from penstock.protocol.stored.fields import shape_of
from penstock.protocol.stored.offset_commits import decode_offset_commit
from penstock.protocol.wire import WIRE_ERRORS

TypedRecord: TypeAlias = tuple[Message, Message | None]
"""Key and value; a value of None is a tombstone."""
_Types: TypeAlias = Mapping[int, tuple[type[Message], type[Message]]]

GROUP_TYPES: Final[_Types] = {
    0: (group.OffsetCommitKey, group.OffsetCommitValue),  # as brokers before 0.9 wrote it
    1: (group.OffsetCommitKey, group.OffsetCommitValue),
    2: (group.GroupMetadataKey, group.GroupMetadataValue),
    3: (group.ConsumerGroupMetadataKey, group.ConsumerGroupMetadataValue),
    4: (group.ConsumerGroupPartitionMetadataKey, group.ConsumerGroupPartitionMetadataValue),
    5: (group.ConsumerGroupMemberMetadataKey, group.ConsumerGroupMemberMetadataValue),
    6: (
        group.ConsumerGroupTargetAssignmentMetadataKey,
        group.ConsumerGroupTargetAssignmentMetadataValue,
    ),
    7: (
        group.ConsumerGroupTargetAssignmentMemberKey,
        group.ConsumerGroupTargetAssignmentMemberValue,
    ),
    8: (
        group.ConsumerGroupCurrentMemberAssignmentKey,
        group.ConsumerGroupCurrentMemberAssignmentValue,
    ),
    10: (share.ShareGroupMemberMetadataKey, share.ShareGroupMemberMetadataValue),
    11: (share.ShareGroupMetadataKey, share.ShareGroupMetadataValue),
    12: (
        share.ShareGroupTargetAssignmentMetadataKey,
        share.ShareGroupTargetAssignmentMetadataValue,
    ),
    13: (share.ShareGroupTargetAssignmentMemberKey, share.ShareGroupTargetAssignmentMemberValue),
    14: (share.ShareGroupCurrentMemberAssignmentKey, share.ShareGroupCurrentMemberAssignmentValue),
    15: (share.ShareGroupStatePartitionMetadataKey, share.ShareGroupStatePartitionMetadataValue),
    16: (group.ConsumerGroupRegularExpressionKey, group.ConsumerGroupRegularExpressionValue),
}
TRANSACTION_TYPES: Final[_Types] = {
    0: (transaction.TransactionLogKey, transaction.TransactionLogValue),
}
SHARE_TYPES: Final[_Types] = {
    0: (share.ShareSnapshotKey, share.ShareSnapshotValue),
    1: (share.ShareUpdateKey, share.ShareUpdateValue),
}

_TYPE_BY_KEY: Final = {
    key_class: (number, value_class)
    for types in (GROUP_TYPES, TRANSACTION_TYPES, SHARE_TYPES)
    for number, (key_class, value_class) in types.items()
}
_WRITTEN_VERSIONS: Final[Mapping[type[Message], int]] = {
    group.OffsetCommitValue: 4,
    group.GroupMetadataValue: 3,
    transaction.TransactionLogValue: 1,
}
"""The version that Kafka 4.3 writes where a value has several."""
_EXPIRING_OFFSET_VERSION: Final = 1
"""The only version of an offset with an expiry time; it has no epoch and no topic id."""
_MODULES: Final = {module.__name__: module for module in (group, share, transaction)}
_NUMBER_BYTES: Final = 2
_number = struct.Struct(">h")


def encode(record: TypedRecord) -> tuple[bytes, bytes | None]:
    """The bytes of a record's key and value."""
    key, value = record
    type_number, value_class = _TYPE_BY_KEY[type(key)]
    parts: list[Buffer] = [_number.pack(type_number)]
    _encoder(type(key), 0)(key, parts.append)
    key_bytes = b"".join(parts)
    if value is None:
        return key_bytes, None
    assert type(value) is value_class, f"{type(value).__name__} under {type(key).__name__}"
    version = _WRITTEN_VERSIONS.get(value_class, 0)
    if isinstance(value, group.OffsetCommitValue) and value.expire_timestamp != -1:
        version = _EXPIRING_OFFSET_VERSION
        value = dataclasses.replace(value, leader_epoch=-1, topic_id=None)
    parts = [_number.pack(version)]
    _encoder(value_class, version)(value, parts.append)
    return key_bytes, b"".join(parts)


def decode_group_record(key: Buffer, value: Buffer | None) -> TypedRecord | None:
    """A record of `__consumer_offsets`; None when its type is not known."""
    if isinstance(key, bytes) and (value is None or isinstance(value, bytes)):
        offset = decode_offset_commit(key, value)
        if offset is not None:
            return offset
    return _decode(GROUP_TYPES, key, value)


def decode_transaction_record(key: Buffer, value: Buffer | None) -> TypedRecord | None:
    """A record of `__transaction_state`; None when its type is not known."""
    return _decode(TRANSACTION_TYPES, key, value)


def decode_share_record(key: Buffer, value: Buffer | None) -> TypedRecord | None:
    """A record of `__share_group_state`; None when its type is not known."""
    return _decode(SHARE_TYPES, key, value)


def _decode(types: _Types, key: Buffer, value: Buffer | None) -> TypedRecord | None:
    view = memoryview(key)
    try:
        (number,) = _number.unpack_from(view)
        classes = types.get(number)
        if classes is None:
            return None
        key_class, value_class = classes
        length = len(view)
        decoded = _decoder(key_class, 0)(view, _NUMBER_BYTES, length, length)
        if value is None:
            return decoded, None
        view = memoryview(value)
        (version,) = _number.unpack_from(view)
        length = len(view)
        return decoded, _decoder(value_class, version)(view, _NUMBER_BYTES, length, length)
    except WIRE_ERRORS as error:
        raise StoredRecordError(
            f"a record of an internal topic does not follow its schema: {error}. "
            "Show it with `penstock log dump`."
        ) from error


@cache
def _decoder(record_class: type[Message], version: int) -> Decoder:
    low, high = record_class.VERSIONS
    if not low <= version <= high:
        raise StoredRecordError(
            f"version {version} of {record_class.__name__} is unknown (known: {low} to {high}): "
            "a newer broker may have written the record."
        )
    shape = _shape(record_class, version)
    return cast("Decoder", DecoderSource(shape, _classes(shape, record_class)).compile())


@cache
def _encoder(record_class: type[Message], version: int) -> Encoder:
    shape = _shape(record_class, version)
    return cast("Encoder", EncoderSource(shape, _classes(shape, record_class)).compile())


def _shape(record_class: type[Message], version: int) -> StructShape:
    return shape_of(record_class, version, flexible_since=record_class.FLEXIBLE_SINCE)


def _classes(shape: StructShape, record_class: type[Message]) -> dict[str, type]:
    """The class of each structure of a shape; all are in the module of the record."""
    module = _MODULES[record_class.__module__]
    found: dict[str, type] = {}
    pending = [shape]
    while pending:
        struct_shape = pending.pop()
        found[struct_shape.name] = getattr(module, struct_shape.name)
        pending += [field.struct for field in struct_shape.fields if field.struct is not None]
    return found
