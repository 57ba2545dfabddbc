"""A transport without a broker: the test delivers records and sees all that a consumer sends."""

import asyncio
from collections.abc import Collection, Mapping

from penstock.consumers.consumer_record import ConsumerRecord
from penstock.consumers.delivery.dead_letters import OutgoingRecord
from penstock.consumers.delivery.deliveries import Progress, Settled
from penstock.consumers.errors import RecordWriteError
from penstock.consumers.ports import DeliveryEvents
from penstock.core.types import TopicPartition


class MemoryTransport:
    """The broker's side of one consumer."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.positions: dict[TopicPartition, int] = {}
        self.settled: list[Settled] = []
        self.written: list[OutgoingRecord] = []
        self.paused: frozenset[TopicPartition] = frozenset()
        self.can_write = True
        self.is_closed = False
        self.changed = asyncio.Event()

    async def open(self, events: DeliveryEvents) -> None:
        self.events = events
        self.opened.set()

    def pause(self, partitions: frozenset[TopicPartition]) -> None:
        self.paused = partitions

    def commit(self, progress: Progress) -> None:
        self.positions |= progress.positions
        self.settled += progress.settled
        self.changed.set()

    async def write(self, record: OutgoingRecord) -> None:
        if not self.can_write:
            raise RecordWriteError("no")
        await asyncio.sleep(0)
        self.written.append(record)
        self.changed.set()

    async def close(self, progress: Progress) -> None:
        self.commit(progress)
        self.is_closed = True

    async def deliver(self, *records: ConsumerRecord) -> None:
        await self.opened.wait()
        self.events.assigned({record.at for record in records})
        self.events.received(records)

    async def revoke(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return await self.events.revoked(partitions)
