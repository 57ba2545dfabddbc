"""Consumer groups against a simple model: clients of both protocols that come, go, die and return.

The model knows only the answers that a client got. It checks the promises that members rely on: no
member reads a partition that another member of the group reads; epochs only grow; a fenced member
starts again; when nothing happens any more, everything is assigned and the group is stable. Answers
may get lost, and the disk may be full for a while. After every step the shard is validated and a
reload gives the same replicated state (the rig checks both); at the end each prefix of the log is
loaded.
"""

from dataclasses import dataclass, field
from typing import cast
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.coordinator.groups.assignors import PartitionSets
from penstock.coordinator.groups.consumer.consumer_group import ConsumerGroup
from penstock.coordinator.groups.embedded_protocol import decode_assignment, to_ids
from penstock.coordinator.groups.settings import GroupSettings
from penstock.coordinator.groups.shard import GroupShard
from penstock.coordinator.metadata_view import TopicsView
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from penstock.protocol.messages.heartbeat import HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.protocol.messages.sync_group import SyncGroupResponse
from tests.coordinator.groups.vocabulary import GroupVocabulary
from tests.coordinator.model_runs import EXAMPLES, IS_SEEDED
from tests.coordinator.rig import ShardRig

TOPICS = ("t", "u", "v")
SUBSCRIPTIONS = (("t",), ("t", "u"), ("t", "u", "v"), ())
EXPRESSIONS = ("", "[tu]", ".*")
SESSION_MS = 10_000
SETTLING_ROUNDS = 30
"""Enough heartbeats of everybody for any assignment to come about."""


@dataclass
class Client:
    """The state of one client of KIP-848."""

    name: str
    instance: str | None = None
    lives: int = 0
    epoch: int = 0
    is_in: bool = False
    topics: tuple[str, ...] = ("t", "u")
    expression: str = ""
    says_all: bool = True
    """An answer was lost or it just began: it repeats everything."""
    owned: dict[UUID, frozenset[int]] = field(default_factory=dict)
    """What it reads."""
    told: dict[UUID, frozenset[int]] | None = None
    """What it was told to read from now on; it takes a while until it does."""

    @property
    def member_id(self) -> str:
        return f"{self.name}.{self.lives}"

    def begin_again(self) -> None:
        self.is_in = False
        self.epoch = 0
        self.owned = {}
        self.told = None
        self.says_all = True

    def do_as_told(self) -> None:
        if self.told is not None:
            self.owned, self.told = self.told, None


@dataclass
class ClassicClient:
    """The state of one eager consumer of the classic protocol."""

    name: str
    member_id: str = ""
    generation: int = -1
    ticket: int | None = None
    is_joining: bool = False
    topics: str = "t"
    known: TopicsView | None = None
    """The topics when it asked for its part. A classic assignment has names, and a name may mean
    another topic by the time it is heard: the coordinator makes the member join again then."""
    owned: PartitionSets = field(default_factory=dict)

    def begin_again(self) -> None:
        self.generation = -1
        self.ticket = None
        self.owned = {}


clients = st.integers(0, 3)
classic_clients = st.integers(0, 1)


class ConsumerModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        limits = GroupSettings(
            initial_rebalance_delay_ms=0,
            consumer_session_timeout_ms=SESSION_MS,
            consumer_group_members_max=5,
        )
        self.words = GroupVocabulary(limits)
        self.rig: ShardRig[GroupShard] = ShardRig(self.words)
        self.rig.set_topics({"t": 5, "u": 3})
        instances = (None, None, "one", "two")
        self.clients = [Client(f"c{i}", name) for i, name in enumerate(instances)]
        self.classic = [ClassicClient(f"k{i}") for i in range(2)]
        self.epoch = 0

    @initialize(indexes=st.sets(clients, min_size=1, max_size=2), is_classic=st.booleans())
    def some_are_members(self, indexes: set[int], is_classic: bool) -> None:
        """Most runs begin with a group that works."""
        if is_classic:
            self.classic_members_go_on({0})
        for index in sorted(indexes):
            self.beat(self.clients[index])
        for index in sorted(indexes)[:1]:
            self.members_heartbeat(set(), set(), index)

    # --- KIP-848 ---

    def beat(self, client: Client, *, is_lost: bool = False) -> None:
        says_all = client.says_all or not client.is_in
        owned = tuple(
            RequestTopicPartitions(topic_id=topic_id, partitions=tuple(numbers))
            for topic_id, numbers in client.owned.items()
        )
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=client.member_id,
            member_epoch=client.epoch,
            instance_id=client.instance,
            rebalance_timeout_ms=5_000 if says_all else -1,
            subscribed_topic_names=client.topics if says_all else None,
            subscribed_topic_regex=client.expression if says_all else None,
            topic_partitions=owned,
        )
        response = self.rig.try_answer(request, 1, client.name)
        if response is None:
            client.says_all = True
            return
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if is_lost:
            client.says_all = True
            return
        self.hear(client, response)

    def hear(self, client: Client, response: ConsumerGroupHeartbeatResponse) -> None:
        if response.error_code is not ErrorCode.NONE:
            expected = {
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.GROUP_ID_NOT_FOUND,
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                ErrorCode.UNRELEASED_INSTANCE_ID,
                ErrorCode.FENCED_INSTANCE_ID,
            }
            assert response.error_code in expected, response
            client.begin_again()
            return
        assert response.member_epoch >= client.epoch, "a member's epoch only grows"
        client.is_in = True
        client.says_all = False
        client.epoch = response.member_epoch
        if response.assignment is not None:
            client.told = {
                cast("UUID", topic.topic_id): frozenset(topic.partitions)
                for topic in response.assignment.topic_partitions
            }

    @rule(index=clients, is_lost=st.booleans(), is_slow=st.booleans())
    def heartbeats(self, index: int, is_lost: bool, is_slow: bool) -> None:
        client = self.clients[index]
        if not is_slow:
            client.do_as_told()
        self.beat(client, is_lost=is_lost and client.is_in)

    @rule(slow=st.sets(clients, max_size=2), silent=st.sets(clients, max_size=1), newcomer=clients)
    def members_heartbeat(self, slow: set[int], silent: set[int], newcomer: int) -> None:
        """Most runs should get somewhere: three rounds, in which some are slow to do as told."""
        self.beat(self.clients[newcomer])
        for _ in range(3):
            self.rig.advance(1_000)
            for index, client in enumerate(self.clients):
                if client.is_in and index not in silent:
                    if index not in slow:
                        client.do_as_told()
                    self.beat(client)
            self.nobody_reads_what_another_member_reads()

    @rule(index=clients, topics=st.sampled_from(SUBSCRIPTIONS), word=st.sampled_from(EXPRESSIONS))
    def subscribes(self, index: int, topics: tuple[str, ...], word: str) -> None:
        client = self.clients[index]
        client.topics, client.expression, client.says_all = topics, word, True
        self.beat(client)

    @rule(index=clients)
    def leaves(self, index: int) -> None:
        client = self.clients[index]
        if client.is_in:
            client.epoch = -1
            self._say_goodbye(client)

    @rule(index=st.integers(2, 3))
    def goes_for_a_while(self, index: int) -> None:
        client = self.clients[index]
        if client.is_in:
            client.epoch = -2
            self._say_goodbye(client)

    def _say_goodbye(self, client: Client) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=client.member_id,
            member_epoch=client.epoch,
            instance_id=client.instance,
        )
        self.rig.try_answer(request, 1)
        client.lives += 1
        client.begin_again()

    @rule(index=clients)
    def dies(self, index: int) -> None:
        client = self.clients[index]
        client.lives += 1
        client.begin_again()

    # --- The classic protocol ---

    def go_on(self, client: ClassicClient) -> None:
        """The next thing that a classic client does."""
        if client.ticket is not None:
            if client.ticket in self.rig.refused:
                client.begin_again()
            elif client.ticket in self.rig.replies:
                ticket, client.ticket = client.ticket, None
                self._hear_classic(client, self.rig.replies[ticket])
            return
        if client.generation == -1:
            self._join(client)
            return
        spoken = self.words.commands["heartbeat"](
            {"member": client.member_id, "generation": str(client.generation)}
        )
        response = self.rig.answer(spoken.request, spoken.version)
        assert isinstance(response, HeartbeatResponse)
        if response.error_code is not ErrorCode.NONE:
            if response.error_code is ErrorCode.UNKNOWN_MEMBER_ID:
                client.member_id = ""
            client.begin_again()

    def _join(self, client: ClassicClient) -> None:
        client.owned = {}
        client.is_joining = True
        spoken = self.words.commands["join"](
            {"member": client.member_id, "topics": client.topics, "rebalance": "5000"}
        )
        client.ticket = self.rig.ask(spoken.request, spoken.version, client.name)

    def _hear_classic(self, client: ClassicClient, response: object) -> None:
        if isinstance(response, JoinGroupResponse):
            if response.error_code is ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id = response.member_id
            elif response.error_code is ErrorCode.NONE:
                client.member_id = response.member_id
                client.generation = response.generation_id
                self._sync(client, response)
            else:
                if response.error_code is ErrorCode.UNKNOWN_MEMBER_ID:
                    client.member_id = ""
                client.begin_again()
            return
        assert isinstance(response, SyncGroupResponse)
        if response.error_code is ErrorCode.NONE:
            given, known = response.assignment, client.known or self.rig.topics
            client.owned = to_ids(decode_assignment(given), known) if given else {}
        else:
            client.begin_again()

    def _sync(self, client: ClassicClient, joined: JoinGroupResponse) -> None:
        ids = [member.member_id for member in joined.members]
        plan: dict[str, list[str]] = {member_id: [] for member_id in ids}
        if ids:
            topic = self.rig.topics.by_name("t")
            for number in range(topic.partition_count if topic else 0):
                plan[ids[number % len(ids)]].append(f"t-{number}")
        arguments = {"member": client.member_id, "generation": str(client.generation)}
        parts = [f"{m}:{'+'.join(given)}" for m, given in plan.items() if given]
        if parts:
            arguments["plan"] = ",".join(parts)
        spoken = self.words.commands["sync"](arguments)
        client.known = self.rig.topics
        client.ticket = self.rig.ask(spoken.request, spoken.version)

    @rule(index=classic_clients)
    def classic_goes_on(self, index: int) -> None:
        self.go_on(self.classic[index])

    @rule(indexes=st.sets(classic_clients, min_size=1))
    def classic_members_go_on(self, indexes: set[int]) -> None:
        """Classic clients get as far as they can."""
        for _ in range(4):
            self.rig.advance(0)
            for index in sorted(indexes):
                self.go_on(self.classic[index])

    @rule(index=classic_clients)
    def classic_leaves(self, index: int) -> None:
        client = self.classic[index]
        if client.member_id and client.ticket is None:
            spoken = self.words.commands["leave"]({"member": client.member_id})
            self.rig.try_answer(spoken.request, spoken.version)
        client.member_id = ""
        client.begin_again()

    # --- The world ---

    @rule(by_ms=st.sampled_from((0, 500, 1_000, 3_000, SESSION_MS)))
    def time_passes(self, by_ms: int) -> None:
        self.rig.advance(by_ms)

    @rule(counts=st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(0, 2)))
    def topics_change(self, counts: tuple[int, int, int]) -> None:
        before = {name: self.rig.topics.by_name(name) for name in TOPICS}
        now: dict[str, int] = {}
        for name, count in zip(TOPICS, counts, strict=True):
            old = before[name]
            if count and (old is None or old.partition_count <= count):
                now[name] = count
        self.rig.set_topics(now)

    @rule(is_full=st.booleans())
    def the_disk_fills_or_has_room(self, is_full: bool) -> None:
        self.rig.refuses = is_full

    @rule()
    def coordinator_crashes(self) -> None:
        for client in self.classic:
            if client.ticket is not None and client.ticket not in self.rig.replies:
                client.begin_again()
        self.rig.restart()

    # --- Invariants ---

    @property
    def group(self) -> ConsumerGroup | None:
        return cast("ConsumerGroup | None", self.rig.shard.state.consumer.get("g"))

    @invariant()
    def nobody_reads_what_another_member_reads(self) -> None:
        group = self.group
        if group is None:
            return
        readers: dict[tuple[UUID, int], str] = {}
        owned = [(c.member_id, c.owned) for c in self.clients if c.is_in]
        owned += [(c.member_id, dict(c.owned)) for c in self.classic if c.generation != -1]
        for member_id, partitions in owned:
            member = group.members.get(member_id)
            if member is None or member.epoch < 0:
                continue  # it is fenced, and will learn of it
            for topic_id, numbers in partitions.items():
                for number in numbers:
                    other = readers.setdefault((topic_id, number), member_id)
                    assert other == member_id, f"{topic_id}-{number}: {other} and {member_id}"

    @invariant()
    def the_epoch_of_a_group_only_grows(self) -> None:
        group = self.group
        if group is None:
            self.epoch = 0
            return
        assert group.epoch >= self.epoch
        self.epoch = group.epoch

    def teardown(self) -> None:
        for count in range(len(self.rig.log) + 1):
            self.rig.loaded_shard(count)
        self.rig.refuses = False
        self.settle()

    def settle(self) -> None:
        """Nothing happens any more but heartbeats: everything is assigned in the end."""
        self.rig.advance(SESSION_MS * 3)
        for _ in range(SETTLING_ROUNDS):
            self.rig.advance(1_100)
            for classic in self.classic:
                if classic.member_id:
                    self.go_on(classic)
            for client in self.clients:
                if client.is_in:
                    client.do_as_told()
                    self.beat(client)
            self.nobody_reads_what_another_member_reads()
        group = self.group
        if group is None:
            return
        assert group.state_name in {"Stable", "Empty"}
        wanted = {
            (topic.topic_id, number)
            for name in {n for m in group.members.values() for n in m.subscribed_names}
            | {n for resolved in group.expressions.values() for n in resolved.topics}
            if (topic := self.rig.topics.by_name(name)) is not None
            for number in range(topic.partition_count)
        }
        have = {
            (topic_id, number) for topic_id, numbers in group.owners.items() for number in numbers
        }
        assert have == wanted, "every partition has a reader"


ConsumerModel.TestCase.settings = settings(
    max_examples=EXAMPLES, derandomize=IS_SEEDED, stateful_step_count=20, deadline=None
)


@pytest.mark.model
class TestConsumerGroups(ConsumerModel.TestCase):  # type: ignore[misc, valid-type]
    """Run by pytest."""


def test_a_classic_member_keeps_what_it_reads_through_a_downgrade_and_an_upgrade() -> None:
    """Found by the model: the last new member left and came back before the classic one heard."""
    model = ConsumerModel()
    model.classic_members_go_on({0})
    model.beat(model.clients[0])
    model.members_heartbeat(set(), set(), 0)
    model.classic_goes_on(0)
    model.leaves(0)
    model.members_heartbeat(set(), set(), 0)
    model.teardown()
