"""Bytes that Apache Kafka 4.3.1's own message classes wrote, and the messages behind them.

The fields are those of every version at once: the codec must drop the fields that a version lacks,
as Kafka does. kio is NOT used here; these bytes are a second reference.
"""

import uuid

import pytest

from penstock.protocol import codec
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

TOPIC_ID = uuid.UUID("01020304-0506-0708-090a-0b0c0d0e0f10")

MESSAGES: dict[str, codec.Message] = {
    "api_versions": ApiVersionsRequest(client_software_name="lib", client_software_version="1.0"),
    "metadata": MetadataRequest(
        topics=(MetadataRequestTopic(name="a", topic_id=TOPIC_ID),),
        allow_auto_topic_creation=False,
    ),
    "metadata_all": MetadataRequest(topics=None, allow_auto_topic_creation=True),
    "metadata_response": MetadataResponse(
        brokers=(MetadataResponseBroker(node_id=1, host="h", port=9092, rack=None),),
        cluster_id="c",
        controller_id=1,
        topics=(
            MetadataResponseTopic(
                name="a",
                topic_id=TOPIC_ID,
                partitions=(
                    MetadataResponsePartition(
                        partition_index=0,
                        leader_id=1,
                        leader_epoch=5,
                        replica_nodes=(1,),
                        isr_nodes=(1,),
                    ),
                ),
            ),
        ),
    ),
    "fetch_response": FetchResponse(
        throttle_time_ms=3,
        responses=(
            FetchableTopicResponse(
                topic="a",
                topic_id=TOPIC_ID,
                partitions=(
                    PartitionData(
                        partition_index=2,
                        high_watermark=7,
                        last_stable_offset=7,
                        log_start_offset=1,
                        aborted_transactions=(),
                        records=b"abc",
                    ),
                ),
            ),
        ),
    ),
    "fetch_request": FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1000,
        topics=(
            FetchTopic(
                topic="a",
                topic_id=TOPIC_ID,
                partitions=(
                    FetchPartition(
                        partition=2,
                        fetch_offset=9,
                        partition_max_bytes=100,
                        current_leader_epoch=4,
                    ),
                ),
            ),
        ),
    ),
    "produce_response": ProduceResponse(
        responses=(
            TopicProduceResponse(
                name="a",
                topic_id=TOPIC_ID,
                partition_responses=(
                    PartitionProduceResponse(
                        index=2, base_offset=9, log_append_time_ms=-1, log_start_offset=1
                    ),
                ),
            ),
        ),
    ),
    "produce_request": ProduceRequest(
        acks=-1,
        timeout_ms=1500,
        topic_data=(
            TopicProduceData(
                name="a",
                topic_id=TOPIC_ID,
                partition_data=(PartitionProduceData(index=2, records=b"abc"),),
            ),
        ),
    ),
}

