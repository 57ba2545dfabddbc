"""Push delivery: latency, idle sessions, a slow consumer, and fan-out in batches.

    python -m benchmarks.push [--storage disk|memory] [--seconds 5] [--sessions 10000]
        [--consumers 10] [--only latency|idle|slow|fanout] [--json FILE]

A broker is started in its own process; this process is the producer and all consumers.

- latency: 10,000 records/s of 100 bytes, published in tens, to one consumer. `publish_to_data` is
  the time from the publish to its delivery, with the sync of the disk; `publish_to_ack` the time to
  the answer of the publish.
- idle: memory of the broker for each session with a subscription.
- slow: 100 consumers at 100 records/s, which are 10,000 deliveries a second, without and with one
  more that never reads.
- fan-out: stored batches of 1,000 records to several consumers; processor time of the broker for
  each delivered record.

A figure depends on the machine: compare two runs of the same one. Exit code 1: a bound was missed.
"""

import argparse
import asyncio
import json
import os
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, cast

from penstock.client.push import PushClient, open_push
from penstock.core.errors import BrokerUnreachableError
from penstock.protocol.push.frames import HEAD, HEAD_BYTES, FrameType, encode_frame
from penstock.records.builder import build_batch
from penstock.records.record import Record

START_SECONDS: Final = 30.0
RATE: Final = 10_000
BURST: Final = 10
FAST: Final = 100
SLOW_RATE: Final = 100
"""Records a second for 100 consumers: the consumers of this process must not be the limit."""
BOUNDS: Final = (
    ("latency", "publish_to_data_p50_ms", 1.0, False),
    ("latency", "publish_to_data_p99_ms", 5.0, False),
    ("idle", "bytes_per_session", 20_000, False),
    ("fanout", "records_per_second", 1_000_000, True),
    ("fanout", "cpu_microseconds_per_record", 5.0, False),
)
"""Measurement, figure, bound, and whether the bound is the lowest accepted value."""
TICKS: Final = os.sysconf("SC_CLK_TCK")
NOW: Final = struct.Struct(">d")


class Broker:
    """The broker in its own process."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.port = port

    def cpu_seconds(self) -> float:
        """Processor time so far, of all threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory_bytes(self) -> int:
        """Resident memory."""
        fields = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def running_broker(storage: str) -> Iterator[Broker]:
    """Run a broker with the topics of the measurements."""
    port = free_port()
    topics = "".join(f'[[topics]]\nname = "{name}"\npartitions = 1\n' for name in "abcd")
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "penstock.toml"
        config.write_text(
            f'[node]\nstorage = "{storage}"\ndata_dir = "{folder}/data"\n[listener]\nport = 0\n'
            f"[admin]\nenabled = false\n[edge]\npush_port = {port}\nsessions_max = 20000\n"
            f"sessions_per_address_max = 20000\n{topics}"
        )
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "serve", "--config", str(config)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield Broker(process, port)
        finally:
            process.terminate()
            process.wait(START_SECONDS)


async def connected(broker: Broker) -> PushClient:
    """Return a client, and wait for the start of the broker."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return await open_push("127.0.0.1", broker.port)
        except BrokerUnreachableError:
            if time.monotonic() > deadline or broker.process.poll() is not None:
                raise
            await asyncio.sleep(0.05)


def percentile(values: list[float], share: float) -> float:
    """Return a percentile in milliseconds."""
    values.sort()
    return values[min(len(values) - 1, int(len(values) * share))] * 1_000


class Consumer(asyncio.Protocol):
    """Counts records and acknowledges each read; it creates no object for a record."""

    def __init__(self, topic: str, *, form: str = "record", latencies: bool = False) -> None:
        self._request = {"topic": topic, "credit": 100_000, "format": form}
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self.latencies: list[float] | None = [] if latencies else None
        self.frames = 0
        self.is_open = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Subscribe."""
        self._transport = cast("asyncio.Transport", transport)
        payload = json.dumps(self._request).encode()
        self._transport.write(encode_frame(FrameType.SUBSCRIBE, 1, payload))

    def data_received(self, data: bytes) -> None:
        """Count the frames, and acknowledge the last one."""
        buffer = self._buffer
        buffer += data
        place, last, end = 0, 0, len(buffer)
        now = time.monotonic()
        while end - place >= HEAD_BYTES:
            kind, message_id, length = HEAD.unpack_from(buffer, place)
            if end - place < HEAD_BYTES + length:
                break
            if kind == FrameType.DATA:
                last = message_id
                self.frames += 1
                if self.latencies is not None:
                    value_at = place + HEAD_BYTES + 35
                    self.latencies.append(now - NOW.unpack_from(buffer, value_at)[0])
            elif kind == FrameType.ACK:
                self.is_open.set()
            place += HEAD_BYTES + length
        del buffer[:place]
        if last and self._transport is not None:
            self._transport.write(encode_frame(FrameType.ACK, last))

    def stop_reading(self) -> None:
        """Read nothing any more."""
        assert self._transport is not None
        self._transport.pause_reading()

    def close(self) -> None:
        """Close the connection."""
        assert self._transport is not None
        self._transport.abort()


