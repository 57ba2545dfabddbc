"""Share groups over the wire: members, assignments, descriptions, offsets, and other protocols.

Each test with `asker` describes Penstock and Apache Kafka.
"""

from collections.abc import Iterator
from uuid import UUID

import pytest

from penstock.core.settings.tree import settings_of
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.testing import Broker
from tests.broker.handlers.asker import Asker, batch_of, fresh_name
from tests.broker.handlers.groups import commit, fetch_offsets, join_request, ready
from tests.broker.handlers.share_group_talk import (
    Member,
    alter,
    delete_group,
    delete_offsets,
    describe,
    eventually,
    listed,
    offsets,
    starts,
)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = settings_of(
        {
            "node.storage": "memory",
            "listener.port": 0,
            "groups.share_assignment_interval_ms": 0,
            "groups.share_assignment_interval_ms_min": 0,
        }
    )
    with Broker(settings) as running:
        yield running


@pytest.fixture
def topic(asker: Asker) -> str:
    name = fresh_name()
    asker.create(name, partitions=2)
    return name


@pytest.fixture
def group(asker: Asker) -> str:
    name = fresh_name("share")
    ready(asker, name)
    return name


def join(asker: Asker, group: str, topic: str, partition_count: int = 2) -> Member:
    """A member with its partitions."""
    return Member(asker, group, topic).join(partition_count)


# --- Members ---


def test_a_member_joins_gets_all_partitions_and_leaves(
    asker: Asker, topic: str, group: str
) -> None:
    member = Member(asker, group, topic)
    first = member.beat()
    assert first.error_code == ErrorCode.NONE
    assert (first.member_id, first.member_epoch) == (member.member_id, 2)
    assert first.heartbeat_interval_ms == 5_000
    assert first.assignment is not None
    eventually(lambda: member.count_after_beat() == 2)
    assert list(member.assigned.values()) == [{0, 1}]
    assert member.beat().assignment is None, "only a full request or a change has it"
    assert member.beat(subscribed_topic_names=(topic,)).assignment is not None
    gone = member.leave()
    assert (gone.error_code, gone.member_epoch) == (ErrorCode.NONE, -1)
    assert (gone.member_id, gone.heartbeat_interval_ms) == (member.member_id, 0)
    assert describe(asker, group).group_state == "Empty"


def test_members_share_partitions(asker: Asker, topic: str, group: str) -> None:
    first, second, third = (Member(asker, group, topic) for _ in range(3))
    first.join(2)
    second.beat()
    third.beat()

    def spread() -> list[int]:
        return sorted(one.count_after_beat() for one in (first, second, third))

    eventually(lambda: spread() == [1, 1, 2])
    everything = [number for one in (first, second, third) for number in _numbers_of(one)]
    assert sorted(everything) == [0, 0, 1, 1]


def _numbers_of(member: Member) -> list[int]:
    return [number for numbers in member.assigned.values() for number in numbers]


def test_a_subscription_changes(asker: Asker, topic: str, group: str) -> None:
    other = fresh_name()
    asker.create(other, partitions=3)
    member = join(asker, group, topic)
    member.beat(subscribed_topic_names=(other, topic))
    eventually(lambda: member.count_after_beat() == 5)
    member.beat(subscribed_topic_names=(other,))
    eventually(lambda: member.count_after_beat() == 3)


def test_a_topic_that_is_created_later(asker: Asker, group: str) -> None:
    name = fresh_name()
    member = Member(asker, group, name)
    assert member.beat().error_code == ErrorCode.NONE
    asker.create(name)
    eventually(lambda: member.count_after_beat() == 1)


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST, None),
        ({"member_id": "x" * 37}, ErrorCode.INVALID_REQUEST, None),
        ({"member_id": "  "}, ErrorCode.INVALID_REQUEST, "MemberId can't be empty."),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST, "GroupId can't be empty."),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST, "RackId can't be empty."),
        (
            {"subscribed_topic_names": None},
            ErrorCode.INVALID_REQUEST,
            "SubscribedTopicNames must be set in first request.",
        ),
        (
            {"subscribed_topic_names": ()},
            ErrorCode.INVALID_REQUEST,
            "SubscribedTopicNames must be set in first request.",
        ),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid."),
    ],
)
def test_an_invalid_heartbeat(
    asker: Asker, group: str, fields: dict[str, object], code: ErrorCode, message: str | None
) -> None:
    answer = Member(asker, group, "t").beat(**fields)
    assert (answer.error_code, answer.error_message) == (code, message)
    assert (answer.member_id, answer.member_epoch) == (None, 0)


