"""The cost of TLS, logins and access rules, beside Apache Kafka's in the same run.

    python -m benchmarks.security [--rounds 3] [--seconds 4] [--markdown]

Rows, each interleaved between the brokers, after a warm-up of half the length:

- produce over TLS, 250-KB batches, one connection, eight requests in flight: CPU-s/GB of the
  broker and MB/s; the same without TLS;
- fetch over TLS, 1-MiB answers, one connection: the same;
- logins with SCRAM-SHA-256 on new connections, four at a time: logins/s, CPU-ms each;
- small produce requests with and without an authorizer, eight connections: CPU-us each;
- idle TLS connections: memory of the broker for each.

CPU time is user and system time of all threads of the broker, from the kernel. The client of the
first four rows is the raw one (`loadgen`, Go's TLS on one thread), that of the others a Python
process with Python's `ssl`. `--markdown` writes the table into the README.
"""

import argparse
import contextlib
import dataclasses
import shutil
import socket
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from benchmarks.load import Report, run_raw
from benchmarks.report import put_between_marks
from benchmarks.secured_brokers import Secured, secured_brokers
from benchmarks.side_by_side import README
from penstock.core.clock import SystemClock
from penstock.protocol.codec import Message
from penstock.protocol.connection import ClientConnection
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.records.builder import BatchBuilder
from penstock.records.record import Record
from tests.oracle.running_broker import HOST
from tests.oracle.secured_kafka import SASL_SSL

GIGABYTE = 1e9
BUFFER_BYTES = 65_536
BATCH_RECORDS, VALUE_BYTES = 250, 1_000
ANSWER_BYTES = 1_048_576
IN_FLIGHT = 8
PRODUCE_VERSION = 9
PRODUCE_BYTES = 1_000_000_000
FILL_BYTES = 128_000_000
FETCH_PASSES = 16
SMALL_CONNECTIONS = 8
LOGINS_AT_ONCE = 4
IDLE_CONNECTIONS = 1_000
NOW_MS = SystemClock().now_ms()


@dataclasses.dataclass(frozen=True)
class Figure:
    """One measurement of one broker."""

    per_second: float
    cpu: float
    """In the unit of the row."""


class Line:
    """One connection that sends requests and reads answers."""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext | None) -> None:
        plain = socket.create_connection(address, timeout=30)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = (
            plain if context is None else context.wrap_socket(plain, server_hostname="localhost")
        )
        self._client = ClientConnection("benchmark")
        self._buffer = memoryview(bytearray(BUFFER_BYTES))

    def frame(self, request: Message, version: int) -> bytes:
        """Return the frame of a request, which may be sent many times."""
        _, parts = self._client.send_request(request, version)
        self._client._in_flight.clear()
        return b"".join(parts)

    def send(self, frame: bytes) -> None:
        """Send a frame."""
        self._socket.sendall(frame)

    def skip_answer(self) -> int:
        """Read one answer without decoding it; return its size."""
        head = self._exactly(4)
        left = int.from_bytes(head)
        while left:
            left -= self._socket.recv_into(self._buffer, min(left, len(self._buffer)))
        return int.from_bytes(head)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return data


def small_batch() -> bytes:
    """Return one batch with a record of 100 bytes."""
    builder = BatchBuilder()
    builder.append(Record(key=None, value=bytes(100), timestamp_ms=NOW_MS))
    return bytes(builder.build())


def produce_request(topic: str, batch: bytes) -> ProduceRequest:
    """Return a request with one batch, acknowledged by the leader."""
    data = PartitionProduceData(index=0, records=batch)
    return ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout_ms=30_000,
        topic_data=(TopicProduceData(name=topic, partition_data=(data,)),),
    )


