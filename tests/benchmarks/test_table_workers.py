"""A contestant in its own process: it answers, and its failure is reported."""

import sys
from pathlib import Path

import pytest

from benchmarks.table_workers import Worker, WorkerError

ROOT = str(Path(__file__).resolve().parents[2])
APP = """
import sys
from benchmarks.table_workers import serve

def double(request):
    print("something that Spark prints")
    return {"value": request["value"] * 2}

def fail(request):
    print("the reason", file=sys.stderr)
    raise SystemExit(3)

serve({"double": double, "fail": fail})
"""


def worker(folder: Path) -> Worker:
    return Worker("app", [sys.executable, "-c", APP], folder, {"PYTHONPATH": ROOT})


def test_requests_are_answered_one_after_the_other(tmp_path: Path) -> None:
    with worker(tmp_path) as app:
        assert app.start_seconds > 0
        assert [app.ask({"do": "double", "value": one})["value"] for one in (1, 2)] == [2, 4]


def test_a_process_that_ended_tells_what_it_printed(tmp_path: Path) -> None:
    with worker(tmp_path) as app:
        with pytest.raises(WorkerError, match="the reason"):
            app.ask({"do": "fail"})
        with pytest.raises(WorkerError, match="app ended"):
            app.ask({"do": "double", "value": 1})
