"""A million committed offsets, and how long a broker takes to load them after kill -9.

The offsets lie in one partition of `__consumer_offsets`: the worst case, because a partition is
read by one shard. The log is written while the broker is stopped by a kill. It has the layout of
that many single commits (one batch for each record) or of commits of many partitions at once (a
hundred records in a batch). The broker then recovers the log, which it must not trust after a kill,
and replays it.

This file writes Penstock's internal topic and is NOT for another broker.
"""

import asyncio
import dataclasses
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from benchmarks.contestants import Topics
from benchmarks.wire import (
    GROUP_KEY,
    RETRY_SECONDS,
    RefusedError,
    check,
    connect,
    make_coordinator,
    until_ready,
)
from penstock.coordinator.shard import StoredRecord
from penstock.core.clock import SystemClock
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from penstock.protocol.stored.codec import encode
from penstock.protocol.stored.group_records import OffsetCommitKey, OffsetCommitValue
from penstock.records.builder import BatchBuilder
from penstock.records.record import Record
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker

FETCH_VERSION = 9
METADATA_VERSION = 12
GROUPS = 10_000
SEGMENT_BYTES = 104_857_600
"""Kafka's default of `offsets.topic.segment.bytes`: a larger segment would not be written."""
ONE_PARTITION = {"PENSTOCK_GROUPS__OFFSETS_PARTITIONS": "1"}


@dataclasses.dataclass(frozen=True)
class OffsetLoad:
    """A start with many offsets."""

    offsets: int
    records_in_batch: int
    log_mb: float
    ready_seconds: float
    """From the start of the process until its first answer: the log is recovered by then."""
    load_seconds: float
    """From the start of the process until OffsetFetch answers."""
    longest_pause_ms: float
    """The longest wait of another request while the offsets were replayed."""
    rss_mb: float


def measure_offset_load(folder: Path, offsets: int, *, records_in_batch: int) -> OffsetLoad:
    """Write the log of a killed broker, start it, and wait until it returns the offsets."""
    with penstock_broker(folder, environment=ONE_PARTITION) as broker:
        topic = Topics(broker.bootstrap).create()
        topic_id = asyncio.run(_make_internal_topic(broker.bootstrap, topic))
        broker.kill()
        log_bytes = _write_log(
            broker.data_dir / "__consumer_offsets-0",
            _batches(topic, topic_id, offsets, records_in_batch),
            records_in_batch,
        )
        begun = time.perf_counter()
        broker.start()
        ready_seconds = time.perf_counter() - begun
        longest = asyncio.run(_until_known(broker, topic, offsets))
        return OffsetLoad(
            offsets,
            records_in_batch,
            log_bytes / 1e6,
            ready_seconds,
            time.perf_counter() - begun,
            longest * 1e3,
            broker.usage().rss_bytes / 1e6,
        )


async def _make_internal_topic(bootstrap: str, topic: str) -> UUID | None:
    """Let the broker create the offsets topic; return the id of the topic that records name."""
    wire = await connect(bootstrap)
    await make_coordinator(wire, "group-0", GROUP_KEY)
    asked = MetadataRequest(topics=(MetadataRequestTopic(name=topic),))
    answer = await wire.ask(asked, METADATA_VERSION, MetadataResponse)
    wire.close()
    return answer.topics[0].topic_id


async def _until_known(broker: RunningBroker, topic: str, offsets: int) -> float:
    """Wait until the last offset is returned; return the longest wait of FindCoordinator."""
    wire, other = await connect(broker.bootstrap), await connect(broker.bootstrap)
    longest = 0.0

    async def look_around() -> None:
        nonlocal longest
        while True:
            begun = time.perf_counter()
            await make_coordinator(other, "group-0", GROUP_KEY)
            longest = max(longest, time.perf_counter() - begun)
            await asyncio.sleep(RETRY_SECONDS / 10)

    last = offsets - 1
    request = OffsetFetchRequest(
        groups=(
            OffsetFetchRequestGroup(
                group_id=f"group-{last % GROUPS}",
                topics=(OffsetFetchRequestTopics(name=topic, partition_indexes=(last // GROUPS,)),),
            ),
        )
    )
    async with asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(look_around())
        answer = await until_ready(
            lambda: wire.ask(request, FETCH_VERSION, OffsetFetchResponse),
            lambda answer: answer.groups[0].error_code,
        )
        looking.cancel()
    check(answer.groups[0].error_code, "OffsetFetch")
    found = answer.groups[0].topics[0].partitions[0].committed_offset
    if found != last:
        raise RefusedError(f"offset {last} was committed, but the restarted broker returns {found}")
    wire.close()
    other.close()
    return longest


def _batches(
    topic: str, topic_id: UUID | None, offsets: int, records_in_batch: int
) -> Iterator[bytearray]:
    """Yield the batches of the log: each group commits partition after partition."""
    now_ms = SystemClock().now_ms()
    for base in range(0, offsets, records_in_batch):
        builder = BatchBuilder()
        for number in range(base, base + records_in_batch):
            record = StoredRecord(
                OffsetCommitKey(
                    group=f"group-{number % GROUPS}", topic=topic, partition=number // GROUPS
                ),
                OffsetCommitValue(
                    offset=number, metadata="", commit_timestamp=now_ms, topic_id=topic_id
                ),
            )
            key, value = encode(record)
            builder.append(Record(key, value, (), now_ms))
        batch = builder.build()
        struct.pack_into(">q", batch, 0, base)
        yield batch


def _write_log(folder: Path, batches: Iterator[bytearray], records_in_batch: int) -> int:
    """Write segments of the default size; return the bytes of all."""
    written = total = base = 0
    log = (folder / f"{0:020}.log").open("wb")
    for batch in batches:
        if written + len(batch) > SEGMENT_BYTES:
            log.close()
            log = (folder / f"{base:020}.log").open("wb")
            written = 0
        log.write(batch)
        base += records_in_batch
        written += len(batch)
        total += len(batch)
    log.close()
    return total
