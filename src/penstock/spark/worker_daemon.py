"""Starts Spark's Python workers from a process that has imported what they need.

    spark.python.daemon.module=penstock.spark.worker_daemon

Spark starts each Python worker by a fork of a daemon, which by default has imported next to
nothing: each worker imports Arrow, PySpark and Penstock again, a second of a core, also when it
returns from a minute without tasks. This daemon imports them before the first fork.

Guarantees: the daemon itself runs no code of Penstock but these imports, and Spark's own
`pyspark.daemon` does everything else. A module that cannot be imported is left to the worker, which
reports it. The only thread in the daemon is that of Arrow's allocator, which stops in a fork.

It is for sessions whose workers run Penstock; any session may have it.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from penstock.spark.worker_process import freeze

TASKS: Final = ("penstock.spark.tables.tasks.task", "penstock.spark.tables.run.source", "pandas")
"""For `pyspark.worker`, which runs tasks. Arrow imports pandas to convert a list."""
PLANNING: Final = ("penstock.spark.data_source", "penstock.spark.tables.run.source")
_TASK_WORKER: Final = "pyspark.worker"
_THREADS: Final = "OPENBLAS_NUM_THREADS"


def wanted_modules(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return what a worker imports; the arguments are those of Spark's daemon."""
    worker = arguments[0] if arguments else _TASK_WORKER
    return (worker, *(TASKS if worker == _TASK_WORKER else PLANNING))


def preload(names: Sequence[str]) -> None:
    """Import modules, and exclude their objects from the collections of the workers."""
    # Threads of numpy's linear algebra would be started by its import, and nothing here uses them.
    os.environ.setdefault(_THREADS, "1")
    for name in names:
        with suppress(Exception):
            importlib.import_module(name)
    freeze()


def main() -> None:
    """Import, then serve Spark's requests for workers."""
    from pyspark.daemon import manager

    preload(wanted_modules(sys.argv[1:]))
    manager()


if __name__ == "__main__":
    main()
