"""A real Debezium: its PostgreSQL connector in Kafka Connect, one process, from a broker's address.

How-to: `connector = Debezium(folder, database, broker.bootstrap); with connector: ...`.

Guarantees: `start()` returns when the connector reads the database's log, so
after its initial snapshot; `kill()` is kill -9, and a new
`start()` continues from the stored offsets, so events since the last flush are sent again. It dies
with the process that started it. Connect's own port is on 127.0.0.1 only.

Connect runs standalone: its offsets are in a file, once a second. Connect's exactly-once mode is
NOT used: repeated events are part of what is tested.

The jars are downloaded by Maven, at pinned versions, into the user's cache folder. Newer versions
of Debezium lack their parent POM in some repositories.
"""

import contextlib
import functools
import http.client
import json
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.oracle.cache import OracleError, built, content_key, progress, run, tool
from tests.oracle.kafka_jars import KAFKA_VERSION, java
from tests.oracle.postgres import USER, Postgres
from tests.oracle.running_broker import HOST, free_port

VERSION: Final = "3.6.0.Final"
PREFIX: Final = "shop"
_SLF4J: Final = "1.7.36"
_JVM: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m", "-Xshare:auto")
_START_SECONDS: Final = 300.0
_STOP_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.1
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_CONNECT: Final = (
    ("org.apache.kafka", "connect-runtime", KAFKA_VERSION),
    ("org.apache.kafka", "connect-json", KAFKA_VERSION),
    ("org.slf4j", "slf4j-simple", _SLF4J),
)
_CONNECTOR: Final = (("io.debezium", "debezium-connector-postgres", VERSION),)
_OF_CONNECT: Final = ("kafka-clients-", "connect-api-", "slf4j-api-")
"""Jars of the connector that Connect has itself."""


class Debezium:
    """The connector; a context manager that starts and stops it."""

    def __init__(
        self,
        folder: Path,
        database: Postgres,
        bootstrap: str,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._folder = folder
        self._database = database
        self._process: subprocess.Popen[bytes] | None = None
        worker = {
            "bootstrap.servers": bootstrap,
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "offset.storage.file.filename": str(folder / "connect.offsets"),
            "offset.flush.interval.ms": "1000",
            "plugin.path": str(_connector_jars().parent),
            "plugin.discovery": "service_load",
            "listeners": f"http://{HOST}:{self.port}",
        }
        connector = {
            "name": PREFIX,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "database.hostname": HOST,
            "database.port": str(database.port),
            "database.user": USER,
            "database.password": "none",
            "database.dbname": USER,
            "topic.prefix": PREFIX,
            "publication.autocreate.mode": "filtered",
            "provide.transaction.metadata": "true",
            "poll.interval.ms": "50",
            **(settings or {}),
        }
        _write(folder / "worker.properties", worker)
        _write(folder / "connector.properties", connector)

    def start(self) -> None:
        """Start the process and wait until the connector reads the database's log."""
        assert self._process is None, "stop it first"
        guard = shutil.which("setpriv")
        files = [str(self._folder / f"{name}.properties") for name in ("worker", "connector")]
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [
                    *([guard, "--pdeathsig", "KILL", "--"] if guard else []),
                    *(java(), *_JVM, "-cp", f"{_connect_jars()}/*", main, *files),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
            )
        deadline = time.perf_counter() + _START_SECONDS
        while not (self.is_running() and self._is_streaming()):
            if self._process.poll() is not None or time.perf_counter() > deadline:
                text = self._log.read_text(errors="replace")[-4000:]
                self.kill()
                raise OracleError(f"Kafka Connect did not start:\n{text}")
            time.sleep(_POLL_SECONDS)

    def is_running(self) -> bool:
        """Return whether the connector and its task run, now."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=5)
        with contextlib.closing(connection), contextlib.suppress(OSError):
            connection.request("GET", f"/connectors/{PREFIX}/status")
            answer = connection.getresponse()
            found: Any = json.loads(answer.read()) if answer.status == 200 else {}
            states = [one["state"] for one in found.get("tasks", ())]
            return bool(states) and all(one == "RUNNING" for one in states)
        return False

    def _is_streaming(self) -> bool:
        """Return whether it reads the log: after the initial snapshot, or after a new start."""
        active = "select count(*) from pg_replication_slots where active"
        return self._database.execute(active).strip() == "1"

    def kill(self) -> None:
        """SIGKILL: no offsets are flushed."""
        process = self._process
        if process is not None:
            process.kill()
            process.wait()
            self._process = None

    def stop(self) -> None:
        """SIGTERM, and wait for the end."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_SECONDS)
        self.kill()

    @property
    def _log(self) -> Path:
        return self._folder / "connect.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _write(path: Path, properties: Mapping[str, str]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))


@functools.cache
def _connect_jars() -> Path:
    """The folder of Kafka Connect's jars."""
    return _jars(f"connect-{KAFKA_VERSION}", _CONNECT, "Kafka Connect (34 MB)")


@functools.cache
def _connector_jars() -> Path:
    """Return the folder of the connector's jars; jars of Connect are not in it."""
    return _jars(f"debezium-{VERSION}", _CONNECTOR, "Debezium's connector (28 MB)")


def _jars(name: str, artifacts: Sequence[tuple[str, str, str]], shown: str) -> Path:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{own}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, own, version in artifacts
    )
    pom = (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>oracle</groupId><artifactId>{name}</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )

    def build(folder: Path) -> None:
        progress(f"downloading {shown} by Maven")
        (folder / "pom.xml").write_text(pom)
        maven = tool("mvn", "install Maven (Debian: maven)")
        goal = [_COPY, f"-DoutputDirectory={folder / 'plugins' / 'lib'}", "-DincludeScope=runtime"]
        run([maven, "-q", "-B", "-f", folder / "pom.xml", *goal])
        if artifacts is _CONNECTOR:
            for jar in (folder / "plugins" / "lib").glob("*.jar"):
                if jar.name.startswith(_OF_CONNECT):
                    jar.unlink()

    return built(f"{name}-{content_key(pom)}", build) / "plugins" / "lib"
