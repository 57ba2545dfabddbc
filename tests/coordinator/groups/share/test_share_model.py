"""Share groups against a simple model: members come, go and die; calls end late, badly or never.

The model knows the answers that members got and which states the share coordinator really has. It
checks: a member has only partitions with state; epochs only grow; a state that the administrator
reset is not reset again by a heartbeat; when nothing happens any more, every subscribed partition
has state and a member; a deleted group has no state. The disk may be full for a while. After every
step the shard is validated and a reload gives the same replicated state (the rig checks both); at
the end each prefix of the log is loaded.
"""

from dataclasses import dataclass, field
from typing import cast
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.coordinator.groups.settings import GroupSettings
from penstock.coordinator.groups.shard import GroupShard
from penstock.coordinator.groups.share.share_group import ShareGroup
from penstock.coordinator.groups.share.state_effects import DeleteStates, InitializeStates
from penstock.coordinator.groups.share.state_partitions import Place
from penstock.coordinator.shares.ports import Refusal
from penstock.core.errors import RequestTimedOutError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsResponse
from penstock.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from tests.coordinator.groups.share.share_words import alter, delete, places_of
from tests.coordinator.groups.vocabulary import GroupVocabulary
from tests.coordinator.model_runs import EXAMPLES, IS_SEEDED
from tests.coordinator.rig import ShardRig

SESSION_MS = 10_000
SUBSCRIPTIONS = (("t",), ("u",), ("t", "u"))
ROUNDS = 12
"""Enough heartbeats of all members for any assignment to come about."""


@dataclass
class Client:
    """The state of one member."""

    name: str
    lives: int = 0
    epoch: int = 0
    topics: tuple[str, ...] = ("t",)
    assigned: set[Place] = field(default_factory=set)

    @property
    def member_id(self) -> str:
        return f"{self.name}.{self.lives}"

    def begin_again(self) -> None:
        self.epoch = 0
        self.assigned = set()


clients = st.integers(0, 3)


class ShareModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        limits = GroupSettings(
            share_session_timeout_ms=SESSION_MS,
            share_assignment_interval_ms=0,
            share_group_members_max=3,
        )
        self.rig: ShardRig[GroupShard] = ShardRig(GroupVocabulary(limits))
        self.counts = {"t": 2, "u": 1}
        self.rig.set_topics(self.counts)
        self.clients = [Client(f"c{number}") for number in range(4)]
        self.states: dict[Place, int] = {}
        """The states that the share coordinator has, with their start offsets."""
        self.altered: dict[int, Place] = {}
        """By ticket: resets that wait for their answer."""
        self.epoch = 0

    @property
    def group(self) -> ShareGroup | None:
        return cast("ShareGroup | None", self.rig.shard.state.share.get("g"))

    # --- Members ---

    def beat(self, client: Client, *, is_lost: bool = False) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id="g",
            member_id=client.member_id,
            member_epoch=client.epoch,
            subscribed_topic_names=client.topics,
        )
        response = self.rig.try_answer(request, 1, client.name)
        if response is None or is_lost:
            return
        assert isinstance(response, ShareGroupHeartbeatResponse)
        if response.error_code is not ErrorCode.NONE:
            assert response.error_code in {
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.GROUP_ID_NOT_FOUND,
                ErrorCode.GROUP_MAX_SIZE_REACHED,
            }, response
            client.begin_again()
            return
        assert response.member_epoch >= client.epoch, "a member's epoch only grows"
        client.epoch = response.member_epoch
        assert response.assignment is not None, "a full request is answered with the assignment"
        client.assigned = {
            (cast("UUID", topic.topic_id), number)
            for topic in response.assignment.topic_partitions
            for number in topic.partitions
        }

    @rule(index=clients, is_lost=st.booleans())
    def heartbeats(self, index: int, is_lost: bool) -> None:
        self.beat(self.clients[index], is_lost=is_lost)

    @rule(index=clients, topics=st.sampled_from(SUBSCRIPTIONS))
    def subscribes(self, index: int, topics: tuple[str, ...]) -> None:
        self.clients[index].topics = topics
        self.beat(self.clients[index])

    @rule(index=clients, is_polite=st.booleans())
    def goes(self, index: int, is_polite: bool) -> None:
        client = self.clients[index]
        if is_polite and client.epoch > 0:
            request = ShareGroupHeartbeatRequest(
                group_id="g", member_id=client.member_id, member_epoch=-1
            )
            self.rig.try_answer(request, 1)
        client.lives += 1
        client.begin_again()

    # --- Administrators ---

    @rule(start=st.integers(0, 9))
    def resets(self, start: int) -> None:
        spoken = alter({"topic": "t", "p0": str(start)})
        view = self.rig.topics.by_name("t")
        ticket = self.rig.ask(spoken.request, spoken.version)
        if ticket not in self.rig.replies and ticket not in self.rig.refused and view is not None:
            self.altered[ticket] = (view.topic_id, 0)

    @rule(topics=st.sampled_from(("t", "t,u", "nope")))
    def deletes_offsets(self, topics: str) -> None:
        spoken = delete({"topics": topics})
        self.rig.ask(spoken.request, spoken.version)

    @rule()
    def deletes_the_group(self) -> None:
        spoken = GroupVocabulary().commands["delete"]({"group": "g"})
        self.rig.ask(spoken.request, spoken.version)
        # A later group of this name begins anew; a reset of the deleted one is not its start.
        self.altered.clear()

    # --- The share coordinator ---

    @rule(how=st.sampled_from(("done", "refused", "unknown", "done but unknown")))
    def a_call_ends(self, how: str) -> None:
        if self.rig.effects:
            self._end(self.rig.effects[0], how)

    def _end(self, effect: object, how: str) -> None:
        assert isinstance(effect, InitializeStates | DeleteStates)
        if how.startswith("done"):
            if isinstance(effect, InitializeStates):
                self.states.update(effect.starts)
            else:
                for place in effect.places:
                    self.states.pop(place, None)
        ticket = effect.ticket
        if how.endswith("unknown"):
            self.rig.finish(effect, RequestTimedOutError("nobody knows"))
        else:
            refusal = None if how == "done" else Refusal(ErrorCode.NOT_COORDINATOR)
            self.rig.finish(effect, dict.fromkeys(places_of(effect), refusal))
        if ticket in self.altered and ticket in self.rig.replies and how == "done":
            self._is_reset(ticket, cast("InitializeStates", effect))

    def _is_reset(self, ticket: int, effect: InitializeStates) -> None:
        """No heartbeat that came meanwhile resets it again."""
        answer = self.rig.replies[ticket]
        assert isinstance(answer, AlterShareGroupOffsetsResponse)
        place = self.altered.pop(ticket)
        for waiting in self.rig.effects:
            if isinstance(waiting, InitializeStates) and waiting.ticket is None:
                assert place not in dict(waiting.starts), "a heartbeat resets it again"
        assert self.states[place] == dict(effect.starts)[place]

    # --- The world ---

    @rule(by_ms=st.sampled_from((0, 500, SESSION_MS)))
    def time_passes(self, by_ms: int) -> None:
        self.rig.advance(by_ms)

    @rule(t_count=st.integers(0, 3), u_count=st.integers(0, 1))
    def topics_change(self, t_count: int, u_count: int) -> None:
        before = {"t": self.counts.get("t", 0), "u": self.counts.get("u", 0)}
        wanted = {"t": t_count, "u": u_count}
        self.counts = {
            name: max(count, before[name])
            for name, count in wanted.items()
            if count  # 0: deleted; a topic does not shrink
        }
        self.rig.set_topics(self.counts)

    @rule(refuses=st.booleans())
    def the_disk_is_full(self, refuses: bool) -> None:
        self.rig.refuses = refuses

    @rule()
    def the_coordinator_crashes(self) -> None:
        self.rig.refuses = False
        self.altered.clear()
        self.rig.restart()

    # --- Promises ---

    @invariant()
    def members_have_only_partitions_with_state(self) -> None:
        group = self.group
        if group is None:
            return
        known = {
            (topic_id, number)
            for topic_id, found in group.state_partitions.initialized.items()
            for number in found.numbers
        }
        for target in group.targets.values():
            for topic_id, numbers in target.items():
                if group.target_epoch == group.epoch and self.rig.topics.by_id(topic_id):
                    assert {(topic_id, number) for number in numbers} <= known

    @invariant()
    def epochs_grow(self) -> None:
        epoch = 0 if self.group is None else self.group.epoch
        assert epoch >= self.epoch or self.group is None
        self.epoch = epoch

    def teardown(self) -> None:
        self.rig.refuses = False
        self.rig.set_topics({"t": 3, "u": 1})
        self._settle()
        group = self.group
        living = {client.member_id for client in self.clients if client.epoch > 0}
        if group is not None and group.members and living == set(group.members):
            self._everything_is_read(group)
        for count in range(len(self.rig.log)):
            self.rig.loaded_shard(count)

    def _settle(self) -> None:
        for _ in range(ROUNDS):
            while self.rig.effects:
                self._end(self.rig.effects[0], "done")
            self.rig.advance(0)
            for client in self.clients:
                if client.epoch > 0:
                    self.beat(client)

    def _everything_is_read(self, group: ShareGroup) -> None:
        assert group.epoch == group.target_epoch, "the group comes to rest"
        living = [client for client in self.clients if client.epoch > 0]
        read = {place for client in living for place in client.assigned}
        for name in {name for client in living for name in client.topics}:
            view = self.rig.topics.by_name(name)
            assert view is not None
            wanted = {(view.topic_id, number) for number in range(view.partition_count)}
            assert wanted <= set(self.states), "each has its state"
            assert wanted <= read, "each is read"


ShareModel.TestCase.settings = settings(
    max_examples=EXAMPLES, derandomize=IS_SEEDED, stateful_step_count=30, deadline=None
)


@pytest.mark.model
class TestShareGroups(ShareModel.TestCase):  # type: ignore[misc, valid-type]
    """Run by pytest."""


def test_a_deletion_is_not_undone_by_an_earlier_creation() -> None:
    """Found by the model: the group is deleted while its first states are being created."""
    model = ShareModel()
    model.heartbeats(0, is_lost=False)
    model.time_passes(SESSION_MS)
    model.deletes_the_group()
    model.heartbeats(1, is_lost=False)
    model.teardown()


def test_a_new_group_does_not_begin_at_a_reset_of_a_deleted_one() -> None:
    """Found by the model: a reset waits for its answer while its group is deleted and recreated."""
    model = ShareModel()
    model.resets(0)
    model.deletes_the_group()
    model.heartbeats(0, is_lost=False)
    model.teardown()
    assert set(model.states.values()) == {-1}
