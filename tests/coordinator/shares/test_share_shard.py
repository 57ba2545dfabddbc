"""The share shard at its bounds: hostile changes, deleted topics, records that nobody wrote."""

from dataclasses import replace
from uuid import UUID

import pytest

from penstock.coordinator.shard import StoredRecord
from penstock.coordinator.shares import share_messages as messages
from penstock.coordinator.shares.log_effects import DeleteBelow
from penstock.coordinator.shares.ports import ShareChange, ShareKey, ShareSummary, StateBatch
from penstock.coordinator.shares.shard import ShareShard
from penstock.coordinator.shares.share_checks import CHANGE_BATCHES_MAX, SHARE_STATE_BATCHES_MAX
from penstock.coordinator.shares.share_keys import key_text, parsed_key
from penstock.core.limits import COORDINATOR_PORTION_BYTES_MAX
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryResponse,
)
from penstock.protocol.messages.write_share_group_state import WriteShareGroupStateResponse
from penstock.protocol.stored.share_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareSnapshotValueStateBatch,
    ShareUpdateKey,
    ShareUpdateValue,
)
from tests.coordinator.rig import ShardRig
from tests.coordinator.shares.vocabulary import ShareVocabulary

KEY = ShareKey("g", UUID(int=1), 0)
OFFSET_LAST = 2**63 - 1
INTERVAL_MS = 300_000
LONG_NAME = 32_000
"""Characters of a group id: some dozens of them fill a portion."""


@pytest.fixture
def rig() -> ShardRig[ShareShard]:
    rig = ShardRig(ShareVocabulary())
    rig.set_topics({"orders": 1})
    rig.answer(messages.initialize_request(KEY, 1, 0), 0)
    return rig


def write(
    rig: ShardRig[ShareShard], *batches: StateBatch, start_offset: int = -1
) -> ErrorCode | None:
    change = ShareChange(1, 0, start_offset, batches)
    answer = rig.answer(messages.write_request(KEY, change), 1)
    assert isinstance(answer, WriteShareGroupStateResponse)
    refusal = messages.refusal_of(answer)
    return None if refusal is None else refusal.error_code


# --- Hostile changes ---


@pytest.mark.parametrize(
    "batch", [StateBatch(5, 4, 2, 1), StateBatch(-1, 4, 2, 1), StateBatch(-9, -5, 2, 1)]
)
def test_a_batch_without_records_is_refused(rig: ShardRig[ShareShard], batch: StateBatch) -> None:
    assert write(rig, StateBatch(0, 9, 0, 1), batch) == ErrorCode.INVALID_REQUEST
    assert rig.shard.partitions[KEY].batches == ()


def test_the_largest_offsets(rig: ShardRig[ShareShard]) -> None:
    assert write(rig, StateBatch(OFFSET_LAST, OFFSET_LAST, 127, 32_767)) is None
    assert write(rig, StateBatch(0, OFFSET_LAST, 0, 1)) is None
    assert rig.shard.partitions[KEY].batches == (
        StateBatch(0, OFFSET_LAST - 1, 0, 1),
        StateBatch(OFFSET_LAST, OFFSET_LAST, 127, 32_767),
    )


def every_second(first: int, count: int, delivery_count: int = 1) -> list[StateBatch]:
    return [
        StateBatch(offset, offset, 2, delivery_count)
        for offset in range(first, first + 2 * count, 2)
    ]


def test_a_state_has_a_bound() -> None:
    """A full state goes on as soon as its start advances."""
    rig = ShardRig(ShareVocabulary(), compares=False)
    rig.set_topics({"orders": 1})
    rig.answer(messages.initialize_request(KEY, 1, 0), 0)
    too_many = every_second(0, SHARE_STATE_BATCHES_MAX + 1)
    assert write(rig, *too_many[: CHANGE_BATCHES_MAX + 1]) == ErrorCode.INVALID_REQUEST
    for start in range(0, SHARE_STATE_BATCHES_MAX, CHANGE_BATCHES_MAX):
        assert write(rig, *too_many[start : start + CHANGE_BATCHES_MAX]) is None
    assert len(rig.shard.partitions[KEY].batches) == SHARE_STATE_BATCHES_MAX
    assert write(rig, too_many[-1]) == ErrorCode.INVALID_REQUEST
    assert write(rig, StateBatch(0, 0, 2, 2)) is None
    assert write(rig, too_many[-1], start_offset=2) is None
    assert write(rig, start_offset=2 * SHARE_STATE_BATCHES_MAX) is None
    assert rig.shard.partitions[KEY].batches == (too_many[-1],)


