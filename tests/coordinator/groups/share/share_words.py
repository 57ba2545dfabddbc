"""The requests of share groups in golden conversations, and the ends of their effects.

`share-heartbeat member=a epoch=0 topics=t`, `share-alter topic=t p0=5`; `effect` ends the first
effect: with `refused=CODE` each partition is refused, with `failed` nothing is known of any, and a
summary has `start=`, `complete=` and `end=`.
"""

from collections.abc import Callable, Mapping

from penstock.coordinator.groups.shard import GroupShard
from penstock.coordinator.groups.share.state_effects import (
    DeleteStates,
    InitializeStates,
    OffsetSummary,
    ReadSummaries,
)
from penstock.coordinator.groups.share.state_partitions import Place
from penstock.coordinator.shares.ports import Refusal, ShareSummary
from penstock.core.errors import RequestTimedOutError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import alter_share_group_offsets as altering
from penstock.protocol.messages import delete_share_group_offsets as deleting
from penstock.protocol.messages import describe_share_group_offsets as describing
from penstock.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from penstock.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.coordinator.conversation import Arguments, Spoken
from tests.coordinator.rig import ShardRig


def heartbeat(arguments: Arguments) -> Spoken:
    topics = arguments.get("topics")
    request = ShareGroupHeartbeatRequest(
        group_id=arguments.get("group", "g"),
        member_id=arguments["member"],
        member_epoch=int(arguments["epoch"]),
        rack_id=arguments.get("rack"),
        subscribed_topic_names=(
            None if topics is None else tuple(topic for topic in topics.split(",") if topic)
        ),
    )
    return Spoken(request, 1, arguments.get("client", "c"))


def describe(arguments: Arguments) -> Spoken:
    groups = tuple(arguments.get("group", "g").split(","))
    return Spoken(
        ShareGroupDescribeRequest(group_ids=groups, include_authorized_operations=False), 1
    )


def offsets(arguments: Arguments) -> Spoken:
    """`share-offsets topic=t partitions=0,1`; without a topic all that are initialized."""
    topics = None
    if "topic" in arguments:
        numbers = tuple(int(one) for one in arguments.get("partitions", "0").split(","))
        topic = describing.DescribeShareGroupOffsetsRequestTopic(
            topic_name=arguments["topic"], partitions=numbers
        )
        topics = (topic,)
    group = describing.DescribeShareGroupOffsetsRequestGroup(
        group_id=arguments.get("group", "g"), topics=topics
    )
    return Spoken(describing.DescribeShareGroupOffsetsRequest(groups=(group,)), 1)


def alter(arguments: Arguments) -> Spoken:
    """`share-alter topic=t p0=5 p1=7`."""
    partitions = tuple(
        altering.AlterShareGroupOffsetsRequestPartition(
            partition_index=int(name[1:]), start_offset=int(value)
        )
        for name, value in arguments.items()
        if name[0] == "p"
    )
    topic = altering.AlterShareGroupOffsetsRequestTopic(
        topic_name=arguments.get("topic", "t"), partitions=partitions
    )
    group_id = arguments.get("group", "g")
    return Spoken(altering.AlterShareGroupOffsetsRequest(group_id=group_id, topics=(topic,)), 0)


def delete(arguments: Arguments) -> Spoken:
    topics = tuple(
        deleting.DeleteShareGroupOffsetsRequestTopic(topic_name=name)
        for name in arguments.get("topics", "t").split(",")
    )
    group_id = arguments.get("group", "g")
    return Spoken(deleting.DeleteShareGroupOffsetsRequest(group_id=group_id, topics=topics), 0)


COMMANDS: Mapping[str, Callable[[Arguments], Spoken]] = {
    "share-heartbeat": heartbeat,
    "share-describe": describe,
    "share-offsets": offsets,
    "share-alter": alter,
    "share-delete-offsets": delete,
}


def places_of(effect: object) -> list[Place]:
    """The partitions of an effect."""
    if isinstance(effect, InitializeStates):
        return [place for place, _ in effect.starts]
    if isinstance(effect, DeleteStates):
        return list(effect.places)
    assert isinstance(effect, ReadSummaries)
    return [asked.place for asked in effect.asked]


def finish(rig: ShardRig[GroupShard], arguments: Arguments) -> None:
    """The first effect that waits has ended."""
    effect = rig.effects[0]
    places = places_of(effect)
    if "failed" in arguments:
        rig.finish(effect, RequestTimedOutError("nobody answers"))
    elif isinstance(effect, ReadSummaries):
        state = ShareSummary(3, 7, int(arguments["start"]), int(arguments["complete"]))
        end = int(arguments["end"]) if "end" in arguments else None
        rig.finish(effect, dict.fromkeys(places, OffsetSummary(state, end)))
    else:
        refusal = None
        if "refused" in arguments:
            refusal = Refusal(ErrorCode[arguments["refused"]], "not now")
        refused_places = {
            place: refusal
            for place in places
            if "only" not in arguments or place[1] == int(arguments["only"])
        }
        rig.finish(effect, {place: refused_places.get(place) for place in places})
