"""A Spark Connect server of the installed PySpark, on loopback.

Guarantees: the server is ready when its port accepts a connection. Its tasks run on this machine,
with this interpreter and this source tree; its working folder is not the client's.
"""

import socket
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.oracle.running_broker import free_port
from tests.spark.clusters.spark_process import HOST, QUICK_JVM, SparkProcess

_SERVER: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"


class ConnectServer:
    """A server; a context manager that starts and stops it."""

    def __init__(self, folder: Path, master: str = "local[2]") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._master = master
        self._port = free_port()
        self._process: SparkProcess | None = None
        self.ready_seconds = 0.0

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"sc://{HOST}:{self._port}"

    def __enter__(self) -> Self:
        begun = time.monotonic()
        settings = {
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.ui.enabled": "false",
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.driver.extraJavaOptions": QUICK_JVM,
            "spark.log.level": "WARN",
            "spark.local.dir": str(self._folder / "local"),
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.streaming.pollingDelay": "10ms",
        }
        conf = [part for name, text in settings.items() for part in ("--conf", f"{name}={text}")]
        words = ["--class", _SERVER, "--master", self._master, *conf, "spark-internal"]
        # spark-submit starts this class with the memory of a daemon.
        memory = {"SPARK_DAEMON_MEMORY": "1g"}
        self._process = SparkProcess("spark-submit", words, self._folder / "connect.log", memory)
        try:
            self._process.wait_until(self._answers)
        except BaseException:
            self._process.stop()
            raise
        self.ready_seconds = time.monotonic() - begun
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server and its workers."""
        assert self._process is not None
        self._process.stop()

    def log_text(self) -> str:
        """The output of the server so far."""
        assert self._process is not None
        return self._process.log.read_text(errors="replace")

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection((HOST, self._port), 1):
            return True
        return False