# --- Deleted topics ---


def test_the_state_of_a_deleted_topic_is_deleted_in_portions() -> None:
    rig = ShardRig(ShareVocabulary(), compares=False)
    rig.set_topics({"orders": 1, "prices": 1})
    count = COORDINATOR_PORTION_BYTES_MAX // LONG_NAME + 1
    for number in range(count):
        group_id = f"{number:0{LONG_NAME}}"
        rig.ask(messages.initialize_request(KEY._replace(group_id=group_id), 1, 0), 0)
    kept = ShareKey("g", UUID(int=2), 0)
    rig.ask(messages.initialize_request(kept, 1, 0), 0)
    rig.set_topics({"prices": 1})
    assert len(rig.shard.partitions) == 2
    rig.advance(0)
    assert list(rig.shard.partitions) == [kept]


def test_topics_that_were_deleted_meanwhile(rig: ShardRig[ShareShard]) -> None:
    rig.topics = rig.topics_maker.make({})
    rig.restart()
    assert rig.shard.partitions == {}


def test_a_full_disk_delays_the_deletion(rig: ShardRig[ShareShard]) -> None:
    rig.refuses = True
    rig.set_topics({})
    assert list(rig.shard.partitions) == [KEY]
    rig.refuses = False
    rig.advance(1_000)
    assert rig.shard.partitions == {}


# --- The log ---


def test_no_record_is_deleted_that_a_snapshot_needs(rig: ShardRig[ShareShard]) -> None:
    for offset in range(3):
        write(rig, StateBatch(offset, offset, 2, 1))
    rig.advance(INTERVAL_MS)
    assert rig.effects == []
    rig.advance(INTERVAL_MS)
    assert rig.effects == [DeleteBelow(7, 4)]
    assert rig.shard.partitions[KEY].snapshot_offset == 4


def test_an_idle_shard_writes_nothing(rig: ShardRig[ShareShard]) -> None:
    rig.advance(2 * INTERVAL_MS)
    count = len(rig.log)
    for effect in tuple(rig.effects):
        rig.finish(effect, None)
    rig.advance(10 * INTERVAL_MS)
    assert len(rig.log) == count
    assert rig.effects == []


def test_snapshots_at_rest_are_written_in_portions() -> None:
    vocabulary = ShareVocabulary()
    rig = ShardRig(vocabulary, compares=False)
    rig.set_topics({"orders": 1})
    count = COORDINATOR_PORTION_BYTES_MAX // LONG_NAME + 1
    for number in range(count):
        group_id = f"{number:0{LONG_NAME}}"
        rig.ask(messages.initialize_request(KEY._replace(group_id=group_id), 1, 0), 0)
    rig.advance(INTERVAL_MS)
    assert len(rig.log) == 2 * count
    rig.advance(INTERVAL_MS)
    assert len(rig.log) == 2 * count


def test_a_changed_setting_counts_for_the_next_change() -> None:
    vocabulary = ShareVocabulary()
    rig = ShardRig(vocabulary)
    rig.set_topics({"orders": 1})
    rig.answer(messages.initialize_request(KEY, 1, 0), 0)
    write(rig, StateBatch(0, 0, 2, 1))
    vocabulary.settings.updates_per_snapshot = 1
    write(rig, StateBatch(1, 1, 2, 1))
    assert rig.shard.partitions[KEY].snapshot_epoch == 1


# --- Records that no shard of ours wrote ---


