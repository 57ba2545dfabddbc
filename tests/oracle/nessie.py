"""Project Nessie as an Iceberg REST catalog on loopback, in memory, over an S3 store.

How-to: `with nessie_catalog(folder, store, "s3://lake/nessie") as catalog:`, then `catalog.address`
is the `uri` of a catalog of type `rest`.

Guarantees: it has answered when the block begins and is stopped when it ends; it dies with the
process that started it. The clients of the catalog use keys of their own for the store. Table
metadata has the current snapshot only, which no other catalog of these tests does.

It needs Java 21 or later: a JDK in `JAVA_21_HOME`, on the path, or below /usr/lib/jvm.
"""

import contextlib
import functools
import http.client
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.oracle.cache import OracleError, built, progress, run, tool
from tests.oracle.iceberg_rest import RestCatalog
from tests.oracle.object_store import REGION, ObjectStore
from tests.oracle.running_broker import HOST, free_port

VERSION: Final = "0.99.0"
"""The newest version whose runner could be downloaded."""
JAVA_MIN: Final = 21
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_JVM: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")
_SERVICE: Final = "nessie.catalog.service.s3.default-options"
_START_SECONDS: Final = 400.0
"""27 s on two busy cores; 248 s at a load of 50."""
_STOP_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.1


class NessieCatalog(RestCatalog):
    """A running catalog."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.address = f"http://{HOST}:{port}/iceberg/main"

    def answers(self) -> bool:
        """Return whether it gives its configuration, now."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=5)
        with contextlib.closing(connection), contextlib.suppress(OSError):
            connection.request("GET", "/iceberg/v1/config")
            return connection.getresponse().status == 200
        return False


@contextlib.contextmanager
def nessie_catalog(folder: Path, store: ObjectStore, warehouse: str) -> Iterator[NessieCatalog]:
    """An empty catalog for as long as the block lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    jar = next(_runner().glob("*.jar"))
    catalog = NessieCatalog(free_port())
    settings = {
        "quarkus.http.host": HOST,
        "quarkus.http.port": str(catalog.port),
        "quarkus.management.host": HOST,
        "quarkus.management.port": str(free_port()),
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": "lake",
        "nessie.catalog.warehouses.lake.location": warehouse,
        f"{_SERVICE}.endpoint": store.address,
        f"{_SERVICE}.path-style-access": "true",
        f"{_SERVICE}.region": REGION,
        f"{_SERVICE}.auth-type": "STATIC",
        f"{_SERVICE}.access-key": "urn:nessie-secret:quarkus:store",
        "store.name": store.access_key,
        "store.secret": store.secret_key,
    }
    guard = shutil.which("setpriv")
    log = folder / "nessie.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [
                *([guard, "--pdeathsig", "KILL", "--"] if guard else []),
                *(str(java_21()), *_JVM),
                *(f"-D{name}={value}" for name, value in settings.items()),
                *("-jar", str(jar)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
        )
    try:
        _wait(process, catalog, log)
        yield catalog
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], catalog: NessieCatalog, log: Path) -> None:
    deadline = time.perf_counter() + _START_SECONDS
    while not catalog.answers():
        if process.poll() is not None or time.perf_counter() > deadline:
            text = log.read_text(errors="replace")[-4000:]
            raise OracleError(f"Nessie did not start:\n{text}")
        time.sleep(_POLL_SECONDS)


@functools.cache
def java_21() -> Path:
    """Return a `java` program of version 21 or later."""
    homes = [Path(text) for text in [os.environ.get("JAVA_21_HOME", "")] if text]
    found = [home / "bin" / "java" for home in homes]
    found += [Path(text) for text in [shutil.which("java") or ""] if text]
    found += sorted(Path("/usr/lib/jvm").glob("*/bin/java"))
    for one in found:
        if one.exists() and _version_of(one) >= JAVA_MIN:
            return one
    raise OracleError(f"Nessie needs Java {JAVA_MIN}: install a JDK, and set JAVA_21_HOME to it")


def _version_of(java: Path) -> int:
    found = re.search(r'version "(\d+)', run([java, "-version"]))
    return int(found[1]) if found else 0


def _runner() -> Path:
    def build(folder: Path) -> None:
        artifact = f"org.projectnessie.nessie:nessie-quarkus:{VERSION}:jar:runner"
        progress(f"downloading {artifact} by Maven (245 MB)")
        maven = tool("mvn", "install Maven (Debian: maven)")
        run([maven, "-q", "-B", _COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"])

    return built(f"nessie-{VERSION}", build)
