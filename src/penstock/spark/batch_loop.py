"""`BatchLoop`: calls for batches at an interval in a thread, where no streaming query can.

Over Spark Connect, a streaming query calls its driver on the server's machine, and a pipeline's
driver commits here. So this loop has the place of the query: one batch after the other, and a pause
after the last available one.

Guarantees: batches never overlap. `wait` raises the error that ended the loop. `stop` cancels the
jobs of this loop, and only these, until the loop has ended or `STOP_SECONDS_MAX` have passed: the
server may be gone. A batch that ends later is committed or not, never half. An error of a cancelled
job is no failure; a stop of the commits is one at any time.
"""

from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread, current_thread
from time import monotonic
from typing import Final
from uuid import uuid4

from pyspark.sql import SparkSession

THREAD: Final = "penstock-batch-loop"
STOP_SECONDS_MAX: Final = 180.0
CANCEL_SECONDS: Final = 2.0
"""A job that is submitted just after a cancellation is cancelled by the next one."""


class BatchLoop:
    """Batches at an interval, until an error or `stop`."""

    def __init__(
        self,
        commit_next: Callable[[], bool],
        interval_seconds: float,
        jobs: "Jobs",
        lasting: tuple[type[BaseException], ...] = (),
    ) -> None:
        """Start the loop.

        `commit_next` commits the next batch and returns whether it was the last available one.
        Errors of the types `lasting` are failures also after `stop`.
        """
        self._commit_next = commit_next
        self._interval_seconds = interval_seconds
        self._jobs = jobs
        self._lasting = lasting
        self._halt = Event()
        self._failure: BaseException | None = None
        self._thread = Thread(target=self._run, name=THREAD, daemon=True)
        self._thread.start()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the end; return False after the timeout."""
        self._thread.join(timeout_seconds)
        if self._thread.is_alive():
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def stop(self) -> None:
        """Stop the loop; the current batch is abandoned or committed, never half of it."""
        self._halt.set()
        if self._thread is current_thread():
            return
        deadline = monotonic() + STOP_SECONDS_MAX
        while self._thread.is_alive() and monotonic() < deadline:
            with suppress(Exception):  # the server may be gone
                self._jobs.cancel()
            self._thread.join(CANCEL_SECONDS)

    def _run(self) -> None:
        try:
            self._jobs.begin()
            while not self._halt.is_set():
                begun = monotonic()
                while not self._halt.is_set() and not self._commit_next():
                    pass
                self._halt.wait(max(0.0, begun + self._interval_seconds - monotonic()))
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            if not self._halt.is_set() or isinstance(error, self._lasting):
                self._failure = error


class Jobs:
    """The jobs of one thread in a session of Spark Connect."""

    def __init__(self, spark: SparkSession) -> None:
        """The session may have jobs of others."""
        self._spark = spark
        self._tag = f"penstock-{uuid4().hex}"

    def begin(self) -> None:
        """Mark the jobs of the calling thread."""
        self._spark.addTag(self._tag)

    def cancel(self) -> None:
        """Cancel the marked jobs."""
        self._spark.interruptTag(self._tag)