def test_a_wrong_epoch_is_fenced(asker: Asker, topic: str, group: str) -> None:
    member = join(asker, group, topic)
    known = member.epoch
    answer = member.beat(member_epoch=known + 1)
    assert answer.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert answer.error_message == (
        f"The share group member has a greater member epoch ({known + 1}) than the one known by "
        f"the group coordinator ({known}). The member must abandon all its partitions and rejoin."
    )
    # The epoch before is accepted: its answer may have been lost.
    assert member.beat(member_epoch=known - 1).error_code == ErrorCode.NONE
    member.beat(subscribed_topic_names=(topic, "other"))
    eventually(lambda: member.beat().member_epoch > known)
    answer = member.beat(member_epoch=known - 1)
    assert answer.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert "has a smaller member epoch" in (answer.error_message or "")


def test_a_member_that_joins_again(asker: Asker, topic: str, group: str) -> None:
    member = join(asker, group, topic)
    epoch, assigned = member.epoch, member.assigned
    answer = member.beat(member_epoch=0, subscribed_topic_names=(topic,))
    assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, epoch)
    assert answer.assignment is not None
    assert member.assigned == assigned


def test_unknown_members_and_groups(asker: Asker, topic: str, group: str) -> None:
    stranger = Member(asker, group, topic)
    answer = stranger.beat(member_epoch=3)
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert answer.error_message == f"Share group {group} not found."
    assert stranger.leave().error_message == f"Group {group} not found."
    join(asker, group, topic)
    for epoch in (-1, 3):
        answer = stranger.beat(member_epoch=epoch)
        assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert (
            answer.error_message == f"Member {stranger.member_id} is not a member of group {group}."
        )


# --- Descriptions ---


def test_a_described_group(asker: Asker, topic: str, group: str) -> None:
    member = Member(asker, group, topic)
    member.beat(rack_id="r1")
    eventually(lambda: member.count_after_beat() == 2)
    found = describe(asker, group, include_authorized_operations=True)
    assert found.error_code == ErrorCode.NONE
    assert (found.group_state, found.assignor_name) == ("Stable", "simple")
    assert found.group_epoch == found.assignment_epoch == member.epoch
    assert found.authorized_operations >= 0
    (one,) = found.members
    assert (one.member_id, one.rack_id) == (member.member_id, "r1")
    assert (one.client_id, one.client_host) == ("asker", "/127.0.0.1")
    assert one.member_epoch == member.epoch
    assert one.subscribed_topic_names == (topic,)
    (assigned,) = one.assignment.topic_partitions
    assert (assigned.topic_name, sorted(assigned.partitions)) == (topic, [0, 1])
    assert listed(asker, types_filter=("share",))[group] == ("share", "Stable", "share")
    assert group not in listed(asker, types_filter=("consumer", "classic"))
    assert group not in listed(asker, states_filter=("Empty",))


def test_groups_that_are_not_described(asker: Asker, topic: str, group: str) -> None:
    found = describe(asker, group)
    assert found.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert found.error_message == f"Group {group} not found."
    commit(asker, group, {(topic, 0): 5})
    found = describe(asker, group)
    assert found.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert found.error_message == f"Group {group} is not a share group."
    assert describe(asker, "").error_code == ErrorCode.INVALID_GROUP_ID


# --- Other protocols ---


def test_a_share_group_takes_no_member_of_another_protocol(
    asker: Asker, topic: str, group: str
) -> None:
    join(asker, group, topic)
    joined = asker.ask(join_request(group), 9, JoinGroupResponse)
    assert joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=(topic,),
        topic_partitions=(),
    )
    beaten = asker.ask(request, 1, ConsumerGroupHeartbeatResponse)
    assert beaten.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert beaten.error_message == f"Group {group} is not a consumer group."
    describing = ConsumerGroupDescribeRequest(
        group_ids=(group,), include_authorized_operations=False
    )
    (described,) = asker.ask(describing, 1, ConsumerGroupDescribeResponse).groups
    assert described.error_message == f"Group {group} is not a consumer group."
    assert commit(asker, group, {(topic, 0): 5}) == {(topic, 0): ErrorCode.GROUP_ID_NOT_FOUND}
    assert fetch_offsets(asker, group, {topic: (0,)}).error_code == ErrorCode.NONE


def test_a_group_of_another_protocol_takes_no_share_member(
    asker: Asker, topic: str, group: str
) -> None:
    commit(asker, group, {(topic, 0): 5})
    member = Member(asker, group, topic)
    for fields in ({}, {"member_epoch": 2}, {"member_epoch": -1}):
        answer = member.beat(**fields)
        assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert answer.error_message == f"Group {group} is not a share group."
    altered = alter(asker, group, topic, p0=1)
    assert altered.error_code == ErrorCode.GROUP_ID_NOT_FOUND


# --- Offsets ---


