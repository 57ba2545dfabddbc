"""The five APIs of share state: Apache Kafka's answers, and Penstock's are the same."""

from uuid import UUID, uuid4

import pytest

from penstock.coordinator.shares.ports import ShareState, ShareSummary, StateBatch
from penstock.coordinator.shares.share_keys import key_text
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import delete_share_group_state as delete
from penstock.protocol.messages import initialize_share_group_state as initialize
from penstock.protocol.messages import read_share_group_state as read
from penstock.protocol.messages import read_share_group_state_summary as summary
from penstock.protocol.messages import write_share_group_state as write
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.broker.handlers.asker import Asker, fresh_name
from tests.broker.handlers.share_states import SharePartitionAsker, find_shares, share_partition

NONE = ErrorCode.NONE
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


@pytest.fixture
def topic_id(asker: Asker) -> UUID:
    return create(asker)


def create(asker: Asker, partitions: int = 2) -> UUID:
    name = fresh_name()
    asker.create(name, partitions=partitions)
    request = MetadataRequest(topics=(MetadataRequestTopic(name=name),))
    (found,) = asker.ask(request, 12, MetadataResponse).topics
    assert found.topic_id is not None
    return found.topic_id


@pytest.fixture
def queue(asker: Asker, topic_id: UUID) -> SharePartitionAsker:
    return share_partition(asker, topic_id)


# --- FindCoordinator ---


def test_keys_of_share_partitions(asker: Asker, topic_id: UUID) -> None:
    queue = share_partition(asker, topic_id)
    good = key_text(queue.key)
    group, topic, _ = good.split(":")
    assert find_shares(asker, f"a:b:{topic}:0", f"{group}:{topic}:+0", f"{group}:{topic}:-1") == [
        NONE,
        NONE,
        NONE,
    ]


@pytest.mark.parametrize(
    "key", ["", "g", "g:0", ":AAAAAAAAAAAAAAAAAAAAAQ:0", "g:short:0", "g:AAAAAAAAAAAAAAAAAAAAAQ:x"]
)
def test_a_key_of_another_form_is_refused(asker: Asker, key: str) -> None:
    assert find_shares(asker, key) == [ErrorCode.INVALID_REQUEST]


def test_old_versions_do_not_know_share_partitions(
    asker: Asker, queue: SharePartitionAsker
) -> None:
    assert find_shares(asker, key_text(queue.key), version=5) == [ErrorCode.INVALID_REQUEST]


# --- Initialize ---


def test_an_initialized_state_is_empty(queue: SharePartitionAsker) -> None:
    assert queue.summary() == ShareSummary(0, 0, -1, -1)
    assert queue.initialize(state_epoch=3, start_offset=17) == NONE
    assert queue.read() == ShareState(3, 17, ())
    assert queue.summary() == ShareSummary(3, 0, 17, 0)
    assert queue.initialize(state_epoch=3, start_offset=-1) == NONE
    assert queue.summary() == ShareSummary(3, 0, -1, -1)


def test_a_later_state_epoch_resets_the_state(queue: SharePartitionAsker) -> None:
    queue.initialize(1, 0)
    queue.write((0, 9, ACKNOWLEDGED, 1))
    assert queue.initialize(2, 5) == NONE
    assert queue.read() == ShareState(2, 5, ())
    assert queue.initialize(1, 5) == ErrorCode.FENCED_STATE_EPOCH
    assert queue.initialize(2, 6) == NONE
    assert queue.read() == ShareState(2, 6, ())


def test_a_reset_keeps_earlier_leaders_fenced(queue: SharePartitionAsker) -> None:
    queue.initialize(1, 0)
    queue.read(leader_epoch=5)
    queue.initialize(2, 0)
    assert queue.summary() == ShareSummary(2, 0, 0, 0)
    assert queue.write(leader_epoch=4, state_epoch=2) == ErrorCode.FENCED_LEADER_EPOCH
    assert queue.write(leader_epoch=5, state_epoch=2) == NONE


# --- Read and write ---


