"""`Desk`: executes operations on a few threads, with a bound on waiting ones.

An operation blocks on the wire, so it has a thread, and the event loop stays free for Kafka
clients. When `OPERATIONS_MAX` requests are in progress, more are rejected immediately, before
anything is done. Each operation opens its own connection to the broker, with the identity of its
caller, and closes it. If a request
times out or a stop ends it before a thread began its operation, its answer says that nothing was
done.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from penstock.admin.model import Answer
from penstock.admin.operation import Asked, Operation
from penstock.admin.ports import Caller, ClusterDoor, LeaseDesk, PipeDesk, SessionBook
from penstock.admin.problems import RETRY_AFTER_SECONDS, RefusedError, refused, stopping

WORKERS: Final = 4
"""Concurrent operations: they wait for the broker, which has one core."""
OPERATIONS_MAX: Final = 32
"""Operations that run or wait for a thread."""
CALL_SECONDS_MAX: Final = 15.0
"""Time for one call of an operation to a broker, with its retries."""


class Desk:
    """Executes operations."""

    def __init__(
        self,
        door: ClusterDoor,
        sessions: SessionBook | None = None,
        pipes: PipeDesk | None = None,
        leases: LeaseDesk | None = None,
    ) -> None:
        """Without `sessions`, `pipes` and `leases`, their operations are refused."""
        self._door = door
        self._sessions = sessions
        self._pipes = pipes
        self._leases = leases
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="admin")
        self._under_way = 0
        self.is_stopping = False

    async def carry_out(self, operation: Operation, asked: Asked, caller: Caller) -> Answer | None:
        """Execute an operation of a caller and return its answer; raise its error."""
        if self.is_stopping:
            raise stopping()
        if self._under_way >= OPERATIONS_MAX:
            raise _busy(f"{OPERATIONS_MAX} requests are being handled already.")
        if operation.is_on_loop:
            return await self._on_loop(operation, asked, caller)
        self._under_way += 1
        loop = asyncio.get_running_loop()
        future = self._workers.submit(self._run, operation, asked, caller)
        # Counted until the thread is free again, also when the client has disconnected.
        future.add_done_callback(lambda _: _call_soon(loop, self._finished))
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if not future.cancel():
                raise  # the operation has begun: its outcome is unknown
            if self.is_stopping:
                raise stopping() from None
            raise _busy("Its time was over before its turn came.") from None

    async def _on_loop(self, operation: Operation, asked: Asked, caller: Caller) -> Answer | None:
        if operation.on_broker is not None:
            if self._sessions is None:
                raise _busy("The broker does not list its sessions yet.")
            return operation.on_broker(self._sessions, caller, asked)
        if operation.on_pipes is not None:
            if self._pipes is None:
                raise _busy("The broker does not list its pipes yet.")
            return await operation.on_pipes(self._pipes, caller, asked)
        assert operation.on_leases is not None
        if self._leases is None:
            raise _busy("The broker grants no leases yet.")
        return await operation.on_leases(self._leases, caller, asked)

    def stop(self) -> None:
        """Accept no more operations; a running one ends with its connection."""
        self.is_stopping = True
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _finished(self) -> None:
        self._under_way -= 1

    def _run(self, operation: Operation, asked: Asked, caller: Caller) -> Answer | None:
        with self._door.open(CALL_SECONDS_MAX, caller) as cluster:
            return operation.call(cluster, asked)


def _busy(detail: str) -> RefusedError:
    return refused(
        503,
        "Busy",
        detail,
        "Nothing was done: repeat it in a moment.",
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Call `callback` on the loop; do nothing when the loop is closed."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback)
