"""Requests of the matrix that write and read records."""

import time
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from penstock.protocol.api_keys import ApiKey
from penstock.protocol.codec import Message
from penstock.protocol.messages import (
    delete_records,
    describe_producers,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from penstock.records.builder import build_batch
from penstock.records.record import Record
from tests.access_matrix.names import (
    MISSING_TOPIC,
    NODE_ID,
    OTHER_TOPIC,
    TOPIC,
    TRANSACTION,
    UNKNOWN_PRODUCER_ID,
    UNKNOWN_TOPIC_ID,
    CaseList,
    World,
)

CASES: Final = CaseList()
TIMEOUT_MS: Final = 10_000
TIMESTAMP_MS: Final = time.time_ns() // 1_000_000
"""Records of long ago would be deleted by retention during the run."""
IDEMPOTENT_PRODUCER_ID: Final = 888_888
"""A batch that is sent again is a duplicate, which succeeds."""


def topic_ids(world: World) -> list[UUID]:
    """Return the ids of both topics, and one that does not exist."""
    return [world.topic_ids[TOPIC], world.topic_ids[OTHER_TOPIC], UNKNOWN_TOPIC_ID]


NAMES: Final = (TOPIC, OTHER_TOPIC, MISSING_TOPIC)


def produce_request(
    topics: Iterable[str | UUID],
    *,
    acks: int = 1,
    producer_id: int = -1,
    transactional_id: str | None = None,
    is_transactional: bool = False,
) -> Message:
    """Return a request with one record for partition 0 of each topic."""
    batch = bytes(
        build_batch(
            [Record(value=b"value", timestamp_ms=TIMESTAMP_MS)],
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=-1 if producer_id < 0 else 0,
            transactional=is_transactional,
        )
    )
    partition = produce.PartitionProduceData(index=0, records=batch)
    return produce.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=TIMEOUT_MS,
        topic_data=tuple(
            produce.TopicProduceData(topic_id=topic, partition_data=(partition,))
            if isinstance(topic, UUID)
            else produce.TopicProduceData(name=topic, partition_data=(partition,))
            for topic in topics
        ),
    )


@CASES.add(ApiKey.PRODUCE, 13, "one partition")
def produce_one(world: World) -> Message:
    return produce_request([world.topic_ids[TOPIC]])


@CASES.add(ApiKey.PRODUCE, 12, "one partition by name")
def produce_one_by_name(world: World) -> Message:
    return produce_request([TOPIC])


@CASES.add(ApiKey.PRODUCE, 13, "several topics")
def produce_several(world: World) -> Message:
    return produce_request(topic_ids(world))


@CASES.add(ApiKey.PRODUCE, 12, "several topics by name")
def produce_several_by_name(world: World) -> Message:
    return produce_request(NAMES)


@CASES.add(ApiKey.PRODUCE, 13, "idempotent")
def produce_idempotent(world: World) -> Message:
    return produce_request([world.topic_ids[TOPIC]], producer_id=IDEMPOTENT_PRODUCER_ID)


@CASES.add(ApiKey.PRODUCE, 13, "transactional")
def produce_transactional(world: World) -> Message:
    return produce_request(
        [world.topic_ids[TOPIC], world.topic_ids[OTHER_TOPIC]],
        acks=-1,
        producer_id=UNKNOWN_PRODUCER_ID,
        transactional_id=TRANSACTION,
        is_transactional=True,
    )


@CASES.add(ApiKey.PRODUCE, 13, "transactional without an id")
def produce_without_id(world: World) -> Message:
    return produce_request(
        [world.topic_ids[TOPIC]],
        acks=-1,
        producer_id=UNKNOWN_PRODUCER_ID,
        is_transactional=True,
    )


@CASES.add(ApiKey.PRODUCE, 13, "without an answer", is_silent=True)
def produce_silently(world: World) -> Message:
    return produce_request([world.topic_ids[TOPIC]], acks=0)


def fetch_request(
    topics: Iterable[str | UUID], *, session_epoch: int = -1, replica_id: int = -1
) -> Message:
    """Return a fetch of partition 0 of each topic that does not wait."""
    partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)
    return fetch.FetchRequest(
        replica_state=fetch.ReplicaState(replica_id=replica_id),
        max_wait_ms=0,
        min_bytes=0,
        session_epoch=session_epoch,
        topics=tuple(
            fetch.FetchTopic(topic_id=topic, partitions=(partition,))
            if isinstance(topic, UUID)
            else fetch.FetchTopic(topic=topic, partitions=(partition,))
            for topic in topics
        ),
    )


@CASES.add(ApiKey.FETCH, 18)
def fetch_by_id(world: World) -> Message:
    return fetch_request(topic_ids(world))


@CASES.add(ApiKey.FETCH, 12, "by name")
def fetch_by_name(world: World) -> Message:
    return fetch_request(NAMES)


@CASES.add(ApiKey.FETCH, 18, "new session")
def fetch_in_session(world: World) -> Message:
    return fetch_request(topic_ids(world), session_epoch=0)


@CASES.add(ApiKey.FETCH, 18, "as a replica")
def fetch_as_replica(world: World) -> Message:
    return fetch_request(topic_ids(world), replica_id=NODE_ID + 1)


@CASES.add(ApiKey.LIST_OFFSETS, 11)
def list_offsets_of_topics(world: World) -> Message:
    partition = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    return list_offsets.ListOffsetsRequest(
        replica_id=-1,
        topics=tuple(
            list_offsets.ListOffsetsTopic(name=name, partitions=(partition,)) for name in NAMES
        ),
        timeout_ms=TIMEOUT_MS,
    )


@CASES.add(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4)
def leader_epochs(world: World) -> Message:
    partition = offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=tuple(
            offset_for_leader_epoch.OffsetForLeaderTopic(topic=name, partitions=(partition,))
            for name in NAMES
        ),
    )


@CASES.add(ApiKey.DELETE_RECORDS, 2)
def delete_no_records(world: World) -> Message:
    partition = delete_records.DeleteRecordsPartition(partition_index=0, offset=0)
    return delete_records.DeleteRecordsRequest(
        topics=tuple(
            delete_records.DeleteRecordsTopic(name=name, partitions=(partition,)) for name in NAMES
        ),
        timeout_ms=TIMEOUT_MS,
    )


@CASES.add(ApiKey.DESCRIBE_PRODUCERS, 0)
def describe_producers_of_topics(world: World) -> Message:
    return describe_producers.DescribeProducersRequest(
        topics=tuple(
            describe_producers.TopicRequest(name=name, partition_indexes=(0,)) for name in NAMES
        )
    )
