"""`Offsets`: OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete.

A client that commits must be a member of the current generation or epoch, or a simple consumer
while the group has no members. An offset that a transaction wrote is not visible before its end;
requests for stable offsets get UNSTABLE_OFFSET_COMMIT until then. Whether topics exist is NOT
checked here: the handlers did, and Kafka's coordinator does not know either.
"""

from collections.abc import Callable
from typing import Final
from uuid import UUID

from penstock.coordinator.groups.classic.groups import ClassicGroups
from penstock.coordinator.groups.reaction import Reaction
from penstock.coordinator.groups.state.classic_group import ClassicGroup
from penstock.coordinator.groups.state.group_state import CommitClaim, Group, GroupState
from penstock.coordinator.groups.state.offset_store import CommittedOffset, TopicOffsets
from penstock.coordinator.shard import Asked, Producer, StoredRecord, Ticket
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from penstock.protocol.stored.group_records import OffsetCommitKey, OffsetCommitValue

NO_OFFSET: Final = -1
TIMESTAMP_MS_MAX: Final = 2**63 - 1
"""The largest value of a record: a client may request a retention of that many milliseconds."""
GROUP_ID_NOT_FOUND_SINCE: Final = 9
"""From this version of OffsetCommit a missing group is named as such."""


def offset_tombstone(group_id: str, topic: str, partition: int) -> StoredRecord:
    """The record that deletes an offset."""
    return StoredRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


