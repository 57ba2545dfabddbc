"""How each client's driver is built and started, and the test's end of the line.

Guarantees: `DriverProcess(client, bootstrap)` is a driver that answers. Its dependencies are
fetched and built by the language's own tool (npm, go, Maven and javac) into the cache folder, under
the hash of its sources, so that a second run starts at once. A missing tool is an error that names
it, never a skip.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import cast

from tests.interop.driver_protocol import (
    Cluster,
    Error,
    Fetch,
    Produce,
    Record,
    Security,
    Topic,
    fetch_to_json,
    produce_to_json,
    record_from_json,
)
from tests.oracle.cache import OracleError, built, content_key, progress, run, tool
from tests.oracle.kafka_broker import make_class_data_archive
from tests.oracle.kafka_jars import class_path, java_command, java_version

ROOT = Path(__file__).resolve().parents[2]
DRIVERS = Path(__file__).resolve().parent / "drivers"


class DriverError(Exception):
    """The client reported a failure; `error` is its report."""

    def __init__(self, error: Error) -> None:
        super().__init__(f"{error.kind} ({error.code}): {error.message}")
        self.error = error


def _python(module: str) -> list[str]:
    return [sys.executable, "-m", f"tests.interop.drivers.{module}"]


def node() -> str:
    """The `node` program."""
    return tool("node", "install Node.js, 18 or later (Debian: nodejs)")


def kafkajs_folder() -> Path:
    """Where kafkajs is installed, with its driver."""
    source = DRIVERS / "kafkajs"
    files = [source / "package.json", source / "package-lock.json", source / "driver.js"]

    def build(folder: Path) -> None:
        progress("installing kafkajs by npm")
        for file in files:
            shutil.copy(file, folder)
        npm = tool("npm", "install npm (Debian: npm)")
        run([npm, "ci", "--no-audit", "--no-fund", "--silent"], folder=folder)

    return built(f"interop/kafkajs-{content_key(*files)}", build)


def _kafkajs() -> list[str]:
    return [node(), "--no-warnings", str(kafkajs_folder() / "driver.js")]


def _franz_go() -> list[str]:
    go = tool("go", "install Go, 1.21 or later: it fetches the newer toolchain it needs")
    source = DRIVERS / "franz_go"
    files = [source / "go.mod", source / "go.sum", source / "main.go"]

    def build(folder: Path) -> None:
        progress("building the franz-go driver")
        run([go, "build", "-o", folder / "driver", "."], folder=source)

    folder = built(f"interop/franz-go-{content_key(*files)}", build)
    return [str(folder / "driver")]


def compiled_java(name: str) -> Path:
    """The folder with the classes of one of the Java programs."""
    javac = tool("javac", "install a JDK, 17 or later (Debian: default-jdk-headless)")
    source = DRIVERS / "java" / f"{name}.java"

    def build(folder: Path) -> None:
        progress(f"compiling {name}.java")
        run([javac, "-nowarn", "-d", folder, "-cp", class_path(), source])

    key = content_key(source, java_version(), class_path())
    return built(f"interop/java-{name.lower()}-{key}", build)


def _java() -> list[str]:
    make_class_data_archive()
    return java_command("Driver", appended_to_class_path=compiled_java("Driver"))


COMMANDS: dict[str, Callable[[], list[str]]] = {
    "confluent-kafka": lambda: _python("confluent_driver"),
    "kafka-python": lambda: _python("kafka_python_driver"),
    "aiokafka": lambda: _python("aiokafka_driver"),
    "kafkajs": _kafkajs,
    "franz-go": _franz_go,
    "java": _java,
}
CLIENTS = tuple(COMMANDS)


class DriverProcess:
    """The test's end: the calls of `Driver`, each one line there and one back.

    `transcript` keeps the name and the answer of each call as they came, for comparison.
    """

    def __init__(self, client: str, bootstrap: str) -> None:
        self.client = client
        self.transcript: list[tuple[str, object]] = []
        self._said: deque[str] = deque(maxlen=60)
        self._process = subprocess.Popen(
            [*COMMANDS[client](), bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONDEVMODE": ""},
        )
        # A full pipe would stop the client; so a thread reads its standard error.
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        """The process id of the driver."""
        return self._process.pid

    def _listen(self) -> None:
        assert self._process.stderr is not None
        self._said.extend(self._process.stderr)

    def said(self) -> str:
        """The end of what the driver wrote on its error stream."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        self._listener.join(1)
        return "".join(self._said)[-4000:]

    def close(self) -> None:
        """End the driver: its input ends, and it has a moment to leave."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join(10)
        self._process.stdout.close()
        self._process.stderr.close()

    def _ask(self, name: str, **words: object) -> object:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": name, **words}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise OracleError(f"the {self.client} driver ended:\n" + self.said())
        answer = json.loads(line)
        self.transcript.append((name, answer))
        if "error" in answer:
            told = answer["error"]
            raise DriverError(Error(told["class"], told["code"], told.get("message", "")))
        return cast("object", answer["ok"])

    def describe_cluster(self) -> Cluster:
        return cast("Cluster", self._ask("describe_cluster"))

    def create_topic(
        self, topic: str, partitions: int, configs: dict[str, str] | None = None
    ) -> None:
        self._ask("create_topic", topic=topic, partitions=partitions, configs=configs or {})

    def delete_topic(self, topic: str) -> None:
        self._ask("delete_topic", topic=topic)

    def list_topics(self) -> list[str]:
        return cast("list[str]", self._ask("list_topics"))

    def describe_topic(self, topic: str) -> Topic:
        return cast("Topic", self._ask("describe_topic", topic=topic))

    def topic_configs(self, topic: str, names: list[str]) -> dict[str, str | None]:
        found = self._ask("topic_configs", topic=topic, names=names)
        return cast("dict[str, str | None]", found)

    def list_offset(self, topic: str, partition: int, at: str, number: int = 0) -> int:
        words = {"topic": topic, "partition": partition, "at": at, "number": number}
        return cast("int", self._ask("list_offset", **words))

    def produce(self, call: Produce) -> list[tuple[int, int]]:
        answer = cast("list[list[int]]", self._ask("produce", **produce_to_json(call)))
        return [(partition, offset) for partition, offset in answer]

    def fetch(self, call: Fetch) -> list[Record]:
        answer = cast("list[dict[str, object]]", self._ask("fetch", **fetch_to_json(call)))
        return [record_from_json(record) for record in answer]  # type: ignore[arg-type]

    def secure(self, security: Security) -> None:
        self._ask("secure", security=security)
