"""A session that does not start: Java's reason, and the remedy."""

import os
import signal
import socketserver
import sys
from pathlib import Path
from socket import socket
from subprocess import Popen
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext, java_gateway
from pyspark.errors import PySparkRuntimeError
from pyspark.logger import PySparkLogger

from penstock.spark import session
from penstock.spark.errors import SparkQueryError
from penstock.spark.session import SessionFailedError, open_session
from penstock.spark.session_failures import missing_java, reason_in, why_not_started
from penstock.spark.tables.run.dataframe_stage import transformed

EXITED = "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."
JAVA = {"PATH": os.environ["PATH"]}
NOISE = """WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
26/11/16 14:06:58 WARN Utils: Set SPARK_LOCAL_IP if you need to bind to another address
"""


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            NOISE
            + 'Exception in thread "main" org.apache.spark.SparkException: Master must be so\n'
            "\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)\n",
            "SparkException: Master must be so",
        ),
        (
            "Invalid maximum heap size: -Xmx4x\nError: Could not create the Java Machine.\n",
            "Invalid maximum heap size: -Xmx4x",
        ),
        (NOISE, ""),
    ],
)
def test_what_java_said_is_told(said: str, reason: str) -> None:
    assert reason_in(said) == reason


def test_a_folder_without_java_is_named(tmp_path: Path) -> None:
    told = why_not_started(EXITED, "", "local[*]", {"JAVA_HOME": str(tmp_path)})
    assert told == (
        f"Spark did not start: Spark needs Java 17 or later; JAVA_HOME is {tmp_path}, which has no "
        "bin/java. Set it to where Java is."
    )
    assert "there is none here" in missing_java({"PATH": str(tmp_path)})
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(0o755)
    assert missing_java({"JAVA_HOME": str(tmp_path)}) == ""


def test_a_java_that_is_too_old_is_told(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(0o755)
    said = "java.lang.UnsupportedClassVersionError: org/apache/spark/launcher/Main has been ..."
    told = why_not_started(EXITED, said, None, {"JAVA_HOME": str(tmp_path)})
    assert "Java 17 or later, and this one is older" in told


def test_what_java_threw_later_is_told() -> None:
    error = (
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
        ": org.apache.spark.SparkException: Asked to run locally with 0 threads\n\tat X\n"
    )
    assert why_not_started(error, "", "local[0]", {}) == (
        "Spark did not start with master local[0]: SparkException: Asked to run locally with 0 "
        "threads. Check --master, --conf and spark-defaults.conf."
    )


class FailingBuilder:
    """Java writes to its standard error, and ends."""

    def __getattr__(self, _name: str) -> object:
        return lambda *_given: self

    def getOrCreate(self) -> None:
        os.write(2, b"Invalid maximum heap size: -Xmx4x\n")
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})


class FailingSessions:
    builder = FailingBuilder()


def test_only_what_this_java_said_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(session, "SparkSession", FailingSessions)
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    log = tmp_path / "spark.log"
    log.write_text("Unhappy words of the run before\n")
    with pytest.raises(SessionFailedError, match="heap size: -Xmx4x"):
        open_session("orders", master="spark://host:7077", conf={}, log=log)


def test_java_does_not_outlive_a_start_that_was_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    launching: Any = java_gateway
    started: list[Popen[bytes]] = []

    def given_up() -> None:
        with session._java_ended():
            words = [sys.executable, "-c", "import time; time.sleep(600)"]
            started.append(launching.Popen(words))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        given_up()
    assert started[0].wait(30) == -signal.SIGKILL
    assert launching.Popen is Popen


def test_pyspark_prints_nothing_of_its_own(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        context = SimpleNamespace(_accumulatorServer=server)
        monkeypatch.setattr(SparkContext, "_active_spark_context", context)
        session._silence()
        with socket() as request:
            server.handle_error(request, ("127.0.0.1", 1))
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).exception("a page of JSON", errorClass="X")
    assert capfd.readouterr().err == ""


def test_a_function_that_returns_nothing_is_told() -> None:
    def large_orders(_rows: object) -> None:
        pass

    with pytest.raises(SparkQueryError, match=r"large_orders\(\) returned None, not a DataFrame"):
        transformed(None, large_orders)  # type: ignore[arg-type]  # what a user may write
