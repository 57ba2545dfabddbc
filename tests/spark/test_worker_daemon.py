"""The daemon that forks Spark's workers: its imports, and workers that have them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.spark.session import WARM_WORKERS
from penstock.spark.worker_daemon import PLANNING, TASKS, wanted_modules

if TYPE_CHECKING:
    import pyarrow as pa

THREADS = """
import gc
import os
import sys
from penstock.spark.worker_daemon import TASKS, preload
preload(("penstock.no_such_module", *TASKS))
tasks = "/proc/self/task"
names = {open(f"{tasks}/{one}/comm").read().strip() for one in os.listdir(tasks)}
print(sorted(names - {"python", "python3"}))
print("penstock.spark.tables.tasks.task" in sys.modules, gc.get_freeze_count() > 10_000)
"""


def test_a_worker_has_the_modules_of_its_kind() -> None:
    assert wanted_modules([]) == ("pyspark.worker", *TASKS)
    assert wanted_modules(["pyspark.worker"]) == ("pyspark.worker", *TASKS)
    planner = "pyspark.sql.worker.plan_data_source_read"
    assert wanted_modules([planner]) == (planner, *PLANNING)


@pytest.mark.slow
def test_nothing_that_a_fork_would_break_runs_in_the_daemon() -> None:
    """A thread ends in a fork, and what it held stays held; Arrow's allocator expects forks."""
    ended = subprocess.run(
        [sys.executable, "-c", THREADS], capture_output=True, text=True, check=True
    )
    threads, state = ended.stdout.splitlines()
    assert threads in ("[]", "['jemalloc_bg_thd']")
    assert state == "True True"


@pytest.mark.spark
@pytest.mark.every_spark
def test_workers_begin_with_the_modules(tmp_path: Path) -> None:
    """A session of its own, because another one has its daemons already."""
    program = f"""
import sys
from pathlib import Path
from tests.spark.sessions import new_session
from tests.spark.test_worker_daemon import known_modules
spark = new_session(Path({str(tmp_path)!r}), slots=1, extra={dict(WARM_WORKERS)!r})
rows = spark.range(1).mapInArrow(known_modules, "name string, is_there boolean").collect()
print(sorted((row.name, row.is_there) for row in rows))
spark.stop()
"""
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root
    )
    assert ended.stdout.splitlines()[-1] == str(sorted((name, True) for name in TASKS))


def known_modules(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Which modules the worker had at its first batch."""
    import pyarrow

    for _ in batches:
        there = [name in sys.modules for name in TASKS]
        yield pyarrow.RecordBatch.from_pydict({"name": list(TASKS), "is_there": there})
