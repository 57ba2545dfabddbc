"""Finding coordinators, and groups of both protocols, over a cluster in memory."""

import pytest

from penstock.client.cluster import Cluster
from penstock.client.groups.groups import (
    GroupNotEmptyError,
    Groups,
    UnknownGroupError,
    end_offsets,
    read_assignment,
)
from penstock.client.transport.addresses import Address
from penstock.core.errors import AnswerLostError, BrokerAnswerError, BrokerUnreachableError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    consumer_group_describe,
    delete_groups,
    find_coordinator,
    list_groups,
    offset_commit,
    offset_fetch,
)
from tests.client.conftest import StepClock
from tests.client.fake_broker import FakeCluster
from tests.client.fake_coordinators import (
    FakeCoordinators,
    FakeGroup,
    FakeMember,
    assignment_bytes,
)

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def coordinators(fake: FakeCluster) -> FakeCoordinators:
    return FakeCoordinators(fake)


@pytest.fixture
def groups(cluster: Cluster, coordinators: FakeCoordinators) -> Groups:
    assert coordinators.groups == {}
    return Groups(cluster)


def count_of(fake: FakeCluster, kind: type) -> int:
    return sum(isinstance(request, kind) for request in fake.requests)


def test_a_coordinator_that_is_not_there_yet_is_waited_for(
    fake: FakeCluster, coordinators: FakeCoordinators, groups: Groups, clock: StepClock
) -> None:
    coordinators.groups["billing"] = FakeGroup(offsets={P0: 3})
    request = find_coordinator.FindCoordinatorRequest
    fake.fail_next(request, ErrorCode.COORDINATOR_NOT_AVAILABLE, times=3)
    assert groups.committed("billing")[P0].offset == 3
    assert count_of(fake, request) == 4
    assert clock.seconds > 0


def test_a_coordinator_is_found_once(
    fake: FakeCluster, coordinators: FakeCoordinators, groups: Groups
) -> None:
    coordinators.groups["billing"] = FakeGroup()
    groups.committed("billing")
    groups.describe("billing")
    assert count_of(fake, find_coordinator.FindCoordinatorRequest) == 1


def test_a_coordinator_that_moved_is_found_again(clock: StepClock) -> None:
    fake = FakeCluster(broker_ids=(1, 2))
    coordinators = FakeCoordinators(fake)
    coordinators.groups["billing"] = FakeGroup(offsets={P0: 3})
    groups = Groups(Cluster([Address("b", 9000)], fake.connect, clock=clock, sleep=clock.sleep))
    assert groups.describe("billing").coordinator.broker_id == 1
    coordinators.coordinator_id = 2
    assert groups.committed("billing")[P0].offset == 3
    assert groups.describe("billing").coordinator.broker_id == 2


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    ],
)
def test_reading_and_committing_are_repeated(
    fake: FakeCluster, groups: Groups, code: ErrorCode
) -> None:
    fake.fail_next(offset_commit.OffsetCommitRequest, code, times=2)
    fake.fail_next(offset_fetch.OffsetFetchRequest, code)
    groups.commit("billing", {P0: 3, P1: 4})
    assert {at: one.offset for at, one in groups.committed("billing").items()} == {P0: 3, P1: 4}


