"""Offsets against a simple model: commits, transactions, deletions, expiry, crashes, a full disk.

The model is two dictionaries and a counter. After every step the shard is validated, a reload gives
the same state (the rig checks both), and a fetch returns the model's offsets. At the end each
prefix of the log is loaded: a crash can come after any record.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.coordinator.groups.settings import GroupSettings
from penstock.coordinator.shard import Producer
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.offset_fetch import OffsetFetchResponse
from tests.coordinator.groups.vocabulary import GroupVocabulary
from tests.coordinator.model_runs import EXAMPLES, IS_SEEDED
from tests.coordinator.rig import ShardRig

RETENTION_MS = 100_000
CHECK_MS = 30_000

Key = tuple[str, str, int]

groups = st.sampled_from(["g", "h"])
topics = st.sampled_from(["t", "u"])
partitions = st.integers(0, 2)
producers = st.sampled_from([7, 8])
offsets = st.integers(0, 1_000)


class OffsetModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        limits = GroupSettings(
            offsets_retention_ms=RETENTION_MS, offsets_retention_check_interval_ms=CHECK_MS
        )
        self.words = GroupVocabulary(limits)
        self.rig = ShardRig(self.words)
        self.existing = {"t": 3, "u": 3}
        self.rig.set_topics(self.existing)
        self.committed: dict[Key, tuple[int, int]] = {}
        """Offset and when, in the order of writing."""
        self.pending: dict[int, dict[Key, tuple[int, int]]] = {7: {}, 8: {}}
        self.written: dict[Key, int] = {}
        """The number of the last plain commit of a partition, to say which came later."""
        self.pending_written: dict[tuple[int, Key], int] = {}
        self.count = 0

    def say(self, command: str, **arguments: object) -> object:
        texts = {key: str(value) for key, value in arguments.items()}
        spoken = self.words.commands[command](texts)
        return self.rig.try_answer(spoken.request, spoken.version)

    @rule(is_full=st.booleans())
    def the_disk_fills_or_has_room(self, is_full: bool) -> None:
        self.rig.refuses = is_full

    @rule(group=groups, topic=topics, partition=partitions, offset=offsets)
    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        self.say("commit", group=group, topic=topic, partition=partition, offset=offset)
        if self.rig.refuses:
            return
        self.count += 1
        self.committed[group, topic, partition] = (offset, self.rig.now_ms)
        self.written[group, topic, partition] = self.count

    @rule(group=groups, topic=topics, partition=partitions, offset=offsets, producer=producers)
    def commit_in_transaction(
        self, group: str, topic: str, partition: int, offset: int, producer: int
    ) -> None:
        self.say(
            "commit-in-transaction",
            group=group,
            topic=topic,
            partition=partition,
            offset=offset,
            producer=producer,
        )
        if self.rig.refuses:
            return
        self.count += 1
        key = (group, topic, partition)
        self.pending[producer][key] = (offset, self.rig.now_ms)
        self.pending_written[producer, key] = self.count

    @rule(group=groups, topic=topics, partition=partitions, producer=producers, ends=st.booleans())
    def overtake(self, group: str, topic: str, partition: int, producer: int, ends: bool) -> None:
        """A plain commit comes after one in a transaction, and before its end."""
        self.commit_in_transaction(group, topic, partition, 1, producer)
        self.commit(group, topic, partition, 2)
        if ends:
            self.end_transaction(producer, True)

    @rule(producer=producers, commits=st.booleans())
    def end_transaction(self, producer: int, commits: bool) -> None:
        self.rig.mark(Producer(producer, 0), commits=commits)
        for key, value in self.pending[producer].items():
            number = self.pending_written[producer, key]
            if commits and (key not in self.committed or self.written[key] < number):
                self.committed[key] = value
                self.written[key] = number
        self.pending[producer].clear()

    def forget(self, key: Key) -> None:
        self.committed.pop(key, None)
        for pending in self.pending.values():
            pending.pop(key, None)

    @rule(group=groups, topic=topics, partition=partitions)
    def delete_offset(self, group: str, topic: str, partition: int) -> None:
        self.say("delete-offsets", group=group, topic=topic, partitions=partition)
        if not self.rig.refuses:
            self.forget((group, topic, partition))

    @rule(group=groups)
    def delete_group(self, group: str) -> None:
        self.say("delete", group=group)
        for key in self.keys():
            if key[0] == group and not self.rig.refuses:
                self.forget(key)

    def keys(self) -> set[Key]:
        return set(self.committed).union(*self.pending.values())

    @rule(topic=topics)
    def delete_and_make_topic(self, topic: str) -> None:
        self.rig.refuses = False
        self.rig.set_topics({name: 3 for name in self.existing if name != topic})
        self.rig.set_topics(self.existing)
        for key in self.keys():
            if key[1] == topic:
                self.forget(key)

    @rule(by_ms=st.sampled_from([1, 10_000, 60_000]))
    def let_time_pass(self, by_ms: int) -> None:
        self.rig.refuses = False
        begin_ms = self.rig.now_ms
        due_ms = min(self.rig.timers.values())
        self.rig.advance(by_ms)
        while due_ms <= begin_ms + by_ms:
            self.expire(due_ms)
            due_ms += CHECK_MS

    def expire(self, at_ms: int) -> None:
        held = set().union(*self.pending.values())
        for key, (_, committed_ms) in tuple(self.committed.items()):
            if at_ms - committed_ms >= RETENTION_MS and key not in held:
                del self.committed[key]

    @rule()
    def crash(self) -> None:
        self.rig.restart()

    @invariant()
    def fetches_are_as_the_model_says(self) -> None:
        for group in ("g", "h"):
            plain = self.fetched(self.say("fetch", group=group))
            expected = {k: v[0] for k, v in self.committed.items() if k[0] == group}
            assert plain == expected
            stable = self.fetched(self.say("fetch", group=group, stable=""))
            held = set().union(*self.pending.values())
            assert stable == {k: None if k in held else v for k, v in expected.items()}

    def fetched(self, response: object) -> dict[Key, int | None]:
        assert isinstance(response, OffsetFetchResponse)
        return {
            (group.group_id, topic.name, partition.partition_index): (
                None
                if partition.error_code is ErrorCode.UNSTABLE_OFFSET_COMMIT
                else partition.committed_offset
            )
            for group in response.groups
            for topic in group.topics
            for partition in topic.partitions
        }

    def teardown(self) -> None:
        for count in range(len(self.rig.log) + 1):
            shard = self.rig.loaded_shard(count)
            shard.loaded(self.rig.topics, self.rig.now_ms)
            shard.validate()


OffsetModel.TestCase.settings = settings(
    max_examples=EXAMPLES, derandomize=IS_SEEDED, stateful_step_count=30, deadline=None
)


@pytest.mark.model
class TestOffsetModel(OffsetModel.TestCase):  # type: ignore[misc, valid-type]
    pass