def test_a_state_must_be_initialized(queue: SharePartitionAsker) -> None:
    assert queue.read() == ErrorCode.INVALID_REQUEST
    assert queue.write((0, 0, ACKNOWLEDGED, 1)) == ErrorCode.INVALID_REQUEST
    assert queue.delete() == NONE


def test_changes_are_merged(queue: SharePartitionAsker) -> None:
    queue.initialize(1, 0)
    assert queue.write((0, 9, AVAILABLE, 1), (20, 29, ARCHIVED, 1)) == NONE
    assert queue.write((5, 14, ACKNOWLEDGED, 2)) == NONE
    assert queue.batches() == [
        (0, 4, AVAILABLE, 1),
        (5, 14, ACKNOWLEDGED, 2),
        (20, 29, ARCHIVED, 1),
    ]
    assert queue.write((5, 6, AVAILABLE, 1), start_offset=3, complete=20) == NONE
    assert queue.read() == ShareState(
        1,
        3,
        (
            StateBatch(3, 4, AVAILABLE, 1),
            StateBatch(5, 14, ACKNOWLEDGED, 2),
            StateBatch(20, 29, ARCHIVED, 1),
        ),
    )
    assert queue.summary() == ShareSummary(1, 0, 3, 20)


def test_batches_of_one_change_are_merged(queue: SharePartitionAsker) -> None:
    queue.initialize(1, 0)
    queue.write((0, 4, ACKNOWLEDGED, 1), (5, 9, ACKNOWLEDGED, 1), (8, 12, AVAILABLE, 3))
    assert queue.batches() == [(0, 7, ACKNOWLEDGED, 1), (8, 12, AVAILABLE, 3)]


def test_a_change_without_batches_moves_the_start(queue: SharePartitionAsker) -> None:
    queue.initialize(1, -1)
    queue.write((0, 9, ACKNOWLEDGED, 1))
    assert queue.write(start_offset=10) == NONE
    assert queue.read() == ShareState(1, 10, ())


def test_an_old_version_has_no_count(queue: SharePartitionAsker) -> None:
    queue.initialize(1, 0)
    queue.write((0, 9, ACKNOWLEDGED, 1), complete=10)
    assert queue.summary() == ShareSummary(1, 0, 0, 10)
    assert queue.summary(version=0) == ShareSummary(1, 0, 0, -1)
    assert queue.write((0, 9, ACKNOWLEDGED, 1), version=0) == NONE
    assert queue.summary() == ShareSummary(1, 0, 0, -1)


# --- Fences ---


def test_a_leader_that_reads_fences_earlier_leaders(queue: SharePartitionAsker) -> None:
    queue.initialize(1, 0)
    assert isinstance(queue.read(leader_epoch=3), ShareState)
    assert queue.summary() == ShareSummary(1, 3, 0, 0)
    assert queue.write((0, 0, ACKNOWLEDGED, 1), leader_epoch=2) == ErrorCode.FENCED_LEADER_EPOCH
    assert queue.read(leader_epoch=2) == ErrorCode.FENCED_LEADER_EPOCH
    assert queue.batches() == []
    assert queue.write((0, 0, ACKNOWLEDGED, 1), leader_epoch=3) == NONE


def test_a_write_does_not_fence(queue: SharePartitionAsker) -> None:
    queue.initialize(1, 0)
    assert queue.write((0, 0, ACKNOWLEDGED, 1), leader_epoch=9) == NONE
    assert queue.write((1, 1, ACKNOWLEDGED, 1), leader_epoch=1) == NONE
    assert queue.summary() == ShareSummary(1, 0, 0, -1)


def test_changes_of_an_earlier_state_are_fenced(queue: SharePartitionAsker) -> None:
    queue.initialize(4, 0)
    assert queue.write((0, 0, ACKNOWLEDGED, 1), state_epoch=3) == ErrorCode.FENCED_STATE_EPOCH
    assert queue.write((0, 0, ACKNOWLEDGED, 1), state_epoch=5) == NONE
    assert queue.read() == ShareState(4, 0, (StateBatch(0, 0, ACKNOWLEDGED, 1),))


