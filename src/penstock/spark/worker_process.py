"""`settle`: spares a Spark worker from looking through our modules after every task.

Spark's Python workers live on from task to task and collect garbage in between. Looking through
all that Arrow, PySpark and Penstock keep for good takes 40 ms, which is most of what a small task
costs. So what is there at the first task of a process is set aside from then on.

Nothing is collected less that could be garbage later, but for what the first task itself holds. It
does nothing outside of a worker that Spark reuses: the garbage of a program is its own business.
"""

import atexit
import gc
import os
from typing import Final

REUSED_WORKER: Final = "SPARK_REUSE_WORKER"
"""Spark sets this variable for the processes that serve more than one task."""

_is_settled = False


def settle() -> None:
    """Set aside what this worker keeps anyway; once in a process."""
    global _is_settled
    if not _is_settled and REUSED_WORKER in os.environ:
        _is_settled = True
        gc.freeze()
        # Libraries look for leaks when the process ends, and take what is set aside for one.
        atexit.register(gc.unfreeze)
