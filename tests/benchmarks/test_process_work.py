"""CPU time of an application by its processes."""

import os
import subprocess
import sys

from benchmarks.process_work import CLASSES, DRIVER, JAVA, TASKS, class_of, shares_text, work_of

# More than is expected: the kernel counts CPU time of processes in steps of 10 ms.
BUSY = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
FORKS = f"""
import os, sys
# A worker that has ended, as a daemon of PySpark forks them.
pid = os.fork()
if pid == 0:
    exec({BUSY!r})
    os._exit(0)
os.waitpid(pid, 0)
print("ended", flush=True)
sys.stdin.read()
"""


def test_processes_belong_to_classes_by_their_commands() -> None:
    assert class_of(["/usr/lib/jvm/bin/java", "-cp", "pyspark.jar"]) == JAVA
    assert class_of(["python", "-m", "pyspark.daemon", "pyspark.worker"]) == TASKS
    assert class_of(["python", "-m", "benchmarks.table_pipeline_app", "folder"]) == DRIVER
    assert class_of([]) == DRIVER


def test_workers_that_have_ended_count_with_their_daemon() -> None:
    before = work_of(os.getpid())
    command = [sys.executable, "-c", FORKS, "pyspark.daemon"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == b"ended\n"
        found = work_of(os.getpid()).since(before)
        daemon.communicate()
    assert found.seconds[TASKS] >= 0.2
    assert found.seconds[JAVA] == 0


def test_a_process_that_ends_meanwhile_is_left_out() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        assert set(work_of(os.getpid()).seconds) == set(CLASSES)
        process.wait()


def test_shares_are_shown_from_the_largest_to_one_percent() -> None:
    assert shares_text({JAVA: 20.0, TASKS: 79.5, DRIVER: 0.5}) == "Python tasks 80%, Java 20%"
    assert shares_text({}) == ""