def test_offsets_are_altered_and_described(asker: Asker, topic: str, group: str) -> None:
    for _ in range(3):
        asker.produce(topic, batch_of(b"a", b"b"))
    altered = alter(asker, group, topic, p0=4, p1=0)
    assert altered.error_code == ErrorCode.NONE
    (one,) = altered.responses
    assert one.topic_name == topic
    assert one.topic_id is not None
    assert sorted((p.partition_index, p.error_code) for p in one.partitions) == [(0, 0), (1, 0)]
    assert listed(asker)[group] == ("share", "Empty", "share")
    eventually(lambda: starts(offsets(asker, group)) == {topic: {0: 4, 1: 0}})
    found = offsets(asker, group, {topic: (0, 1)})
    assert {one.partition_index: one.lag for one in found.topics[0].partitions} == {0: 2, 1: 0}
    old = offsets(asker, group, version=0)
    assert {one.lag for topic in old.topics for one in topic.partitions} == {-1}
    # Its members begin there.
    join(asker, group, topic)
    assert starts(offsets(asker, group)) == {topic: {0: 4, 1: 0}}


def test_offsets_of_partitions_without_state(asker: Asker, topic: str, group: str) -> None:
    assert offsets(asker, group).topics == ()
    named = offsets(asker, group, {topic: (0,), "no-such-topic": (7,)})
    assert starts(named) == {topic: {0: -1}, "no-such-topic": {7: -1}}
    for one in named.topics:
        for partition in one.partitions:
            assert (partition.error_code, partition.lag) == (ErrorCode.NONE, -1)
        assert (one.topic_id is None) == (one.topic_name != topic)


def test_a_new_member_has_no_start_before_its_first_fetch(
    asker: Asker, topic: str, group: str
) -> None:
    join(asker, group, topic)
    assert starts(offsets(asker, group)) == {topic: {0: -1, 1: -1}}


def test_offsets_that_are_not_altered(asker: Asker, topic: str, group: str) -> None:
    answer = alter(asker, group, topic, p0=1, p2=1)
    (one,) = answer.responses
    assert {p.partition_index: p.error_code for p in one.partitions} == {
        0: ErrorCode.NONE,
        2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    (unknown,) = alter(asker, group, "no-such-topic", p0=1).responses
    assert unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert unknown.partitions[0].error_message == "This server does not host this topic-partition."
    join(asker, group, topic)
    refused = alter(asker, group, topic, p0=1)
    assert (refused.error_code, refused.responses) == (ErrorCode.NON_EMPTY_GROUP, ())
    assert refused.error_message == "The group is not empty."
    assert alter(asker, "", topic, p0=1).error_code == ErrorCode.INVALID_GROUP_ID


def test_offsets_are_deleted(asker: Asker, topic: str, group: str) -> None:
    other = fresh_name()
    asker.create(other)
    refused = delete_offsets(asker, group, topic)
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused.error_message == f"Group {group} not found."
    member = join(asker, group, topic)
    assert delete_offsets(asker, group, topic).error_code == ErrorCode.NON_EMPTY_GROUP
    member.leave()
    answer = delete_offsets(asker, group, topic, other, "no-such-topic")
    assert answer.error_code == ErrorCode.NONE
    results = {one.topic_name: (one.error_code, one.error_message) for one in answer.responses}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert results == {
        topic: (ErrorCode.NONE, None),
        other: (unknown, "There is no offset information to delete."),
        "no-such-topic": (unknown, "This server does not host this topic-partition."),
    }
    assert offsets(asker, group).topics == ()


# --- Deletion ---


def test_a_group_is_deleted_with_its_states(asker: Asker, topic: str, group: str) -> None:
    member = join(asker, group, topic)
    assert delete_group(asker, group) == ErrorCode.NON_EMPTY_GROUP
    member.leave()
    assert alter(asker, group, topic, p0=3).error_code == ErrorCode.NONE
    eventually(lambda: starts(offsets(asker, group)).get(topic, {}).get(0) == 3)
    assert delete_group(asker, group) == ErrorCode.NONE
    assert group not in listed(asker)
    assert starts(offsets(asker, group, {topic: (0,)})) == {topic: {0: -1}}
    assert delete_group(asker, group) == ErrorCode.GROUP_ID_NOT_FOUND
    # The name is free for another protocol.
    assert commit(asker, group, {(topic, 0): 5}) == {(topic, 0): ErrorCode.NONE}


def test_a_deleted_topic_is_forgotten(asker: Asker, topic: str, group: str) -> None:
    other = fresh_name()
    asker.create(other)
    member = Member(asker, group, topic, other).join(3)
    before = set(member.assigned)
    asker.delete(topic)
    eventually(lambda: member.count_after_beat() == 1)
    asker.create(topic)
    eventually(lambda: member.count_after_beat() == 2)
    assert len(before & set(member.assigned)) == 1
    assert all(isinstance(one, UUID) for one in member.assigned)
    assert starts(offsets(asker, group)) == {topic: {0: -1}, other: {0: -1}}
