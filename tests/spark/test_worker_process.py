"""Frozen objects of a worker process, and processes that are not changed."""

import subprocess
import sys

PROGRAM = """
import gc
import os
from penstock.spark.worker_process import settle
settle()
print(gc.get_freeze_count() > 0)
os.environ["SPARK_REUSE_WORKER"] = "1"
settle()
first = gc.get_freeze_count()
kept = [object() for _ in range(10)], {}
settle()
print(first > 1_000, gc.get_freeze_count() == first)
"""


def test_only_a_worker_is_settled_and_only_once() -> None:
    environment = {"PATH": "", "PYTHONPATH": ":".join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    assert ended.stdout.split() == ["False", "True", "True"]
