"""The files by which the driver tells the source what to plan, and the source leaves it batches.

Spark gives a streaming source its options once and for all, and keeps it in a process of its own on
the driver's machine. So the newest plan lies in a file there, and is read anew for each batch. The
file is replaced as a whole; it is nobody's but this run's.

The other way, the source leaves the orders of a batch that is small. Spark asks it for the tasks of
a batch before it calls the driver for that batch; the driver takes the orders away when it is
called, and looks whether they are the next ones (`small_batches`).

That process starts with each query, and what it imports delays the first batch. So it gets what
tasks are told as bytes, which only tasks read.
"""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from penstock.spark.offsets import StreamOffset
from penstock.spark.tables.run.orders import TaskOrder

_NAME: Final = "plan"
_BATCH_SUFFIX: Final = ".batch"


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
        _replace(Path(self.path), pickle.dumps(plan))

    def take_batch(self) -> Sequence[TaskOrder]:
        """The orders of the batch that was planned last, when it was left to the driver; once."""
        left = Path(self.path).with_suffix(_BATCH_SUFFIX)
        try:
            data = left.read_bytes()
        except FileNotFoundError:
            return ()
        left.unlink()
        orders: Sequence[TaskOrder] = pickle.loads(data)  # noqa: S301 - by this run's source
        return orders

    def close(self) -> None:
        """Remove it."""
        self._folder.cleanup()


def read_plan(path: str) -> BatchPlan:
    """The newest plan."""
    # Written by this run's driver, into a folder that nobody else can write to.
    plan = pickle.loads(Path(path).read_bytes())  # noqa: S301
    assert isinstance(plan, BatchPlan)
    return plan


def leave_batch(path: str, orders: Sequence[TaskOrder]) -> None:
    """Leave the driver what it may do itself; without orders, that there is nothing."""
    left = Path(path).with_suffix(_BATCH_SUFFIX)
    if orders:
        _replace(left, pickle.dumps(tuple(orders)))
    else:
        left.unlink(missing_ok=True)


def _replace(target: Path, data: bytes) -> None:
    draft = target.with_suffix(f"{target.suffix}.new")
    draft.write_bytes(data)
    draft.replace(target)
