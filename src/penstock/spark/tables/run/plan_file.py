"""The files for plans from the driver to the source, and for batches in the other direction.

Spark passes options to a streaming source only once, and keeps it in a separate process on the
driver's machine. So the newest plan is in a file there, which is read again for each batch. The
file is replaced as a whole; it belongs to this run alone.

In the other direction, the source leaves the orders of a small batch. Spark requests the tasks of a
batch before it calls the driver for that batch. The driver then deletes the orders, and checks
whether they are the next ones (`small_batches`).

That process starts with each query, and its imports delay the first batch. So it gets the task plan
as bytes, which only tasks read.
"""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from penstock.spark.offsets import StreamOffset
from penstock.spark.tables.tasks.orders import TaskOrder

_NAME: Final = "plan"
_BATCH_SUFFIX: Final = ".batch"


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The source's input for each batch."""

    task: bytes | None
    """The plan of the tasks (`task_plan`). None: tasks only report the offsets to read."""
    initial: StreamOffset
    """The start of a query without a checkpoint."""
    held: StreamOffset
    """The next offset of each partition in the table. Earlier offsets are not read again."""
    watermark_ms: int = 0
    """The watermark of the next batch, for a stateful function."""


class PlanFile:
    """The newest plan of one run, for the process of the source."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="penstock-pipeline-")
        self.path = str(Path(self._folder.name) / _NAME)

    def write(self, plan: BatchPlan) -> None:
        """Replace the plan."""
        _replace(Path(self.path), pickle.dumps(plan))

    def take_batch(self) -> Sequence[TaskOrder]:
        """Return the orders of the last planned batch, if it was left to the driver; once."""
        left = Path(self.path).with_suffix(_BATCH_SUFFIX)
        try:
            data = left.read_bytes()
        except FileNotFoundError:
            return ()
        left.unlink()
        orders: Sequence[TaskOrder] = pickle.loads(data)  # noqa: S301 - by this run's source
        return orders

    def close(self) -> None:
        """Delete the file."""
        self._folder.cleanup()


def read_plan(path: str) -> BatchPlan:
    """Return the newest plan."""
    # Written by this run's driver, into a folder that no other user can write to.
    plan = pickle.loads(Path(path).read_bytes())  # noqa: S301
    assert isinstance(plan, BatchPlan)
    return plan


def leave_batch(path: str, orders: Sequence[TaskOrder]) -> None:
    """Leave the driver the orders that it may carry out itself; without orders, leave none."""
    left = Path(path).with_suffix(_BATCH_SUFFIX)
    if orders:
        _replace(left, pickle.dumps(tuple(orders)))
    else:
        left.unlink(missing_ok=True)


def _replace(target: Path, data: bytes) -> None:
    draft = target.with_suffix(f"{target.suffix}.new")
    draft.write_bytes(data)
    draft.replace(target)
