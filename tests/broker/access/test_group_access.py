"""Permissions that the APIs of groups need, and which error wins; a denied request changes nothing.

Each outcome but the order of entries was seen on Apache Kafka 4.3.1 with the same rules as ACLs.
"""

import pytest

from penstock.broker.authorized_operations import GROUP_OPERATIONS, NOT_ASKED
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    consumer_group_describe,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    streams_group_describe,
    sync_group,
)
from penstock.security.acls.values import CLUSTER_NAME, Operation, ResourceType
from tests.broker.access.fakes import RuleSet
from tests.broker.access.members import Member
from tests.broker.handlers.asker import Asker, fresh_name
from tests.broker.handlers.groups import (
    beat,
    find,
    join,
    join_request,
    leave,
    sync,
)

GROUP = ResourceType.GROUP
TOPIC = ResourceType.TOPIC
DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED


@pytest.fixture
def group(asker: Asker) -> str:
    """A group whose coordinator is there; it does not exist yet."""
    name = fresh_name("group")
    find(asker, name)
    return name


def described(asker: Asker, *names: str) -> list[tuple[str, ErrorCode, str]]:
    """Name, error code and state of classic groups."""
    request = describe_groups.DescribeGroupsRequest(groups=names)
    answer = asker.ask(request, 5, describe_groups.DescribeGroupsResponse)
    return [(one.group_id, one.error_code, one.group_state) for one in answer.groups]


def operations(asker: Asker, *names: str) -> list[tuple[ErrorCode, int]]:
    """Error code and authorized operations of classic groups."""
    request = describe_groups.DescribeGroupsRequest(
        groups=names, include_authorized_operations=True
    )
    answer = asker.ask(request, 5, describe_groups.DescribeGroupsResponse)
    return [(one.error_code, one.authorized_operations) for one in answer.groups]


# --- FindCoordinator ---


