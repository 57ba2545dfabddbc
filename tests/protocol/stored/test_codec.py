"""Stored records are Apache Kafka 4.3's to the byte.

The bytes below were written by Kafka 4.3.1's own record classes.
"""

from uuid import UUID

import pytest

from penstock.core.errors import StoredRecordError
from penstock.protocol.codec import Message
from penstock.protocol.stored import group_records as group
from penstock.protocol.stored import transaction_records as transaction
from penstock.protocol.stored.codec import (
    decode_group_record,
    decode_transaction_record,
    encode,
)

TOPIC_ID = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
OFFSET_KEY = group.OffsetCommitKey(group="g", topic="t", partition=3)

Golden = tuple[Message, Message | None, str, str | None]

GROUP_RECORDS: dict[str, Golden] = {
    "offset": (
        OFFSET_KEY,
        group.OffsetCommitValue(
            offset=42,
            leader_epoch=7,
            metadata="mé",
            commit_timestamp=1_700_000_000_000,
            topic_id=TOPIC_ID,
        ),
        "000100016700017400000003",
        (
            "0004000000000000002a00000007046dc3a90000018bcfe5680001001001020304050607"
            "08090a0b0c0d0e0f10"
        ),
    ),
    "offset_plain": (
        OFFSET_KEY,
        group.OffsetCommitValue(offset=42, metadata="", commit_timestamp=1_700_000_000_000),
        "000100016700017400000003",
        "0004000000000000002affffffff010000018bcfe5680000",
    ),
    "offset_expiring": (
        OFFSET_KEY,
        group.OffsetCommitValue(offset=42, metadata="", commit_timestamp=5, expire_timestamp=9),
        "000100016700017400000003",
        "0001000000000000002a000000000000000000050000000000000009",
    ),
    "offset_tombstone": (
        OFFSET_KEY,
        None,
        "000100016700017400000003",
        None,
    ),
    "classic": (
        group.GroupMetadataKey(group="g"),
        group.GroupMetadataValue(
            protocol_type="consumer",
            generation=2,
            protocol="range",
            leader="m1",
            current_state_timestamp=99,
            members=(
                group.GroupMetadataValueMember(
                    member_id="m1",
                    group_instance_id="i",
                    client_id="c",
                    client_host="/h",
                    rebalance_timeout=60_000,
                    session_timeout=45_000,
                    subscription=b"\x01\x02",
                    assignment=b"\x03",
                ),
            ),
        ),
        "0002000167",
        (
            "00030008636f6e73756d657200000002000572616e676500026d31000000000000006300"
            "00000100026d3100016900016300022f680000ea600000afc80000000201020000000103"
        ),
    ),
    "consumer_group": (
        group.ConsumerGroupMetadataKey(group_id="g"),
        group.ConsumerGroupMetadataValue(epoch=5, metadata_hash=77),
        "0003000167",
        "000000000005010008000000000000004d",
    ),
    "consumer_partitions": (
        group.ConsumerGroupPartitionMetadataKey(group_id="g"),
        group.ConsumerGroupPartitionMetadataValue(
            topics=(
                group.ConsumerGroupPartitionMetadataValueTopicMetadata(
                    topic_id=TOPIC_ID,
                    topic_name="t",
                    num_partitions=2,
                    partition_metadata=(
                        group.ConsumerGroupPartitionMetadataValuePartitionMetadata(
                            partition=1, racks=("r",)
                        ),
                    ),
                ),
            )
        ),
        "0004000167",
        ("0000020102030405060708090a0b0c0d0e0f100274000000020200000001020272000000"),
    ),
    "consumer_member": (
        group.ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
        group.ConsumerGroupMemberMetadataValue(
            instance_id=None,
            rack_id="r",
            client_id="c",
            client_host="/h",
            subscribed_topic_names=("a", "b"),
            subscribed_topic_regex=None,
            rebalance_timeout_ms=1_000,
            server_assignor="range",
            classic_member_metadata=group.ConsumerGroupMemberMetadataValueClassicMemberMetadata(
                session_timeout_ms=9,
                supported_protocols=(
                    group.ConsumerGroupMemberMetadataValueClassicProtocol(
                        name="range", metadata=b"\t"
                    ),
                ),
            ),
        ),
        "000500016700016d",
        (
            "00000002720263032f68030261026200000003e80672616e676501001001000000090206"
            "72616e676502090000"
        ),
    ),
    "target": (
        group.ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
        group.ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=4, assignment_timestamp=8
        ),
        "0006000167",
        "0000000000040100080000000000000008",
    ),
    "target_default": (
        group.ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
        group.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=4),
        "0006000167",
        "00000000000400",
    ),
    "target_member": (
        group.ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
        group.ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=(
                group.ConsumerGroupTargetAssignmentMemberValueTopicPartition(
                    topic_id=TOPIC_ID, partitions=(0, 1)
                ),
            )
        ),
        "000700016700016d",
        "0000020102030405060708090a0b0c0d0e0f100300000000000000010000",
    ),
    "current": (
        group.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
        group.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=3,
            previous_member_epoch=2,
            state=1,
            assigned_partitions=(
                group.ConsumerGroupCurrentMemberAssignmentValueTopicPartitions(
                    topic_id=TOPIC_ID, partitions=(5,), assignment_epochs=(3,)
                ),
            ),
            partitions_pending_revocation=(
                group.ConsumerGroupCurrentMemberAssignmentValueTopicPartitions(
                    topic_id=TOPIC_ID, partitions=(6,)
                ),
            ),
        ),
        "000800016700016d",
        (
            "0000000000030000000201020102030405060708090a0b0c0d0e0f100200000005010005"
            "0200000003020102030405060708090a0b0c0d0e0f1002000000060000"
        ),
    ),
    "regex": (
        group.ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="a.*"),
        group.ConsumerGroupRegularExpressionValue(topics=("ab",), version=12, timestamp=13),
        "00100001670003612e2a",
        "000002036162000000000000000c000000000000000d00",
    ),
}
TRANSACTION_RECORDS: dict[str, Golden] = {
    "transaction": (
        transaction.TransactionLogKey(transactional_id="x"),
        transaction.TransactionLogValue(
            producer_id=11,
            previous_producer_id=10,
            next_producer_id=12,
            producer_epoch=4,
            transaction_timeout_ms=60_000,
            transaction_status=1,
            transaction_partitions=(
                transaction.TransactionLogValuePartitionsSchema(topic="t", partition_ids=(0, 2)),
            ),
            transaction_last_update_timestamp_ms=100,
            transaction_start_timestamp_ms=90,
            client_transaction_version=2,
            next_producer_epoch=6,
        ),
        "0000000178",
        (
            "0001000000000000000b00040000ea600102027403000000000000000200000000000000"
            "0064000000000000005a040008000000000000000a0108000000000000000c0202000203"
            "020006"
        ),
    ),
    "transaction_empty": (
        transaction.TransactionLogKey(transactional_id="x"),
        transaction.TransactionLogValue(
            producer_id=11,
            producer_epoch=0,
            transaction_timeout_ms=60_000,
            transaction_status=0,
            transaction_partitions=None,
            transaction_last_update_timestamp_ms=100,
            transaction_start_timestamp_ms=-1,
        ),
        "0000000178",
        ("0001000000000000000b00000000ea6000000000000000000064ffffffffffffffff00"),
    ),
}


