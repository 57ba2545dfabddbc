"""ConsumerGroupDescribe: describes a consumer group to administrators.

Reads only. A member's assignment includes partitions that it is still giving up, as in Kafka 4.3:
it may still read them. Deleted topics are left out.
"""

from collections.abc import Iterable, Mapping
from uuid import UUID

from penstock.coordinator.groups.consumer.consumer_group import ConsumerGroup
from penstock.coordinator.groups.consumer.consumer_member import Member
from penstock.coordinator.metadata_view import TopicsView
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import consumer_group_describe as describing

CLASSIC_TYPE = 0
CONSUMER_TYPE = 1


def describe_group(
    group: ConsumerGroup, default_assignor: str, topics: TopicsView
) -> describing.DescribedGroup:
    """One group with its members."""
    counts = group.assignor_counts
    return describing.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=max(counts, key=counts.__getitem__, default=default_assignor),
        members=tuple(_member(group, member, topics) for member in group.members.values()),
    )


def not_found(group_id: str, *, exists: bool) -> describing.DescribedGroup:
    """The answer for a group that does not exist, or is of the other protocol."""
    reason = "is not a consumer group" if exists else "not found"
    return describing.DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} {reason}.",
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )


def _member(group: ConsumerGroup, member: Member, topics: TopicsView) -> describing.Member:
    owned: dict[UUID, set[int]] = {}
    for part in (member.assigned, member.pending_revocation):
        for topic_id, numbers in part.items():
            owned.setdefault(topic_id, set()).update(numbers)
    return describing.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.subscribed_names)),
        subscribed_topic_regex=member.subscribed_regex,
        assignment=_assignment(owned, topics),
        target_assignment=_assignment(group.targets.get(member.member_id, {}), topics),
        member_type=CLASSIC_TYPE if member.is_classic else CONSUMER_TYPE,
    )


def _assignment(
    partitions: Mapping[UUID, Iterable[int]], topics: TopicsView
) -> describing.Assignment:
    described = []
    for topic_id in sorted(partitions):
        topic = topics.by_id(topic_id)
        if topic is not None:
            described.append(
                describing.TopicPartitions(
                    topic_id=topic_id,
                    topic_name=topic.name,
                    partitions=tuple(sorted(partitions[topic_id])),
                )
            )
    return describing.Assignment(topic_partitions=tuple(described))
