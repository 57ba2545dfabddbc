"""`ShareOffsets`: DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets.

A share group has no committed offsets: the start offset of a partition is in its delivery state,
with the share coordinator. Each request becomes one effect, and its answer follows the end of the
effect. Codes and words are Kafka's. A partition that does not exist costs no call, so the price of
a request is bounded by the partitions of the cluster. A request reaches a shard with one group.

Lag = end of the log - start offset - records whose delivery is complete. It does NOT check
permissions: the handlers do.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias, cast
from uuid import UUID

from penstock.coordinator.groups.reaction import Reaction
from penstock.coordinator.groups.share import records
from penstock.coordinator.groups.share.share_group import ShareGroup
from penstock.coordinator.groups.share.state_effects import (
    AskedPlace,
    DeleteStates,
    InitializeStates,
    OffsetSummary,
    ReadSummaries,
    StateResults,
)
from penstock.coordinator.groups.share.state_partitions import NamedPartitions, Place
from penstock.coordinator.groups.share.state_upkeep import UNINITIALIZED, StateUpkeep
from penstock.coordinator.groups.state.group_state import GroupState
from penstock.coordinator.metadata_view import TopicView
from penstock.coordinator.shard import Ticket
from penstock.coordinator.shares.ports import Refusal
from penstock.core.errors import PenstockError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import alter_share_group_offsets as altering
from penstock.protocol.messages import delete_share_group_offsets as deleting
from penstock.protocol.messages import describe_share_group_offsets as describing

NO_LAG: Final = -1
NO_TOPIC: Final = "This server does not host this topic-partition."
NOT_EMPTY: Final = "The group is not empty."
NO_OFFSETS: Final = "There is no offset information to delete."


_Partition: TypeAlias = describing.DescribeShareGroupOffsetsResponsePartition


class ShareOffsets:
    """The offsets of share groups."""

    def __init__(self, state: GroupState, upkeep: StateUpkeep) -> None:
        self._state = state
        self._upkeep = upkeep

    # --- Describe ---

    def describe(
        self,
        request: describing.DescribeShareGroupOffsetsRequest,
        ticket: Ticket,
        reaction: Reaction,
    ) -> None:
        """The start offsets and the lag of partitions; of all initialized ones if none is named."""
        (group,) = request.groups
        known: list[describing.DescribeShareGroupOffsetsResponseTopic] = []
        if group.topics is None:
            asked = self._initialized(group.group_id)
        else:
            asked, known = self._named(group.topics)
        answer = describing.DescribeShareGroupOffsetsResponseGroup(
            group_id=group.group_id, topics=tuple(known)
        )
        if asked:
            reaction.perform(ReadSummaries(group.group_id, tuple(asked), ticket, answer))
        else:
            response = describing.DescribeShareGroupOffsetsResponse(groups=(answer,))
            reaction.reply(ticket, response)

    def _initialized(self, group_id: str) -> list[AskedPlace]:
        group = self._state.share.get(group_id)
        if group is None:
            return []
        initialized = cast("ShareGroup", group).state_partitions.initialized
        return [
            AskedPlace(view.name, (topic_id, number))
            for topic_id in sorted(initialized)
            if (view := self._state.topics.by_id(topic_id)) is not None
            for number in sorted(initialized[topic_id].numbers)
        ]

    def _named(
        self, topics: Iterable[describing.DescribeShareGroupOffsetsRequestTopic]
    ) -> tuple[list[AskedPlace], list[describing.DescribeShareGroupOffsetsResponseTopic]]:
        """The partitions to read, and the topics of the answer that need no reading."""
        asked: dict[Place, AskedPlace] = {}
        known = []
        for topic in topics:
            view = self._state.topics.by_name(topic.topic_name)
            missing = []
            for number in dict.fromkeys(topic.partitions):
                if view is not None and 0 <= number < view.partition_count:
                    place = (view.topic_id, number)
                    asked[place] = AskedPlace(view.name, place)
                else:
                    missing.append(_described(number, OffsetSummary(_NO_STATE, None)))
            if missing:
                known.append(
                    describing.DescribeShareGroupOffsetsResponseTopic(
                        topic_name=topic.topic_name,
                        topic_id=None if view is None else view.topic_id,
                        partitions=tuple(missing),
                    )
                )
        return list(asked.values()), known

    def summarized(self, effect: ReadSummaries, result: object, reaction: Reaction) -> None:
        """Answer with the summaries that were read."""
        answer = effect.answer
        if isinstance(result, PenstockError):
            answer = replace(
                answer,
                topics=(),
                error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
                error_message=str(result),
            )
        else:
            assert isinstance(result, dict), type(result).__name__
            found: dict[tuple[str, UUID], list[_Partition]] = {}
            for topic, (topic_id, number) in effect.asked:
                partitions = found.setdefault((topic, topic_id), [])
                partitions.append(_described(number, result[topic_id, number]))
            topics = tuple(
                describing.DescribeShareGroupOffsetsResponseTopic(
                    topic_name=topic, topic_id=topic_id, partitions=tuple(partitions)
                )
                for (topic, topic_id), partitions in found.items()
            )
            answer = replace(answer, topics=topics + answer.topics)
        reaction.reply(
            effect.ticket, describing.DescribeShareGroupOffsetsResponse(groups=(answer,))
        )

    # --- Alter ---

    def alter(
        self, request: altering.AlterShareGroupOffsetsRequest, ticket: Ticket, reaction: Reaction
    ) -> None:
        """Reset the start offsets of an empty group; one that does not exist is created."""
        reaction.make_revocable()
        group_id = request.group_id
        found = self._state.find(group_id)
        refusal = self._refusal_of_alter(group_id)
        if refusal is not None:
            reaction.reply(
                ticket,
                altering.AlterShareGroupOffsetsResponse(
                    error_code=refusal.error_code, error_message=refusal.message, responses=()
                ),
            )
            return
        group = ShareGroup(group_id) if found is None else cast("ShareGroup", found)
        starts: dict[Place, int] = {}
        fresh: dict[UUID, NamedPartitions] = {}
        responses = []
        for topic in request.topics:
            view = self._state.topics.by_name(topic.topic_name)
            taken = [one for one in topic.partitions if _exists(view, one.partition_index)]
            if view is not None and taken:
                numbers = frozenset(one.partition_index for one in taken)
                before = fresh.get(view.topic_id)
                if before is not None:
                    numbers |= before.numbers  # The request names the topic twice.
                fresh[view.topic_id] = NamedPartitions(view.name, numbers)
                for one in taken:
                    place = (view.topic_id, one.partition_index)
                    starts[place] = max(UNINITIALIZED, one.start_offset)
            responses.append(_altered(topic, view))
        answer = altering.AlterShareGroupOffsetsResponse(responses=tuple(responses))
        if not starts:
            reaction.reply(ticket, answer)
            return
        # A new epoch, so that the leaders' changes to the former states are refused.
        epoch = group.epoch + 1
        states = group.state_partitions.begin(fresh)
        reaction.write_all(
            [
                records.group_epoch(group_id, epoch, group.metadata_hash),
                records.state_partitions(group_id, states),
            ]
        )
        effect = InitializeStates(group_id, epoch, tuple(starts.items()), ticket, answer)
        self._upkeep.begin(effect, reaction)

    def _refusal_of_alter(self, group_id: str) -> Refusal | None:
        if not group_id:
            return Refusal(ErrorCode.INVALID_GROUP_ID, None)
        found = self._state.find(group_id)
        if found is None:
            return None
        if group_id not in self._state.share:
            return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        if found.check_delete() is not ErrorCode.NONE:
            return Refusal(ErrorCode.NON_EMPTY_GROUP, NOT_EMPTY)
        return None

    def altered(self, effect: InitializeStates, results: StateResults, reaction: Reaction) -> None:
        """Answer the request of an effect."""
        assert effect.ticket is not None
        assert effect.answer is not None
        topics = tuple(
            replace(
                topic,
                partitions=tuple(
                    _with_refusal(one, results.get((topic.topic_id, one.partition_index)))
                    if topic.topic_id is not None
                    else one
                    for one in topic.partitions
                ),
            )
            for topic in effect.answer.responses
        )
        reaction.reply(effect.ticket, replace(effect.answer, responses=topics))

    # --- Delete ---

    def delete(
        self, request: deleting.DeleteShareGroupOffsetsRequest, ticket: Ticket, reaction: Reaction
    ) -> None:
        """Delete the states of topics of an empty group."""
        reaction.make_revocable()
        group_id = request.group_id
        refusal = self._refusal_of_delete(group_id)
        if refusal is not None:
            response = deleting.DeleteShareGroupOffsetsResponse(
                error_code=refusal.error_code, error_message=refusal.message, responses=()
            )
            reaction.reply(ticket, response)
            return
        group = cast("ShareGroup", self._state.share[group_id])
        states = group.state_partitions
        topics: dict[UUID, deleting.DeleteShareGroupOffsetsResponseTopic] = {}
        unknown = []
        for name in dict.fromkeys(topic.topic_name for topic in request.topics):
            view = self._state.topics.by_name(name)
            if view is None:
                unknown.append(_undeleted(name, NO_TOPIC))
            elif view.topic_id in states.initialized or view.topic_id in states.deleting:
                topics[view.topic_id] = deleting.DeleteShareGroupOffsetsResponseTopic(
                    topic_name=name, topic_id=view.topic_id
                )
            else:
                unknown.append(_undeleted(name, NO_OFFSETS))
        answer = deleting.DeleteShareGroupOffsetsResponse(responses=(*topics.values(), *unknown))
        if not topics:
            reaction.reply(ticket, answer)
            return
        places = self._upkeep.places_of(states, topics)
        reaction.write_all([records.state_partitions(group_id, states.begin_deletion(topics))])
        self._upkeep.begin_deletion(DeleteStates(group_id, tuple(places), ticket, answer), reaction)

    def _refusal_of_delete(self, group_id: str) -> Refusal | None:
        if not group_id:
            return Refusal(ErrorCode.INVALID_GROUP_ID, None)
        found = self._state.find(group_id)
        if found is None or group_id not in self._state.share:
            reason = "not found" if found is None else "is not a share group"
            return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")
        if found.check_delete() is not ErrorCode.NONE:
            return Refusal(ErrorCode.NON_EMPTY_GROUP, NOT_EMPTY)
        return None

    def deleted(self, effect: DeleteStates, results: StateResults, reaction: Reaction) -> None:
        """Answer the request of an effect."""
        assert effect.ticket is not None
        assert effect.answer is not None
        failed: dict[UUID, Refusal] = {}
        for (topic_id, _), refusal in results.items():
            if refusal is not None:
                failed.setdefault(topic_id, refusal)
        topics = tuple(map(partial(_with_failure, failed), effect.answer.responses))
        reaction.reply(effect.ticket, replace(effect.answer, responses=topics))


_NO_STATE: Final = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _described(
    number: int, read: OffsetSummary
) -> describing.DescribeShareGroupOffsetsResponsePartition:
    """One partition of the answer. As in Kafka, a missing state is no error: -1 and no lag."""
    summary, end = read
    if isinstance(summary, Refusal):
        return describing.DescribeShareGroupOffsetsResponsePartition(
            partition_index=number, start_offset=UNINITIALIZED, leader_epoch=0, lag=NO_LAG
        )
    if isinstance(end, Refusal):
        return describing.DescribeShareGroupOffsetsResponsePartition(
            partition_index=number,
            start_offset=0,
            leader_epoch=0,
            lag=NO_LAG,
            error_code=end.error_code,
            error_message=end.message,
        )
    lag = NO_LAG
    if end is not None and summary.start_offset != -1 and summary.delivery_complete_count != -1:
        lag = end - summary.start_offset - summary.delivery_complete_count
    return describing.DescribeShareGroupOffsetsResponsePartition(
        partition_index=number,
        start_offset=summary.start_offset,
        leader_epoch=summary.leader_epoch,
        lag=lag,
    )


def _exists(view: TopicView | None, number: int) -> bool:
    return view is not None and 0 <= number < view.partition_count


def _altered(
    topic: altering.AlterShareGroupOffsetsRequestTopic, view: TopicView | None
) -> altering.AlterShareGroupOffsetsResponseTopic:
    """The answer for a topic if every call succeeds."""
    partitions = []
    for number in dict.fromkeys(one.partition_index for one in topic.partitions):
        is_known = _exists(view, number)
        partitions.append(
            altering.AlterShareGroupOffsetsResponsePartition(
                partition_index=number,
                error_code=ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                error_message=None if is_known else NO_TOPIC,
            )
        )
    return altering.AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=None if view is None else view.topic_id,
        partitions=tuple(partitions),
    )


def _with_refusal(
    partition: altering.AlterShareGroupOffsetsResponsePartition, refusal: Refusal | None
) -> altering.AlterShareGroupOffsetsResponsePartition:
    if refusal is None:
        return partition
    return replace(partition, error_code=refusal.error_code, error_message=refusal.message)


def _undeleted(name: str, message: str) -> deleting.DeleteShareGroupOffsetsResponseTopic:
    return deleting.DeleteShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=None,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=message,
    )


def _with_failure(
    failed: dict[UUID, Refusal], topic: deleting.DeleteShareGroupOffsetsResponseTopic
) -> deleting.DeleteShareGroupOffsetsResponseTopic:
    refusal = None if topic.topic_id is None else failed.get(topic.topic_id)
    if refusal is None:
        return topic
    return replace(topic, error_code=refusal.error_code, error_message=refusal.message)
