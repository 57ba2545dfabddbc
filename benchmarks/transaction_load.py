"""Transactions of one producer, one after the other, by the raw client of `benchmarks.wire`.

As in KIP-890: a Produce adds its partition by itself, and EndTxn returns the epoch of the next
transaction. The batch is built once; between two transactions only its epoch and its checksum
change, so that the client costs little. After CONCURRENT_TRANSACTIONS (the last transaction's
markers are not written yet) the request is repeated after a pause, as clients do; the pause counts.

The log's end offset must match the acknowledged transactions: each has its records and one marker.
The records are NOT read back.
"""

import asyncio
import dataclasses
import struct
import time
import uuid

from benchmarks.contestants import Topics
from benchmarks.wire import (
    NOT_YET,
    TRANSACTION_KEY,
    RefusedError,
    Wire,
    check,
    connect,
    make_coordinator,
    percentile,
)
from penstock.core.clock import SystemClock
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.records.builder import BatchBuilder
from penstock.records.crc32c import checksum
from penstock.records.record import Record
from tests.oracle.running_broker import RunningBroker

INIT_VERSION = 5
PRODUCE_VERSION = 12
END_VERSION = 5
TIMEOUT_MS = 60_000
RECORD_BYTES = 100
CONCURRENT_PAUSE_SECONDS = 0.001
"""Kafka's own producer waits 20 ms here; with a shorter pause the broker is measured."""
WARM_UP = 50
CRC_PLACE, CHECKED_FROM, PRODUCER_PLACE = 17, 21, 43
"""The positions of the checksum, of the checked bytes, and of the producer's id and epoch."""


@dataclasses.dataclass(frozen=True)
class Transactions:
    """The figures of one producer."""

    transactions: int
    per_second: float
    p50_ms: float
    p99_ms: float
    asked_again: int
    """The number of repeated requests."""


def measure_transactions(
    broker: RunningBroker, topics: Topics, *, records: int, seconds: float
) -> Transactions:
    """Commit transactions of `records` records for `seconds`."""
    topic = topics.create()
    found = asyncio.run(_transactions(broker.bootstrap, topic, records, seconds))
    wanted = (found.transactions + WARM_UP) * (records + 1)
    deadline = time.monotonic() + 10
    # The last marker may be written a moment after the answer.
    while (held := topics.records(topic)) != wanted:
        if time.monotonic() > deadline:
            raise RefusedError(f"{broker.name} holds {held} records and markers, not {wanted}")
        time.sleep(0.01)
    topics.delete(topic)
    return found


class _Producer:
    """One transactional id on one connection."""

    def __init__(self, wire: Wire, topic: str, records: int) -> None:
        self._wire = wire
        self._topic = topic
        self._id = f"bench-{uuid.uuid4()}"
        self._producer_id = -1
        self._epoch = -1
        self.asked_again = 0
        builder = BatchBuilder()
        for _ in range(records):
            builder.append(Record(None, bytes(RECORD_BYTES), (), SystemClock().now_ms()))
        self._batch = bytearray(
            builder.build(producer_id=0, producer_epoch=0, base_sequence=0, transactional=True)
        )

    async def begin(self) -> None:
        """Get a producer id."""
        await make_coordinator(self._wire, self._id, TRANSACTION_KEY)
        while True:
            answer = await self._wire.ask(
                InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=TIMEOUT_MS),
                INIT_VERSION,
                InitProducerIdResponse,
            )
            if not await self._is_to_ask_again(answer.error_code):
                break
        check(answer.error_code, "InitProducerId")
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    async def transaction(self) -> None:
        """Produce one batch and commit it."""
        struct.pack_into(">qh", self._batch, PRODUCER_PLACE, self._producer_id, self._epoch)
        crc = checksum(memoryview(self._batch)[CHECKED_FROM:])
        struct.pack_into(">I", self._batch, CRC_PLACE, crc)
        data = PartitionProduceData(index=0, records=bytes(self._batch))
        request = ProduceRequest(
            transactional_id=self._id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=(TopicProduceData(name=self._topic, partition_data=(data,)),),
        )
        while True:
            produced = await self._wire.ask(request, PRODUCE_VERSION, ProduceResponse)
            (answered,) = produced.responses[0].partition_responses
            if not await self._is_to_ask_again(answered.error_code):
                break
        check(answered.error_code, "Produce")
        await self._commit()

    async def _commit(self) -> None:
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=True,
        )
        while True:
            ended = await self._wire.ask(request, END_VERSION, EndTxnResponse)
            if not await self._is_to_ask_again(ended.error_code):
                break
        check(ended.error_code, "EndTxn")
        self._producer_id, self._epoch = ended.producer_id, ended.producer_epoch

    async def _is_to_ask_again(self, code: ErrorCode) -> bool:
        if code is not ErrorCode.CONCURRENT_TRANSACTIONS and code not in NOT_YET:
            return False
        self.asked_again += 1
        await asyncio.sleep(CONCURRENT_PAUSE_SECONDS)
        return True


async def _transactions(bootstrap: str, topic: str, records: int, seconds: float) -> Transactions:
    wire = await connect(bootstrap)
    producer = _Producer(wire, topic, records)
    await producer.begin()
    for _ in range(WARM_UP):
        await producer.transaction()
    producer.asked_again = 0
    taken = []
    begun = now = time.perf_counter()
    while now - begun < seconds:
        await producer.transaction()
        before, now = now, time.perf_counter()
        taken.append(now - before)
    wire.close()
    taken.sort()
    return Transactions(
        len(taken),
        len(taken) / (now - begun),
        percentile(taken, 0.5) * 1e3,
        percentile(taken, 0.99) * 1e3,
        producer.asked_again,
    )