async def consumers(
    broker: Broker, count: int, topic: str, form: str = "record", *, latencies: bool = False
) -> list[Consumer]:
    """Return consumers with an open subscription."""
    loop, found = asyncio.get_running_loop(), []
    for _ in range(count):
        _, one = await loop.create_connection(
            lambda: Consumer(topic, form=form, latencies=latencies), "127.0.0.1", broker.port
        )
        found.append(one)
    for one in found:
        await one.is_open.wait()
    return found


class Publisher(asyncio.Protocol):
    """Publishes at a rate without waiting for answers, and measures the answers."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._buffer = bytearray()
        self.transport: asyncio.Transport | None = None
        self.is_open = asyncio.Event()
        self.sent: dict[int, float] = {}
        self.answers: list[float] = []
        self._next_id = 2

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open the subscription that publishes."""
        self.transport = cast("asyncio.Transport", transport)
        payload = json.dumps({"topic": self._topic, "publish": True}).encode()
        self.transport.write(encode_frame(FrameType.SUBSCRIBE, 1, payload))

    def data_received(self, data: bytes) -> None:
        """Note the times of answers."""
        buffer, place, now = self._buffer, 0, time.monotonic()
        buffer += data
        while len(buffer) - place >= HEAD_BYTES:
            _, message_id, length = HEAD.unpack_from(buffer, place)
            if len(buffer) - place < HEAD_BYTES + length:
                break
            place += HEAD_BYTES + length
            self.is_open.set()
            begun = self.sent.pop(message_id, None)
            if begun is not None:
                self.answers.append(now - begun)
        del buffer[:place]

    def publish(self, tail: bytes) -> None:
        """Publish one record."""
        assert self.transport is not None
        message_id = self._next_id
        self._next_id += 1
        self.sent[message_id] = time.monotonic()
        self.transport.write(
            struct.pack(">BQIH", FrameType.DATA, message_id, len(tail) + 2, 1) + tail
        )


TAIL: Final = struct.Struct(">iqqiHBHi")


async def publisher_of(broker: Broker, topic: str) -> Publisher:
    """Return a publisher with an open subscription."""
    loop = asyncio.get_running_loop()
    _, found = await loop.create_connection(lambda: Publisher(topic), "127.0.0.1", broker.port)
    await found.is_open.wait()
    return found


async def feed(publisher: Publisher, rate: int, seconds: float) -> int:
    """Publish at a rate; return the number of records."""
    head, rest = TAIL.pack(0, -1, -1, -1, 0, 0, 0, -1), bytes(92)
    begun, count = time.monotonic(), 0
    while (passed := time.monotonic() - begun) < seconds:
        due = int(rate * passed) - count
        if due >= BURST and len(publisher.sent) < 900:
            for _ in range(BURST):
                publisher.publish(head + NOW.pack(time.monotonic()) + rest)
            count += BURST
            await asyncio.sleep(0)
        else:
            await asyncio.sleep(0.0005)
    while publisher.sent:  # noqa: ASYNC110 (the answers come, or the broker has a defect)
        await asyncio.sleep(0.005)
    return count


async def measure_latency(broker: Broker, seconds: float) -> dict[str, float]:
    """One consumer at 10,000 records/s."""
    (consumer,) = await consumers(broker, 1, "a", latencies=True)
    publisher = await publisher_of(broker, "a")
    await feed(publisher, RATE, 1.0)
    assert consumer.latencies is not None
    consumer.latencies.clear()
    publisher.answers.clear()
    cpu, begun = broker.cpu_seconds(), time.monotonic()
    count = await feed(publisher, RATE, seconds)
    cpu, passed = broker.cpu_seconds() - cpu, time.monotonic() - begun
    found = {
        "records_per_second": count / passed,
        "publish_to_data_p50_ms": percentile(consumer.latencies, 0.5),
        "publish_to_data_p99_ms": percentile(consumer.latencies, 0.99),
        "publish_to_ack_p50_ms": percentile(publisher.answers, 0.5),
        "publish_to_ack_p99_ms": percentile(publisher.answers, 0.99),
        "cpu_microseconds_per_record": cpu / count * 1e6,
    }
    consumer.close()
    assert publisher.transport is not None
    publisher.transport.abort()
    return found