def test_a_coordinator_that_never_loads_is_given_up(
    fake: FakeCluster, groups: Groups, clock: StepClock
) -> None:
    request = offset_fetch.OffsetFetchRequest
    fake.fail_next(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=100)
    with pytest.raises(BrokerAnswerError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        groups.committed("billing")
    assert 8 < clock.seconds <= 10


def test_nobody_there_is_told_at_once(fake: FakeCluster, groups: Groups, clock: StepClock) -> None:
    fake.is_down = True
    with pytest.raises(BrokerUnreachableError):
        groups.list_all()
    with pytest.raises(BrokerUnreachableError):
        groups.describe("billing")
    assert clock.seconds == 0


def test_deleting_is_repeated_only_when_nothing_was_done(
    fake: FakeCluster, coordinators: FakeCoordinators, groups: Groups
) -> None:
    coordinators.groups["billing"] = FakeGroup()
    fake.fail_next(delete_groups.DeleteGroupsRequest, ErrorCode.NOT_COORDINATOR)
    fake.fail_next(delete_groups.DeleteGroupsRequest, "unreachable")
    groups.delete("billing")
    assert coordinators.groups == {}
    coordinators.groups["billing"] = FakeGroup()
    fake.fail_next(delete_groups.DeleteGroupsRequest, "lost")
    with pytest.raises(AnswerLostError):
        groups.delete("billing")
    fake.fail_next(delete_groups.DeleteGroupsRequest, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    with pytest.raises(BrokerAnswerError, match="COORDINATOR_NOT_AVAILABLE"):
        groups.delete("billing")


def test_a_group_with_members_is_not_changed(
    coordinators: FakeCoordinators, groups: Groups
) -> None:
    coordinators.groups["billing"] = FakeGroup(members=[FakeMember("m-1")])
    with pytest.raises(GroupNotEmptyError, match="'billing' has members"):
        groups.delete("billing")
    with pytest.raises(GroupNotEmptyError, match="'billing' has members"):
        groups.commit("billing", {P0: 1})


def test_a_group_that_is_not_there(groups: Groups) -> None:
    assert groups.find("billing") is None
    assert groups.committed("billing") == {}
    with pytest.raises(UnknownGroupError, match="group 'billing' not found"):
        groups.describe("billing")
    with pytest.raises(UnknownGroupError, match="group 'billing' not found"):
        groups.delete("billing")


def test_both_protocols_look_the_same(coordinators: FakeCoordinators, groups: Groups) -> None:
    members = [FakeMember("m-2", [P1]), FakeMember("m-1", [P0], "first")]
    coordinators.groups["old"] = FakeGroup("classic", members=members)
    coordinators.groups["new"] = FakeGroup("consumer", members=members)
    old, new = groups.describe("old"), groups.describe("new")
    for found in (old, new):
        assert found.state == "Stable"
        assert [one.member_id for one in found.members] == ["m-1", "m-2"]
        assert [one.partitions for one in found.members] == [(P0,), (P1,)]
        assert [one.instance_id for one in found.members] == ["first", None]
        assert str(found.coordinator) == "fake:9001 (1)"
    assert (old.group_type, old.assignor, old.epoch) == ("classic", "range", None)
    assert (new.group_type, new.assignor, new.epoch) == ("consumer", "uniform", 5)
    assert new.members[0].target == (P0,)
    assert new.members[0].subscribed == ("orders",)


def test_a_broker_without_the_new_protocol_has_classic_groups(
    fake: FakeCluster, coordinators: FakeCoordinators, groups: Groups
) -> None:
    coordinators.groups["old"] = FakeGroup("classic")
    request = consumer_group_describe.ConsumerGroupDescribeRequest
    fake.fail_next(request, ErrorCode.UNSUPPORTED_VERSION)
    assert groups.describe("old").group_type == "classic"


def test_members_that_share_no_partitions(coordinators: FakeCoordinators, groups: Groups) -> None:
    coordinators.groups["sink"] = FakeGroup(protocol_type="connect", members=[FakeMember("w-1")])
    (member,) = groups.describe("sink").members
    assert member.partitions is None


@pytest.mark.parametrize("version", [0, 3, 9])
def test_assignments_of_every_version_are_read(version: int) -> None:
    assert read_assignment(assignment_bytes([P1, P0], version)) == (P0, P1)


@pytest.mark.parametrize("data", [b"\x00", b"\xff\xff", b"\x00\x01\x00\x00\x00\x05", b"\x00\x00{}"])
def test_an_assignment_that_cannot_be_read_is_unknown(data: bytes) -> None:
    assert read_assignment(data) is None


def test_every_broker_is_asked_for_its_groups(clock: StepClock) -> None:
    fake = FakeCluster(broker_ids=(1, 2, 3))
    coordinators = FakeCoordinators(fake)
    coordinators.coordinator_id = 3
    coordinators.groups = {"b": FakeGroup(), "a": FakeGroup("consumer")}
    fake.fail_next(list_groups.ListGroupsRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    cluster = Cluster([Address("b", 9000)], fake.connect, clock=clock, sleep=clock.sleep)
    found = Groups(cluster).list_all()
    assert [(one.group_id, one.coordinator_id) for one in found] == [("a", 3), ("b", 3)]


def test_a_list_says_who_coordinates_and_what_to_ask(
    fake: FakeCluster, coordinators: FakeCoordinators, groups: Groups
) -> None:
    coordinators.groups = {"old": FakeGroup("classic"), "new": FakeGroup("consumer")}
    for listed in groups.list_all():
        found = groups.find(listed.group_id, listed.group_type)
        assert found is not None
        assert found.group_type == listed.group_type
    assert count_of(fake, find_coordinator.FindCoordinatorRequest) == 0
    assert count_of(fake, consumer_group_describe.ConsumerGroupDescribeRequest) == 1
    upgraded = groups.find("new", "classic")
    assert upgraded is not None
    assert upgraded.group_type == "consumer"


def test_ends_of_partitions_that_are_gone_are_left_out(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    assert end_offsets(cluster, [P0, P1, TopicPartition("gone", 0)]) == {P0: 0}
    assert end_offsets(cluster, []) == {}
