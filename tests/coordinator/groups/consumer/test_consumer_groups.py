"""Consumer groups from the outside: limits, policies, conversions, commits, a rolling restart."""

from collections import Counter
from typing import cast
from uuid import UUID

import pytest

from penstock.coordinator.groups.consumer.consumer_group import ConsumerGroup
from penstock.coordinator.groups.settings import GroupSettings
from penstock.coordinator.groups.shard import GroupShard
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from penstock.protocol.messages.heartbeat import HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.protocol.messages.leave_group import LeaveGroupResponse
from penstock.protocol.messages.offset_commit import OffsetCommitResponse
from penstock.protocol.messages.sync_group import SyncGroupResponse
from tests.coordinator.groups.vocabulary import GroupVocabulary
from tests.coordinator.rig import ShardRig

ALWAYS = GroupSettings(consumer_assignment_interval_ms=0, initial_rebalance_delay_ms=0)


class Client:
    """Says one line to a shard and hears the answer."""

    def __init__(self, settings: GroupSettings = ALWAYS, **topics: int) -> None:
        self.words = GroupVocabulary(settings)
        self.rig: ShardRig[GroupShard] = ShardRig(self.words)
        self.rig.set_topics(topics or {"t": 4})

    def ask(self, line: str) -> int:
        word, *rest = line.split()
        arguments = {key: value for key, _, value in (part.partition("=") for part in rest)}
        spoken = self.words.commands[word](arguments)
        return self.rig.ask(spoken.request, spoken.version, spoken.client_id)

    def beat(self, line: str) -> ConsumerGroupHeartbeatResponse:
        response = self.rig.replies[self.ask(f"consumer-heartbeat {line}")]
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response

    def join(self, member: str, extra: str = "topics=t") -> ConsumerGroupHeartbeatResponse:
        return self.beat(f"member={member} epoch=0 rebalance=60000 {extra}")

    def error(self, line: str) -> ErrorCode:
        response = self.rig.replies[self.ask(line)]
        known = JoinGroupResponse | SyncGroupResponse | HeartbeatResponse
        assert isinstance(response, known | ConsumerGroupHeartbeatResponse)
        return response.error_code

    def commit(self, line: str) -> ErrorCode:
        response = self.rig.replies[self.ask(f"commit {line}")]
        assert isinstance(response, OffsetCommitResponse)
        return response.topics[0].partitions[0].error_code

    def form_classic(self, plan: str = "t-0+t-1+t-2+t-3") -> str:
        """A stable classic group of one."""
        ticket = self.ask("join topics=t v=3")
        self.rig.advance(0)
        joined = self.rig.replies[ticket]
        assert isinstance(joined, JoinGroupResponse)
        member = joined.member_id
        self.ask(f"sync member={member} generation={joined.generation_id} plan={member}:{plan}")
        return member

    @property
    def group(self) -> ConsumerGroup:
        return cast("ConsumerGroup", self.rig.shard.state.consumer["g"])


# --- Limits and defaults ---


def test_a_full_group_takes_nobody_else() -> None:
    client = Client(GroupSettings(consumer_group_members_max=1))
    client.join("a")
    assert client.join("b").error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert client.join("a").error_code is ErrorCode.NONE


def test_version_0_is_given_a_member_id() -> None:
    client = Client()
    assert client.beat("member= epoch=0 rebalance=1 topics=t v=0").member_id == "1"
    refused = client.beat("member= epoch=0 rebalance=1 topics=t v=1")
    assert refused.error_code is ErrorCode.INVALID_REQUEST


def test_a_member_may_join_without_topics() -> None:
    client = Client()
    joined = client.join("a", "topics=")
    assert (joined.error_code, joined.member_epoch) == (ErrorCode.NONE, 1)


def test_most_members_choose_the_assignor() -> None:
    client = Client(t=2, u=2)
    client.join("a", "topics=t,u assignor=range")
    assert client.group.assignor_counts == Counter(range=1)
    response = client.rig.replies[client.ask("consumer-describe")]
    assert isinstance(response, ConsumerGroupDescribeResponse)
    assert response.groups[0].assignor_name == "range"


def test_a_group_that_is_not_there_is_not_described() -> None:
    client = Client()
    client.form_classic()
    response = client.rig.replies[client.ask("consumer-describe group=g,h")]
    assert isinstance(response, ConsumerGroupDescribeResponse)
    assert [group.error_message for group in response.groups] == [
        "Group g is not a consumer group.",
        "Group h not found.",
    ]