@contextlib.contextmanager
def measured(broker: Secured) -> Iterator[Callable[[], tuple[float, float]]]:
    """Yield a function that returns the seconds, and the CPU seconds of the broker, so far."""
    process = psutil.Process(broker.pid)

    def cpu_seconds() -> float:
        times = process.cpu_times()
        return times.user + times.system

    begun, cpu_begun = time.monotonic(), cpu_seconds()
    yield lambda: (time.monotonic() - begun, cpu_seconds() - cpu_begun)


def produce(broker: Secured, *, has_tls: bool) -> Figure:
    """Produce a GB; figures are for each GB."""
    topic = broker.create_topic()
    options = broker.raw_options(has_tls=has_tls)

    def run(total_bytes: int) -> Report:
        return run_raw(
            "produce-stream",
            topic=topic,
            records=BATCH_RECORDS,
            value_bytes=VALUE_BYTES,
            in_flight=IN_FLIGHT,
            total_bytes=total_bytes,
            **options,
        )

    run(PRODUCE_BYTES // 2)
    with measured(broker) as so_far:
        report = run(PRODUCE_BYTES)
        _, cpu = so_far()
    broker.delete_topic(topic)
    return _by_gigabyte(report, cpu)


def fetch(broker: Secured, *, has_tls: bool) -> Figure:
    """Fetch the same records, which are in the page cache, again and again."""
    topic = broker.create_topic()
    filled = run_raw(
        "produce-stream",
        topic=topic,
        records=BATCH_RECORDS,
        value_bytes=VALUE_BYTES,
        in_flight=IN_FLIGHT,
        total_bytes=FILL_BYTES,
        **broker.raw_options(has_tls=False),
    )

    def run(passes: int) -> Report:
        return run_raw(
            "fetch-stream",
            topic=topic,
            max_bytes=ANSWER_BYTES,
            end_offset=filled.records,
            passes=passes,
            **broker.raw_options(has_tls=has_tls),
        )

    run(FETCH_PASSES // 2)
    with measured(broker) as so_far:
        report = run(FETCH_PASSES)
        _, cpu = so_far()
    broker.delete_topic(topic)
    return _by_gigabyte(report, cpu)


def _by_gigabyte(report: Report, cpu_seconds: float) -> Figure:
    gigabytes = report.bytes / GIGABYTE
    return Figure(gigabytes * 1_000 / report.seconds, cpu_seconds / gigabytes)


def log_in(broker: Secured, seconds: float) -> Figure:
    """Log in on new connections; CPU in milliseconds for each login."""
    deadline = 0.0

    def one_client(_: int) -> int:
        done = 0
        while time.monotonic() < deadline:
            broker.log_in()
            done += 1
        return done

    with ThreadPoolExecutor(LOGINS_AT_ONCE) as pool:
        for limit in (seconds / 2, seconds):
            with measured(broker) as so_far:
                deadline = time.monotonic() + limit
                logins = sum(pool.map(one_client, range(LOGINS_AT_ONCE)))
                elapsed, cpu = so_far()
    return Figure(logins / elapsed, cpu * 1_000 / logins)


def small_requests(broker: Secured, seconds: float) -> Figure:
    """Produce small records on several connections; CPU in microseconds for each request."""
    topic = broker.create_topic()
    lines = [Line(broker.address(has_tls=False), None) for _ in range(SMALL_CONNECTIONS)]
    batch = small_batch()
    frame = lines[0].frame(produce_request(topic, batch), PRODUCE_VERSION)

    def run(limit_seconds: float) -> int:
        deadline, sent = time.monotonic() + limit_seconds, 0
        while time.monotonic() < deadline:
            for line in lines:
                line.send(frame)
            for line in lines:
                line.skip_answer()
            sent += len(lines)
        return sent

    run(seconds / 2)
    with measured(broker) as so_far:
        count = run(seconds)
        elapsed, cpu = so_far()
    for line in lines:
        line.close()
    broker.delete_topic(topic)
    return Figure(count / elapsed, cpu * 1e6 / count)


def idle_bytes(broker: Secured) -> float:
    """Return the memory that the broker needs for one idle TLS connection, without a certificate.

    The clients have not logged in; that takes ten seconds at most, and this less.
    """
    process = psutil.Process(broker.pid)
    address = (HOST, broker.ports[SASL_SSL])
    warm = [Line(address, broker.context) for _ in range(50)]
    for line in warm:
        line.close()
    before = process.memory_info().rss
    lines = [Line(address, broker.context) for _ in range(IDLE_CONNECTIONS)]
    grown = process.memory_info().rss - before
    for line in lines:
        line.close()
    return grown / IDLE_CONNECTIONS


ROWS: dict[str, Callable[[Secured, float], Figure]] = {
    "TLS produce, MB, CPU-s/GB": lambda broker, _: produce(broker, has_tls=True),
    "plain produce, MB, CPU-s/GB": lambda broker, _: produce(broker, has_tls=False),
    "TLS fetch of 1 MiB, MB, CPU-s/GB": lambda broker, _: fetch(broker, has_tls=True),
    "plain fetch of 1 MiB, MB, CPU-s/GB": lambda broker, _: fetch(broker, has_tls=False),
    "SCRAM-SHA-256 logins, CPU-ms each": log_in,
    "small produce, CPU-us each": small_requests,
}
RULES_ROW = "small produce, CPU-us each"


def compare(folder: Path, rounds: int, seconds: float) -> str:
    """Return the table of all rows."""
    found: dict[tuple[str, str], list[Figure]] = {}
    idle: dict[str, float] = {}

    def take(number: int, row: str, broker: Secured) -> None:
        figure = ROWS[row](broker, seconds)
        found.setdefault((row, broker.name), []).append(figure)
        print(f"round {number + 1}: {row}: {broker.name}: {figure}", flush=True)

    with secured_brokers(folder) as brokers:
        pair = [brokers["penstock"], brokers["kafka"]]
        for number in range(rounds):
            pair.reverse()
            for row in ROWS:
                for broker in pair:
                    take(number, row, broker)
            take(number, RULES_ROW, brokers["rules"])
        for broker in pair:
            idle[broker.name] = idle_bytes(broker)
    lines = [
        "| row | Penstock: rate, CPU | Apache Kafka: rate, CPU | rate, ratio | CPU, ratio |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += (_row(row, found[row, "penstock"], found[row, "kafka"]) for row in ROWS)
    rules = _row(RULES_ROW, found[RULES_ROW, "rules"], found[RULES_ROW, "penstock"])
    lines.append(
        f"| idle TLS connection, KB | {idle['penstock'] / 1e3:.1f} | {idle['kafka'] / 1e3:.1f} | | "
        f"{idle['penstock'] / max(1.0, idle['kafka']):.2f} |"
    )
    beside = "| row | with an authorizer | without | rate, ratio | CPU, ratio |"
    return "\n".join([*lines, "", beside, lines[1], rules])


def _row(row: str, ours: list[Figure], theirs: list[Figure]) -> str:
    def text(figures: list[Figure]) -> str:
        rates = sorted(one.per_second for one in figures)
        cpus = sorted(one.cpu for one in figures)
        return (
            f"{statistics.median(rates):,.0f}/s ({rates[0]:,.0f} to {rates[-1]:,.0f}), "
            f"{statistics.median(cpus):.2f} ({cpus[0]:.2f} to {cpus[-1]:.2f})"
        )

    rate = statistics.median(a.per_second / b.per_second for a, b in zip(ours, theirs, strict=True))
    cpu = statistics.median(a.cpu / b.cpu for a, b in zip(ours, theirs, strict=True))
    return f"| {row} | {text(ours)} | {text(theirs)} | {rate:.2f} | {cpu:.2f} |"


def main() -> int:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--markdown", action="store_true", help="write the table to the README")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="penstock-security-"))
    try:
        table = compare(folder, options.rounds, options.seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table)
    if options.markdown:
        README.write_text(put_between_marks(README.read_text(), table, "security"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
