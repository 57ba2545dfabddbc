"""Groups over HTTP: list, describe with lag, delete, settings, offsets and their reset.

Each function is one operation, over Kafka's wire. Resets and deletions need a group without
members: the coordinator refuses them otherwise. The parts of an answer (members, committed offsets,
ends of the log) are not from one moment.
"""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import Field

from penstock.admin.group_models import (
    GroupDetail,
    GroupMemberAnswer,
    GroupOffset,
    GroupOffsets,
    GroupPage,
    GroupSummary,
    Place,
)
from penstock.admin.model import (
    INT64_MAX,
    TOPICS_PER_RESET_MAX,
    Answer,
    GroupPath,
    Input,
    Offset,
    Page,
    PartitionNumber,
    SettingEdits,
    SettingList,
    TopicName,
)
from penstock.admin.operation import Asked, Operation, page
from penstock.admin.setting_lists import setting_list
from penstock.client.cluster import Cluster
from penstock.client.groups import offset_reset
from penstock.client.groups.group_lag import LagRow, total_lag
from penstock.client.groups.groups import (
    GroupDescription,
    GroupMember,
    Groups,
    ListedGroup,
)
from penstock.client.groups.lag_facts import lag_of
from penstock.client.groups.offset_reset import Scenario
from penstock.client.groups.reset_facts import check_empty, find_bounds
from penstock.core.types import TopicPartition

PARTITIONS_PER_TOPIC_NAMED_MAX: Final = 10_000
TAG: Final = "groups"


class ToEnd(Input):
    """To an end of the log, or to where the group is."""

    kind: Literal["earliest", "latest", "current"]


class ToOffset(Input):
    """To an offset."""

    kind: Literal["offset"]
    offset: Offset


class ToTimestamp(Input):
    """To the first record at or after a time."""

    kind: Literal["timestamp"]
    timestamp_ms: Annotated[int, Field(ge=0, le=INT64_MAX, description="Since 1970, in UTC.")]


class ShiftBy(Input):
    """Forward by this number of records; back if negative."""

    kind: Literal["shift"]
    by: Annotated[int, Field(ge=-INT64_MAX, le=INT64_MAX)]


class TopicPartitions(Input):
    """A topic, or some of its partitions."""

    topic: TopicName
    partitions: Annotated[
        list[PartitionNumber] | None,
        Field(
            min_length=1,
            max_length=PARTITIONS_PER_TOPIC_NAMED_MAX,
            description="Without them, all of the topic.",
        ),
    ] = None


class OffsetResetBody(Input):
    """The new positions of a group's offsets."""

    to: Annotated[ToEnd | ToOffset | ToTimestamp | ShiftBy, Field(discriminator="kind")]
    topics: Annotated[
        list[TopicPartitions] | None,
        Field(
            min_length=1,
            max_length=TOPICS_PER_RESET_MAX,
            description="Without them, everything that the group committed.",
        ),
    ] = None
    execute: Annotated[bool, Field(description="False: only the plan is shown.")] = False


class OffsetChange(Answer):
    """One partition of a plan."""

    topic: str
    partition: int
    committed: int | None
    new_offset: int
    remark: Annotated[str | None, Field(description="Why it is not exactly what was asked for.")]


class OffsetPlan(Answer):
    """The offsets that were changed, or would be."""

    group: str
    executed: bool
    offsets: list[OffsetChange]


def list_groups(cluster: Cluster, asked: Asked) -> GroupPage:
    """Return one page of the groups."""
    found = Groups(cluster).list_all()
    shown, following = page(found, lambda one: one.group_id, asked.query_as(Page))
    return GroupPage(groups=[_summary(one) for one in shown], next=following)


def describe_group(cluster: Cluster, asked: Asked) -> GroupDetail:
    """Return a group with members, offsets and lag."""
    groups = Groups(cluster)
    found = groups.describe(asked.path_as(GroupPath).group)
    rows = _lag(cluster, groups, found)
    return GroupDetail(
        group=found.group_id,
        type=found.group_type,
        state=found.state,
        protocol=found.protocol_type or None,
        assignor=found.assignor or None,
        coordinator=found.coordinator.broker_id,
        epoch=found.epoch,
        assignment_epoch=found.assignment_epoch,
        members=[_member(member) for member in found.members],
        lag=total_lag(rows),
        offsets=[_offset(row) for row in rows],
    )


def delete_group(cluster: Cluster, asked: Asked) -> None:
    """Delete a group, with its committed offsets."""
    Groups(cluster).delete(asked.path_as(GroupPath).group)


def group_offsets(cluster: Cluster, asked: Asked) -> GroupOffsets:
    """Return the committed offsets of a group, and its lag."""
    groups = Groups(cluster)
    found = groups.describe(asked.path_as(GroupPath).group)
    rows = _lag(cluster, groups, found)
    return GroupOffsets(
        group=found.group_id, lag=total_lag(rows), offsets=[_offset(row) for row in rows]
    )


