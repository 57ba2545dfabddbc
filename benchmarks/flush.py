"""Durable appends by sync path and number of waiters: `python -m benchmarks.flush`.

Each waiter appends a small batch, waits until it is durable, and appends again, all on one loop.
Paths: the loop syncs itself, the flusher's thread syncs, and the policy that chooses between them
(`storage.flusher.choose_path`). An executor's thread is measured for comparison. The numbers are
for one disk; the question is which path wins at which number of waiters.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import uvloop

from benchmarks.storage import batch
from penstock.core.clock import SystemClock
from penstock.core.types import TopicPartition
from penstock.storage import flusher as flusher_module
from penstock.storage.disk.filesystem import DiskFileSystem
from penstock.storage.flusher import Flusher, SyncPath
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log_manager import LogManager
from penstock.storage.service import StorageService

Path = Callable[..., SyncPath]


def always(path: SyncPath) -> Path:
    """A policy with one answer, as long as there is work and no round."""

    def choose(*, jobs: int, is_round_under_way: bool, **_facts: object) -> SyncPath:
        return SyncPath.NOBODY if jobs == 0 or is_round_under_way else path

    return choose


class ExecutorFlusher:
    """Gives rounds to an executor instead of a thread of its own."""

    def __init__(self, flusher: Flusher) -> None:
        self._flusher = flusher
        self._executor = ThreadPoolExecutor(1)

    def install(self) -> None:
        """Replace `submit`."""
        loop = asyncio.get_running_loop()
        report = self._flusher._report
        assert report is not None

        def submit(flush_round: flusher_module.FlushRound) -> None:
            future = loop.run_in_executor(self._executor, self._flusher.execute, flush_round)
            future.add_done_callback(lambda _: report(flush_round))

        self._flusher.submit = submit  # type: ignore[method-assign]


async def run(directory: str, waiters: int, seconds: float, *, executor: bool) -> list[float]:
    """Latencies of durable appends, in microseconds."""
    manager = LogManager(DiskFileSystem(), [directory], SystemClock())
    manager.start()
    log = manager.create_log(TopicPartition("flush", 0), uuid4(), LogSettings())
    parked: list[tuple[int, asyncio.Future[None]]] = []

    def on_durable(_logs: list[PartitionLog]) -> None:
        while parked and parked[0][0] < log.durable_offset:
            parked.pop(0)[1].set_result(None)

    def on_failure(path: str, error: Exception) -> None:
        raise SystemExit(f"{path}: {error}")

    service = StorageService(manager, SystemClock(), on_durable=on_durable, on_failure=on_failure)
    loop = asyncio.get_running_loop()
    service.start(loop)
    if executor:
        ExecutorFlusher(manager.flushers[0]).install()
    made = batch(100)
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def wait_and_append() -> None:
        while (started := time.perf_counter()) < end:
            info = log.append(made, leader_epoch=0)
            service.schedule_flush()
            future: asyncio.Future[None] = loop.create_future()
            parked.append((info.last_offset, future))
            await future
            latencies.append((time.perf_counter() - started) * 1e6)

    async with asyncio.TaskGroup() as group:
        for _ in range(waiters):
            group.create_task(wait_and_append())
    await service.stop()
    return latencies


def main() -> None:
    """Interleave all paths, several times, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", default=".")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--switch-interval", type=float, default=sys.getswitchinterval())
    arguments = parser.parse_args()
    sys.setswitchinterval(arguments.switch_interval)
    policy = flusher_module.choose_path
    paths: dict[str, tuple[Path, bool]] = {
        "on the loop": (always(SyncPath.CALLER), False),
        "thread": (always(SyncPath.THREAD), False),
        "executor": (always(SyncPath.THREAD), True),
        "policy": (policy, False),
    }
    results: dict[tuple[int, str], list[tuple[float, float, float]]] = {}
    for _ in range(arguments.repeats):
        for waiters in (1, 32, 128):
            for name, (path, executor) in paths.items():
                flusher_module.choose_path = path
                with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
                    latencies = uvloop.run(
                        run(directory, waiters, arguments.seconds, executor=executor)
                    )
                latencies.sort()
                results.setdefault((waiters, name), []).append(
                    (
                        latencies[len(latencies) // 2],
                        latencies[int(len(latencies) * 0.99)],
                        len(latencies) / arguments.seconds,
                    )
                )
    print(f"{'waiters':>7}  {'path':<12} {'p50 us':>9} {'p99 us':>9} {'appends/s':>10}")
    for (waiters, name), rows in results.items():
        middle, tail, rate = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"{waiters:>7}  {name:<12} {middle:>9.0f} {tail:>9.0f} {rate:>10.0f}")


if __name__ == "__main__":
    main()
