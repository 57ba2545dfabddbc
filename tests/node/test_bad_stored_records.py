"""Records of internal topics that no coordinator wrote: skipped, counted, logged; others load."""

import asyncio
import logging
import os
from collections.abc import Coroutine
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.coordinator.driver import Phase, ShardDriver
from penstock.coordinator.groups.settings import GroupSettings
from penstock.coordinator.groups.shard import GroupShard
from penstock.coordinator.shard import Shard
from penstock.coordinator.timers import Timers
from penstock.coordinator.transactions.settings import TransactionSettings
from penstock.coordinator.transactions.shard import TransactionShard
from penstock.core.limits import SKIPPED_RECORD_LINES_PER_MINUTE_MAX
from penstock.core.types import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from penstock.node.coordination.journal import Decode, PartitionJournal
from penstock.node.coordination.skipped_records import SkippedRecords
from penstock.protocol.stored import codec
from penstock.protocol.stored import group_records as group
from penstock.protocol.stored.transaction_records import TransactionLogValue
from penstock.records.batch import read_header
from penstock.records.builder import build_batch
from penstock.records.record import Record
from penstock.replication.hosted_partition import HostedPartition
from penstock.storage.service import StorageService
from penstock.testing.memory_disk import MemoryDisk
from tests.coordinator.toy_shard import Helper, ManualTime, NoTopics
from tests.protocol.stored.test_codec import GROUP_RECORDS, TRANSACTION_RECORDS, Golden
from tests.replication.replicas import Node
from tests.storage.compacted import COMPACTED, all_records, clean, compacted_log, put, seal
from tests.storage.logs import Batch, open_manager

Pair = tuple[bytes | None, bytes | None]

GOOD = group.OffsetCommitKey(group="good", topic="orders", partition=3)
GOOD_RECORD = codec.encode(
    (GOOD, group.OffsetCommitValue(offset=42, metadata="", commit_timestamp=5))
)
ANOTHER_RECORD = codec.encode(
    (
        replace(GOOD, group="another"),
        group.OffsetCommitValue(offset=1, metadata="", commit_timestamp=5),
    )
)
POISON: list[Pair] = [
    (b"\x00\x01\x00", b"\x00\x09zz"),
    (b"\x00\x00\x00\x01g\x00\x01t\x00\x00\x00\x00", b"\x00\x09zz"),
    (GOOD_RECORD[0][:-1], GOOD_RECORD[1]),
    (b"", b""),
    (None, b"value"),
]
"""Key types that are known, with a body, a value or a version that is not."""


class Effects:
    """Starts nothing: effects of a shard after a load are not checked here."""

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        coroutine.close()


def stored(topic: str, pairs: list[Pair]) -> tuple[Node, HostedPartition]:
    """A partition with these records, one batch for every two."""
    node = Node()
    partition = node.add(topic)
    for start in range(0, len(pairs), 2):
        records = [Record(key, value, (), 1_000) for key, value in pairs[start : start + 2]]
        data = build_batch(records)
        header = read_header(data)
        node.append(Batch(header, memoryview(data), header.max_timestamp_ms), partition)
    node.sync()
    return node, partition


def load(
    shard: Shard, decode: Decode, topic: str, pairs: list[Pair]
) -> tuple[ShardDriver, SkippedRecords]:
    """Load a shard from a log with these records."""
    node, partition = stored(topic, pairs)
    time = ManualTime()
    skipped = SkippedRecords(time)
    storage = cast("StorageService", None)
    driver = ShardDriver(
        topic,
        PartitionJournal(partition, node.replicas, storage, decode, skipped),
        make_shard=lambda: shard,
        topics=NoTopics,
        clock=time,
        timers=Timers(time),
        effects=Helper(),
        tasks=Effects(),
    )
    asyncio.run(driver.load())
    return driver, skipped


def load_groups(pairs: list[Pair]) -> tuple[GroupShard, ShardDriver, SkippedRecords]:
    shard = GroupShard(GroupSettings(), lambda: "member")
    driver, skipped = load(shard, codec.decode_group_record, OFFSETS_TOPIC, pairs)
    return shard, driver, skipped


def committed(shard: GroupShard) -> int | None:
    found = shard.state.offsets.get("good", "orders", 3)
    return None if found is None else found.value.offset


