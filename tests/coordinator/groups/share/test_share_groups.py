"""Share groups in cases that no conversation shows: many partitions, many groups, stale records."""

from dataclasses import replace

import pytest

from penstock.coordinator.groups.settings import GroupSettings
from penstock.coordinator.groups.shard import GroupShard
from penstock.coordinator.groups.share import state_upkeep
from penstock.coordinator.groups.share.share_group import ShareGroup
from penstock.coordinator.groups.share.state_effects import DeleteStates, InitializeStates
from penstock.coordinator.groups.share.state_upkeep import STATES_PER_EFFECT_MAX
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from penstock.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatResponse
from tests.coordinator.groups.share import share_words
from tests.coordinator.groups.vocabulary import GroupVocabulary
from tests.coordinator.rig import ShardRig


@pytest.fixture
def rig() -> ShardRig[GroupShard]:
    return ShardRig(GroupVocabulary(GroupSettings(share_assignment_interval_ms=0)))


def beat(
    rig: ShardRig[GroupShard], epoch: int, topics: str = "t", group: str = "g"
) -> ShareGroupHeartbeatResponse:
    arguments = {"member": "a", "epoch": str(epoch), "topics": topics, "group": group}
    spoken = share_words.heartbeat(arguments)
    answer = rig.answer(spoken.request, spoken.version)
    assert isinstance(answer, ShareGroupHeartbeatResponse)
    assert answer.error_code is ErrorCode.NONE, answer
    return answer


def group_of(rig: ShardRig[GroupShard]) -> ShareGroup:
    group = rig.shard.state.share["g"]
    assert isinstance(group, ShareGroup)
    return group


def test_the_states_of_a_wide_topic_are_created_in_several_effects(
    rig: ShardRig[GroupShard],
) -> None:
    count = STATES_PER_EFFECT_MAX + 5
    rig.set_topics({"t": count})
    epoch = beat(rig, 0).member_epoch
    sizes = []
    for _ in range(2):
        (effect,) = rig.effects
        assert isinstance(effect, InitializeStates)
        sizes.append(len(effect.starts))
        share_words.finish(rig, {"done": ""})
        epoch = beat(rig, epoch).member_epoch
    assert sizes == [STATES_PER_EFFECT_MAX, 5]
    assert rig.effects == []
    answer = beat(rig, epoch)
    assert answer.assignment is not None
    assert len(answer.assignment.topic_partitions[0].partitions) == count


def test_states_of_a_topic_that_vanished_while_the_shard_was_away(
    rig: ShardRig[GroupShard],
) -> None:
    """Its record cannot be assigned, which must not begin a new epoch in every heartbeat."""
    rig.set_topics({"t": 1, "u": 1})
    beat(rig, 0, "t,u")
    share_words.finish(rig, {"done": ""})
    epoch = beat(rig, 2, "t,u").member_epoch
    rig.topics = rig.topics_maker.make({"u": 1})
    rig.restart()
    epoch = beat(rig, epoch, "t,u").member_epoch
    settled = group_of(rig).epoch
    for _ in range(3):
        epoch = beat(rig, epoch, "t,u").member_epoch
    assert group_of(rig).epoch == settled
    assert group_of(rig).target_epoch == settled


def test_a_deleted_topic_of_many_groups_is_forgotten_in_portions(
    rig: ShardRig[GroupShard], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_upkeep, "GROUPS_PER_PASS_MAX", 3)
    rig.set_topics({"t": 1, "u": 1})
    names = [f"g{number}" for number in range(7)]
    for name in names:
        spoken = share_words.alter({"group": name, "topic": "t", "p0": "1"})
        rig.ask(spoken.request, spoken.version)
    rig.effects.clear()
    before = len(rig.log)
    rig.set_topics({"u": 1})
    written = []
    while state_upkeep.GONE_TOPICS in rig.timers:
        rig.shard.validate()
        del rig.timers[state_upkeep.GONE_TOPICS]
        rig._do("pass", rig.shard.timer_fired(state_upkeep.GONE_TOPICS, rig.now_ms))
        written.append(len(rig.log) - before)
    assert written == [3, 6, 7]
    for group in rig.shard.state.share.values():
        assert isinstance(group, ShareGroup)
        assert group.state_partitions.is_empty
    assert not [key for key in rig.timers if "share" in str(key)]


