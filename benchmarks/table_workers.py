"""A worker process that runs queries on request, in its own environment, and its client.

Each contestant has one process with one Spark session for the whole comparison, so that Java is
equally warm for all and so that they can take turns. A request is a line of JSON on its
standard input; the answer is a line that begins with `ANSWER`. Everything else that Spark prints
goes to a file.

It imports nothing of Penstock: the environments of other engines use it, too.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

MARK = "ANSWER "
ANSWER_SECONDS_MAX = 900.0
END_SECONDS_MAX = 30.0
Request = dict[str, Any]
Answer = dict[str, Any]


class WorkerError(RuntimeError):
    """A contestant failed; the message has the end of its output."""


def serve(handlers: Mapping[str, Callable[[Request], Answer]]) -> None:
    """Answer requests until the input ends; runs in the worker process."""
    print(MARK + json.dumps({}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = handlers[request["do"]](request)
        print(MARK + json.dumps(answer), flush=True)


class Worker:
    """The client: starts the process and sends requests. A context manager."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.folder = folder
        self._log = folder / f"{name}.log"
        self._command = command
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self.start_seconds = 0.0
        """Time until the process was ready: the start of Python, Java and the session."""

    def __enter__(self) -> Self:
        begun = time.perf_counter()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
            )
        self._answer(ANSWER_SECONDS_MAX)
        self.start_seconds = time.perf_counter() - begun
        return self

    @property
    def pid(self) -> int:
        """The id of the running process."""
        return self._running().pid

    def ask(self, request: Request, *, timeout_seconds: float = ANSWER_SECONDS_MAX) -> Answer:
        """Send a request, and wait for the answer."""
        process = self._running()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError as error:
            raise self._failed("ended") from error
        return self._answer(timeout_seconds)

    def _answer(self, timeout_seconds: float) -> Answer:
        deadline = time.monotonic() + timeout_seconds
        while True:
            line = self._line(deadline)
            if line.startswith(MARK):
                answer: Answer = json.loads(line.removeprefix(MARK))
                return answer

    def _line(self, deadline: float) -> str:
        stream = self._running().stdout
        assert stream is not None
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([stream], [], [], left)[0]:
                raise self._failed("did not answer in time")
            found = os.read(stream.fileno(), 65_536)
            if not found:
                raise self._failed("ended")
            self._unread += found
        line, self._unread = self._unread.split(b"\n", 1)
        return line.decode(errors="replace")

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    def _failed(self, what: str) -> WorkerError:
        lines = self._log.read_text(errors="replace").splitlines()
        said = [line for line in lines if not line.lstrip().startswith("at ")]
        return WorkerError(f"{self.name} {what}:\n" + "\n".join(said[-40:])[-6000:])

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):  # the process ended before it read its input
            process.stdin.close()
        try:
            process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
