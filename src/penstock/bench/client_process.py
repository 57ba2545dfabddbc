"""The main program of a client process: prepare, report ready, wait for the start, run, report.

It ends after its work, at a failure, or when its parent process has ended. It ignores Ctrl-C: the
terminal sends it to all processes, and the measuring process ends the others by SIGTERM. After
SIGTERM it also removes everything that it created, once: a second SIGTERM changes nothing.
"""

import gc
import signal
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection

from penstock.bench import assignment as words
from penstock.bench.assignment import Assignment, Failed, Go, Progress, Ready, Until
from penstock.bench.measurement import ClientResult
from penstock.bench.membership import Group
from penstock.bench.offset_lookups import Finder
from penstock.bench.producing import Producer
from penstock.bench.reading import Follower, Reader
from penstock.core.errors import PenstockError

GO_SECONDS_MAX = 600.0
"""The other clients may need a long time to get ready; the wait is bounded."""


def main(pipe: Connection, assignment: Assignment) -> None:
    """Run one client from start to end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    try:
        try:
            pipe.send(_run(pipe, assignment))
        except PenstockError as error:
            pipe.send(Failed(type(error).__name__, str(error)))
        except (BrokenPipeError, EOFError):
            raise
        except OSError as error:
            pipe.send(Failed(type(error).__name__, str(error)))
    except (BrokenPipeError, EOFError):
        return  # the parent process has ended


def _end(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _run(pipe: Connection, assignment: Assignment) -> ClientResult:
    client = _made(assignment)
    try:
        # Objects created after this line leave no cycles, and a collection would add latency.
        gc.collect()
        gc.freeze()
        gc.disable()
        pipe.send(Ready())
        if not pipe.poll(GO_SECONDS_MAX):
            raise EOFError
        go = pipe.recv()
        assert isinstance(go, Go)
        time.sleep(max(0.0, (go.begin_ns - time.monotonic_ns()) / 1e9))

        def report(progress: Progress) -> None:
            pipe.send(progress)

        if isinstance(client, Follower):
            return client.run(go.begin_ns, report, lambda: _received_ends(pipe))
        return client.run(go.begin_ns, report)
    finally:
        client.close()


def _made(assignment: Assignment) -> Producer | Reader | Follower | Finder | Group:
    if assignment.role == words.PRODUCER:
        return Producer(assignment)
    if assignment.role == words.READER:
        return Reader(assignment)
    if assignment.role == words.FOLLOWER:
        return Follower(assignment)
    if assignment.role == words.FINDER:
        return Finder(assignment)
    assert assignment.role == words.MEMBERS
    return Group(assignment)


def _received_ends(pipe: Connection) -> Mapping[int, int] | None:
    """Return the end offsets of the partitions, or None before they are received."""
    if not pipe.poll(0):
        return None
    until = pipe.recv()
    assert isinstance(until, Until)
    return until.offsets
