"""Apache Hive's metastore on loopback, over a Derby database: the jars are those of PySpark.

How-to: `with hive_metastore(folder) as metastore:`, then `metastore.address` is the `uri` of a
catalog of type `hive`.

Guarantees: it answers when the block begins and is stopped when it ends; it dies with the process
that started it. It listens on 127.0.0.1 only. It has the locks that pyiceberg takes for a commit;
`lock_seconds` is the time after which the metastore drops the lock of a client that is gone.

It is Hive 2.3, which is in PySpark, so clients need `hive.hive2-compatible`. It has no jar for
object stores: the tables are in local folders.
"""

import contextlib
import functools
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyspark

from tests.oracle.cache import OracleError, built, content_key, run, tool
from tests.oracle.kafka_jars import java, java_version
from tests.oracle.running_broker import HOST, free_port

SOURCE: Final = Path(__file__).with_name("LoopbackMetastore.java")
MAIN: Final = "LoopbackMetastore"
LOCK_SECONDS: Final = 300
"""The default of Hive."""
_OPENED: Final = ("java.lang", "java.net", "java.util", "java.util.concurrent")
_JVM: Final = (
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx300m", "-Xshare:auto"),
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
)
_START_SECONDS: Final = 180.0
_STOP_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.1


class HiveMetastore:
    """A running metastore."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.address = f"thrift://{HOST}:{port}"

    def catalog(self, warehouse: Path) -> dict[str, str]:
        """Return the options of `table.catalog`."""
        return {
            "type": "hive",
            "uri": self.address,
            "warehouse": f"file://{warehouse}",
            "hive.hive2-compatible": "true",
        }

    def accepts(self) -> bool:
        """Return whether it accepts a connection now; its database is ready then."""
        with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), 1):
            return True
        return False


@contextlib.contextmanager
def hive_metastore(folder: Path, *, lock_seconds: int = LOCK_SECONDS) -> Iterator[HiveMetastore]:
    """An empty metastore for as long as the block lasts."""
    settings = folder / "conf"
    settings.mkdir(parents=True)
    (settings / "hive-site.xml").write_text(_site(_properties(folder, lock_seconds)))
    metastore = HiveMetastore(free_port())
    guard = shutil.which("setpriv")
    path = ":".join([str(settings), str(_compiled()), f"{_jars()}/*"])
    command = [
        *([guard, "--pdeathsig", "KILL", "--"] if guard else []),
        *(java(), *_JVM, f"-Djava.io.tmpdir={folder}", "-cp", path, MAIN, str(metastore.port)),
    ]
    log = folder / "metastore.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        _wait(process, metastore, log)
        yield metastore
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _properties(folder: Path, lock_seconds: int) -> dict[str, str]:
    return {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/db;create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
        "datanucleus.schema.autoCreateAll": "true",
        # The default pool, BoneCP, is not among PySpark's jars.
        "datanucleus.connectionPoolingType": "HikariCP",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": str(folder / "warehouse"),
        "hive.async.log.enabled": "false",
        "hive.txn.timeout": f"{lock_seconds}s",
    }


def _site(properties: Mapping[str, str]) -> str:
    rows = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in properties.items()
    )
    return f"<configuration>{rows}</configuration>"


def _wait(process: subprocess.Popen[bytes], metastore: HiveMetastore, log: Path) -> None:
    deadline = time.perf_counter() + _START_SECONDS
    while not metastore.accepts():
        if process.poll() is not None or time.perf_counter() > deadline:
            text = log.read_text(errors="replace")[-4000:]
            raise OracleError(f"the metastore did not start:\n{text}")
        time.sleep(_POLL_SECONDS)


def _jars() -> Path:
    return Path(pyspark.__file__).with_name("jars")


@functools.cache
def _compiled() -> Path:
    """The folder with the compiled launcher."""

    def build(folder: Path) -> None:
        javac = tool("javac", "install a JDK, 17 or later (Debian: default-jdk-headless)")
        run([javac, "-nowarn", "-d", folder, "-cp", f"{_jars()}/*", SOURCE])

    key = content_key(SOURCE, java_version(), pyspark.__version__)
    return built(f"interop/hive-metastore-{key}", build)
