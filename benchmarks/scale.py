"""Size, not speed: ten thousand idle connections, four thousand partitions, on one broker.

    python -m benchmarks.scale [--broker penstock|kafka] [--connections N] [--partitions N]

Idle connections and partitions must cost only memory: an idle connection must not slow a produce,
and idle partitions must not use the processor. `tests/scale` compares the figures of these
functions with bounds; run as a program it prints the figures of either broker.

Broker and client need more open files than many systems allow (`ulimit -n 20000`). The connections
belong to a process of their own, so that neither side's limit is shared.
"""

import argparse
import asyncio
import dataclasses
import json
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.contestants import Topics, new_broker
from benchmarks.load import idle_connections, run_raw
from benchmarks.variants import KAFKA_UNSYNCED, PENSTOCK_DURABLE
from benchmarks.wire import RefusedError, connect
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.oracle.running_broker import RunningBroker

SINGLE_REQUESTS = 5_000
SETTLE_SECONDS = 2.0
"""After a load, before the idle broker is measured: background work of the load may finish."""
IDLE_SECONDS = 10.0
SPARE_FILES = 1_000
"""Open files a broker needs besides its connections."""
STARTS = 3
"""A shared disk can only slow a start down, so the fastest of these starts counts."""
LED_SECONDS_MAX = 120.0
LED_RETRY_SECONDS = 0.05
LIST_OFFSETS_VERSION = 7
LATEST = -1


@dataclasses.dataclass(frozen=True)
class IdleConnections:
    """The cost of idle connections."""

    connections: int
    open_seconds: float
    """Time to open all connections, one after the other, with one answer each."""
    bytes_each: float
    """Growth of the broker's resident memory, without the kernel's buffers."""
    p50_without_us: float
    p99_without_us: float
    p50_with_us: float
    p99_with_us: float
    idle_cpu_share: float
    """Share of one core, while the connections are open without requests."""


@dataclasses.dataclass(frozen=True)
class ManyPartitions:
    """The cost of partitions: when they are created, while they are idle, and at a start."""

    partitions: int
    create_seconds: float
    produce_to_all_seconds: float
    rss_mb: float
    idle_cpu_share: float
    """Share of one core."""
    stop_seconds: float
    """The longest of several stops: the first one has the most data to sync."""
    start_after_stop_seconds: float
    """From the start of the process until every partition has returned its end offset: the fastest
    of several starts."""
    start_after_kill_seconds: float
    """The same after kill -9."""


