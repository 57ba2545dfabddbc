"""`Crowd`: the client processes of one run, started together and ended together.

Guarantees: all clients begin at one moment, after the last is ready. The first failure ends the run
with its error. In every case, Ctrl-C included, no process is left at the end of the block. Clients
are new processes (`spawn`): a fork would copy connections and threads of the measuring process.
"""

import multiprocessing
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Final, Self

from penstock.bench.assignment import Assignment, Failed, Go, Progress, Ready, Until
from penstock.bench.client_process import main
from penstock.bench.measurement import ClientResult
from penstock.bench.pacing import SECOND_NS
from penstock.core.errors import (
    AnswerLostError,
    BrokerUnreachableError,
    ClientError,
    PenstockError,
)

START_SECONDS_MAX: Final = 120.0
"""Time until all clients are ready: a process needs a tenth of a second, two hundred need
longer."""
LEAD_NS: Final = SECOND_NS // 20
"""Time between the start message and the begin: the message must have reached all clients."""
END_SECONDS_MAX: Final = 5.0

Watch = Callable[[Sequence[Progress]], None]
"""Called with the progress of each client."""


class ClientFailedError(PenstockError):
    """A client of a measurement failed; there is no result."""


_NOTHING_YET: Final = Progress(0, 0, 0)


@dataclass(slots=True)
class _Client:
    process: SpawnProcess
    pipe: Connection
    progress: Progress = _NOTHING_YET
    result: ClientResult | None = None


class Crowd:
    """Clients that run at the same time; a context manager that ends them."""

    def __init__(self, assignments: Iterable[Assignment]) -> None:
        self._assignments = list(assignments)
        self._clients: list[_Client] = []

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")
        try:
            for assignment in self._assignments:
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=main,
                    args=(theirs, assignment),
                    name=f"penstock-bench-{assignment.role}-{assignment.client}",
                    daemon=True,
                )
                self._clients.append(_Client(process, ours))
                process.start()
                theirs.close()
            self._wait_until_ready()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def begin(self) -> None:
        """Send the start message."""
        begin_ns = time.monotonic_ns() + LEAD_NS
        for client in self._clients:
            self._send(client, Go(begin_ns))

    def finish(
        self, numbers: Sequence[int], watch: Watch, *, shown: Sequence[int] | None = None
    ) -> list[ClientResult]:
        """Wait for the results of these clients; `watch` sees the progress of `shown`."""
        visible = numbers if shown is None else shown
        while any(self._clients[n].result is None for n in numbers):
            self._receive(timeout_seconds=1.0)
            watch([self._clients[n].progress for n in visible])
        results = [self._clients[n].result for n in numbers]
        return [one for one in results if one is not None]

    def send_ends(self, numbers: Sequence[int], ends: dict[int, int]) -> None:
        """Send the end offsets to readers; each reader gets the offsets of its own partitions."""
        for number in numbers:
            wanted = self._assignments[number].partitions
            self._send(self._clients[number], Until({part: ends[part] for part in wanted}))

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        for client in self._clients:
            while True:
                if not client.pipe.poll(max(0.0, deadline - time.monotonic())):
                    raise ClientFailedError(
                        f"the clients were not ready after {START_SECONDS_MAX:.0f} s: the machine "
                        "is too busy for this number of processes. Use fewer clients."
                    )
                message = self._received(client)
                if isinstance(message, Ready):
                    break
                self._judge(client, message)

    def _receive(self, timeout_seconds: float) -> None:
        by_pipe: dict[object, _Client] = {
            one.pipe: one for one in self._clients if one.result is None
        }
        for pipe in wait([one.pipe for one in by_pipe.values()], timeout_seconds):
            client = by_pipe[pipe]
            while client.result is None and client.pipe.poll(0):
                self._judge(client, self._received(client))

    def _received(self, client: _Client) -> object:
        try:
            message: object = client.pipe.recv()
        except (EOFError, ConnectionResetError) as error:
            client.process.join(END_SECONDS_MAX)
            raise ClientFailedError(
                f"a client process ended with code {client.process.exitcode} and without a "
                "result; its output is above. If it was killed, the machine may be out of "
                "memory: use fewer clients."
            ) from error
        return message

    def _judge(self, client: _Client, message: object) -> None:
        if isinstance(message, Progress):
            client.progress = message
        elif isinstance(message, ClientResult):
            client.result = message
        elif isinstance(message, Failed):
            raise _error_of(message)
        else:
            raise AssertionError(f"a client said {message!r}")

    def _send(self, client: _Client, message: object) -> None:
        # A client that has ended has already sent the reason; the next read returns it.
        with suppress(BrokenPipeError, ConnectionResetError):
            client.pipe.send(message)

    def _end(self) -> None:
        """End every process: first SIGTERM, then SIGKILL."""
        started = [one for one in self._clients if one.process.pid is not None]
        for client in started:
            if client.process.is_alive() and client.result is None:
                client.process.terminate()
        for client in started:
            client.process.join(END_SECONDS_MAX)
            if client.process.is_alive():
                client.process.kill()
                client.process.join(END_SECONDS_MAX)
        for client in self._clients:
            client.pipe.close()


def _error_of(failed: Failed) -> PenstockError:
    """Return a client's error as a Penstock error; errors with their own exit code keep it."""
    known: dict[str, type[ClientError]] = {
        "BrokerUnreachableError": BrokerUnreachableError,
        "AnswerLostError": AnswerLostError,
    }
    return known.get(failed.kind, ClientFailedError)(failed.text)
