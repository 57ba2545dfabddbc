"""Cost of one append and one cached read, and of many partitions: `python -m benchmarks.storage`.

The hot path is in CPU time, system calls included, which a busy machine disturbs least; what waits
for the disk is in wall-clock time.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from uuid import uuid4

from penstock.core.clock import SystemClock
from penstock.core.types import TopicPartition
from penstock.records.batch import BatchHeader, read_header
from penstock.records.builder import build_batch
from penstock.records.record import Record
from penstock.storage.disk.filesystem import DiskFileSystem
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log_manager import LogManager


class Batch(NamedTuple):
    """What an append takes."""

    header: BatchHeader
    buffer: memoryview
    max_timestamp_ms: int
    offset_of_max_timestamp: int = 0


def batch(size: int, producer_id: int = -1) -> Batch:
    """One record of `size` bytes."""
    data = build_batch(
        [Record(value=b"x" * size, timestamp_ms=1_000)],
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
    )
    header = read_header(data)
    return Batch(header, memoryview(data), header.max_timestamp_ms)


def best_us(call: Callable[[], object], count: int, rounds: int = 5) -> float:
    """Best mean of several rounds, in microseconds of CPU time."""
    best = float("inf")
    for _ in range(rounds):
        started = time.thread_time()
        for _ in range(count):
            call()
        best = min(best, (time.thread_time() - started) / count)
    return best * 1e6


def measure_hot_path(directory: str) -> None:
    """One log: appends of several sizes, an idempotent producer, reads at the end."""
    manager = LogManager(DiskFileSystem(), [directory], SystemClock())
    manager.start()
    log = manager.create_log(TopicPartition("bench", 0), uuid4(), LogSettings())
    file = DiskFileSystem().create_file(f"{directory}/plain")
    for size in (50, 1_000, 16_000):
        made = batch(size)
        append_us = best_us(partial(log.append, made, leader_epoch=0), 3_000)
        position = 0

        def plain(made: Batch = made) -> None:
            nonlocal position
            position += file.write_at(made.buffer, position)

        print(
            f"append {size:>6} B: {append_us:6.2f} us; pwrite alone {best_us(plain, 3_000):6.2f} us"
        )
    made = batch(50, producer_id=5)
    sequence = 0

    def idempotent() -> None:
        nonlocal sequence
        made.header.base_sequence = sequence
        sequence += 1
        log.append(made, leader_epoch=0)

    print(f"append idempotent 50 B: {best_us(idempotent, 3_000):6.2f} us")
    manager.flushers[0].sync_now()
    log.append(batch(1_000), leader_epoch=0)
    manager.flushers[0].sync_now()
    offset, limit = log.end_offset - 1, log.durable_offset

    def read() -> None:
        log.read(offset, 1_048_576, offset_limit=limit, at_least_one=True, nowait=True)

    log.read(offset - 1, 1, offset_limit=limit, at_least_one=True, nowait=True)
    print(f"read the last batch of 1 kB: {best_us(read, 5_000):6.2f} us")
    log.read(0, 100_000, offset_limit=limit, at_least_one=True, nowait=True)

    def middle() -> None:
        log.read(3_000, 100_000, offset_limit=limit, at_least_one=True, nowait=True)

    print(f"read 100 kB from the middle by the index: {best_us(middle, 500):6.2f} us")
    manager.close()


def measure_partitions(directory: str, count: int) -> None:
    """Create, fill, close, open clean, open after a kill."""

    def timed(name: str, call: Callable[[], object]) -> None:
        started = time.perf_counter()
        call()
        print(f"{count} partitions, {name}: {time.perf_counter() - started:.2f} s")

    manager = LogManager(DiskFileSystem(), [directory], SystemClock())
    manager.start()
    partitions = [TopicPartition("many", number) for number in range(count)]
    topic_id = uuid4()
    timed(
        "create",
        lambda: [manager.create_log(name, topic_id, LogSettings()) for name in partitions],
    )
    made = batch(100)
    timed(
        "one append each",
        lambda: [log.append(made, leader_epoch=0) for log in manager.logs.values()],
    )
    timed("first sync of all", manager.flushers[0].sync_now)
    for log in manager.logs.values():
        log.append(made, leader_epoch=0)
    timed("second sync of all", manager.flushers[0].sync_now)
    timed("checkpoint", manager.checkpoint_recovery_points)
    timed("retention, nothing to do", lambda: manager.run_retention(0))
    timed("clean stop", manager.close)
    manager = LogManager(DiskFileSystem(), [directory], SystemClock())
    timed("clean start", manager.start)
    for log in list(manager.logs.values())[: count // 2]:
        log.append(made, leader_epoch=0)
    print(f"open files: {len(os.listdir('/proc/self/fd'))}")
    manager.unlock()
    manager = LogManager(DiskFileSystem(), [directory], SystemClock())
    timed("start after a kill", manager.start)


def main() -> None:
    """Run both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", help="where to write; default: a new one below this")
    parser.add_argument("--partitions", type=int, default=1_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory or ".") as directory:
        measure_hot_path(directory)
    with tempfile.TemporaryDirectory(dir=arguments.directory or ".") as directory:
        measure_partitions(directory, arguments.partitions)


if __name__ == "__main__":
    main()
