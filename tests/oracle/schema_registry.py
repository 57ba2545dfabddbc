"""Apicurio as a schema registry with Confluent's API, one Java process, no container.

Guarantees: `schema_registry(folder)` gives a registry without any schema that listens on a free
port of 127.0.0.1 and keeps its schemas in memory; it has answered when the block begins, and is
stopped when it ends.
"""

import contextlib
import json
import os
import shutil
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.oracle.cache import OracleError, built, progress, run, tool
from tests.oracle.kafka_jars import QUICK_JVM, java
from tests.oracle.running_broker import HOST, free_port

VERSION = "3.0.9"
START_TIMEOUT_SECONDS = 90.0
STOP_TIMEOUT_SECONDS = 20.0
POLL_SECONDS = 0.1


class SchemaRegistry:
    """A running registry."""

    def __init__(self, port: int) -> None:
        self.address = f"http://{HOST}:{port}/apis/ccompat/v7"

    def register(
        self,
        subject: str,
        text: str,
        kind: str = "AVRO",
        references: Sequence[Mapping[str, object]] = (),
    ) -> int:
        """Add a schema as a producer does; its id."""
        body = {"schema": text, "schemaType": kind, "references": list(references)}
        request = urllib.request.Request(
            f"{self.address}/subjects/{subject}/versions",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(json.load(answer)["id"])

    def answers(self) -> bool:
        """Whether it lists its subjects, now."""
        try:
            with urllib.request.urlopen(f"{self.address}/subjects", timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


def _application() -> Path:
    def build(folder: Path) -> None:
        maven = tool("mvn", "install Maven (Debian: maven)")
        artifact = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
        progress(f"downloading {artifact} by Maven (109 MB)")
        goal = ["dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
        run([maven, "-q", "-B", *goal])
        archive = next(folder.glob("*.tar.gz"))
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        archive.unlink()

    return built(f"apicurio-{VERSION}", build)


@contextlib.contextmanager
def schema_registry(folder: Path) -> Iterator[SchemaRegistry]:
    """A registry for as long as the block lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    jar = next(_application().rglob("*-runner.jar"))
    registry = SchemaRegistry(port := free_port())
    setpriv = shutil.which("setpriv")
    guard = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
    with (folder / "registry.log").open("ab") as log:
        process = subprocess.Popen(
            [*guard, java(), *QUICK_JVM, "-jar", str(jar)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, "QUARKUS_HTTP_HOST": HOST, "QUARKUS_HTTP_PORT": str(port)},
        )
    try:
        _wait(process, registry, folder / "registry.log")
        yield registry
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], registry: SchemaRegistry, log: Path) -> None:
    deadline = time.perf_counter() + START_TIMEOUT_SECONDS
    while not registry.answers():
        if process.poll() is not None or time.perf_counter() > deadline:
            raise OracleError(
                f"the schema registry did not start:\n{log.read_text(errors='replace')[-4000:]}"
            )
        time.sleep(POLL_SECONDS)