async def measure_idle(broker: Broker, count: int) -> dict[str, float]:
    """Memory of many sessions that wait."""
    before = broker.memory_bytes()
    found = await consumers(broker, count, "b")
    await asyncio.sleep(1.0)
    size = (broker.memory_bytes() - before) / count
    cpu = broker.cpu_seconds()
    await asyncio.sleep(5.0)
    cpu = (broker.cpu_seconds() - cpu) / 5.0
    for one in found:
        one.close()
    return {"sessions": count, "bytes_per_session": size, "cpu_percent": cpu * 100}


async def measure_slow(broker: Broker, seconds: float) -> dict[str, float]:
    """The latency of 100 consumers, without and with a slow one beside them."""
    fast = await consumers(broker, FAST, "c", latencies=True)
    publisher = await publisher_of(broker, "c")
    found: dict[str, float] = {}
    await feed(publisher, SLOW_RATE, 1.0)
    for name in ("alone", "beside_a_slow_one"):
        for one in fast:
            assert one.latencies is not None
            one.latencies.clear()
        if name != "alone":
            (slow,) = await consumers(broker, 1, "c")
            slow.stop_reading()
        cpu = broker.cpu_seconds()
        await feed(publisher, SLOW_RATE, seconds)
        found[f"cpu_percent_{name}"] = (broker.cpu_seconds() - cpu) / seconds * 100
        everything = [value for one in fast for value in one.latencies or ()]
        found[f"p50_ms_{name}"] = percentile(everything, 0.5)
        found[f"p99_ms_{name}"] = percentile(everything, 0.99)
    for one in (*fast, slow):
        one.close()
    return found


async def measure_fanout(broker: Broker, seconds: float, count: int) -> dict[str, float]:
    """Stored batches to several consumers."""
    size = 1_000
    batch = bytes(build_batch([Record(None, bytes(100), (), 1)] * size))
    found = await consumers(broker, count, "d", "batch")
    client = await connected(broker)
    await client.publish_batch("d", batch)
    cpu, begun, before = broker.cpu_seconds(), time.monotonic(), sum(one.frames for one in found)
    published = 0
    while time.monotonic() - begun < seconds:
        await asyncio.gather(*(client.publish_batch("d", batch) for _ in range(4)))
        published += 4
    while min(one.frames for one in found) < published + 1:  # noqa: ASYNC110 (as above)
        await asyncio.sleep(0.005)
    passed = time.monotonic() - begun
    records = (sum(one.frames for one in found) - before) * size
    cpu = broker.cpu_seconds() - cpu
    for one in found:
        one.close()
    await client.close()
    return {
        "consumers": count,
        "records_per_second": records / passed,
        "cpu_microseconds_per_record": cpu / records * 1e6,
    }


def misses(found: dict[str, dict[str, float]]) -> list[str]:
    """Return the bounds that were missed."""
    return [
        f"{part}.{name}"
        for part, name, bound, is_lowest in BOUNDS
        if part in found and (found[part][name] < bound if is_lowest else found[part][name] > bound)
    ]


async def measure(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Run all measurements, each on a fresh broker."""
    found: dict[str, dict[str, float]] = {}
    steps: dict[str, Callable[[Broker], Awaitable[dict[str, float]]]] = {
        "latency": partial(measure_latency, seconds=options.seconds),
        "idle": partial(measure_idle, count=options.sessions),
        "slow": partial(measure_slow, seconds=options.seconds),
        "fanout": partial(measure_fanout, seconds=options.seconds, count=options.consumers),
    }
    for name, step in steps.items():
        if options.only not in (None, name):
            continue
        with running_broker(options.storage) as broker:
            await (await connected(broker)).close()
            found[name] = await step(broker)
            print(name, {key: round(value, 3) for key, value in found[name].items()}, flush=True)
    return found


def main() -> int:
    """Measure and print; return 1 if a bound was missed."""
    parser = argparse.ArgumentParser(description="Measure push delivery.")
    parser.add_argument("--storage", choices=("disk", "memory"), default="disk")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--consumers", type=int, default=10)
    parser.add_argument("--only", choices=("latency", "idle", "slow", "fanout"))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(measure(options))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2))
    missed = misses(found)
    print("missed:", ", ".join(missed) or "none")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