def test_bad_records_are_skipped_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """One of them took all groups of its partition away until the log was repaired."""
    with caplog.at_level(logging.ERROR):
        shard, driver, skipped = load_groups([*POISON, GOOD_RECORD, *POISON])
    assert driver.phase is Phase.ACTIVE
    assert committed(shard) == 42
    assert skipped.counts == {
        OFFSETS_TOPIC: 2 * len(POISON),
        TRANSACTIONS_TOPIC: 0,
        SHARE_STATE_TOPIC: 0,
    }
    first = caplog.records[0].getMessage()
    assert first.startswith("skipped a record: topic __consumer_offsets, partition 0, offset 0: ")
    assert not any("cannot be loaded" in line.getMessage() for line in caplog.records)


def test_a_partition_full_of_them_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        shard, _, skipped = load_groups([*POISON * 100, GOOD_RECORD])
    assert committed(shard) == 42
    assert skipped.counts[OFFSETS_TOPIC] == 100 * len(POISON)
    assert len(caplog.records) == SKIPPED_RECORD_LINES_PER_MINUTE_MAX + 1


def test_a_value_that_cannot_be_replayed_is_skipped() -> None:
    """It follows its schema, and says something that no broker knows."""
    known, value, _, _ = TRANSACTION_RECORDS["transaction_empty"]
    assert isinstance(value, TransactionLogValue)
    unknown = codec.encode((known, replace(value, transaction_status=99)))
    key, good = codec.encode((known, value))
    shard = TransactionShard(TransactionSettings())
    pairs: list[Pair] = [unknown, (key[:-1] + b"y", good)]
    driver, skipped = load(shard, codec.decode_transaction_record, TRANSACTIONS_TOPIC, pairs)
    assert driver.phase is Phase.ACTIVE
    assert list(shard.transactions) == ["y"]
    assert skipped.counts[TRANSACTIONS_TOPIC] == 1


def test_compaction_reads_no_schema() -> None:
    """Keys are bytes to it: bad records are compacted like others, and stop nothing."""
    manager = open_manager(MemoryDisk(), COMPACTED)
    log = compacted_log(manager)
    pairs: list[Pair] = [pair for pair in POISON if pair[0] is not None]
    for _ in range(2):
        put(log, *pairs, GOOD_RECORD)
    seal(manager, log)
    clean(manager, log)
    kept = [(record.key, record.value) for record in all_records(log)]
    assert sorted(kept, key=repr) == sorted([*pairs, GOOD_RECORD], key=repr)


def golden(records: dict[str, Golden]) -> list[tuple[bytes, bytes]]:
    """Records as Kafka writes them, as a start for changes."""
    return [
        (bytes.fromhex(key), bytes.fromhex(value or ""))
        for _, _, key, value in records.values()
        if value is not None
    ]


@st.composite
def changed(draw: st.DrawFn, known: list[tuple[bytes, bytes]]) -> Pair:
    """A record with some bytes replaced, removed or added, or any bytes at all."""
    if draw(st.booleans()):
        anything = st.one_of(st.none(), st.binary(max_size=40))
        prefix = draw(st.sampled_from([b"", *(key[:2] for key, _ in known)]))
        return prefix + draw(st.binary(max_size=20)), draw(anything)
    pair = [bytearray(part) for part in draw(st.sampled_from(known))]
    for _ in range(draw(st.integers(0, 3))):
        part = pair[draw(st.integers(0, 1))]
        start = draw(st.integers(0, len(part)))
        part[start : start + draw(st.integers(0, 4))] = draw(st.binary(max_size=4))
    return bytes(pair[0]), bytes(pair[1])


@settings(deadline=None, max_examples=int(os.environ.get("PENSTOCK_FUZZ_EXAMPLES", "100")))
@given(st.lists(changed(golden(GROUP_RECORDS)), max_size=8))
def test_a_group_shard_loads_whatever_its_log_holds(pairs: list[Pair]) -> None:
    shard, driver, _ = load_groups([GOOD_RECORD, *pairs, ANOTHER_RECORD])
    assert driver.phase is Phase.ACTIVE
    assert committed(shard) is not None
    assert shard.state.offsets.get("another", "orders", 3) is not None


@settings(deadline=None, max_examples=int(os.environ.get("PENSTOCK_FUZZ_EXAMPLES", "100")))
@given(st.lists(changed(golden(TRANSACTION_RECORDS)), max_size=8))
def test_a_transaction_shard_loads_whatever_its_log_holds(pairs: list[Pair]) -> None:
    shard = TransactionShard(TransactionSettings())
    known, value, _, _ = TRANSACTION_RECORDS["transaction_empty"]
    last = codec.encode((known, value))
    decode = codec.decode_transaction_record
    driver, _ = load(shard, decode, TRANSACTIONS_TOPIC, [*pairs, last])
    assert driver.phase is Phase.ACTIVE
    assert "x" in shard.transactions
