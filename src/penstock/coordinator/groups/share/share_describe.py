"""ShareGroupDescribe: describes a share group to administrators.

Reads only. Deleted topics are left out of assignments.
"""

from penstock.coordinator.groups.assignors.simple import SIMPLE
from penstock.coordinator.groups.share.share_group import ShareGroup
from penstock.coordinator.groups.share.share_member import ShareMember
from penstock.coordinator.metadata_view import TopicsView
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import share_group_describe as describing


def describe_share_group(group: ShareGroup, topics: TopicsView) -> describing.DescribedGroup:
    """One group with its members."""
    return describing.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=SIMPLE,
        members=tuple(_member(member, topics) for member in group.members.values()),
    )


def share_group_not_found(group_id: str, *, exists: bool) -> describing.DescribedGroup:
    """The answer for a group that does not exist, or is of another protocol."""
    reason = "is not a share group" if exists else "not found"
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


def _member(member: ShareMember, topics: TopicsView) -> describing.Member:
    views = [(topics.by_id(topic_id), numbers) for topic_id, numbers in member.assigned.items()]
    return describing.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.subscribed_names)),
        assignment=describing.Assignment(
            topic_partitions=tuple(
                describing.TopicPartitions(
                    topic_id=view.topic_id,
                    topic_name=view.name,
                    partitions=tuple(sorted(numbers)),
                )
                for view, numbers in views
                if view is not None
            )
        ),
    )
