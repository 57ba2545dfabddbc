"""A consumer group follows the times that its operator sets, from its next heartbeat on."""

from typing import cast

from penstock.coordinator.groups.consumer.consumer_group import ConsumerGroup
from penstock.coordinator.groups.shard import GroupShard
from penstock.coordinator.ports import ConsumerTimes
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from tests.coordinator.groups.vocabulary import GroupVocabulary
from tests.coordinator.rig import ShardRig

DEFAULT = ConsumerTimes(
    session_timeout_ms=45_000, heartbeat_interval_ms=5_000, assignment_interval_ms=1_000
)


class OwnTimes:
    """Times that a test sets for single groups."""

    def __init__(self) -> None:
        self.own: dict[str, ConsumerTimes] = {}

    def of(self, group_id: str) -> ConsumerTimes:
        return self.own.get(group_id, DEFAULT)

    def of_share(self, group_id: str) -> ConsumerTimes:
        return self.own.get(group_id, DEFAULT)


class Client:
    """Members of groups on a shard whose times can be set."""

    def __init__(self) -> None:
        self.times = OwnTimes()
        self.words = GroupVocabulary(times=self.times)
        self.rig: ShardRig[GroupShard] = ShardRig(self.words)
        self.rig.set_topics({"t": 4})

    def beat(self, **words: object) -> ConsumerGroupHeartbeatResponse:
        arguments = {key: str(value) for key, value in words.items()}
        spoken = self.words.commands["consumer-heartbeat"](arguments)
        response = self.rig.answer(spoken.request, spoken.version, spoken.client_id)
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        assert response.error_code == 0, response
        return response

    def join(self, member: str, group: str = "g") -> ConsumerGroupHeartbeatResponse:
        return self.beat(group=group, member=member, epoch=0, rebalance=60_000, topics="t")

    def has(self, group: str) -> bool:
        """Whether the group has members; a group is not forgotten at once when it has none."""
        found = self.rig.shard.state.consumer.get(group)
        return found is not None and bool(cast("ConsumerGroup", found).members)


def test_members_are_told_the_interval_of_their_group() -> None:
    client = Client()
    client.times.own["g"] = DEFAULT._replace(heartbeat_interval_ms=7_000)
    epoch = client.join("a").member_epoch
    assert client.join("b", "h").heartbeat_interval_ms == 5_000
    assert client.beat(member="a", epoch=epoch).heartbeat_interval_ms == 7_000
    client.times.own["g"] = DEFAULT._replace(heartbeat_interval_ms=9_000)
    assert client.beat(member="a", epoch=epoch).heartbeat_interval_ms == 9_000
    client.times.own.clear()
    assert client.beat(member="a", epoch=epoch).heartbeat_interval_ms == 5_000


def test_a_silent_member_is_out_after_the_session_of_its_group() -> None:
    client = Client()
    client.times.own["g"] = DEFAULT._replace(session_timeout_ms=50_000)
    client.join("a")
    client.join("b", "h")
    client.rig.advance(49_999)
    assert client.has("g")
    assert not client.has("h")
    client.rig.advance(1)
    assert not client.has("g")


def test_a_session_that_runs_ends_as_it_began() -> None:
    client = Client()
    epoch = client.join("a").member_epoch
    client.times.own["g"] = DEFAULT._replace(session_timeout_ms=60_000)
    client.rig.advance(44_999)
    assert client.has("g")
    client.beat(member="a", epoch=epoch)
    client.rig.advance(59_999)
    assert client.has("g")
    client.rig.advance(1)
    assert not client.has("g")


def test_a_session_that_was_not_renewed_is_not_made_longer() -> None:
    client = Client()
    client.join("a")
    client.times.own["g"] = DEFAULT._replace(session_timeout_ms=60_000)
    client.rig.advance(45_000)
    assert not client.has("g")


def test_a_restart_gives_each_group_its_own_session() -> None:
    client = Client()
    client.join("a")
    client.join("b", "h")
    client.times.own["g"] = DEFAULT._replace(session_timeout_ms=60_000)
    client.rig.restart()
    client.rig.advance(45_000)
    assert client.has("g")
    assert not client.has("h")
    client.rig.advance(15_000)
    assert not client.has("g")


def test_targets_are_computed_as_often_as_the_group_wants() -> None:
    client = Client()
    client.times.own["g"] = DEFAULT._replace(assignment_interval_ms=0)
    for name, is_computed in (("g", True), ("h", False)):
        client.join("a", name)
        client.join("b", name)
        group = cast("ConsumerGroup", client.rig.shard.state.consumer[name])
        assert (group.target_epoch == group.epoch) is is_computed