GOLDEN = [
    ("api_versions", 3, "046c696204312e3000"),
    ("metadata", 4, "0000000100016100"),
    ("metadata", 12, "020102030405060708090a0b0c0d0e0f10026100000000"),
    ("metadata_all", 12, "00010000"),
    (
        "metadata_response",
        0,
        (
            "000000010000000100016800002384000000010000000161000000010000000000000000000100"
            "000001000000010000000100000001"
        ),
    ),
    (
        "metadata_response",
        1,
        (
            "000000010000000100016800002384ffff00000001000000010000000161000000000100000000"
            "00000000000100000001000000010000000100000001"
        ),
    ),
    (
        "metadata_response",
        5,
        (
            "00000000000000010000000100016800002384ffff000163000000010000000100000001610000"
            "000001000000000000000000010000000100000001000000010000000100000000"
        ),
    ),
    (
        "metadata_response",
        9,
        (
            "000000000200000001026800002384000002630000000102000002610002000000000000000000"
            "010000000502000000010200000001010080000000008000000000"
        ),
    ),
    (
        "metadata_response",
        12,
        (
            "000000000200000001026800002384000002630000000102000002610102030405060708090a0b"
            "0c0d0e0f1000020000000000000000000100000005020000000102000000010100800000000000"
        ),
    ),
    (
        "metadata_response",
        13,
        (
            "000000000200000001026800002384000002630000000102000002610102030405060708090a0b"
            "0c0d0e0f1000020000000000000000000100000005020000000102000000010100800000000000"
            "0000"
        ),
    ),
    (
        "fetch_response",
        4,
        (
            "000000030000000100016100000001000000020000000000000000000700000000000000070000"
            "000000000003616263"
        ),
    ),
    (
        "fetch_response",
        11,
        (
            "000000030000000000000000000100016100000001000000020000000000000000000700000000"
            "00000007000000000000000100000000ffffffff00000003616263"
        ),
    ),
    (
        "fetch_response",
        12,
        (
            "000000030000000000000202610200000002000000000000000000070000000000000007000000"
            "000000000101ffffffff04616263000000"
        ),
    ),
    (
        "fetch_response",
        13,
        (
            "00000003000000000000020102030405060708090a0b0c0d0e0f10020000000200000000000000"
            "0000070000000000000007000000000000000101ffffffff04616263000000"
        ),
    ),
    (
        "fetch_response",
        18,
        (
            "00000003000000000000020102030405060708090a0b0c0d0e0f10020000000200000000000000"
            "0000070000000000000007000000000000000101ffffffff04616263000000"
        ),
    ),
    (
        "fetch_request",
        4,
        "ffffffff000001f400000001000003e800000000010001610000000100000002000000000000000900000064",
    ),
    (
        "fetch_request",
        11,
        (
            "ffffffff000001f400000001000003e80000000000ffffffff0000000100016100000001000000"
            "02000000040000000000000009ffffffffffffffff00000064000000000000"
        ),
    ),
    (
        "fetch_request",
        12,
        (
            "ffffffff000001f400000001000003e80000000000ffffffff0202610200000002000000040000"
            "000000000009ffffffffffffffffffffffff000000640000010100"
        ),
    ),
    (
        "fetch_request",
        13,
        (
            "ffffffff000001f400000001000003e80000000000ffffffff020102030405060708090a0b0c0d"
            "0e0f100200000002000000040000000000000009ffffffffffffffffffffffff00000064000001"
            "0100"
        ),
    ),
    (
        "fetch_request",
        18,
        (
            "000001f400000001000003e80000000000ffffffff020102030405060708090a0b0c0d0e0f1002"
            "00000002000000040000000000000009ffffffffffffffffffffffff000000640000010100"
        ),
    ),
    (
        "produce_response",
        3,
        "00000001000161000000010000000200000000000000000009ffffffffffffffff00000000",
    ),
    (
        "produce_response",
        8,
        (
            "00000001000161000000010000000200000000000000000009ffffffffffffffff000000000000"
            "000100000000ffff00000000"
        ),
    ),
    (
        "produce_response",
        9,
        "020261020000000200000000000000000009ffffffffffffffff0000000000000001010000000000000000",
    ),
    (
        "produce_response",
        12,
        "020261020000000200000000000000000009ffffffffffffffff0000000000000001010000000000000000",
    ),
    (
        "produce_response",
        13,
        (
            "020102030405060708090a0b0c0d0e0f10020000000200000000000000000009ffffffffffffff"
            "ff0000000000000001010000000000000000"
        ),
    ),
    ("produce_request", 3, "ffffffff000005dc00000001000161000000010000000200000003616263"),
    ("produce_request", 8, "ffffffff000005dc00000001000161000000010000000200000003616263"),
    ("produce_request", 9, "00ffff000005dc020261020000000204616263000000"),
    ("produce_request", 12, "00ffff000005dc020261020000000204616263000000"),
    (
        "produce_request",
        13,
        "00ffff000005dc020102030405060708090a0b0c0d0e0f10020000000204616263000000",
    ),
]


@pytest.mark.parametrize(("name", "version", "expected"), GOLDEN)
def test_we_write_what_apache_kafka_writes(name: str, version: int, expected: str) -> None:
    assert codec.encode_request(MESSAGES[name], version).hex() == expected


@pytest.mark.parametrize(("name", "version", "expected"), GOLDEN)
def test_what_apache_kafka_wrote_is_read_and_written_again(
    name: str, version: int, expected: str
) -> None:
    body = bytes.fromhex(expected)
    decode = codec.message_decoder(type(MESSAGES[name]), version)
    message = decode(memoryview(body), 0, len(body), len(body))
    assert type(message) is type(MESSAGES[name])
    assert codec.encode_request(message, version) == body
