"""Random histories of share-partitions against a model that a person can check.

The model has a state for each offset, the newest epochs, and nothing else. After every event the
rig compares the shard with one that replayed every record so far, so each prefix of the log gives
the state that it gave live. After each deletion of records, the rest of the log must give it too.
"""

from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.coordinator.shares import share_messages as messages
from penstock.coordinator.shares.log_effects import DeleteBelow
from penstock.coordinator.shares.ports import Refusal, ShareChange, ShareKey, ShareState, StateBatch
from penstock.coordinator.shares.shard import ShareShard
from penstock.core.errors import NotLeaderError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateResponse,
)
from penstock.protocol.messages.read_share_group_state import ReadShareGroupStateResponse
from penstock.protocol.messages.write_share_group_state import WriteShareGroupStateResponse
from tests.coordinator.model_runs import EXAMPLES, IS_SEEDED
from tests.coordinator.rig import ShardRig, Written
from tests.coordinator.shares.vocabulary import ShareVocabulary

KEYS = [ShareKey(group, UUID(int=topic), 0) for group in ("g", "h") for topic in (1, 2)]
OFFSET_MAX = 12
INTERVAL_MS = 1_000

keys = st.sampled_from(KEYS)
epochs = st.integers(0, 3)
batches = st.lists(
    st.builds(
        lambda first, length, state, count: StateBatch(first, first + length, state, count),
        st.integers(0, OFFSET_MAX),
        st.integers(0, 4),
        st.sampled_from((0, 2, 4)),
        st.integers(1, 3),
    ),
    max_size=3,
)


@dataclass
class Expected:
    """The state of one share-partition."""

    state_epoch: int
    start_offset: int
    leader_epoch: int = 0
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)

    def change(self, change: ShareChange) -> None:
        if change.start_offset != -1:
            self.start_offset = change.start_offset
        for batch in change.batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                one = (batch.delivery_count, batch.delivery_state)
                self.offsets[offset] = max(one, self.offsets.get(offset, one))
        self.offsets = {at: one for at, one in self.offsets.items() if at >= self.start_offset}


class ShareMachine(RuleBasedStateMachine):
    """Leaders and operators, some of them late."""

    @initialize(updates=st.integers(0, 3))
    def begin(self, updates: int) -> None:
        vocabulary = ShareVocabulary()
        vocabulary.settings = replace(
            vocabulary.settings,
            updates_per_snapshot=updates,
            cold_snapshot_interval_ms=INTERVAL_MS,
            prune_interval_ms=INTERVAL_MS,
        )
        self.vocabulary = vocabulary
        self.rig = ShardRig(vocabulary)
        self.rig.set_topics({"orders": 1, "prices": 1})
        self.expected: dict[ShareKey, Expected] = {}

    @rule(key=keys, epoch=epochs, start=st.integers(-1, OFFSET_MAX))
    def initialize_state(self, key: ShareKey, epoch: int, start: int) -> None:
        answer = self.rig.try_answer(messages.initialize_request(key, epoch, start), 0)
        if answer is None:
            return
        assert isinstance(answer, InitializeShareGroupStateResponse)
        refusal = messages.refusal_of(answer)
        now = self.expected.get(key)
        if now is not None and epoch < now.state_epoch:
            assert refusal is not None
            assert refusal.error_code == ErrorCode.FENCED_STATE_EPOCH
            return
        assert refusal is None
        fence = 0 if now is None else now.leader_epoch
        self.expected[key] = Expected(epoch, start, fence)

    @rule(key=keys, leader=epochs)
    def read(self, key: ShareKey, leader: int) -> None:
        answer = self.rig.try_answer(messages.read_request(key, leader), 0)
        if answer is None:
            return
        assert isinstance(answer, ReadShareGroupStateResponse)
        found = messages.state_of(answer)
        now = self.expected.get(key)
        if now is None or leader < now.leader_epoch:
            assert isinstance(found, Refusal)
            return
        now.leader_epoch = leader
        assert isinstance(found, ShareState)
        assert (found.state_epoch, found.start_offset) == (now.state_epoch, now.start_offset)

    @rule(
        key=keys,
        leader=epochs,
        epoch=epochs,
        start=st.one_of(st.just(-1), st.integers(0, OFFSET_MAX)),
        changed=batches,
    )
    def write(
        self, key: ShareKey, leader: int, epoch: int, start: int, changed: list[StateBatch]
    ) -> None:
        change = ShareChange(epoch, leader, start, tuple(changed), 1)
        answer = self.rig.try_answer(messages.write_request(key, change), 1)
        if answer is None:
            return
        assert isinstance(answer, WriteShareGroupStateResponse)
        refusal = messages.refusal_of(answer)
        now = self.expected.get(key)
        if now is None or leader < now.leader_epoch or epoch < now.state_epoch:
            assert refusal is not None
            return
        assert refusal is None
        now.change(change)

    @rule(key=keys)
    def delete(self, key: ShareKey) -> None:
        if self.rig.try_answer(messages.delete_request(key), 0) is not None:
            self.expected.pop(key, None)

    @rule(milliseconds=st.integers(1, 2 * INTERVAL_MS))
    def wait(self, milliseconds: int) -> None:
        self.rig.advance(milliseconds)

    @rule(fails=st.booleans())
    def delete_records(self, fails: bool) -> None:
        for effect in tuple(self.rig.effects):
            self.rig.finish(effect, NotLeaderError("late") if fails else None)

    @rule()
    def crash(self) -> None:
        self.rig.restart()

    @rule(is_full=st.booleans())
    def fill_the_disk(self, is_full: bool) -> None:
        self.rig.refuses = is_full

    @invariant()
    def the_state_is_the_expected_one(self) -> None:
        if not hasattr(self, "rig"):
            return
        partitions = self.rig.shard.partitions
        assert partitions.keys() == self.expected.keys()
        for key, expected in self.expected.items():
            state = partitions[key]
            offsets = {
                at: (one.delivery_count, one.delivery_state)
                for one in state.batches
                for at in range(one.first_offset, one.last_offset + 1)
            }
            assert offsets == expected.offsets
            assert state.start_offset == expected.start_offset
            assert state.state_epoch == state.state_fence == expected.state_epoch
            assert state.leader_fence == expected.leader_epoch

    @invariant()
    def the_log_above_each_deletion_is_enough(self) -> None:
        if not hasattr(self, "rig"):
            return
        for effect in self.rig.effects:
            assert isinstance(effect, DeleteBelow)
            found = loaded_above(self.vocabulary, self.rig, effect.offset).partitions
            live = self.rig.shard.partitions
            assert found.keys() == live.keys()
            for key, state in live.items():
                # After a reset the fence of leaders is only in older records: the state epoch
                # fences the same leaders.
                assert state.leader_epoch <= found[key].leader_fence <= state.leader_fence
                assert replace(found[key], leader_fence=state.leader_fence) == state


def loaded_above(
    vocabulary: ShareVocabulary, rig: ShardRig[ShareShard], start_offset: int
) -> ShareShard:
    shard = vocabulary.make_shard()
    for offset, entry in enumerate(rig.log):
        if offset >= start_offset:
            assert isinstance(entry, Written)
            shard.replay(entry.record, entry.producer, offset)
    return shard


ShareMachine.TestCase.settings = settings(
    max_examples=EXAMPLES,
    derandomize=IS_SEEDED,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


@pytest.mark.model
class TestShareModel(ShareMachine.TestCase):  # type: ignore[misc, valid-type]
    pass