def test_a_full_disk_costs_no_member_its_session(rig: ShardRig[GroupShard]) -> None:
    rig.set_topics({"t": 1})
    beat(rig, 0)
    share_words.finish(rig, {"done": ""})
    rig.refuses = True
    spoken = share_words.heartbeat({"member": "a", "epoch": "2"})
    assert rig.try_answer(spoken.request, 1) is None, "the new target cannot be written"
    rig.advance(44_000)
    assert rig.try_answer(spoken.request, 1) is None
    rig.advance(44_000)
    rig.refuses = False
    assert "a" in group_of(rig).members
    rig.refuses = True
    rig.advance(45_000)
    assert "a" in group_of(rig).members, "it cannot be removed yet"
    rig.refuses = False
    rig.advance(1_000)
    assert group_of(rig).members == {}


def test_the_log_refuses_the_end_of_an_effect(rig: ShardRig[GroupShard]) -> None:
    rig.set_topics({"t": 1})
    beat(rig, 0)
    rig.refuses = True
    share_words.finish(rig, {"done": ""})
    rig.refuses = False
    assert not group_of(rig).state_partitions.initialized
    beat(rig, 2)
    assert len(rig.effects) == 1, "the next heartbeat begins again"
    share_words.finish(rig, {"done": ""})
    assert group_of(rig).state_partitions.initialized


def test_offsets_of_a_topic_that_is_named_twice(rig: ShardRig[GroupShard]) -> None:
    rig.set_topics({"t": 3})
    first = share_words.alter({"topic": "t", "p0": "5", "p2": "5"}).request
    second = share_words.alter({"topic": "t", "p1": "7", "p0": "6"}).request
    assert isinstance(first, AlterShareGroupOffsetsRequest)
    assert isinstance(second, AlterShareGroupOffsetsRequest)
    rig.ask(replace(first, topics=first.topics + second.topics), 0)
    (effect,) = rig.effects
    assert isinstance(effect, InitializeStates)
    assert {place[1]: start for place, start in effect.starts} == {0: 6, 1: 7, 2: 5}
    share_words.finish(rig, {"done": ""})
    (found,) = group_of(rig).state_partitions.initialized.values()
    assert found.numbers == {0, 1, 2}


def test_a_group_that_vanished_meanwhile(rig: ShardRig[GroupShard]) -> None:
    rig.set_topics({"t": 1})
    spoken = share_words.alter({"topic": "t", "p0": "1"})
    ticket = rig.ask(spoken.request, spoken.version)
    asked = GroupVocabulary().commands["delete"]({"group": "g"})
    rig.ask(asked.request, asked.version)
    creation, deletion = rig.effects
    assert isinstance(deletion, DeleteStates)
    rig.finish(deletion, dict.fromkeys(deletion.places))
    rig.advance(0)
    assert "g" not in rig.shard.state.share
    rig.finish(creation, dict.fromkeys(share_words.places_of(creation)))
    assert ticket in rig.replies
    assert "g" not in rig.shard.state.share


def test_only_the_last_creation_of_a_state_counts(rig: ShardRig[GroupShard]) -> None:
    """The first one ended before a deletion that follows it, the second one comes after that."""
    rig.set_topics({"t": 1})
    beat(rig, 0)
    rig.advance(45_000)
    asked = GroupVocabulary().commands["delete"]({"group": "g"})
    rig.ask(asked.request, asked.version)
    beat(rig, 0)
    first, deletion, second = rig.effects
    for effect in (first, deletion):
        rig.finish(effect, dict.fromkeys(share_words.places_of(effect)))
        assert not group_of(rig).state_partitions.initialized
    rig.finish(second, dict.fromkeys(share_words.places_of(second)))
    assert group_of(rig).state_partitions.initialized