def test_a_target_is_not_computed_more_often_than_the_interval() -> None:
    client = Client(GroupSettings())
    client.join("a")
    client.join("b")
    assert (client.group.epoch, client.group.target_epoch) == (3, 2)
    client.rig.advance(1_000)
    client.beat("member=a epoch=2")
    assert client.group.target_epoch == 3


def test_a_deleted_topic_is_taken_away_with_a_new_epoch() -> None:
    client = Client(t=1, u=1)
    client.join("a", "topics=t,u")
    client.rig.set_topics({"t": 1})
    response = client.beat("member=a epoch=2 owned=1:0,2:0")
    assert response.assignment is not None
    assert [topic.topic_id for topic in response.assignment.topic_partitions] == [UUID(int=1)]
    assert client.group.epoch == 3


# --- Commits ---


def test_a_member_commits_from_an_older_epoch_what_it_has_had_since() -> None:
    client = Client(t=2)
    client.join("a")
    client.rig.set_topics({"t": 3})
    client.beat("member=a epoch=2 owned=1:0+1")
    assert client.commit("member=a generation=3 partition=2 offset=1") is ErrorCode.NONE
    assert client.commit("member=a generation=2 partition=0 offset=1") is ErrorCode.NONE
    stale = ErrorCode.STALE_MEMBER_EPOCH
    assert client.commit("member=a generation=2 partition=2 offset=1") is stale
    assert client.commit("member=a generation=1 partition=0 offset=1") is stale
    assert client.commit("member=a generation=4 partition=0 offset=1") is stale
    old = ErrorCode.UNSUPPORTED_VERSION
    assert client.commit("member=a generation=3 partition=0 offset=1 v=8") is old


def test_nobody_commits_past_the_members() -> None:
    client = Client()
    client.join("a")
    assert client.commit("offset=1") is ErrorCode.UNKNOWN_MEMBER_ID
    client.beat("member=a epoch=-1")
    assert client.commit("offset=1") is ErrorCode.NONE


# --- Upgrade and downgrade ---


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_a_policy_forbids_the_upgrade(policy: str) -> None:
    settings = GroupSettings(initial_rebalance_delay_ms=0, consumer_migration_policy=policy)
    client = Client(settings)
    client.form_classic()
    refused = client.join("b")
    assert refused.error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert "online upgrade is disabled" in (refused.error_message or "")


def test_a_group_of_another_kind_is_not_upgraded() -> None:
    client = Client()
    client.ask("join type=connect topics=t v=3")
    client.rig.advance(0)
    refused = client.join("b")
    assert "does not use the consumer embedded protocol" in (refused.error_message or "")


def test_what_cannot_be_read_is_not_upgraded() -> None:
    client = Client()
    ticket = client.ask("join topics=t v=3")
    client.rig.advance(0)
    joined = client.rig.replies[ticket]
    assert isinstance(joined, JoinGroupResponse)
    member = joined.member_id
    client.ask(f"sync member={member} generation=1 assign={member}:x")
    assert client.join("b").error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert "g" in client.rig.shard.state.classic, "nothing has changed"


def test_members_that_wait_in_a_classic_group_rejoin_the_consumer_group() -> None:
    client = Client(GroupSettings(initial_rebalance_delay_ms=3_000))
    ticket = client.ask("join topics=t v=3")
    assert client.join("b").error_code is ErrorCode.NONE
    waited = client.rig.replies[ticket]
    assert isinstance(waited, JoinGroupResponse)
    assert waited.error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert set(client.group.members) == {waited.member_id, "b"}


def test_an_empty_classic_group_becomes_a_consumer_group() -> None:
    client = Client()
    member = client.form_classic()
    client.ask(f"leave member={member}")
    assert client.join("b").error_code is ErrorCode.NONE
    assert client.rig.shard.state.stored_classic == {}
    assert set(client.group.members) == {"b"}


def test_an_empty_consumer_group_becomes_a_classic_group() -> None:
    client = Client()
    client.join("a")
    client.beat("member=a epoch=-1")
    assert client.form_classic()
    assert client.rig.shard.state.consumer == {}
    assert client.rig.shard.state.stored_classic["g"].generation == 1


def test_a_group_stays_one_of_consumers_if_the_policy_forbids_the_downgrade() -> None:
    settings = GroupSettings(initial_rebalance_delay_ms=0, consumer_migration_policy="upgrade")
    client = Client(settings)
    member = client.form_classic()
    client.join("b")
    client.beat("member=b epoch=-1")
    assert set(client.group.members) == {member}


