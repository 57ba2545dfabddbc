"""Stored records of share groups are Apache Kafka 4.3's to the byte.

The bytes below were written by Kafka 4.3.1's own record classes.
"""

from uuid import UUID

import pytest

from penstock.core.errors import StoredRecordError
from penstock.protocol.codec import Message
from penstock.protocol.stored import share_records as share
from penstock.protocol.stored.codec import decode_group_record, decode_share_record, encode

TOPIC_ID = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
SNAPSHOT_KEY = share.ShareSnapshotKey(group_id="g", topic_id=TOPIC_ID, partition=3)
SNAPSHOT_KEY_HEX = "00000001670102030405060708090a0b0c0d0e0f1000000003"

Golden = tuple[Message, Message | None, str, str | None]

STATE_RECORDS: dict[str, Golden] = {
    "snapshot": (
        SNAPSHOT_KEY,
        share.ShareSnapshotValue(
            snapshot_epoch=1,
            state_epoch=2,
            leader_epoch=3,
            start_offset=40,
            delivery_complete_count=7,
            create_timestamp=1_700_000_000_000,
            write_timestamp=1_700_000_000_009,
            state_batches=(
                share.ShareSnapshotValueStateBatch(
                    first_offset=41, last_offset=49, delivery_state=2, delivery_count=5
                ),
                share.ShareSnapshotValueStateBatch(
                    first_offset=50, last_offset=50, delivery_state=0, delivery_count=1
                ),
            ),
        ),
        SNAPSHOT_KEY_HEX,
        (
            "000000000001000000020000000300000000000000280000018bcfe568000000018bcfe5"
            "680903000000000000002900000000000000310200050000000000000000320000000000"
            "0000320000010001000400000007"
        ),
    ),
    "snapshot_plain": (
        SNAPSHOT_KEY,
        share.ShareSnapshotValue(
            snapshot_epoch=0,
            state_epoch=0,
            leader_epoch=0,
            start_offset=-1,
            create_timestamp=5,
            write_timestamp=5,
            state_batches=(),
        ),
        SNAPSHOT_KEY_HEX,
        ("0000000000000000000000000000ffffffffffffffff000000000000000500000000000000050100"),
    ),
    "snapshot_tombstone": (SNAPSHOT_KEY, None, SNAPSHOT_KEY_HEX, None),
    "update": (
        share.ShareUpdateKey(group_id="g", topic_id=TOPIC_ID, partition=3),
        share.ShareUpdateValue(
            snapshot_epoch=1,
            leader_epoch=3,
            start_offset=-1,
            delivery_complete_count=0,
            state_batches=(
                share.ShareUpdateValueStateBatch(
                    first_offset=41, last_offset=49, delivery_state=4, delivery_count=5
                ),
            ),
        ),
        "00010001670102030405060708090a0b0c0d0e0f1000000003",
        (
            "00000000000100000003ffffffffffffffff020000000000000029000000000000003104"
            "00050001000400000000"
        ),
    ),
}
GROUP_RECORDS: dict[str, Golden] = {
    "member": (
        share.ShareGroupMemberMetadataKey(group_id="g", member_id="m"),
        share.ShareGroupMemberMetadataValue(
            rack_id=None, client_id="c", client_host="/h", subscribed_topic_names=("a", "b")
        ),
        "000a00016700016d",
        "0000000263032f68030261026200",
    ),
    "group": (
        share.ShareGroupMetadataKey(group_id="g"),
        share.ShareGroupMetadataValue(epoch=5, metadata_hash=77),
        "000b000167",
        "000000000005000000000000004d00",
    ),
    "target": (
        share.ShareGroupTargetAssignmentMetadataKey(group_id="g"),
        share.ShareGroupTargetAssignmentMetadataValue(assignment_epoch=4, assignment_timestamp=8),
        "000c000167",
        "0000000000040100080000000000000008",
    ),
    "target_default": (
        share.ShareGroupTargetAssignmentMetadataKey(group_id="g"),
        share.ShareGroupTargetAssignmentMetadataValue(assignment_epoch=4),
        "000c000167",
        "00000000000400",
    ),
    "target_member": (
        share.ShareGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
        share.ShareGroupTargetAssignmentMemberValue(
            topic_partitions=(
                share.ShareGroupTargetAssignmentMemberValueTopicPartition(
                    topic_id=TOPIC_ID, partitions=(0, 1)
                ),
            )
        ),
        "000d00016700016d",
        "0000020102030405060708090a0b0c0d0e0f100300000000000000010000",
    ),
    "current": (
        share.ShareGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
        share.ShareGroupCurrentMemberAssignmentValue(
            member_epoch=3,
            previous_member_epoch=2,
            state=1,
            assigned_partitions=(
                share.ShareGroupCurrentMemberAssignmentValueTopicPartitions(
                    topic_id=TOPIC_ID, partitions=(5,)
                ),
            ),
        ),
        "000e00016700016d",
        "0000000000030000000201020102030405060708090a0b0c0d0e0f1002000000050000",
    ),
    "state_partitions": (
        share.ShareGroupStatePartitionMetadataKey(group_id="g"),
        share.ShareGroupStatePartitionMetadataValue(
            initializing_topics=(
                share.ShareGroupStatePartitionMetadataValueTopicPartitionsInfo(
                    topic_id=TOPIC_ID, topic_name="t", partitions=(0, 1)
                ),
            ),
            initialized_topics=(
                share.ShareGroupStatePartitionMetadataValueTopicPartitionsInfo(
                    topic_id=TOPIC_ID, topic_name="u", partitions=(2,)
                ),
            ),
            deleting_topics=(
                share.ShareGroupStatePartitionMetadataValueTopicInfo(
                    topic_id=TOPIC_ID, topic_name="v"
                ),
            ),
        ),
        "000f000167",
        (
            "0000020102030405060708090a0b0c0d0e0f100274030000000000000001000201020304"
            "05060708090a0b0c0d0e0f100275020000000200020102030405060708090a0b0c0d0e0f"
            "1002760000"
        ),
    ),
}