def in_hex(encoded: bytes | None) -> str | None:
    return None if encoded is None else encoded.hex()


def from_hex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


@pytest.mark.parametrize("name", [*GROUP_RECORDS, *TRANSACTION_RECORDS])
def test_a_record_is_written_as_kafka_writes_it(name: str) -> None:
    key, value, key_hex, value_hex = (GROUP_RECORDS | TRANSACTION_RECORDS)[name]
    key_bytes, value_bytes = encode((key, value))
    assert (in_hex(key_bytes), in_hex(value_bytes)) == (key_hex, value_hex)


@pytest.mark.parametrize("name", GROUP_RECORDS)
def test_what_kafka_wrote_of_groups_is_read(name: str) -> None:
    key, value, key_hex, value_hex = GROUP_RECORDS[name]
    assert decode_group_record(bytes.fromhex(key_hex), from_hex(value_hex)) == (key, value)


@pytest.mark.parametrize("name", TRANSACTION_RECORDS)
def test_what_kafka_wrote_of_transactions_is_read(name: str) -> None:
    key, value, key_hex, value_hex = TRANSACTION_RECORDS[name]
    assert decode_transaction_record(bytes.fromhex(key_hex), from_hex(value_hex)) == (key, value)


def test_an_offset_of_an_old_broker_is_read() -> None:
    key = bytes.fromhex("000000016700017400000003")
    value = bytes.fromhex("0000000000000000002a00000000000000000005")
    assert decode_group_record(key, value) == (
        OFFSET_KEY,
        group.OffsetCommitValue(offset=42, metadata="", commit_timestamp=5),
    )


def test_a_type_that_is_not_known_is_passed_over() -> None:
    assert decode_group_record(b"\x00\x63whatever", b"whatever") is None
    assert decode_transaction_record(b"\x00\x01whatever", None) is None


def test_a_version_that_is_not_known_is_an_error() -> None:
    key, _ = encode((OFFSET_KEY, None))
    with pytest.raises(StoredRecordError, match="newer broker"):
        decode_group_record(key, b"\x00\x05")


@pytest.mark.parametrize("name", [n for n in GROUP_RECORDS if n != "offset_tombstone"])
def test_a_record_that_was_cut_is_an_error(name: str) -> None:
    _, _, key_hex, value_hex = GROUP_RECORDS[name]
    key, value = bytes.fromhex(key_hex), from_hex(value_hex)
    assert value is not None
    for length in range(len(value)):
        with pytest.raises(StoredRecordError):
            decode_group_record(key, value[:length])
    for length in range(len(key)):
        with pytest.raises(StoredRecordError):
            decode_group_record(key[:length], value)