def test_the_last_consumer_that_dies_leaves_a_classic_group() -> None:
    client = Client()
    member = client.form_classic()
    client.join("b")
    for _ in range(9):
        client.rig.advance(5_000)
        client.ask(f"heartbeat member={member} generation=1")
    assert client.rig.shard.state.consumer == {}
    assert set(client.rig.shard.state.classic["g"].members) == {member}


def test_a_static_member_that_returns_as_a_classic_one_downgrades_the_group() -> None:
    client = Client()
    client.join("a", "instance=A topics=t")
    response = client.rig.replies[client.ask("join instance=A topics=t")]
    assert isinstance(response, JoinGroupResponse)
    assert (response.error_code, response.generation_id) == (ErrorCode.NONE, 2)
    classic = client.rig.shard.state.classic["g"]
    assert set(classic.members) == {response.member_id}
    assert client.error(f"heartbeat member={response.member_id} generation=2 instance=A") == (
        ErrorCode.NONE
    )


# --- Classic members of a consumer group ---


def test_a_classic_member_needs_a_member_id_and_a_known_protocol() -> None:
    client = Client()
    client.join("a")
    assert client.error("join topics=t") is ErrorCode.MEMBER_ID_REQUIRED
    assert client.error("join topics=t type=connect") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert client.error("join topics=t session=1") is ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_consumer_cannot_speak_the_classic_protocol() -> None:
    client = Client()
    client.join("a")
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert client.error("heartbeat member=a generation=2") is unknown
    assert client.error("sync member=a generation=2") is unknown
    assert client.error("heartbeat member=z generation=2") is unknown


def test_a_classic_member_is_told_what_is_wrong() -> None:
    client = Client()
    member = client.form_classic()
    client.join("b")
    wrong = ErrorCode.ILLEGAL_GENERATION
    assert client.error(f"heartbeat member={member} generation=7") is wrong
    assert client.error(f"sync member={member} generation=7") is wrong
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert client.error(f"sync member={member} generation=1 type=connect") is inconsistent
    assert client.error(f"sync member={member} generation=1 protocol=other") is inconsistent
    again = ErrorCode.REBALANCE_IN_PROGRESS
    assert client.error(f"sync member={member} generation=1") is again


def test_a_classic_member_that_does_not_rejoin_in_time_is_out() -> None:
    client = Client()
    member = client.form_classic()
    client.join("b")
    for _ in range(13):
        client.ask(f"heartbeat member={member} generation=1")
        client.beat("member=b epoch=2")
        client.rig.advance(5_000)
    assert set(client.group.members) == {"b"}


def test_members_leave_by_the_classic_protocol() -> None:
    client = Client()
    client.join("a", "instance=A topics=t")
    client.join("b")
    client.join("c")
    response = client.rig.replies[client.ask("leave members=b,nobody")]
    assert isinstance(response, LeaveGroupResponse)
    codes = [member.error_code for member in response.members]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    client.ask("leave member= instance=A")
    assert set(client.group.members) == {"c"}


# --- Many members ---


def test_a_rolling_restart_revokes_nothing_twice() -> None:
    """Static members restart one after the other: nobody has to give anything up."""
    client = Client(t=30)
    epochs: dict[str, int] = {}
    owned: dict[str, frozenset[int]] = {}
    revocations = Counter[int]()

    def beat(member: str, instance: str, epoch: int) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member,
            member_epoch=epoch,
            instance_id=instance,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=("t",),
            topic_partitions=tuple(
                RequestTopicPartitions(topic_id=UUID(int=1), partitions=tuple(sorted(numbers)))
                for numbers in (owned.get(instance, frozenset()),)
                if numbers and epoch > 0
            ),
        )
        response = client.rig.answer(request, 1)
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        assert response.error_code is ErrorCode.NONE
        epochs[instance] = response.member_epoch
        assert response.assignment is not None
        given = [n for topic in response.assignment.topic_partitions for n in topic.partitions]
        revocations.update(owned.get(instance, frozenset()) - frozenset(given))
        owned[instance] = frozenset(given)

    instances = [f"i{number}" for number in range(10)]
    for instance in instances:
        beat(f"{instance}.0", instance, 0)
    for _ in range(4):
        for instance in instances:
            beat(f"{instance}.0", instance, epochs[instance])
    assert client.group.state_name == "Stable"
    revocations.clear()
    for instance in instances:
        client.beat(f"member={instance}.0 instance={instance} epoch=-2")
        beat(f"{instance}.1", instance, 0)
        for other in instances:
            life = 1 if f"{other}.1" in client.group.members else 0
            beat(f"{other}.{life}", other, epochs[other])
    assert revocations == Counter()
    assert client.group.state_name == "Stable"
    assert frozenset().union(*owned.values()) == frozenset(range(30))