def test_an_epoch_of_minus_one_is_not_checked(queue: SharePartitionAsker) -> None:
    queue.initialize(4, 0)
    queue.read(leader_epoch=7)
    assert queue.write((0, 0, ACKNOWLEDGED, 1), state_epoch=-1, leader_epoch=-1) == NONE
    assert queue.initialize(-1, 3) == NONE
    assert queue.read() == ShareState(-1, 3, ())
    assert queue.write(state_epoch=3) == ErrorCode.FENCED_LEADER_EPOCH
    assert queue.write(state_epoch=3, leader_epoch=7) == ErrorCode.FENCED_STATE_EPOCH


# --- Delete ---


def test_a_deleted_state_is_gone(queue: SharePartitionAsker) -> None:
    queue.initialize(5, 9)
    queue.read(leader_epoch=5)
    assert queue.delete() == NONE
    assert queue.summary() == ShareSummary(0, 0, -1, -1)
    assert queue.read() == ErrorCode.INVALID_REQUEST
    assert queue.initialize(0, 0) == NONE
    assert queue.write((0, 0, ACKNOWLEDGED, 1), state_epoch=0) == NONE


# --- Partitions that do not exist ---


def test_unknown_topics_and_partitions(asker: Asker, topic_id: UUID) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for queue in (share_partition(asker, uuid4()), share_partition(asker, topic_id, 2)):
        assert queue.initialize() == unknown
        assert queue.summary() == unknown
        assert queue.delete() == unknown
        assert queue.read() == ErrorCode.INVALID_REQUEST
        assert queue.write() == ErrorCode.INVALID_REQUEST


def test_negative_partitions(asker: Asker, topic_id: UUID) -> None:
    queue = share_partition(asker, topic_id, -1)
    invalid = ErrorCode.INVALID_REQUEST
    assert queue.initialize() == invalid
    assert queue.read() == invalid
    assert queue.write() == invalid
    assert queue.delete() == invalid
    assert queue.summary() == invalid


# --- Several at once ---


def test_a_request_for_several_share_partitions(asker: Asker, topic_id: UUID) -> None:
    other_id = create(asker)
    group = fresh_name("share")
    for one in (topic_id, other_id):
        for partition in (0, 1):
            share_partition(asker, one, partition, group)
    request = initialize.InitializeShareGroupStateRequest(
        group_id=group,
        topics=tuple(
            initialize.InitializeStateData(
                topic_id=one,
                partitions=tuple(
                    initialize.PartitionData(partition=index, state_epoch=1, start_offset=index)
                    for index in (0, 1, 2)
                ),
            )
            for one in (topic_id, other_id)
        ),
    )
    found = asker.ask(request, 0, initialize.InitializeShareGroupStateResponse)
    codes = {
        (topic.topic_id, one.partition): one.error_code
        for topic in found.results
        for one in topic.partitions
    }
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {
        (one, index): missing if index == 2 else NONE
        for one in (topic_id, other_id)
        for index in (0, 1, 2)
    }
    assert share_partition(asker, other_id, 1, group).read() == ShareState(1, 1, ())


def test_requests_that_name_nothing(asker: Asker, topic_id: UUID) -> None:
    one = write.PartitionData(
        partition=0, state_epoch=0, leader_epoch=0, start_offset=0, state_batches=()
    )
    full = write.WriteStateData(topic_id=topic_id, partitions=(one,))
    empty = write.WriteStateData(topic_id=topic_id, partitions=())
    for group, topics in (("g", ()), ("", (full,)), ("g", (full, empty))):
        request = write.WriteShareGroupStateRequest(group_id=group, topics=topics)
        assert asker.ask(request, 1, write.WriteShareGroupStateResponse).results == ()
    reading = read.ReadShareGroupStateRequest(group_id="g", topics=())
    assert asker.ask(reading, 0, read.ReadShareGroupStateResponse).results == ()
    deletion = delete.DeleteShareGroupStateRequest(group_id="g", topics=())
    assert asker.ask(deletion, 0, delete.DeleteShareGroupStateResponse).results == ()
    question = summary.ReadShareGroupStateSummaryRequest(group_id="g", topics=())
    assert asker.ask(question, 1, summary.ReadShareGroupStateSummaryResponse).results == ()
