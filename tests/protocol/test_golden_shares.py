"""ShareFetch and ShareAcknowledge as Apache Kafka 4.3.1's own message classes wrote them.

Requests of version 2 have an acquire mode and announce renewals; the codec must drop both for
version 1. kio is NOT used here; these bytes are a second reference.
"""

from dataclasses import replace

import pytest

from penstock.protocol import codec
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import share_acknowledge, share_fetch
from tests.protocol.test_golden import TOPIC_ID

FETCH = share_fetch.ShareFetchRequest(
    group_id="g",
    member_id="m",
    share_session_epoch=3,
    max_wait_ms=500,
    min_bytes=1,
    max_bytes=1000,
    max_records=500,
    batch_size=100,
    topics=(
        share_fetch.FetchTopic(
            topic_id=TOPIC_ID,
            partitions=(
                share_fetch.FetchPartition(
                    partition_index=2,
                    acknowledgement_batches=(
                        share_fetch.AcknowledgementBatch(
                            first_offset=5, last_offset=7, acknowledge_types=(1, 2, 3)
                        ),
                        share_fetch.AcknowledgementBatch(
                            first_offset=9, last_offset=12, acknowledge_types=(0,)
                        ),
                    ),
                ),
            ),
        ),
    ),
    forgotten_topics_data=(share_fetch.ForgottenTopic(topic_id=TOPIC_ID, partitions=(4,)),),
)
FETCHED = share_fetch.ShareFetchResponse(
    throttle_time_ms=3,
    acquisition_lock_timeout_ms=30_000,
    responses=(
        share_fetch.ShareFetchableTopicResponse(
            topic_id=TOPIC_ID,
            partitions=(
                share_fetch.PartitionData(
                    partition_index=2,
                    error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    error_message="e",
                    acknowledge_error_code=ErrorCode.INVALID_RECORD_STATE,
                    acknowledge_error_message="f",
                    current_leader=share_fetch.LeaderIdAndEpoch(leader_id=1, leader_epoch=9),
                    records=b"abc",
                    acquired_records=(
                        share_fetch.AcquiredRecords(
                            first_offset=5, last_offset=9, delivery_count=2
                        ),
                    ),
                ),
            ),
        ),
    ),
    node_endpoints=(share_fetch.NodeEndpoint(node_id=1, host="h", port=9092, rack=None),),
)
ACKNOWLEDGE = share_acknowledge.ShareAcknowledgeRequest(
    group_id="g",
    member_id="m",
    share_session_epoch=-1,
    topics=(
        share_acknowledge.AcknowledgeTopic(
            topic_id=TOPIC_ID,
            partitions=(
                share_acknowledge.AcknowledgePartition(
                    partition_index=2,
                    acknowledgement_batches=(
                        share_acknowledge.AcknowledgementBatch(
                            first_offset=5, last_offset=7, acknowledge_types=(1,)
                        ),
                    ),
                ),
            ),
        ),
    ),
)
ACKNOWLEDGED = share_acknowledge.ShareAcknowledgeResponse(
    throttle_time_ms=3,
    responses=(
        share_acknowledge.ShareAcknowledgeTopicResponse(
            topic_id=TOPIC_ID,
            partitions=(
                share_acknowledge.PartitionData(
                    partition_index=2,
                    error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    error_message="e",
                    current_leader=share_acknowledge.LeaderIdAndEpoch(leader_id=1, leader_epoch=9),
                ),
            ),
        ),
    ),
    node_endpoints=(share_acknowledge.NodeEndpoint(node_id=1, host="h", port=9092, rack="r"),),
)

MESSAGES: dict[str, codec.Message] = {
    "fetch_request": FETCH,
    "fetch_request_2": replace(FETCH, share_acquire_mode=1, is_renew_ack=True),
    "fetch_response": FETCHED,
    "acknowledge_request": ACKNOWLEDGE,
    "acknowledge_request_2": replace(ACKNOWLEDGE, is_renew_ack=True),
    "acknowledge_response": ACKNOWLEDGED,
    "acknowledge_response_2": replace(ACKNOWLEDGED, acquisition_lock_timeout_ms=30_000),
}

GOLDEN = [
    (
        "fetch_request",
        1,
        (
            "0267026d00000003000001f400000001000003e8000001f400000064020102030405060708090a"
            "0b0c0d0e0f10020000000203000000000000000500000000000000070401020300000000000000"
            "0009000000000000000c0200000000020102030405060708090a0b0c0d0e0f1002000000040000"
        ),
    ),
    (
        "fetch_request_2",
        2,
        (
            "0267026d00000003000001f400000001000003e8000001f4000000640101020102030405060708"
            "090a0b0c0d0e0f1002000000020300000000000000050000000000000007040102030000000000"
            "00000009000000000000000c0200000000020102030405060708090a0b0c0d0e0f100200000004"
            "0000"
        ),
    ),
    (
        "fetch_response",
        1,
        (
            "0000000300000000007530020102030405060708090a0b0c0d0e0f100200000002000602650079"
            "026600000001000000090004616263020000000000000005000000000000000900020000000200"
            "000001026800002384000000"
        ),
    ),
    (
        "fetch_response",
        2,
        (
            "0000000300000000007530020102030405060708090a0b0c0d0e0f100200000002000602650079"
            "026600000001000000090004616263020000000000000005000000000000000900020000000200"
            "000001026800002384000000"
        ),
    ),
    (
        "acknowledge_request",
        1,
        (
            "0267026dffffffff020102030405060708090a0b0c0d0e0f100200000002020000000000000005"
            "0000000000000007020100000000"
        ),
    ),
    (
        "acknowledge_request_2",
        2,
        (
            "0267026dffffffff01020102030405060708090a0b0c0d0e0f1002000000020200000000000000"
            "050000000000000007020100000000"
        ),
    ),
    (
        "acknowledge_response",
        1,
        (
            "00000003000000020102030405060708090a0b0c0d0e0f10020000000200060265000000010000"
            "0009000000020000000102680000238402720000"
        ),
    ),
    (
        "acknowledge_response_2",
        2,
        (
            "0000000300000000007530020102030405060708090a0b0c0d0e0f100200000002000602650000"
            "000100000009000000020000000102680000238402720000"
        ),
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
