"""The Spark session of a command: the one that the environment defines, or a local one.

Guarantees: command-line options (`--master`, `--conf`) win over the environment (`spark-submit`),
and the environment over a local session with all cores. A local session listens on the loopback
only, has no web page unless requested, and its workers run the same interpreter. A master `sc://`,
or `SPARK_REMOTE`, is a session of Spark Connect (`connect_session`): this process still commits.

The output of Java and the workers goes to a log file, if one is set: it would disturb a live view.
The output of pyspark itself is suppressed: it repeats a raised error, or is about the end of Java.
A failed start raises a `SessionFailedError` with the reason. A closed session releases its
callbacks: they hold libraries that would print warnings at the end of the process.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any, Final

from pyspark import SparkContext, java_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from penstock.spark.connect_session import (
    close_connect,
    open_connect,
    remote_of,
    shown,
    without_secrets,
)
from penstock.spark.errors import SparkQueryError
from penstock.spark.session_failures import why_not_started
from penstock.spark.task_jobs import is_connect

LOCAL: Final = "local[*]"
_QUIET: Final[Mapping[str, str]] = {
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}
_LOOPBACK: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
PLAIN_FILES: Final[Mapping[str, str]] = {
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}
"""Settings for a checkpoint on a local disk without checksum files.

Spark starts a `chmod` for each file that it creates: two for each of the two files of a batch, and
a seventh of the time of a small batch. The progress of a pipeline is in the table, not there.
"""
WARM_WORKERS: Final[Mapping[str, str]] = {
    "spark.python.daemon.module": "penstock.spark.worker_daemon",
}
"""Settings for Python workers that need not import Penstock, where the workers are on this machine.

A worker ends after a minute without a task, so a pipeline of a quiet topic starts them often.
"""
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, which has already chosen a session."""


_STANDARD_ERROR: Final = 2
_SAID_BYTES_MAX: Final = 64 * 1024
_TALKATIVE: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


class SessionFailedError(SparkQueryError):
    """Spark could not be started."""


def open_session(
    name: str, *, master: str | None, conf: Mapping[str, str], log: Path | None = None
) -> SparkSession:
    """Return a session; the caller closes it. `log` is the file for Java's standard error."""
    named = master or conf.get("spark.master")
    remote = remote_of(named, os.environ)
    if remote is not None:
        return _open_remote(name, remote, conf)
    chosen = named or _local_master()
    builder = SparkSession.builder.appName(name)
    given = dict(_QUIET)
    if chosen is not None:
        builder = builder.master(chosen)
        if chosen.startswith("local"):
            given |= {**_LOOPBACK, **PLAIN_FILES, **WARM_WORKERS}
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for key, value in {**given, **conf}.items():
        builder = builder.config(key, value)
    said_before = log.stat().st_size if log is not None and log.exists() else 0
    try:
        with _standard_error_in(log), _java_ended():
            spark = builder.getOrCreate()
    except Exception as error:
        if not is_of_spark(error):
            raise
        said = _read_from(log, said_before) if log is not None else ""
        raise SessionFailedError(why_not_started(str(error), said, chosen, os.environ)) from error
    _silence()
    return spark


def _open_remote(name: str, remote: str, conf: Mapping[str, str]) -> SparkSession:
    try:
        return open_connect(name, remote, conf)
    except Exception as error:
        if not is_of_spark(error):
            raise
        reason = without_secrets(str(error), remote)
        raise SessionFailedError(why_not_started(reason, "", shown(remote), os.environ)) from error


@contextmanager
def _java_ended() -> Iterator[None]:
    """End a Java process that was started inside the block, if Python did not connect to it.

    Java ends with its standard input. But a Java process whose parent has stopped waiting fails
    before it reads its input, and stays.
    """
    started: list[Popen[bytes]] = []
    launching: Any = java_gateway
    real = launching.Popen

    def recorded(*given: Any, **named: Any) -> "Popen[bytes]":  # noqa: ANN401 - passed on
        process: Popen[bytes] = real(*given, **named)
        started.append(process)
        return process

    launching.Popen = recorded
    try:
        yield
    except BaseException:
        if SparkContext._gateway is None:
            for process in started:
                process.kill()
        raise
    finally:
        launching.Popen = real


def is_of_spark(error: Exception) -> bool:
    """Return whether Spark or its connection to Java raised the error."""
    return type(error).__module__.partition(".")[0] in {"pyspark", "py4j", "grpc"}


def _read_from(log: Path, start: int) -> str:
    with log.open("rb") as file:
        file.seek(start)
        return file.read(_SAID_BYTES_MAX).decode(errors="replace")


def _silence() -> None:
    """Suppress pyspark's own output.

    Two loggers print a page for each rejected query, and pyspark raises the same error. The server
    of accumulators prints a stack trace if Java ends before it.
    """
    for name in _TALKATIVE:
        PySparkLogger.getLogger(name).disabled = True
    server = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda _request, _address: None


def close_session(spark: SparkSession) -> None:
    """Stop the session, and release its callbacks.

    After the death of its Java process nothing is left to stop; the next session starts a new one.
    """
    if is_connect(spark):
        close_connect(spark)
        return
    if has_java_ended():
        _forget_java()
        return
    spark.stop()
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.gateway_property.pool.clear()


def has_ended(spark: SparkSession) -> bool:
    """Return whether the session is gone, so that no job can run in it any more."""
    try:
        if is_connect(spark):
            return not spark.version  # the answer of the server
        return bool(spark.sparkContext._jsc.sc().isStopped())
    except Exception:  # noqa: BLE001 - Java or the server is gone
        return True


def has_java_ended(wait_seconds: float = 0.0) -> bool:
    """Return whether the Java process of this session has ended, within a time."""
    process: Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return False
    with suppress(TimeoutExpired):
        process.wait(wait_seconds)
        return True
    return False


def _forget_java() -> None:
    """Forget the connection to a Java process that has ended; pyspark would use it again."""
    gateway: Any = SparkContext._gateway
    with suppress(Exception):  # its sockets are broken in many ways
        gateway.shutdown()
    held: Any = SparkContext
    held._gateway = held._jvm = held._active_spark_context = None
    session: Any = SparkSession
    session._instantiatedSession = session._activeSession = None


@contextmanager
def _standard_error_in(log: Path | None) -> Iterator[None]:
    """Redirect the standard error of processes started inside the block into this file."""
    if log is None:
        yield
        return
    sys.stderr.flush()
    before = os.dup(_STANDARD_ERROR)
    with log.open("ab") as file:
        os.dup2(file.fileno(), _STANDARD_ERROR)
    try:
        yield
    finally:
        os.dup2(before, _STANDARD_ERROR)
        os.close(before)


def _local_master() -> str | None:
    return None if _SUBMITTED in os.environ else LOCAL
