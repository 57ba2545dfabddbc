"""`penstock table run` as a process: runs until it is stopped, reports why it failed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.testing import Broker
from tests.spark.tables.inspection_world import VALUES, fill_topic, new_world

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SECONDS_MAX = 240


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        address = f"{broker.host}:{broker.port}"
        fill_topic(address, VALUES)
        yield address


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[str]]:
    """The command, which is killed at the end if it still runs."""
    with subprocess.Popen(
        [sys.executable, "-m", "penstock", "table", "run", *words],
        env={**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(process: subprocess.Popen[str], text: str) -> None:
    """Read its standard error up to a line with this text; the test's time limit bounds it."""
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if text in line:
            return
    raise AssertionError(f"it ended before {text!r}:\n{seen}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_cleanly(number: int, bootstrap: str, tmp_path: Path) -> None:
    world = new_world(tmp_path, bootstrap, "delta")
    with running(str(world.file), "--master", "local[2]", "--json") as process:
        wait_for(process, "batch 0")
        process.send_signal(number)
        output, errors = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0, errors
    assert "leaked" not in errors
    done = json.loads(output)
    assert (done["records"], done["rows"], done["rejects"]) == (5, 2, 3)


def test_a_failure_is_told_in_plain_words(bootstrap: str, tmp_path: Path) -> None:
    world = new_world(tmp_path, bootstrap, "delta")
    text = world.file.read_text().replace('action = "quarantine"', 'action = "fail"')
    world.file.write_text(text)
    log = tmp_path / "spark.log"
    with running(str(world.file), "--once", "--spark-log", str(log)) as process:
        output, errors = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 1
    assert output == ""
    assert "expectation 'positive_amount': 1 rows break 'amount > 0'" in errors
    assert f"Spark's own messages are in {log}" in errors
    assert "Traceback" not in errors
    assert "WARN" not in errors  # Java's words are in the file
    assert log.read_text()
