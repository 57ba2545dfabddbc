"""`SupervisedWorker`: one worker, seen from the supervisor: its process, its channel, its restarts.

Guarantees: one process of this worker runs at a time. Its end is noticed at once, by the end of its
channel; its sessions have ended before it is started again. A process that does not end within
`STOP_SECONDS_MAX` after its channel has ended is killed.
"""

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from penstock.cluster.stores.port import MetadataStore
from penstock.core.errors import ConfigError, PenstockError
from penstock.core.stopping import STOP_SECONDS_MAX
from penstock.node.workers.restarts import Restarts
from penstock.node.workers.store_server import StoreServer
from penstock.node.workers.worker_channel import Channel, Message
from penstock.node.workers.worker_link import written_states
from penstock.node.workers.worker_parts import WorkerState

logger = logging.getLogger(__name__)

USAGE_CODE: Final = 2
"""The exit code of wrong settings."""

Command = Callable[[int], Sequence[str]]
"""Returns the words of a worker's command, with the descriptor of its channel."""


class SupervisedWorker:
    """One worker."""

    def __init__(
        self,
        state: WorkerState,
        store: MetadataStore,
        command: Command,
        hello: dict[str, Any],
        descriptors: Sequence[int],
        on_change: Callable[[], None],
    ) -> None:
        """`hello` is its first message, and `descriptors` are the sockets that it names."""
        self.state = state
        self.has_answered = asyncio.Event()
        """Set when it has answered once."""
        self._store = store
        self._command = command
        self._hello = hello
        self._descriptors = tuple(descriptors)
        self._on_change = on_change
        self._restarts = Restarts()
        self._process: asyncio.subprocess.Process | None = None
        self._channel: Channel | None = None
        self._failure: tuple[str, str] | None = None
        self._is_answering = False
        self._is_stopping = asyncio.Event()

    async def keep(self) -> None:
        """Run the worker until `stop`; raise `PenstockError` if it cannot be started."""
        while not self._is_stopping.is_set():
            begun_at = time.monotonic()
            self._is_answering, self._failure = False, None
            code = await self._run_once()
            if self._is_stopping.is_set():
                break
            pause = self._pause(code, time.monotonic() - begun_at)
            restarts = self.state.restarts + 1
            self._changed(replace(self.state, condition="restarting", pid=None, restarts=restarts))
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._is_stopping.wait()
        self._changed(replace(self.state, condition="stopping", pid=None))

    def _pause(self, code: int, ran_seconds: float) -> float:
        """Return the seconds until the next start, after an end that was not asked for."""
        number, how = self.state.worker, _how(code)
        if self._is_answering:
            pause = self._restarts.pause_after_run(ran_seconds)
            reason = "" if self._failure is None else f" ({self._failure[0]})"
            logger.error("worker %d %s%s; starting it again in %.2f s", number, how, reason, pause)
            return pause
        text, hint = self._failure or (f"it {how} before it answered", "Its log has the reason.")
        given = self._restarts.pause_after_failed_start(is_wrongly_set=code == USAGE_CODE)
        if given is None:
            kind = ConfigError if code == USAGE_CODE else PenstockError
            raise kind(f"worker {number}: {text}", hint=hint)
        logger.error("worker %d does not start: %s; trying again in %.2f s", number, text, given)
        return given

    async def _run_once(self) -> int:
        """Run one process; return its exit code when its sessions have ended."""
        ours, theirs = socket.socketpair()
        with theirs:
            descriptor = theirs.fileno()
            process = self._process = await asyncio.create_subprocess_exec(
                *self._command(descriptor),
                pass_fds=(descriptor, *self._descriptors),
                stdin=asyncio.subprocess.DEVNULL,
                # Ctrl-C is for the supervisor: it stops the workers.
                process_group=0,
            )
        channel = self._channel = await Channel.open(ours)
        channel.send("hello", self._hello)
        self._changed(replace(self.state, condition="starting", pid=process.pid))
        if self._is_stopping.is_set():
            self.send_signal(signal.SIGTERM)
        try:
            await StoreServer(self._store, channel, self._take).run()
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS_MAX):
                    await process.wait()
        finally:
            self._channel = None
            self.send_signal(signal.SIGKILL)
        return await process.wait()

    def _take(self, message: Message) -> None:
        match message:
            case ["ready", str(address), admin]:
                self._is_answering = True
                self.has_answered.set()
                self._changed(
                    replace(self.state, condition="running", address=address, admin=admin)
                )
            case ["failure", str(text), str(hint)]:
                self._failure = text, hint
            case _:
                pass

    def _changed(self, state: WorkerState) -> None:
        self.state = state
        self._on_change()

    def send_states(self, states: Sequence[WorkerState]) -> None:
        """Report all workers to this one."""
        if self._channel is not None:
            self._channel.send("states", written_states(states))

    def stop(self) -> None:
        """Let the worker finish accepted requests and end; it is not started again."""
        if not self._is_stopping.is_set():
            self._is_stopping.set()
            self.send_signal(signal.SIGTERM)
            self._changed(replace(self.state, condition="stopping"))

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to its process, if one runs."""
        process = self._process
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.send_signal(number)


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was ended by {signal.Signals(-code).name}"