def allow_open_files(wanted: int) -> None:
    """Raise the soft limit for this process and its children; fail early when it is too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise RuntimeError(f"{wanted} open files are needed and {hard} allowed: see ulimit -n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def idle_cpu_share(broker: RunningBroker, seconds: float = IDLE_SECONDS) -> float:
    """Return the share of one core that the broker uses without requests."""
    time.sleep(SETTLE_SECONDS)
    before = broker.usage().cpu_seconds
    time.sleep(seconds)
    return (broker.usage().cpu_seconds - before) / seconds


def measure_idle_connections(broker: RunningBroker, connections: int) -> IdleConnections:
    """Open the connections, and compare a single-record produce without and with them."""
    allow_open_files(connections + SPARE_FILES)
    topic = Topics(broker.bootstrap).create()

    def produce() -> tuple[float, float]:
        report = run_raw(
            "produce-single",
            address=broker.bootstrap,
            topic=topic,
            count=SINGLE_REQUESTS,
            warm_up=SINGLE_REQUESTS // 5,
        )
        return report.p50_us, report.p99_us

    produce()  # Not counted: the caches are cold at the first requests.
    without = produce()
    rss_before = broker.usage().rss_bytes
    with idle_connections(broker.bootstrap, connections) as opened:
        rss_with = broker.usage().rss_bytes
        while_open = produce()
        cpu_share = idle_cpu_share(broker)
    return IdleConnections(
        connections,
        opened.seconds,
        (rss_with - rss_before) / connections,
        *without,
        *while_open,
        cpu_share,
    )


async def _held_when_led(bootstrap: str, topic: str, partitions: int) -> int:
    """Wait until every partition returns its end offset; return the sum of the offsets.

    This uses its own connection: a new librdkafka client sometimes waits three seconds before its
    first request, and that time would count for the broker.
    """
    wanted = tuple(
        ListOffsetsPartition(partition_index=number, timestamp=LATEST)
        for number in range(partitions)
    )
    request = ListOffsetsRequest(
        replica_id=-1, topics=(ListOffsetsTopic(name=topic, partitions=wanted),)
    )
    wire = await connect(bootstrap)
    deadline = time.monotonic() + LED_SECONDS_MAX
    while True:
        answer = await wire.ask(request, LIST_OFFSETS_VERSION, ListOffsetsResponse)
        found = [one for told in answer.topics for one in told.partitions]
        if all(one.error_code is ErrorCode.NONE for one in found):
            wire.close()
            return sum(one.offset for one in found)
        if time.monotonic() > deadline:
            raise RefusedError(f"not every partition has a leader after {LED_SECONDS_MAX} s")
        await asyncio.sleep(LED_RETRY_SECONDS)


def _checked_start(broker: RunningBroker, topic: str, partitions: int) -> float:
    begun = time.perf_counter()
    broker.start()
    held = asyncio.run(_held_when_led(broker.bootstrap, topic, partitions))
    seconds = time.perf_counter() - begun
    if held != partitions:
        raise RuntimeError(f"{broker.name} holds {held} of {partitions} records after a start")
    return seconds


def _stop_seconds(broker: RunningBroker) -> float:
    begun = time.perf_counter()
    code = broker.stop(120)
    if code not in (0, 143):
        raise RuntimeError(f"{broker.name} ended with exit code {code} after SIGTERM")
    return time.perf_counter() - begun


def measure_many_partitions(broker: RunningBroker, partitions: int) -> ManyPartitions:
    """Create partitions with one record each; measure idle cost, stops, starts, and kills.

    All end offsets are checked after every start: a start that lost data is an error.
    """
    allow_open_files(20_000)
    topics = Topics(broker.bootstrap)
    begun = time.perf_counter()
    topic = topics.create(partitions=partitions)
    create_seconds = time.perf_counter() - begun
    produced = run_raw(
        "produce-each", address=broker.bootstrap, topic=topic, partitions=partitions, in_flight=32
    )
    rss_mb = broker.usage().rss_bytes / 1e6
    cpu_share = idle_cpu_share(broker)
    stop_seconds, after_stop, after_kill = [], [], []
    for _ in range(STARTS):
        stop_seconds.append(_stop_seconds(broker))
        after_stop.append(_checked_start(broker, topic, partitions))
    for _ in range(STARTS):
        broker.kill()
        after_kill.append(_checked_start(broker, topic, partitions))
    return ManyPartitions(
        partitions,
        create_seconds,
        produced.seconds,
        rss_mb,
        cpu_share,
        max(stop_seconds),
        min(after_stop),
        min(after_kill),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure one broker and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale")
    parser.add_argument("--broker", choices=["penstock", "kafka"], default="penstock")
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=4_000)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    variant = PENSTOCK_DURABLE if options.broker == "penstock" else KAFKA_UNSYNCED
    allow_open_files(options.connections + SPARE_FILES)
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        with new_broker(variant, Path(folder) / "connections") as broker:
            figures |= dataclasses.asdict(measure_idle_connections(broker, options.connections))
        with new_broker(variant, Path(folder) / "partitions") as broker:
            many = dataclasses.asdict(measure_many_partitions(broker, options.partitions))
        figures |= {f"partitions_{name}": value for name, value in many.items()}
    table = Table("figure", str(variant), title="Scale", title_justify="left")
    for name, value in figures.items():
        table.add_row(name, f"{value:,.4g}")
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps({str(variant): figures}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
