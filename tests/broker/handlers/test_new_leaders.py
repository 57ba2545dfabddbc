"""Answers of a broker that leads since a moment, or that does not lead: KIP-207, old metadata."""

import asyncio
from typing import cast

import pytest

from penstock.broker.handlers import (
    delete_records,
    describe_producers,
    list_offsets,
    offset_for_leader_epoch,
    write_txn_markers,
)
from penstock.broker.producing.transaction_check import Claim, TransactionCheck
from penstock.cluster.image import MetadataImage, PartitionImage, TopicImage
from penstock.cluster.persistent_map import PersistentMap
from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from penstock.replication.isr import InSyncReplicas
from penstock.replication.partition import PartitionState
from penstock.storage.log.log_types import TimestampAndOffset
from tests.broker.handlers.fakes import FakeServices
from tests.storage.logs import batch

ELSEWHERE = TopicPartition("elsewhere", 0)
LATEST, EARLIEST = -1, -2


def new_leader(fakes: FakeServices, *, high_watermark: int) -> InSyncReplicas:
    """Let the broker lead a log of three records, of which some are known to be committed."""
    partition = fakes.node.partition
    for _ in range(3):
        fakes.node.append(batch(1))
    fakes.node.sync()
    state = PartitionImage((1, 2), 1, 4, (1, 2), 1, isr_epochs=(1, 1))
    in_sync = InSyncReplicas(1, state, partition.log.end_offset, 0.0)
    role = PartitionState(
        partition.name,
        leader_epoch=4,
        is_leader=True,
        durable_offset=3,
        high_watermark=high_watermark,
        in_sync=in_sync,
    )
    fakes.node.partition = fakes.node.replicas.change_role(partition, role)
    return in_sync


def listed(
    fakes: FakeServices, timestamp: int, *, version: int = 10, name: TopicPartition | None = None
) -> ListOffsetsPartitionResponse:
    asked = name or fakes.node.partition.name
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=(
            ListOffsetsTopic(
                name=asked.topic,
                partitions=(
                    ListOffsetsPartition(partition_index=asked.partition, timestamp=timestamp),
                ),
            ),
        ),
    )
    answer = asyncio.run(list_offsets.handle(request, fakes.context(version)))
    return answer.topics[0].partitions[0]


def test_latest_is_not_available_until_the_log_of_the_predecessor_is_committed() -> None:
    fakes = FakeServices()
    in_sync = new_leader(fakes, high_watermark=1)
    assert listed(fakes, LATEST).error_code is ErrorCode.OFFSET_NOT_AVAILABLE
    assert listed(fakes, LATEST, version=4).error_code is ErrorCode.LEADER_NOT_AVAILABLE
    assert listed(fakes, EARLIEST).error_code is ErrorCode.NONE
    in_sync.report(2, 1, 3, 3, 0.0)
    fakes.node.replicas.isr_changed(fakes.node.partition)
    found = listed(fakes, LATEST)
    assert (found.error_code, found.offset) == (ErrorCode.NONE, 3)


@pytest.mark.parametrize(
    ("offset", "code", "found"),
    [
        (0, ErrorCode.NONE, 0),
        (2, ErrorCode.OFFSET_NOT_AVAILABLE, -1),
    ],
)
def test_a_time_is_looked_up_below_the_high_watermark(
    offset: int, code: ErrorCode, found: int
) -> None:
    fakes = FakeServices()
    new_leader(fakes, high_watermark=1)

    async def find(*_: object) -> TimestampAndOffset:
        return TimestampAndOffset(5, offset, 0)

    fakes.cold.find_by_time = find  # type: ignore[method-assign,assignment]
    answer = listed(fakes, 5)
    assert (answer.error_code, answer.offset) == (code, found)


def test_a_coordinators_answer_does_not_count_for_the_next_role() -> None:
    fakes = FakeServices()
    partition = fakes.node.partition

    def lose_and_lead_again() -> None:
        role = PartitionState(partition.name, leader_epoch=9, is_leader=True, durable_offset=0)
        fakes.node.replicas.change_role(partition, role)

    async def ask() -> TransactionCheck:
        check = TransactionCheck(fakes.context(5), Claim("t", 7, 0), adds=True)
        assert check.begin({partition: -1})
        await check.ask()
        return check

    fakes.coordinators.before_answer = lose_and_lead_again
    check = asyncio.run(ask())
    assert check.errors == {partition: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    known = partition.log.producers.verifications.get(7)
    assert known is not None
    assert not known.is_verified, "another leader may have ended the transaction meanwhile"


def known_elsewhere(fakes: FakeServices) -> None:
    """Let the metadata place a partition on broker 2."""
    partition = PartitionImage((2,), 2, 0, (2,), 1)
    topic = TopicImage(ELSEWHERE.topic, fakes.node.partition.topic_id, (partition,), {}, 1)
    image = MetadataImage(topics=PersistentMap({ELSEWHERE.topic: topic}))
    fakes.services.metadata.image = image  # type: ignore[misc]


def codes_of(fakes: FakeServices, name: TopicPartition) -> set[ErrorCode]:
    """The codes of all APIs that only the leader of a partition answers."""
    context = fakes.context(2)
    epochs = OffsetForLeaderEpochRequest(
        topics=(
            OffsetForLeaderTopic(
                topic=name.topic,
                partitions=(OffsetForLeaderPartition(partition=name.partition, leader_epoch=0),),
            ),
        )
    )
    deletion = DeleteRecordsRequest(
        topics=(
            DeleteRecordsTopic(
                name=name.topic,
                partitions=(DeleteRecordsPartition(partition_index=name.partition, offset=-1),),
            ),
        ),
        timeout_ms=1,
    )
    markers = WriteTxnMarkersRequest(
        markers=(
            WritableTxnMarker(
                producer_id=1,
                producer_epoch=0,
                transaction_result=True,
                topics=(
                    WritableTxnMarkerTopic(name=name.topic, partition_indexes=(name.partition,)),
                ),
                coordinator_epoch=0,
            ),
        )
    )
    described = DescribeProducersRequest(
        topics=(TopicRequest(name=name.topic, partition_indexes=(name.partition,)),)
    )

    async def none_deleted(*_: object) -> list[PenstockError | None]:
        return []

    fakes.services.record_deletion.advance_starts = none_deleted  # type: ignore[method-assign,assignment]
    written: list[object] = []
    write_txn_markers.handle(markers, context).then(written.append)
    (marker,) = cast("WriteTxnMarkersResponse", written[0]).markers
    return {
        asyncio.run(offset_for_leader_epoch.handle(epochs, context))
        .topics[0]
        .partitions[0]
        .error_code,
        asyncio.run(delete_records.handle(deletion, context)).topics[0].partitions[0].error_code,
        asyncio.run(describe_producers.handle(described, context))
        .topics[0]
        .partitions[0]
        .error_code,
        marker.topics[0].partitions[0].error_code,
        listed(fakes, LATEST, name=name).error_code,
    }


def test_a_client_with_old_metadata_hears_that_another_broker_leads() -> None:
    fakes = FakeServices()
    known_elsewhere(fakes)
    assert codes_of(fakes, ELSEWHERE) == {ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_a_partition_that_does_not_exist_is_unknown() -> None:
    fakes = FakeServices()
    known_elsewhere(fakes)
    assert codes_of(fakes, TopicPartition("elsewhere", 1)) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