@pytest.mark.parametrize(
    ("key_type", "resource", "code"),
    [
        (0, GROUP, DENIED),
        (1, ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_a_coordinator_is_found_for_each_key_that_may_be_described(
    asker: Asker, rules: RuleSet, key_type: int, resource: ResourceType, code: ErrorCode
) -> None:
    rules.only((Operation.DESCRIBE, resource, "b"), (Operation.READ, resource, "a"))
    request = find_coordinator.FindCoordinatorRequest(
        key_type=key_type, coordinator_keys=("a", "b", "c")
    )
    found = asker.ask(request, 6, find_coordinator.FindCoordinatorResponse).coordinators
    assert [(one.key, one.error_code, one.port > 0) for one in found] == [
        ("a", code, False),
        ("b", ErrorCode.NONE, True),
        ("c", code, False),
    ]
    assert rules.denials == [(Operation.DESCRIBE, resource, name) for name in ("a", "c")]
    assert rules.api_keys == {ApiKey.FIND_COORDINATOR}


def test_an_old_client_learns_that_it_may_not_find_a_coordinator(
    asker: Asker, rules: RuleSet
) -> None:
    rules.only()
    request = find_coordinator.FindCoordinatorRequest(key_type=0, key="a")
    found = asker.ask(request, 3, find_coordinator.FindCoordinatorResponse)
    assert (found.error_code, found.node_id, found.port) == (DENIED, -1, -1)
    assert found.error_message == "Group authorization failed."


@pytest.mark.parametrize(
    ("version", "is_allowed", "code"),
    [
        (6, False, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (6, True, ErrorCode.INVALID_REQUEST),
        (5, False, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_share_key_is_for_brokers(
    asker: Asker, rules: RuleSet, version: int, is_allowed: bool, code: ErrorCode
) -> None:
    cluster = (Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    rules.only(*([cluster] if is_allowed else []))
    request = find_coordinator.FindCoordinatorRequest(key_type=2, coordinator_keys=("g:t:0",))
    (found,) = asker.ask(request, version, find_coordinator.FindCoordinatorResponse).coordinators
    assert found.error_code == code


# --- Classic members ---


def test_a_client_that_may_read_the_group_can_be_a_member(
    asker: Asker, rules: RuleSet, group: str
) -> None:
    rules.only((Operation.READ, GROUP, group))
    joined = join(asker, group)
    assert sync(asker, group, joined).error_code == ErrorCode.NONE
    assert beat(asker, group, joined) == ErrorCode.NONE
    assert leave(asker, group, joined.member_id).error_code == ErrorCode.NONE
    assert rules.denials == []


@pytest.mark.parametrize(("version", "protocol"), [(9, None), (6, "")])
def test_a_denied_join_creates_no_group(
    asker: Asker, rules: RuleSet, group: str, version: int, protocol: str | None
) -> None:
    rules.all_but((Operation.READ, GROUP, group))
    request = join_request(group, "a-member")
    answer = asker.ask(request, version, join_group.JoinGroupResponse)
    assert (answer.error_code, answer.member_id, answer.protocol_name) == (DENIED, "", protocol)
    assert rules.denials == [(Operation.READ, GROUP, group)]
    rules.all_but()
    request_all = list_groups.ListGroupsRequest()
    listed = asker.ask(request_all, 5, list_groups.ListGroupsResponse).groups
    assert group not in {one.group_id for one in listed}


def test_a_member_that_lost_its_permission_is_refused_and_stays(
    asker: Asker, rules: RuleSet, group: str
) -> None:
    joined = join(asker, group)
    rules.all_but((Operation.READ, GROUP, group))
    assert sync(asker, group, joined).error_code == DENIED
    assert beat(asker, group, joined) == DENIED
    for version in (2, 5):
        left = leave(asker, group, joined.member_id, version)
        assert (left.error_code, left.members) == (DENIED, ())
    rules.all_but()
    assert sync(asker, group, joined).error_code == ErrorCode.NONE
    assert beat(asker, group, joined) == ErrorCode.NONE


def test_the_denial_wins_over_a_missing_group_id(asker: Asker, rules: RuleSet) -> None:
    rules.only()
    joined = asker.ask(join_request(""), 9, join_group.JoinGroupResponse)
    synced = asker.ask(
        sync_group.SyncGroupRequest(group_id="", generation_id=1, member_id="m", assignments=()),
        4,
        sync_group.SyncGroupResponse,
    )
    beaten = asker.ask(
        heartbeat.HeartbeatRequest(group_id="", generation_id=1, member_id="m"),
        4,
        heartbeat.HeartbeatResponse,
    )
    left = asker.ask(leave_group.LeaveGroupRequest(group_id=""), 5, leave_group.LeaveGroupResponse)
    assert [joined.error_code, synced.error_code, beaten.error_code, left.error_code] == [
        DENIED
    ] * 4


def test_a_missing_protocol_wins_over_the_denial_of_a_sync(asker: Asker, rules: RuleSet) -> None:
    rules.only()
    request = sync_group.SyncGroupRequest(
        group_id="g", generation_id=1, member_id="m", assignments=()
    )
    answer = asker.ask(request, 5, sync_group.SyncGroupResponse)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rules.denials == []


# --- DescribeGroups, DeleteGroups, ListGroups, StreamsGroupDescribe ---


def test_only_groups_that_may_be_described_are(asker: Asker, rules: RuleSet, group: str) -> None:
    join(asker, group)
    other = fresh_name("group")
    rules.only((Operation.DESCRIBE, GROUP, group))
    assert described(asker, other, group) == [
        (other, DENIED, ""),
        (group, ErrorCode.NONE, "CompletingRebalance"),
    ]


def test_the_operations_of_a_group_are_those_of_the_client(
    asker: Asker, rules: RuleSet, group: str
) -> None:
    other = fresh_name("group")
    assert operations(asker, group) == [(ErrorCode.NONE, GROUP_OPERATIONS)]
    rules.only((Operation.DESCRIBE, GROUP, group), (Operation.DELETE, GROUP, group))
    bits = 1 << Operation.DESCRIBE | 1 << Operation.DELETE
    assert operations(asker, other, group) == [
        (DENIED, NOT_ASKED),
        (ErrorCode.NONE, bits),
    ]


def test_only_groups_that_may_be_deleted_are(asker: Asker, rules: RuleSet) -> None:
    names = [fresh_name("group") for _ in range(3)]
    for name in names:
        find(asker, name)
        leave(asker, name, join(asker, name).member_id)
    first, second, third = names
    rules.only((Operation.DELETE, GROUP, second), (Operation.READ, GROUP, first))
    request = delete_groups.DeleteGroupsRequest(groups_names=(first, second, third))
    results = asker.ask(request, 2, delete_groups.DeleteGroupsResponse).results
    assert {one.group_id: one.error_code for one in results} == {
        first: DENIED,
        second: ErrorCode.NONE,
        third: DENIED,
    }
    rules.all_but()
    states = {name: state for name, _, state in described(asker, *names)}
    assert states == {first: "Empty", second: "Dead", third: "Empty"}


def test_groups_that_may_not_be_described_are_not_listed(asker: Asker, rules: RuleSet) -> None:
    shown, hidden = fresh_name("group"), fresh_name("group")
    for name in (shown, hidden):
        find(asker, name)
        join(asker, name)

    def listed() -> set[str]:
        request = list_groups.ListGroupsRequest()
        answer = asker.ask(request, 5, list_groups.ListGroupsResponse)
        assert answer.error_code == ErrorCode.NONE
        return {one.group_id for one in answer.groups} & {shown, hidden}

    rules.only((Operation.DESCRIBE, GROUP, shown))
    assert listed() == {shown}
    rules.only((Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME))
    assert listed() == {shown, hidden}
    rules.only()
    assert listed() == set()
    assert rules.denials == []


def test_a_streams_group_is_not_looked_up_for_a_denied_client(
    asker: Asker, rules: RuleSet, group: str
) -> None:
    other = fresh_name("group")
    rules.only((Operation.DESCRIBE, GROUP, group))
    request = streams_group_describe.StreamsGroupDescribeRequest(
        group_ids=(other, "", group), include_authorized_operations=False
    )
    answer = asker.ask(request, 0, streams_group_describe.StreamsGroupDescribeResponse)
    assert [(one.group_id, one.error_code) for one in answer.groups] == [
        (other, DENIED),
        ("", DENIED),
        (group, ErrorCode.GROUP_ID_NOT_FOUND),
    ]


# --- Consumer groups ---


def test_a_member_needs_its_group_and_each_topic_of_its_subscription(
    asker: Asker, rules: RuleSet, group: str
) -> None:
    first, second = fresh_name(), fresh_name()
    asker.create(first)
    member = Member(asker, group)
    rules.only((Operation.DESCRIBE, TOPIC, first), (Operation.DESCRIBE, TOPIC, second))
    assert member.join(first) == DENIED
    rules.only((Operation.READ, GROUP, group), (Operation.DESCRIBE, TOPIC, first))
    assert member.join(first, second) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert rules.denials == [(Operation.DESCRIBE, TOPIC, second)]
    rules.all_but()
    assert member.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    rules.only((Operation.READ, GROUP, group), (Operation.DESCRIBE, TOPIC, first))
    assert member.join(first) == ErrorCode.NONE
    rules.all_but()
    assert member.assigned == {first}


def test_a_heartbeat_without_a_subscription_needs_the_group_only(
    asker: Asker, rules: RuleSet, group: str
) -> None:
    topic = fresh_name()
    asker.create(topic)
    member = Member(asker, group)
    member.join(topic)
    rules.only((Operation.READ, GROUP, group))
    assert member.beat() == ErrorCode.NONE
    rules.only()
    assert member.beat() == DENIED
    assert member.leave() == DENIED
    rules.all_but()
    assert len(member.describe().members) == 1


def test_very_many_names_of_a_subscription_are_checked(
    asker: Asker, rules: RuleSet, group: str
) -> None:
    topic = fresh_name()
    asker.create(topic)
    names = [f"{topic}-{number}" for number in range(700)]
    member = Member(asker, group)
    rules.all_but((Operation.DESCRIBE, TOPIC, names[-1]))
    assert member.join(*names) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert rules.denials == [(Operation.DESCRIBE, TOPIC, names[-1])]
    rules.all_but()
    assert member.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert member.join(topic, *names) == ErrorCode.NONE
    assert member.assigned == {topic}


def test_an_expression_matches_topics_that_the_member_may_describe(
    asker: Asker, rules: RuleSet, group: str
) -> None:
    stem = fresh_name("stem")
    for letter in "abc":
        asker.create(f"{stem}.{letter}")
    rules.only(
        (Operation.READ, GROUP, group),
        (Operation.DESCRIBE, TOPIC, f"{stem}.a"),
        (Operation.DESCRIBE, TOPIC, f"{stem}.c"),
    )
    member = Member(asker, group)
    assert member.join(expression=f"{stem}.*") == ErrorCode.NONE
    assert rules.denials == []
    rules.all_but()
    assert member.assigned == {f"{stem}.a", f"{stem}.c"}


def test_a_group_is_described_to_clients_that_may_describe_all_its_topics(
    asker: Asker, rules: RuleSet, group: str
) -> None:
    first, second, other = fresh_name(), fresh_name(), fresh_name("group")
    for name in (first, second):
        asker.create(name)
    find(asker, other)
    member, neighbour = Member(asker, group), Member(asker, other)
    member.join(first, second)
    neighbour.join(first)
    denied = fresh_name("group")
    rules.all_but(
        (Operation.DESCRIBE, TOPIC, second),
        (Operation.DESCRIBE, GROUP, denied),
        (Operation.DELETE, GROUP, other),
    )
    request = consumer_group_describe.ConsumerGroupDescribeRequest(
        group_ids=(denied, "", group, other), include_authorized_operations=True
    )
    answer = asker.ask(request, 1, consumer_group_describe.ConsumerGroupDescribeResponse)
    assert [(one.group_id, one.error_code, len(one.members)) for one in answer.groups] == [
        (denied, DENIED, 0),
        ("", ErrorCode.INVALID_GROUP_ID, 0),
        (group, ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0),
        (other, ErrorCode.NONE, 1),
    ]
    assert [one.authorized_operations for one in answer.groups] == [
        NOT_ASKED,
        NOT_ASKED,
        NOT_ASKED,
        GROUP_OPERATIONS & ~(1 << Operation.DELETE),
    ]
    hidden = answer.groups[2]
    assert (hidden.group_state, hidden.group_epoch, hidden.assignor_name) == ("", 0, "")
    rules.only()
    answer = asker.ask(request, 1, consumer_group_describe.ConsumerGroupDescribeResponse)
    assert {one.error_code for one in answer.groups} == {DENIED}
