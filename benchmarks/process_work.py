"""CPU time of a Spark application by its processes: driver, Java, and the Python workers of tasks.

Guarantees: each process below the application's first one counts once, in the class of its command;
children that have ended count with the daemon that forked them. A row of a comparison can so name
the processes that did its work, measured instead of derived from the design.

It does NOT count a process that was started and reaped between two looks by anything but a daemon
of Python workers, such as a shell command of a sink.
"""

import dataclasses
from pathlib import Path
from typing import Final

import psutil

JAVA: Final = "Java"
TASKS: Final = "Python tasks"
DRIVER: Final = "Python driver"
CLASSES: Final = (JAVA, TASKS, DRIVER)
SHOWN_SHARE_MIN: Final = 0.01


@dataclasses.dataclass(frozen=True)
class Work:
    """CPU seconds of each class of processes."""

    seconds: dict[str, float]

    def since(self, before: "Work") -> "Work":
        """Return the work after an earlier look."""
        return Work({name: self.seconds[name] - before.seconds[name] for name in CLASSES})


def class_of(command: list[str]) -> str:
    """Return the class of a process of a Spark application by its command line."""
    if command and Path(command[0]).name == "java":
        return JAVA
    # Workers, their daemon and the runners of Python data sources are modules of PySpark.
    return TASKS if any(word.startswith("pyspark.") for word in command) else DRIVER


def work_of(pid: int) -> Work:
    """Return the CPU time that an application has used until now."""
    seconds = dict.fromkeys(CLASSES, 0.0)
    first = psutil.Process(pid)
    for process in (first, *first.children(recursive=True)):
        try:
            name, times = class_of(process.cmdline()), process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        seconds[name] += times.user + times.system
        if name == TASKS:
            seconds[name] += times.children_user + times.children_system
    return Work(seconds)


def shares_text(values: dict[str, float]) -> str:
    """Return the shares of the classes, the largest first: `Python tasks 81%, Java 15%`."""
    total = sum(values.get(name, 0.0) for name in CLASSES)
    if total <= 0:
        return ""
    shares = sorted(((values.get(name, 0.0) / total, name) for name in CLASSES), reverse=True)
    return ", ".join(f"{name} {share:.0%}" for share, name in shares if share >= SHOWN_SHARE_MIN)