def from_hex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


@pytest.mark.parametrize("name", [*STATE_RECORDS, *GROUP_RECORDS])
def test_a_record_has_kafkas_bytes(name: str) -> None:
    key, value, key_hex, value_hex = (STATE_RECORDS | GROUP_RECORDS)[name]
    key_bytes, value_bytes = encode((key, value))
    assert key_bytes.hex() == key_hex
    assert (None if value_bytes is None else value_bytes.hex()) == value_hex


@pytest.mark.parametrize("name", STATE_RECORDS)
def test_kafkas_delivery_state_is_decoded(name: str) -> None:
    key, value, key_hex, value_hex = STATE_RECORDS[name]
    assert decode_share_record(bytes.fromhex(key_hex), from_hex(value_hex)) == (key, value)


@pytest.mark.parametrize("name", GROUP_RECORDS)
def test_kafkas_share_groups_are_decoded(name: str) -> None:
    key, value, key_hex, value_hex = GROUP_RECORDS[name]
    assert decode_group_record(bytes.fromhex(key_hex), from_hex(value_hex)) == (key, value)


def test_unknown_types_and_versions() -> None:
    assert decode_share_record(b"\x00\x02whatever", b"whatever") is None
    with pytest.raises(StoredRecordError, match="newer broker"):
        decode_share_record(bytes.fromhex(SNAPSHOT_KEY_HEX), b"\x00\x01")


@pytest.mark.parametrize("name", [n for n in STATE_RECORDS if n != "snapshot_tombstone"])
def test_a_truncated_record_is_an_error(name: str) -> None:
    _, _, key_hex, value_hex = STATE_RECORDS[name]
    key, value = bytes.fromhex(key_hex), from_hex(value_hex)
    assert value is not None
    for length in range(len(value)):
        with pytest.raises(StoredRecordError):
            decode_share_record(key, value[:length])
    for length in range(len(key)):
        with pytest.raises(StoredRecordError):
            decode_share_record(key[:length], value)
