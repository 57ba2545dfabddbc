"""A good producer beside floods of clients that never log in, on Penstock and Apache Kafka.

    python -m benchmarks.security_floods [--rounds 3] [--markdown]

The producer has a TLS connection with a client certificate and produces one small record every
5 ms; its latency is measured without a flood, and during each of these:

- 2,000 connections that send half of a ClientHello and stay;
- 500 complete TLS handshakes a second on new connections;
- 500 logins a second with a wrong SCRAM proof;
- 10,000 idle TLS connections with client certificates.

The brokers are measured in turn. Floods come from addresses of their own, and are processes of
their own, on the same machine: with two cores they take time from the broker and the producer too.
The memory is the growth of the broker's resident set during the flood. It checks no bound.
"""

import argparse
import contextlib
import dataclasses
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import psutil

from benchmarks.load import idle_connections, raw_flood, run_raw
from benchmarks.report import put_between_marks
from benchmarks.secured_brokers import Secured, secured_brokers
from benchmarks.side_by_side import README
from tests.oracle.secured_kafka import SASL_PLAINTEXT

REQUESTS = 1_200
PAUSE_US = 5_000
SOURCES = 20
HALF_OPEN, IDLE, RATE = 2_000, 10_000, 500
FLOOD_SECONDS = 60
"""A flood with a rate is ended after the measurement; this is the limit."""
SETTLE_SECONDS = 1.0


@dataclasses.dataclass(frozen=True)
class Figure:
    """One measurement of the producer and of the broker's memory."""

    p50_ms: float
    p99_ms: float
    grown_bytes: int


def quiet(_: Secured) -> AbstractContextManager[object]:
    """No flood."""
    return contextlib.nullcontext()


def half_open(broker: Secured) -> AbstractContextManager[object]:
    """Connections in the middle of a handshake. Brokers close them after a while."""
    address = broker.raw_options(has_tls=True)["address"]
    return idle_connections(address, HALF_OPEN, command="half-open", sources=SOURCES)


def handshakes(broker: Secured) -> AbstractContextManager[object]:
    """Complete handshakes, each on a new connection that is closed at once."""
    options = broker.raw_options(has_tls=True)
    return raw_flood("handshakes", rate=RATE, sources=SOURCES, seconds=FLOOD_SECONDS, **options)


@contextlib.contextmanager
def bad_logins(broker: Secured) -> Iterator[None]:
    """SCRAM logins with a wrong proof."""
    words = [str(broker.ports[SASL_PLAINTEXT]), "wrong_proof", str(RATE), str(FLOOD_SECONDS)]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.bad_input.login_flood", *words], stdout=subprocess.DEVNULL
    ) as process:
        try:
            yield
        finally:
            process.kill()


def idle(broker: Secured) -> AbstractContextManager[object]:
    """Idle connections with client certificates."""
    options = broker.raw_options(has_tls=True)
    address = options.pop("address")
    return idle_connections(address, IDLE, sources=SOURCES, **options)


FLOODS: dict[str, Callable[[Secured], AbstractContextManager[object]]] = {
    "no flood": quiet,
    "2,000 half-open handshakes": half_open,
    "500 handshakes/s": handshakes,
    "500 bad logins/s": bad_logins,
    "10,000 idle TLS connections": idle,
}


def measure(broker: Secured, flood: str) -> Figure:
    """Return the latency of the producer during a flood."""
    process = psutil.Process(broker.pid)
    topic = broker.create_topic()
    before = process.memory_info().rss
    with FLOODS[flood](broker):
        time.sleep(SETTLE_SECONDS)
        report = run_raw(
            "produce-single",
            topic=topic,
            count=REQUESTS,
            warm_up=REQUESTS // 4,
            pause_us=PAUSE_US,
            **broker.raw_options(has_tls=True),
        )
        grown = process.memory_info().rss - before
    broker.delete_topic(topic)
    time.sleep(SETTLE_SECONDS)
    return Figure(report.p50_us / 1e3, report.p99_us / 1e3, max(0, grown))


def compare(folder: Path, rounds: int) -> str:
    """Return the table of all floods."""
    found: dict[tuple[str, str], list[Figure]] = {}
    with secured_brokers(folder) as brokers:
        pair = [brokers["penstock"], brokers["kafka"]]
        for broker in pair:
            measure(broker, "no flood")
        for number in range(rounds):
            pair.reverse()
            for flood in FLOODS:
                for broker in pair:
                    figure = measure(broker, flood)
                    found.setdefault((flood, broker.name), []).append(figure)
                    print(f"round {number + 1}: {flood}: {broker.name}: {figure}", flush=True)
    lines = [
        "| flood | Penstock: p50, p99 in ms, MB | Apache Kafka: p50, p99 in ms, MB |",
        "| --- | --- | --- |",
    ]
    for flood in FLOODS:
        cells = [_text(found[flood, name]) for name in ("penstock", "kafka")]
        lines.append(f"| {flood} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def _text(figures: list[Figure]) -> str:
    p99s = sorted(one.p99_ms for one in figures)
    return (
        f"{statistics.median(one.p50_ms for one in figures):.2f}, "
        f"{statistics.median(p99s):.1f} ({p99s[0]:.1f} to {p99s[-1]:.1f}), "
        f"{statistics.median(one.grown_bytes for one in figures) / 1e6:.0f}"
    )


def main() -> int:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--markdown", action="store_true", help="write the table to the README")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="penstock-floods-"))
    try:
        table = compare(folder, options.rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table)
    if options.markdown:
        README.write_text(put_between_marks(README.read_text(), table, "floods"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
