"""Tombstones are written in batches that fit, however long the names are."""

import pytest

from penstock.coordinator.groups.offsets import cleanup as offset_cleanup
from penstock.coordinator.groups.shard import GroupShard
from penstock.coordinator.shard import Outcome
from penstock.core.limits import BATCH_BYTES_MAX_DEFAULT, COORDINATOR_PORTION_RECORDS_MAX
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest
from penstock.protocol.stored.codec import encode
from penstock.records.builder import BatchBuilder
from penstock.records.record import Record
from tests.coordinator.groups.talk import Talk
from tests.coordinator.rig import ShardRig

LONG = "g" * 32_000
"""A group whose tombstones have 32 KB each: 31 of them fill a batch."""
RETENTION_MS = 10_000
CHECK_MS = 5_000


class Watched(Talk):
    """A talk that knows the size of every batch."""

    def __init__(self, partitions: int) -> None:
        super().__init__(
            offsets_retention_ms=RETENTION_MS, offsets_retention_check_interval_ms=CHECK_MS
        )
        self.batches: list[int] = []
        self.rig: ShardRig[GroupShard] = ShardRig(self.words, compares=False, watch=self._watch)
        self.rig.set_topics({"t": partitions})

    def _watch(self, _event: str, outcome: Outcome) -> None:
        builder = BatchBuilder()
        for record in outcome.records:
            builder.append(Record(*encode(record), (), self.rig.now_ms))
        if outcome.records:
            self.batches.append(builder.size_bytes)

    def commit_all(self, group: str, count: int) -> None:
        for partition in range(count):
            self.say("commit", group=group, partition=partition, offset=1)
        self.batches.clear()

    def offsets(self, group: str = LONG) -> int:
        return self.rig.shard.state.offsets.count_of_group(group)


def test_expired_offsets_of_one_group_go_in_batches_that_fit() -> None:
    talk = Watched(100)
    talk.commit_all(LONG, 100)
    talk.rig.advance(RETENTION_MS + CHECK_MS)
    assert talk.offsets() == 0
    assert LONG not in talk.rig.shard.state.classic
    assert len(talk.batches) == 4
    assert max(talk.batches) < BATCH_BYTES_MAX_DEFAULT


def test_a_group_with_more_offsets_than_a_batch_holds_expires_whole() -> None:
    count = COORDINATOR_PORTION_RECORDS_MAX + 10
    talk = Watched(count)
    talk.commit_all("g", count)
    talk.rig.advance(RETENTION_MS + CHECK_MS)
    assert talk.offsets("g") == 0
    assert len(talk.batches) == 2


def test_offsets_of_a_deleted_topic_go_in_batches_that_fit() -> None:
    talk = Watched(100)
    talk.commit_all(LONG, 100)
    talk.rig.set_topics({})
    talk.rig.advance(0)
    assert talk.offsets() == 0
    assert max(talk.batches) < BATCH_BYTES_MAX_DEFAULT


def test_topics_that_are_deleted_while_others_are_searched_for_come_next() -> None:
    talk = Watched(100)
    talk.rig.set_topics({"t": 100, "u": 1, "v": 1, "w": 1})
    talk.commit_all(LONG, 100)
    for topic in ("u", "v", "w"):
        talk.say("commit", group="other", topic=topic, offset=1)
    talk.rig.set_topics({"u": 1, "v": 1, "w": 1})
    assert talk.offsets() > 0, "the search goes on"
    talk.rig.set_topics({"v": 1, "w": 1})
    talk.rig.set_topics({"w": 1})
    talk.rig.advance(0)
    assert talk.offsets() == 0
    assert set(talk.rig.shard.state.offsets.of_group("other")) == {"w"}


def test_an_offset_that_a_transaction_wrote_since_is_not_of_the_deleted_topic() -> None:
    talk = Watched(100)
    talk.commit_all(LONG, 99)
    talk.rig.set_topics({})
    talk.rig.set_topics({"t": 100})
    talk.say("commit-in-transaction", group=LONG, partition=98, offset=7, producer=7)
    talk.rig.advance(0)
    offsets = talk.rig.shard.state.offsets
    assert list(offsets.keys_of_group(LONG)) == [("t", 98)]
    assert offsets.is_pending(LONG, "t", 98)


def test_many_offsets_of_few_groups_are_not_looked_at_in_one_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offset_cleanup, "OFFSETS_PER_PASS_MAX", 5)
    talk = Watched(5)
    for group in ("g0", "g1", "g2"):
        talk.commit_all(group, 5)
    talk.rig.advance(RETENTION_MS + CHECK_MS)
    assert len(talk.batches) == 3
    assert talk.rig.shard.state.offsets.group_ids() == set()
    for group in ("g0", "g1", "g2"):
        talk.commit_all(group, 5)
    talk.rig.set_topics({})
    assert talk.rig.shard.state.offsets.group_ids() == {"g1", "g2"}
    talk.rig.advance(0)
    assert len(talk.batches) == 3


# --- DeleteGroups ---


def deleted(talk: Watched, *groups: str) -> int:
    return talk.rig.ask(DeleteGroupsRequest(groups_names=groups), 2)


def codes(talk: Watched, ticket: int) -> dict[str, ErrorCode]:
    return {result.group_id: result.error_code for result in talk.reply(ticket).results}


def test_a_large_group_is_deleted_in_batches_that_fit() -> None:
    talk = Watched(100)
    talk.commit_all(LONG, 100)
    talk.say("commit", group="h", offset=1)
    ticket = deleted(talk, LONG, "h", "missing")
    assert ticket not in talk.rig.replies, "it is not done yet"
    talk.rig.advance(0)
    assert codes(talk, ticket) == {
        LONG: ErrorCode.NONE,
        "h": ErrorCode.NONE,
        "missing": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert (talk.offsets(), talk.offsets("h")) == (0, 0)
    assert talk.rig.shard.state.classic == {}
    assert max(talk.batches) < BATCH_BYTES_MAX_DEFAULT


def test_a_second_request_waits_for_the_first() -> None:
    talk = Watched(100)
    talk.commit_all(LONG, 100)
    first, second = deleted(talk, LONG), deleted(talk, LONG)
    talk.rig.advance(0)
    assert codes(talk, first) == {LONG: ErrorCode.NONE}
    assert codes(talk, second) == {LONG: ErrorCode.GROUP_ID_NOT_FOUND}


def test_a_group_that_gets_a_member_meanwhile_keeps_the_rest() -> None:
    talk = Watched(100)
    talk.commit_all(LONG, 100)
    ticket = deleted(talk, LONG)
    left = talk.offsets()
    talk.say("join", group=LONG, client="a", v=3, topics="t")
    talk.rig.advance(0)
    assert codes(talk, ticket) == {LONG: ErrorCode.NON_EMPTY_GROUP}
    assert talk.offsets() == left


def test_a_group_that_expires_meanwhile_is_gone_as_it_was_to_be() -> None:
    talk = Watched(100)
    talk.commit_all(LONG, 40)
    ticket = deleted(talk, LONG)
    talk.rig.now_ms += RETENTION_MS
    for _ in range(2):
        talk.rig._do("expiry", talk.rig.shard.timer_fired(offset_cleanup.EXPIRY, talk.rig.now_ms))
    assert talk.offsets() == 0
    talk.rig.advance(0)
    assert codes(talk, ticket) == {LONG: ErrorCode.NONE}
