"""A standalone cluster of Spark: a master and workers of one core and one gigabyte each.

Guarantees: the cluster is ready when the master's own JSON document shows all its workers alive.
Executors run this interpreter with this source tree. A killed worker is replaced only by
`add_worker`. Folders of the work are below the given folder.
"""

from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psutil

from tests.oracle.running_broker import free_port
from tests.spark.clusters.spark_process import HOST, SparkProcess, document_at

WORKERS: Final = 2
EXECUTOR: Final = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"


class StandaloneCluster:
    """A master and its workers; a context manager."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._port = free_port()
        self._page_port = free_port()
        self._master: SparkProcess | None = None
        self.workers: list[SparkProcess] = []
        self._started = 0

    @property
    def url(self) -> str:
        """The value of `--master`."""
        return f"spark://{HOST}:{self._port}"

    def __enter__(self) -> Self:
        words = [_MASTER, "--host", HOST, "--port", str(self._port)]
        self._master = SparkProcess(
            "spark-class",
            [*words, "--webui-port", str(self._page_port)],
            self._folder / "master.log",
            # Its port is fixed: a second cluster of the machine would wait for it.
            {"SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false"},
        )
        try:
            self._master.wait_until(lambda: self.state() is not None)
            for _ in range(WORKERS):
                self._start_worker()
            self.wait_for_workers(WORKERS)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def state(self) -> dict[str, Any] | None:
        """The master's document; None while it does not answer."""
        return document_at(f"http://{HOST}:{self._page_port}/json/")

    def wait_for_workers(self, count: int) -> None:
        """Wait until the master shows this number of live workers."""
        assert self._master is not None
        self._master.wait_until(lambda: (self.state() or {}).get("aliveworkers") == count)

    def executors(self) -> list[psutil.Process]:
        """The processes of all executors."""
        return [one for worker in self.workers for one in worker.below(EXECUTOR)]

    def python_workers(self) -> list[psutil.Process]:
        """The Python processes of all executors."""
        return [one for worker in self.workers for one in worker.below("pyspark.daemon")]

    def kill_worker(self) -> None:
        """Kill -9 the oldest worker; its executor ends by itself."""
        worker = self.workers.pop(0)
        worker.kill()

    def add_worker(self) -> None:
        """Start a worker more, and wait until the master has seen it."""
        self._start_worker()
        self.wait_for_workers(len(self.workers))

    def stop(self) -> None:
        """End all processes."""
        for one in [*self.workers, *([self._master] if self._master is not None else [])]:
            one.stop()

    def _start_worker(self) -> None:
        self._started += 1
        name = f"worker-{self._started}"
        words = [_WORKER, "--host", HOST, "--webui-port", "0", "-c", "1", "-m", "1g"]
        work = str(self._folder / name)
        log = self._folder / f"{name}.log"
        self.workers.append(SparkProcess("spark-class", [*words, "-d", work, self.url], log))
