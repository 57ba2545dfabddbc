"""`settle`: excludes our modules from a Spark worker's garbage collection after every task.

Spark's Python workers run many tasks and collect garbage in between. Scanning the permanent objects
of Arrow, PySpark and Penstock takes 40 ms, which is most of the cost of a small task. So the first
task of a process freezes the existing objects.

Objects that could be garbage later are still collected, except those of the first task itself. It
does nothing outside of a reused Spark worker: other programs keep their own settings.
"""

import atexit
import gc
import os
from typing import Final

REUSED_WORKER: Final = "SPARK_REUSE_WORKER"
"""Spark sets this variable for processes that run more than one task."""

_is_settled = False


def settle() -> None:
    """Freeze the permanent objects of this worker; once in a process."""
    global _is_settled
    if not _is_settled and REUSED_WORKER in os.environ:
        _is_settled = True
        freeze()


def freeze() -> None:
    """Exclude all objects of this process from its collections, up to its end."""
    gc.freeze()
    # Libraries check for leaks at the end of the process, and report frozen objects as leaks.
    atexit.register(gc.unfreeze)