class Offsets:
    """The offset APIs of a group shard."""

    def __init__(self, state: GroupState, classic: ClassicGroups) -> None:
        self._state = state
        self._store = state.offsets
        self._classic = classic

    # --- Commit ---

    def commit(
        self, request: OffsetCommitRequest, asked: Asked, ticket: Ticket, reaction: Reaction
    ) -> None:
        """Store the offsets of a member."""
        claim = CommitClaim(
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation_or_epoch=request.generation_id_or_member_epoch,
            is_transactional=False,
            api_version=asked.api_version,
            partitions=self._claimed(request),
        )
        reaction.make_revocable()
        error, group = self._check_commit(request.group_id, claim, reaction)
        if isinstance(group, ClassicGroup) and error is ErrorCode.NONE:
            self._classic.committed(group, request.member_id, reaction)
        expires_ms = -1
        if request.retention_time_ms != -1:
            expires_ms = min(reaction.now_ms + request.retention_time_ms, TIMESTAMP_MS_MAX)
        topics = []
        for topic in request.topics:
            partitions = []
            for partition in topic.partitions:
                code = error or self._check_metadata(partition.committed_metadata)
                if code is ErrorCode.NONE:
                    key = OffsetCommitKey(
                        group=request.group_id,
                        topic=topic.name,
                        partition=partition.partition_index,
                    )
                    value = _value(partition, reaction.now_ms, expires_ms, topic.topic_id)
                    reaction.write(key, value)
                partitions.append(
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                )
            topics.append(
                OffsetCommitResponseTopic(
                    topic_id=topic.topic_id, name=topic.name, partitions=tuple(partitions)
                )
            )
        reaction.reply(ticket, OffsetCommitResponse(topics=tuple(topics)))

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, asked: Asked, ticket: Ticket, reaction: Reaction
    ) -> None:
        """Store offsets as part of a producer's transaction: they count when it is committed."""
        claim = CommitClaim(
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation_or_epoch=request.generation_id,
            is_transactional=True,
            api_version=asked.api_version,
            partitions=self._claimed(request),
        )
        reaction.make_revocable()
        error = ErrorCode.INVALID_GROUP_ID
        if request.group_id != "":
            error, _ = self._check_commit(request.group_id, claim, reaction)
        topics = []
        for topic in request.topics:
            partitions = []
            for partition in topic.partitions:
                code = error or self._check_metadata(partition.committed_metadata)
                if code is ErrorCode.NONE:
                    key = OffsetCommitKey(
                        group=request.group_id,
                        topic=topic.name,
                        partition=partition.partition_index,
                    )
                    reaction.write(key, _value(partition, reaction.now_ms, -1, None))
                partitions.append(
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                )
            topics.append(
                TxnOffsetCommitResponseTopic(name=topic.name, partitions=tuple(partitions))
            )
        if reaction.records:
            reaction.write_as(Producer(request.producer_id, request.producer_epoch))
        reaction.reply(ticket, TxnOffsetCommitResponse(topics=tuple(topics)))

    def _claimed(
        self, request: OffsetCommitRequest | TxnOffsetCommitRequest
    ) -> tuple[tuple[UUID | None, int], ...]:
        """The committed partitions, for a KIP-848 group, which checks them."""
        if request.group_id not in self._state.consumer:
            return ()
        claimed: list[tuple[UUID | None, int]] = []
        for topic in request.topics:
            topic_id = None if isinstance(topic, TxnOffsetCommitRequestTopic) else topic.topic_id
            if topic_id is None:
                view = self._state.topics.by_name(topic.name)
                topic_id = None if view is None else view.topic_id
            claimed += [(topic_id, partition.partition_index) for partition in topic.partitions]
        return tuple(claimed)

    def _check_commit(
        self, group_id: str, claim: CommitClaim, reaction: Reaction
    ) -> tuple[ErrorCode, Group | None]:
        group = self._state.find(group_id)
        if group is None:
            if claim.generation_or_epoch >= 0:
                names_it = not claim.is_transactional
                if names_it and claim.api_version >= GROUP_ID_NOT_FOUND_SINCE:
                    return ErrorCode.GROUP_ID_NOT_FOUND, None
                return ErrorCode.ILLEGAL_GENERATION, None
            # An administrator, or a consumer that assigns partitions to itself.
            group = self._classic.ensure_simple(group_id, reaction.now_ms)
        error = group.check_offset_commit(claim)
        if claim.is_transactional and error is ErrorCode.STALE_MEMBER_EPOCH:
            # Transactional producers know generations only.
            error = ErrorCode.ILLEGAL_GENERATION
        return error, group

    def _check_metadata(self, metadata: str | None) -> ErrorCode:
        most = self._state.settings.offset_metadata_characters_max
        if metadata is not None and len(metadata) > most:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    # --- Fetch ---

    def fetch(self, request: OffsetFetchRequest, ticket: Ticket, reaction: Reaction) -> None:
        """Answer for each group of the request; all of them are this shard's."""
        groups = tuple(
            self._fetch_group(group, require_stable=request.require_stable)
            for group in request.groups
        )
        reaction.reply(ticket, OffsetFetchResponse(groups=groups))

    def _fetch_group(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        group_id = request.group_id
        group = self._state.find(group_id)
        offsets: TopicOffsets = {}
        if group is not None:
            error = group.check_offset_fetch(request.member_id, request.member_epoch)
            if error is not ErrorCode.NONE:
                return OffsetFetchResponseGroup(group_id=group_id, topics=(), error_code=error)
            offsets = self._store.of_group(group_id)
        is_unstable = self._instability(group_id, require_stable=require_stable)
        if request.topics is None:
            topics = self._all_topics(offsets, is_unstable)
        else:
            topics = tuple(_some(topic, offsets, is_unstable) for topic in request.topics)
        return OffsetFetchResponseGroup(group_id=group_id, topics=topics)

    def _instability(self, group_id: str, *, require_stable: bool) -> Callable[[str, int], bool]:
        if not require_stable or not self._store.has_pending(group_id):
            return lambda _topic, _partition: False
        return lambda topic, partition: self._store.is_pending(group_id, topic, partition)

    def _all_topics(
        self, offsets: TopicOffsets, is_unstable: Callable[[str, int], bool]
    ) -> tuple[OffsetFetchResponseTopics, ...]:
        topics = []
        for name, partitions in offsets.items():
            view = self._state.topics.by_name(name)
            topics.append(
                OffsetFetchResponseTopics(
                    topic_id=None if view is None else view.topic_id,
                    name=name,
                    partitions=tuple(
                        _fetched(partition, offset, is_unstable=is_unstable(name, partition))
                        for partition, offset in partitions.items()
                    ),
                )
            )
        return tuple(topics)

    # --- Delete ---

    def delete(self, request: OffsetDeleteRequest, ticket: Ticket, reaction: Reaction) -> None:
        """Delete offsets of topics that no member of the group reads."""
        reaction.make_revocable()
        group = self._state.find(request.group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND
        if request.group_id == "":
            error = ErrorCode.INVALID_GROUP_ID
        elif group is not None:
            error = group.check_offset_delete()
        if group is None or error is not ErrorCode.NONE:
            reaction.reply(ticket, OffsetDeleteResponse(error_code=error, topics=()))
            return
        topics = tuple(self._delete_topic(group, topic, reaction) for topic in request.topics)
        reaction.reply(ticket, OffsetDeleteResponse(topics=topics))

    def _delete_topic(
        self, group: Group, topic: OffsetDeleteRequestTopic, reaction: Reaction
    ) -> OffsetDeleteResponseTopic:
        code = ErrorCode.NONE
        if group.is_subscribed_to(topic.name):
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        partitions = []
        for partition in topic.partitions:
            index = partition.partition_index
            partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
            if code is ErrorCode.NONE and (
                self._store.get(group.group_id, topic.name, index) is not None
                or self._store.is_pending(group.group_id, topic.name, index)
            ):
                reaction.write_all([offset_tombstone(group.group_id, topic.name, index)])
        return OffsetDeleteResponseTopic(name=topic.name, partitions=tuple(partitions))


def _value(
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    now_ms: int,
    expires_ms: int,
    topic_id: UUID | None,
) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp=now_ms,
        expire_timestamp=expires_ms,
        topic_id=topic_id,
    )


def _some(
    topic: OffsetFetchRequestTopics,
    offsets: TopicOffsets,
    is_unstable: Callable[[str, int], bool],
) -> OffsetFetchResponseTopics:
    of_topic = offsets.get(topic.name, {})
    partitions = []
    for index in topic.partition_indexes:
        offset = of_topic.get(index)
        if offset is not None and _is_of_another_topic(offset.value.topic_id, topic.topic_id):
            offset = None
        unstable = is_unstable(topic.name, index)
        partitions.append(_fetched(index, offset, is_unstable=unstable))
    return OffsetFetchResponseTopics(
        topic_id=topic.topic_id, name=topic.name, partitions=tuple(partitions)
    )


def _is_of_another_topic(stored: UUID | None, asked: UUID | None) -> bool:
    """Whether the offset is of a deleted topic that had the same name."""
    return stored is not None and asked is not None and stored != asked


def _fetched(
    partition: int, offset: CommittedOffset | None, *, is_unstable: bool
) -> OffsetFetchResponsePartitions:
    if is_unstable or offset is None:
        return OffsetFetchResponsePartitions(
            partition_index=partition,
            committed_offset=NO_OFFSET,
            metadata="",
            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if is_unstable else ErrorCode.NONE,
        )
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=offset.value.offset,
        committed_leader_epoch=offset.value.leader_epoch,
        metadata=offset.value.metadata,
    )
