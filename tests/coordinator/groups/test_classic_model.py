"""Classic groups against a simple model: five clients that join, sync, leave, die and come back.

The model knows only the answers that a client got. It checks the promises that members rely on: one
leader, one protocol and one assignment in a generation; generations that only grow; no member of an
old generation commits; every request is answered. The disk may be full for a while: requests that
cannot be written are rejected, without effect on others. After every step the shard is validated
and a reload gives the same replicated state (the rig checks both); at the end each prefix of the
log is loaded.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.coordinator.groups.settings import GroupSettings
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.heartbeat import HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.protocol.messages.leave_group import LeaveGroupResponse
from penstock.protocol.messages.offset_commit import OffsetCommitResponse
from penstock.protocol.messages.sync_group import SyncGroupResponse
from tests.coordinator.groups.vocabulary import GroupVocabulary
from tests.coordinator.model_runs import EXAMPLES, IS_SEEDED
from tests.coordinator.rig import ShardRig

SESSION_MS = 10_000
REBALANCE_MS = 20_000


@dataclass
class Client:
    """The state of one client."""

    name: str
    instance: str | None
    member_id: str = ""
    generation: int = -1
    members: tuple[str, ...] = ()
    """Of its generation, if it leads."""
    assignment: bytes | None = None


@dataclass
class Generation:
    """All answers to members about a generation."""

    leader: str
    protocol: str | None
    members: tuple[str, ...] = ()
    assignments: dict[str, bytes] = field(default_factory=dict)
    took_over: bool = False
    """A static member came back under another id, so that ids of this generation have changed."""


clients = st.integers(0, 4)


class ClassicModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        limits = GroupSettings(initial_rebalance_delay_ms=3_000, classic_group_members_max=4)
        self.words = GroupVocabulary(limits)
        self.rig = ShardRig(self.words)
        instances = (None, None, None, "one", "two")
        self.clients = [Client(f"c{i}", name) for i, name in enumerate(instances)]
        self.generations: dict[int, Generation] = {}
        self.newest = 0
        self.waiting: dict[int, Client] = {}

    # --- Requests of clients ---

    def say(self, client: Client, command: str, **arguments: object) -> int:
        texts = {key: str(value) for key, value in arguments.items() if value is not None}
        if client.instance is not None:
            texts["instance"] = client.instance
        spoken = self.words.commands[command](texts)
        ticket = self.rig.ask(spoken.request, spoken.version, client.name)
        self.waiting[ticket] = client
        self.hear()
        return ticket

    @rule(
        index=clients,
        topics=st.sampled_from(["t", "t,u"]),
        protocols=st.sampled_from(["range", "range,sticky", "sticky,range", "sticky"]),
        version=st.sampled_from([3, 9]),
        remembers=st.booleans(),
    )
    def join(self, index: int, topics: str, protocols: str, version: int, remembers: bool) -> None:
        client = self.clients[index]
        if client.member_id == "" and client in self.waiting.values():
            return
        static = client.instance is not None
        if static and not remembers:
            client.member_id = ""
        if static and client.member_id == "":
            for generation in self.generations.values():
                generation.took_over = True
        self.join_as(client, topics, protocols, 9 if static else version)

    def join_as(self, client: Client, topics: str, protocols: str, version: int) -> None:
        ticket = self.say(
            client,
            "join",
            topics=topics,
            protocols=protocols,
            member=client.member_id,
            session=SESSION_MS,
            rebalance=REBALANCE_MS,
            v=version,
        )
        response = self.rig.replies.get(ticket)
        told_id = ErrorCode.MEMBER_ID_REQUIRED
        if isinstance(response, JoinGroupResponse) and response.error_code is told_id:
            self.join_as(client, topics, protocols, version)

    @rule(
        indexes=st.sets(clients, min_size=1), protocols=st.sampled_from(["range", "range,sticky"])
    )
    def many_join(self, indexes: set[int], protocols: str) -> None:
        """Most runs should get somewhere: several join, and time passes until they are in."""
        for index in sorted(indexes):
            self.join(index, "t", protocols, 9, True)
        self.let_time_pass(SESSION_MS - 1)

    @rule(leader_first=st.booleans())
    def all_sync(self, leader_first: bool) -> None:
        """Everybody who was told of a generation asks for its part."""
        order = sorted(range(5), key=lambda i: bool(self.clients[i].members) != leader_first)
        for index in order:
            if self.clients[index].member_id:
                self.sync(index)

    @rule(indexes=st.sets(clients, min_size=2), leader_first=st.booleans())
    def form_group(self, indexes: set[int], leader_first: bool) -> None:
        """Whoever was a member rejoins; the group gets as far as it can."""
        members = {i for i in range(5) if self.clients[i].generation == self.newest}
        self.many_join(indexes | members, "range,sticky")
        self.all_sync(leader_first)

    @rule(index=st.sampled_from([3, 4]))
    def restart_static(self, index: int) -> None:
        """The process of a static member comes back without knowing its id."""
        self.join(index, "t", "range,sticky", 9, False)

    @rule(index=clients)
    def sync(self, index: int) -> None:
        client = self.clients[index]
        given = {member: f"{client.generation}/{member}".encode() for member in client.members}
        text = ",".join(f"{member}:{value.decode()}" for member, value in given.items())
        generation = self.generations.get(client.generation)
        # A coordinator that crashed may count again: the leader of then does not lead now.
        leads = generation is not None and generation.leader == client.member_id
        if given and generation is not None and leads and not generation.assignments:
            generation.assignments = given
        self.say(client, "sync", member=client.member_id, generation=client.generation, assign=text)

    @rule()
    def all_heartbeat(self) -> None:
        for index in range(5):
            if self.clients[index].member_id:
                self.heartbeat(index)

    @rule(index=clients)
    def heartbeat(self, index: int) -> None:
        client = self.clients[index]
        self.say(client, "heartbeat", member=client.member_id, generation=client.generation)

    @rule(index=clients)
    def leave(self, index: int) -> None:
        client = self.clients[index]
        self.say(client, "leave", member=client.member_id)
        client.member_id, client.generation, client.members = "", -1, ()

    @rule(index=clients, behind=st.integers(0, 2))
    def commit(self, index: int, behind: int) -> None:
        client = self.clients[index]
        generation = max(client.generation - behind, 0)
        ticket = self.say(
            client, "commit", member=client.member_id or "nobody", generation=generation, offset=1
        )
        if ticket in self.rig.refused:
            return
        response = self.rig.replies[ticket]
        assert isinstance(response, OffsetCommitResponse)
        if response.topics[0].partitions[0].error_code is ErrorCode.NONE:
            assert generation == self.newest, "an old generation has committed"
            assert self.rig.shard.state.stored_classic["g"].generation <= self.newest

    @rule(by_ms=st.sampled_from([100, 3_000, SESSION_MS, REBALANCE_MS]))
    def let_time_pass(self, by_ms: int) -> None:
        self.rig.advance(by_ms)
        self.hear()

    @rule(is_full=st.booleans())
    def the_disk_fills_or_has_room(self, is_full: bool) -> None:
        self.rig.refuses = is_full

    @rule()
    def crash(self) -> None:
        """Requests that waited are gone; a generation that was not written is forgotten."""
        self.rig.restart()
        self.waiting.clear()
        stored = self.rig.shard.state.stored_classic.get("g")
        self.newest = 0 if stored is None else stored.generation
        self.generations = {k: v for k, v in self.generations.items() if k <= self.newest}

    # --- Answers to clients ---

    def hear(self) -> None:
        for ticket in self.waiting.keys() & self.rig.refused:
            del self.waiting[ticket]
        for ticket in sorted(self.waiting.keys() & self.rig.replies.keys()):
            client = self.waiting.pop(ticket)
            response = self.rig.replies[ticket]
            if isinstance(response, JoinGroupResponse):
                self.joined(client, response)
            elif isinstance(response, SyncGroupResponse):
                self.synced(client, response)
            elif isinstance(response, HeartbeatResponse):
                self.beaten(client, response)
            else:
                assert isinstance(response, LeaveGroupResponse | OffsetCommitResponse)

    def joined(self, client: Client, response: JoinGroupResponse) -> None:
        code = response.error_code
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            assert client.instance is None
            client.member_id = response.member_id
        elif code is not ErrorCode.NONE:
            assert code in {
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                ErrorCode.FENCED_INSTANCE_ID,
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                ErrorCode.REBALANCE_IN_PROGRESS,
            }
            if code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED}:
                client.member_id = ""
        else:
            self.entered(client, response)

    def entered(self, client: Client, response: JoinGroupResponse) -> None:
        number = response.generation_id
        assert number >= self.newest, "a generation went back"
        self.newest = number
        client.member_id, client.generation = response.member_id, number
        client.members = tuple(member.member_id for member in response.members)
        client.assignment = None
        known = self.generations.setdefault(
            number, Generation(response.leader, response.protocol_name)
        )
        assert known.protocol == response.protocol_name
        if known.took_over:
            known.leader = response.leader
        assert known.leader == response.leader, "a generation has two leaders"
        leads = response.leader == response.member_id
        assert bool(response.members) == leads, "only the leader learns who the members are"
        if leads:
            assert response.member_id in client.members
            known.members = client.members
        if response.skip_assignment:
            client.members = ()

    def synced(self, client: Client, response: SyncGroupResponse) -> None:
        if response.error_code is not ErrorCode.NONE:
            return
        generation = self.generations[client.generation]
        assert response.protocol_name == generation.protocol
        if not generation.took_over:
            expected = generation.assignments.get(client.member_id, b"")
            assert response.assignment == expected, "not what the leader gave"
        client.assignment = response.assignment

    def beaten(self, client: Client, response: HeartbeatResponse) -> None:
        if response.error_code is ErrorCode.NONE and client.generation >= 0:
            assert client.generation <= self.newest

    @invariant()
    def no_two_hold_the_same(self) -> None:
        held = [
            client.assignment
            for client in self.clients
            if client.generation == self.newest
            and client.assignment
            and not self.generations[self.newest].took_over
        ]
        assert len(held) == len(set(held))

    def teardown(self) -> None:
        self.rig.refuses = False
        # No client sends anything any more: all waiting requests are answered, and the group is
        # empty.
        self.rig.advance(1_000_000)
        self.hear()
        assert not self.waiting, "a request was never answered"
        group = self.rig.shard.state.classic.get("g")
        assert group is None or (group.state_name == "Empty" and not group.pending_joins)
        for count in range(len(self.rig.log) + 1):
            shard = self.rig.loaded_shard(count)
            shard.loaded(self.rig.topics, self.rig.now_ms)
            shard.validate()


ClassicModel.TestCase.settings = settings(
    max_examples=EXAMPLES, derandomize=IS_SEEDED, stateful_step_count=40, deadline=None
)


@pytest.mark.model
class TestClassicModel(ClassicModel.TestCase):  # type: ignore[misc, valid-type]
    pass
