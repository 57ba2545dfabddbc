"""The file by which the driver tells the source what to plan.

Spark gives a streaming source its options once and for all, and keeps it in a process of its own on
the driver's machine. So the newest plan lies in a file there, and is read anew for each batch. The
file is replaced as a whole; it is nobody's but this run's.

That process starts with each query, and what it imports delays the first batch. So it gets what
tasks are told as bytes, which only tasks read, and this file imports next to nothing.
"""

import pickle
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from penstock.spark.offsets import StreamOffset

_NAME: Final = "plan"


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What the source is told for each batch."""

    task: bytes | None
    """What tasks are told (`task_plan`). None: they only say what there is to read."""
    initial: StreamOffset
    """Where a query without a checkpoint begins."""
    held: StreamOffset
    """What the table has already: the next offset of each partition. It is not read again."""


class PlanFile:
    """The newest plan of one run, for the process of the source."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="penstock-pipeline-")
        self.path = str(Path(self._folder.name) / _NAME)

    def write(self, plan: BatchPlan) -> None:
        """Replace the plan."""
        target = Path(self.path)
        draft = target.with_suffix(".new")
        draft.write_bytes(pickle.dumps(plan))
        draft.replace(target)

    def close(self) -> None:
        """Remove it."""
        self._folder.cleanup()


def read_plan(path: str) -> BatchPlan:
    """The newest plan."""
    # Written by this run's driver, into a folder that nobody else can write to.
    plan = pickle.loads(Path(path).read_bytes())  # noqa: S301
    assert isinstance(plan, BatchPlan)
    return plan