def reset_offsets(cluster: Cluster, asked: Asked) -> OffsetPlan:
    """Return the plan, and execute it if requested."""
    name = asked.path_as(GroupPath).group
    body = asked.body_as(OffsetResetBody)
    groups = Groups(cluster)
    group_type = check_empty(groups, name)
    scenario = _scenario(body)
    places = _places(cluster, body.topics)
    bounds = find_bounds(cluster, groups, name, scenario, places, group_type)
    changes = offset_reset.plan(scenario, bounds)
    if body.execute and changes:
        groups.move(name, group_type, {change.at: change.offset for change in changes})
    return OffsetPlan(
        group=name,
        executed=body.execute,
        offsets=[
            OffsetChange(
                topic=change.at.topic,
                partition=change.at.partition,
                committed=change.committed,
                new_offset=change.offset,
                remark=change.remark or None,
            )
            for change in changes
        ],
    )


def group_settings(cluster: Cluster, asked: Asked) -> SettingList:
    """Return the settings of a group; the group need not exist yet."""
    name = asked.path_as(GroupPath).group
    return setting_list(cluster.group_configs([name])[name])


def change_group_settings(cluster: Cluster, asked: Asked) -> SettingList:
    """Change settings; return all of them."""
    name = asked.path_as(GroupPath).group
    cluster.configure_group(name, asked.body_as(SettingEdits).settings)
    return setting_list(cluster.group_configs([name])[name])


def _lag(cluster: Cluster, groups: Groups, found: GroupDescription) -> list[LagRow]:
    return lag_of(cluster, groups, [found])[found.group_id]


def _scenario(body: OffsetResetBody) -> Scenario:
    match body.to:
        case ToEnd(kind=kind):
            return Scenario(f"to-{kind}")
        case ToOffset(offset=offset):
            return Scenario(offset_reset.TO_OFFSET, offset)
        case ToTimestamp(timestamp_ms=timestamp_ms):
            return Scenario(offset_reset.TO_TIMESTAMP, timestamp_ms)
        case ShiftBy(by=by):
            return Scenario(offset_reset.SHIFT_BY, by)


def _places(
    cluster: Cluster, topics: Sequence[TopicPartitions] | None
) -> list[TopicPartition] | None:
    if topics is None:
        return None
    return [at for one in topics for at in cluster.partitions_of(one.topic, one.partitions or ())]


def _summary(one: ListedGroup) -> GroupSummary:
    return GroupSummary(
        group=one.group_id,
        type=one.group_type or None,
        state=one.state or None,
        protocol=one.protocol_type or None,
        coordinator=one.coordinator_id,
    )


def _member(member: GroupMember) -> GroupMemberAnswer:
    return GroupMemberAnswer(
        member=member.member_id,
        client=member.client_id,
        host=member.host,
        instance=member.instance_id,
        epoch=member.epoch,
        partitions=_named(member.partitions),
        target=_named(member.target),
    )


def _named(partitions: Sequence[TopicPartition] | None) -> list[Place] | None:
    if partitions is None:
        return None
    return [Place(topic=at.topic, partition=at.partition) for at in partitions]


def _offset(row: LagRow) -> GroupOffset:
    return GroupOffset(
        topic=row.at.topic,
        partition=row.at.partition,
        committed=row.committed,
        end_offset=row.end_offset,
        lag=row.lag,
        member=row.member.member_id if row.member else None,
    )


OPERATIONS: Final = (
    Operation(
        "GET",
        "/groups",
        "listGroups",
        "List the groups",
        TAG,
        list_groups,
        GroupPage,
        query_model=Page,
    ),
    Operation(
        "GET",
        "/groups/{group}",
        "describeGroup",
        "Describe a group with members, offsets and lag",
        TAG,
        describe_group,
        GroupDetail,
        path_model=GroupPath,
    ),
    Operation(
        "DELETE",
        "/groups/{group}",
        "deleteGroup",
        "Delete a group without members, and what it committed",
        TAG,
        delete_group,
        status=204,
        path_model=GroupPath,
    ),
    Operation(
        "GET",
        "/groups/{group}/offsets",
        "listGroupOffsets",
        "Show what a group committed, and its lag",
        TAG,
        group_offsets,
        GroupOffsets,
        path_model=GroupPath,
    ),
    Operation(
        "POST",
        "/groups/{group}/offsets/reset",
        "resetGroupOffsets",
        "Plan to move the offsets of a group without members, or do it",
        TAG,
        reset_offsets,
        OffsetPlan,
        description="Nothing changes without `execute`. Offsets outside of the log are moved to "
        "its nearest end, with a remark.",
        path_model=GroupPath,
        body_model=OffsetResetBody,
    ),
    Operation(
        "GET",
        "/groups/{group}/settings",
        "listGroupSettings",
        "Show the settings of a group",
        TAG,
        group_settings,
        SettingList,
        path_model=GroupPath,
    ),
    Operation(
        "PATCH",
        "/groups/{group}/settings",
        "changeGroupSettings",
        "Change settings of a group, all or none",
        TAG,
        change_group_settings,
        SettingList,
        path_model=GroupPath,
        body_model=SettingEdits,
    ),
)
"""The operations on groups."""
