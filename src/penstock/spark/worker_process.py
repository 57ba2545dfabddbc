"""`settle`: excludes our modules from a Spark worker's garbage collection after every task.

Spark's Python workers run many tasks and collect garbage in between. Scanning the permanent objects
of Arrow, PySpark and Penstock takes 40 ms, which is most of the cost of a small task. So the
objects that exist at the first task of a process are frozen from then on.

Objects that could be garbage later are still collected, except those of the first task itself. It
does nothing outside of a worker that Spark reuses: other programs keep their own settings.
"""

import atexit
import gc
import os
from typing import Final

REUSED_WORKER: Final = "SPARK_REUSE_WORKER"
"""Spark sets this variable for the processes that serve more than one task."""

_is_settled = False


def settle() -> None:
    """Freeze the objects that this worker keeps anyway; once in a process."""
    global _is_settled
    if not _is_settled and REUSED_WORKER in os.environ:
        _is_settled = True
        gc.freeze()
        # Libraries look for leaks when the process ends, and report frozen objects as one.
        atexit.register(gc.unfreeze)
