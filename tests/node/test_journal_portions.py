"""Loads of coordinators stop inside a batch: portions of a large one, unfolded on a thread."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from penstock.coordinator.groups.offsets.requests import offset_tombstone
from penstock.coordinator.ports import LoadedBatch
from penstock.coordinator.shard import Producer
from penstock.core.limits import COORDINATOR_LOAD_RECORDS
from penstock.node.coordination.journal import PartitionJournal
from penstock.node.coordination.skipped_records import SkippedRecords
from penstock.protocol.stored.codec import decode_group_record, encode
from penstock.records.batch import read_header
from penstock.records.builder import build_batch
from penstock.records.compression import ZSTD
from penstock.records.record import Record
from penstock.records.validation import ValidatedBatch
from penstock.storage.service import StorageService
from penstock.storage.worker_pool import WorkClass, WorkerPool
from tests.replication.replicas import Node
from tests.storage.logs import Clock

LARGE = 2 * COORDINATOR_LOAD_RECORDS + 500


def append(node: Node, count: int, *, codec: int = 0, producer: Producer | None = None) -> None:
    """One batch of commits."""
    records = []
    for number in range(count):
        key, value = encode(offset_tombstone("g", "t", number))
        records.append(Record(key, value, (), 1))
    data = build_batch(
        records,
        codec=codec,
        producer_id=-1 if producer is None else producer.producer_id,
        producer_epoch=-1 if producer is None else producer.producer_epoch,
        transactional=producer is not None,
    )
    batch = ValidatedBatch(read_header(data), memoryview(data), 1, 0)
    if producer is not None:
        verifications = node.partition.log.producers.verifications
        guard = verifications.begin(producer.producer_id, -1, producer.producer_epoch, 0, adds=True)
        verifications.confirm(producer.producer_id, guard)
        node.replicas.append(node.partition, batch, guard)
    else:
        node.replicas.append(node.partition, batch)


class Loads:
    """A journal over a node, and the jobs that it gave to threads."""

    def __init__(self, node: Node) -> None:
        self.pool = WorkerPool(asyncio.get_running_loop())
        storage = cast("StorageService", SimpleNamespace(pool=self.pool))
        self.journal = PartitionJournal(
            node.partition, node.replicas, storage, decode_group_record, SkippedRecords(Clock())
        )

    async def all(self, offset: int = 0) -> list[tuple[LoadedBatch, int]]:
        """Everything from an offset on, piece by piece."""
        pieces = []
        while offset < self.journal.end_offset:
            batches, behind = await self.journal.read(offset)
            assert behind > offset
            assert sum(len(batch.records) for batch in batches) <= COORDINATOR_LOAD_RECORDS
            pieces += [(batch, behind) for batch in batches]
            offset = behind
        await self.pool.stop(5)
        return pieces


def load(node: Node, offset: int = 0) -> list[tuple[LoadedBatch, int]]:
    async def go() -> list[tuple[LoadedBatch, int]]:
        return await Loads(node).all(offset)

    return asyncio.run(go())


@pytest.mark.parametrize("codec", [0, ZSTD])
def test_a_large_batch_is_loaded_in_portions(codec: int) -> None:
    """Guards the loop: a batch of hundreds of thousands of records was replayed in one turn."""
    node = Node()
    append(node, 3)
    append(node, LARGE, codec=codec)
    append(node, 2)
    pieces = load(node)
    offsets = [record.offset for batch, _ in pieces for record in batch.records]
    assert offsets == list(range(LARGE + 5))
    assert [behind for _, behind in pieces] == [3, 1_003, 2_003, LARGE + 3, LARGE + 5]


def test_portions_belong_to_the_producer_of_their_batch() -> None:
    node, producer = Node(), Producer(7, 1)
    append(node, LARGE, producer=producer)
    assert [batch.producer for batch, _ in load(node)] == [producer] * 3


@pytest.mark.parametrize("offset", [1, COORDINATOR_LOAD_RECORDS, LARGE - 1])
def test_a_load_may_begin_within_a_large_batch(offset: int) -> None:
    node = Node()
    append(node, LARGE)
    pieces = load(node, offset)
    offsets = [record.offset for batch, _ in pieces for record in batch.records]
    assert offsets == list(range(offset, LARGE))


def test_many_small_batches_are_loaded_in_portions() -> None:
    node = Node()
    for _ in range(30):
        append(node, COORDINATOR_LOAD_RECORDS // 3)
    pieces = load(node)
    assert sum(len(batch.records) for batch, _ in pieces) == 30 * (COORDINATOR_LOAD_RECORDS // 3)


def test_what_an_earlier_load_left_is_not_used_by_another() -> None:
    node = Node()
    append(node, LARGE)

    async def go() -> None:
        loads = Loads(node)
        await loads.journal.read(0)
        assert loads.pool.running(WorkClass.READS) == 0
        pieces = await loads.all()
        offsets = [record.offset for batch, _ in pieces for record in batch.records]
        assert offsets == list(range(LARGE))

    asyncio.run(go())
