"""Apache Iceberg's own REST catalog on loopback, over a SQLite file and an S3 store.

How-to: `with rest_catalog(folder, store, "s3://lake/rest") as catalog:`, then `catalog.address` is
the `uri` of a catalog of type `rest`.

Guarantees: it has answered when the block begins and is stopped when it ends; it dies with the
process that started it. It listens on 127.0.0.1 only. The server of the fixtures listens on every
address and has no setting for it, so `LoopbackRestCatalog.java` binds the same servlet: a network
namespace would need root and a second store inside of it.

With `hands_out_keys` the answers of the catalog have the keys of the store. They never expire:
`credential_proxy` is for that.
"""

import contextlib
import functools
import http.client
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.oracle.cache import OracleError, built, content_key, progress, run, tool
from tests.oracle.kafka_jars import java, java_version
from tests.oracle.object_store import REGION, ObjectStore
from tests.oracle.running_broker import HOST, free_port

VERSION: Final = "1.11.0"
SOURCE: Final = Path(__file__).with_name("LoopbackRestCatalog.java")
MAIN: Final = "org.apache.iceberg.rest.LoopbackRestCatalog"
_JVM: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-Xshare:auto")
_START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_ARTIFACTS: Final = (
    ("org.apache.iceberg:iceberg-open-api", VERSION, "test-fixtures", True),
    ("org.apache.iceberg:iceberg-core", VERSION, "", False),
    ("org.apache.iceberg:iceberg-core", VERSION, "tests", True),
    ("org.apache.iceberg:iceberg-aws", VERSION, "", False),
    ("org.apache.iceberg:iceberg-aws-bundle", VERSION, "", False),
    ("org.eclipse.jetty.ee10:jetty-ee10-servlet", "12.1.5", "", False),
    ("org.xerial:sqlite-jdbc", "3.50.3.0", "", False),
    ("org.slf4j:slf4j-simple", "2.0.17", "", False),
)
"""Name, version, classifier, and whether it is taken without its dependencies."""


class RestCatalog:
    """A running catalog."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.address = f"http://{HOST}:{port}"

    def answers(self) -> bool:
        """Return whether it gives its configuration, now."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=5)
        with contextlib.closing(connection), contextlib.suppress(OSError):
            connection.request("GET", "/v1/config")
            return connection.getresponse().status == 200
        return False


@contextlib.contextmanager
def rest_catalog(
    folder: Path, store: ObjectStore, warehouse: str, *, hands_out_keys: bool = True
) -> Iterator[RestCatalog]:
    """An empty catalog for as long as the block lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    properties = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:{folder / 'catalog.db'}",
        "warehouse": warehouse,
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": store.address,
        "s3.path-style-access": "true",
        "s3.access-key-id": store.access_key,
        "s3.secret-access-key": store.secret_key,
        "client.region": REGION,
        "include-credentials": "true" if hands_out_keys else "false",
    }
    settings = folder / "catalog.properties"
    settings.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    catalog = RestCatalog(free_port())
    guard = shutil.which("setpriv")
    path = ":".join([str(_compiled()), *map(str, _jars())])
    command = [
        *([guard, "--pdeathsig", "KILL", "--"] if guard else []),
        *(java(), *_JVM, "-cp", path, MAIN, str(catalog.port), str(settings)),
    ]
    log = folder / "catalog.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
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


def _wait(process: subprocess.Popen[bytes], catalog: RestCatalog, log: Path) -> None:
    deadline = time.perf_counter() + _START_SECONDS
    while not catalog.answers():
        if process.poll() is not None or time.perf_counter() > deadline:
            text = log.read_text(errors="replace")[-4000:]
            raise OracleError(f"the REST catalog did not start:\n{text}")
        time.sleep(_POLL_SECONDS)


def _dependency(artifact: tuple[str, str, str, bool]) -> str:
    name, version, classifier, is_alone = artifact
    group, _, own = name.partition(":")
    others = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{own}</artifactId>"
        f"<version>{version}</version>"
        + (f"<classifier>{classifier}</classifier>" if classifier else "")
        + (f"{others}</exclusions>" if is_alone else "")
        + "</dependency>"
    )


@functools.cache
def _jars() -> tuple[Path, ...]:
    """The jars in sorted order, downloaded by Maven if they are not there."""
    pom = (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>oracle</groupId><artifactId>iceberg-rest</artifactId><version>1</version>"
        "<packaging>pom</packaging><dependencies>"
        f"{''.join(map(_dependency, _ARTIFACTS))}</dependencies></project>"
    )

    def build(folder: Path) -> None:
        progress(f"downloading Iceberg's REST catalog {VERSION} by Maven (95 MB)")
        (folder / "pom.xml").write_text(pom)
        maven = tool("mvn", "install Maven (Debian: maven)")
        goal = [_COPY, f"-DoutputDirectory={folder / 'lib'}", "-DincludeScope=runtime"]
        run([maven, "-q", "-B", "-f", folder / "pom.xml", *goal])

    home = built(f"iceberg-rest-{VERSION}-{content_key(pom)}", build)
    return tuple(sorted((home / "lib").glob("*.jar")))


@functools.cache
def _compiled() -> Path:
    """The folder with the compiled launcher."""

    def build(folder: Path) -> None:
        javac = tool("javac", "install a JDK, 17 or later (Debian: default-jdk-headless)")
        run([javac, "-nowarn", "-d", folder, "-cp", ":".join(map(str, _jars())), SOURCE])

    names = " ".join(jar.name for jar in _jars())
    return built(f"interop/iceberg-rest-{content_key(SOURCE, java_version(), names)}", build)
