"""The load generators as functions: each call is one process, and returns what it reported.

`run_raw` runs the Go program of the folder `loadgen` (compiled once into the cache folder; a
change of its source makes a new one). `run_librdkafka` runs `benchmarks.librdkafka_producer`,
`run_java_producer` the Java program beside this file, with the client of Apache Kafka's release.
All fail loudly: a refused request, a lost connection or a timeout is an error, never a figure.
"""

import contextlib
import dataclasses
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.oracle.cache import OracleError, built, content_key, progress, run, tool
from tests.oracle.kafka_jars import class_path, java_command, java_version

ROOT = Path(__file__).resolve().parents[1]
SOURCE = Path(__file__).resolve().parent / "loadgen"
JAVA_SOURCE = Path(__file__).resolve().parent / "IdempotentProducer.java"
JAVA_JVM = ("-Xms512m", "-Xmx512m", "-XX:+UseSerialGC")
"""The client has one core: a collector without threads of its own leaves it to the producer."""
RUN_TIMEOUT_SECONDS = 180


@dataclasses.dataclass(frozen=True)
class Report:
    """What a load generator measured."""

    seconds: float
    records: int
    """Acknowledged or fetched, warm-up included: what the log's end is checked with."""
    client_cpu_seconds: float
    requests: int = 0
    bytes: int = 0
    p50_us: float = 0.0
    p99_us: float = 0.0


@functools.cache
def raw_client() -> Path:
    """The compiled program."""
    sources = sorted([*SOURCE.glob("*.go"), SOURCE / "go.mod"])

    def build(folder: Path) -> None:
        progress("compiling the load generator")
        go = tool("go", "install Go, 1.21 or later (https://go.dev/dl)")
        run([go, "build", "-o", folder / "loadgen", "."], folder=SOURCE)

    return built(f"loadgen-{content_key(*sources)}", build) / "loadgen"


def _command(name: str, options: Mapping[str, str | float]) -> list[str]:
    words = [str(raw_client()), name]
    for option, value in options.items():
        words.append(f"-{option.replace('_', '-')}={value}")
    return words


def _report(text: str) -> Report:
    fields: dict[str, Any] = json.loads(text)
    latency = fields.pop("latency", None) or {}
    return Report(**fields, p50_us=latency.get("p50_us", 0.0), p99_us=latency.get("p99_us", 0.0))


def run_raw(name: str, **options: str | float) -> Report:
    """Run one command of the raw client; options are its flags, with underscores."""
    return _report(run(_command(name, options), timeout_seconds=RUN_TIMEOUT_SECONDS))


def run_librdkafka(bootstrap: str, topic: str, *, value_bytes: int, records: int) -> Report:
    """Produce with librdkafka from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.librdkafka_producer"]
    arguments = [bootstrap, topic, str(value_bytes), str(records)]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return _report(
        run(
            [*command, *arguments],
            environment={"PYTHONPATH": path},
            timeout_seconds=RUN_TIMEOUT_SECONDS,
        )
    )


@functools.cache
def java_producer() -> Path:
    """The folder with the compiled Java program."""

    def build(folder: Path) -> None:
        progress(f"compiling {JAVA_SOURCE.name}")
        javac = tool("javac", "install a JDK, 17 or later (Debian: default-jdk-headless)")
        run([javac, "-nowarn", "-d", folder, "-cp", class_path(), JAVA_SOURCE])

    key = content_key(JAVA_SOURCE, java_version(), class_path())
    return built(f"java-producer-{key}", build)


def run_java_producer(bootstrap: str, topic: str, *, value_bytes: int, records: int) -> Report:
    """Produce with the Java client, default settings (idempotent), from a process of its own."""
    command = java_command(
        "IdempotentProducer",
        [bootstrap, topic, str(value_bytes), str(records)],
        options=JAVA_JVM,
        appended_to_class_path=java_producer(),
        log_level="error",
    )
    return _report(run(command, timeout_seconds=RUN_TIMEOUT_SECONDS))


@contextlib.contextmanager
def idle_connections(
    address: str, connections: int, *, command: str = "idle", **options: str | float
) -> Iterator[Report]:
    """Connections that were each answered once and then say nothing, while the block runs."""
    chosen = {"address": address, "connections": connections, **options}
    with subprocess.Popen(
        _command(command, chosen),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdin is not None
        line = process.stdout.readline()
        if not line:
            raise OracleError(f"no idle connections: {process.stderr.read()}")
        try:
            yield _report(line)
        finally:
            process.stdin.close()
            process.wait(RUN_TIMEOUT_SECONDS)


@contextlib.contextmanager
def raw_flood(name: str, **options: str | float) -> Iterator[None]:
    """Run a command of the raw client while the block runs, then kill it."""
    with subprocess.Popen(_command(name, options), stdout=subprocess.DEVNULL) as process:
        try:
            yield
            if process.poll() is not None:
                raise OracleError(f"the flood {name} ended early: exit code {process.returncode}")
        finally:
            process.kill()