def test_an_update_without_a_snapshot_is_passed_over() -> None:
    shard = ShareVocabulary().make_shard()
    value = ShareUpdateValue(snapshot_epoch=0, leader_epoch=9, start_offset=5, state_batches=())
    shard.replay(StoredRecord(ShareUpdateKey(**KEY._asdict()), value), None, 3)
    assert shard.partitions == {}
    shard.validate()


def test_a_snapshot_of_another_broker_is_put_in_order() -> None:
    """Kafka may store neighbours with one state."""
    shard = ShareVocabulary().make_shard()
    batches = tuple(
        ShareSnapshotValueStateBatch(
            first_offset=first, last_offset=first + 4, delivery_state=2, delivery_count=1
        )
        for first in (5, 0)
    )
    shard.replay(snapshot(batches), None, 0)
    assert shard.partitions[KEY].batches == (StateBatch(0, 9, 2, 1),)
    shard.validate()


def test_a_snapshot_with_an_impossible_batch_cannot_be_replayed() -> None:
    shard = ShareVocabulary().make_shard()
    batch = ShareSnapshotValueStateBatch(
        first_offset=5, last_offset=4, delivery_state=2, delivery_count=1
    )
    with pytest.raises(ValueError, match="ends at 4, before 5"):
        shard.replay(snapshot((batch,)), None, 0)
    assert shard.partitions == {}


def snapshot(batches: tuple[ShareSnapshotValueStateBatch, ...]) -> StoredRecord:
    value = ShareSnapshotValue(
        snapshot_epoch=0,
        state_epoch=1,
        leader_epoch=0,
        start_offset=0,
        create_timestamp=1,
        write_timestamp=1,
        state_batches=batches,
    )
    return StoredRecord(ShareSnapshotKey(**KEY._asdict()), value)


def test_a_summary_needs_no_state(rig: ShardRig[ShareShard]) -> None:
    answer = rig.answer(messages.summary_request(replace_group(KEY), -1), 1)
    assert isinstance(answer, ReadShareGroupStateSummaryResponse)
    assert messages.summary_of(answer) == ShareSummary(0, 0, -1, -1)


def replace_group(key: ShareKey) -> ShareKey:
    return key._replace(group_id="other")


# --- Names ---


@pytest.mark.parametrize("group", ["g", "a:b", ":", "ä", " g "])
def test_a_name_is_read_back(group: str) -> None:
    key = ShareKey(group, UUID("01020304-0506-0708-090a-0b0c0d0e0f10"), 3)
    assert key_text(key) == f"{group}:AQIDBAUGBwgJCgsMDQ4PEA:3"
    assert parsed_key(key_text(key)) == key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "g",
        "g:0",
        "::",
        " :AQIDBAUGBwgJCgsMDQ4PEA:0",
        "g:AQIDBAUGBwgJCgsMDQ4PE:0",
        "g:AQIDBAUGBwgJCgsMDQ4PE*:0",
        "g:AQIDBAUGBwgJCgsMDQ4PEA:",
        "g:AQIDBAUGBwgJCgsMDQ4PEA:1_0",
        "g:AQIDBAUGBwgJCgsMDQ4PEA:2147483648",
        "g:AQIDBAUGBwgJCgsMDQ4PEA:" + "9" * 10_000,
        "g:AQIDBAUGBwgJCgsMDQ4PEA:٣",
        "g:AQIDBAUGBwgJCgsMDQ4PEA:+-3",
    ],
)
def test_other_texts_are_not_names(text: str) -> None:
    assert parsed_key(text) is None


def test_settings_are_shared_by_all_shards() -> None:
    settings = replace(ShareVocabulary().settings, prune_interval_ms=5)
    rig = ShardRig(ShareVocabulary())
    assert rig.timers[("prune",)] - rig.now_ms == INTERVAL_MS
    vocabulary = ShareVocabulary()
    vocabulary.settings = settings
    assert ShardRig(vocabulary).timers[("prune",)] - rig.now_ms == 5
