"""`BrokerRun`: one start of a broker on its own thread and event loop, until its end.

The thread can be held: the loop then stops inside one callback, like the process after SIGSTOP. The
kernel continues, so connections are accepted and bytes arrive, but no request is answered. A held
thread still runs the actions of `do`, and nothing between two of them: a broker that is killed
while it is paused has answered nothing in between.

Every wait has a limit. `start` and `stop` raise the error that ended the broker.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Final

from penstock.node.server import BrokerServer, run

START_SECONDS_MAX: Final = 30.0
"""A longer start has failed: tests have no logs of a terabyte."""
STOP_SECONDS_MAX: Final = 60.0
"""Longer than a broker waits for clients that do not read, and for its disk."""
ACTION_SECONDS_MAX: Final = 30.0
"""Time until the loop runs a short action; it may have to wait for a slow disk."""


class BrokerRun:
    """A broker on a thread; started once, stopped once."""

    def __init__(self, server: BrokerServer, *, use_uvloop: bool) -> None:
        self.server = server
        self._use_uvloop = use_uvloop
        self._is_ready = threading.Event()
        self._failure: BaseException | None = None
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._orders: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._is_held = False
        self._thread = threading.Thread(target=self._run, name="penstock-broker", daemon=True)

    def start(self) -> None:
        """Start, and return when the broker answers; raise its error."""
        self._thread.start()
        if not self._is_ready.wait(START_SECONDS_MAX):
            # The broker may be ready in a moment, and would then run without a caller to stop it.
            with contextlib.suppress(TimeoutError):
                self.end()
            raise TimeoutError(f"the broker did not start within {START_SECONDS_MAX:.0f} s")
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        """Finish accepted requests and stop; raise an error of the broker."""
        self.end()
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """Stop, ignoring errors of the broker; for a broker that is dead already."""
        self.release()
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            # If the broker dies at this moment, its loop is closed.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(STOP_SECONDS_MAX)
        if self._thread.is_alive():
            raise TimeoutError(f"the broker did not stop within {STOP_SECONDS_MAX:.0f} s")

    # --- On the broker's thread ---

    def do(self, action: Callable[[], None]) -> None:
        """Run `action` on the broker's thread, and return when it is done."""
        done: Future[None] = Future()

        def act() -> None:
            try:
                action()
            except BaseException as error:  # noqa: BLE001 (raised again in the thread that asked)
                done.set_exception(error)
            else:
                done.set_result(None)

        if self._is_held:
            self._orders.put(act)
        else:
            self._alive_loop().call_soon_threadsafe(act)
        done.result(ACTION_SECONDS_MAX)

    def hold(self) -> None:
        """Hold the event loop; return when it has stopped."""
        if self._is_held:
            return
        held = threading.Event()
        self._alive_loop().call_soon_threadsafe(self._stand_still, held)
        if not held.wait(ACTION_SECONDS_MAX):
            self._orders.put(None)
            raise TimeoutError(f"the broker was busy for {ACTION_SECONDS_MAX:.0f} s")
        self._is_held = True

    def release(self) -> None:
        """Let the event loop continue."""
        if self._is_held:
            self._is_held = False
            self._orders.put(None)

    def _stand_still(self, held: threading.Event) -> None:
        loop = self._alive_loop()
        # In debug mode a loop logs slow callbacks; this one is slow on purpose.
        usual_seconds, loop.slow_callback_duration = loop.slow_callback_duration, float("inf")
        held.set()
        while (order := self._orders.get()) is not None:
            order()
        loop.call_soon(setattr, loop, "slow_callback_duration", usual_seconds)

    def _alive_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or not self._thread.is_alive():
            raise RuntimeError(f"the broker has ended: {self._failure or 'it was stopped'}")
        return self._loop

    def _run(self) -> None:
        try:
            run(self._serve(), use_uvloop=self._use_uvloop)
        except BaseException as error:  # noqa: BLE001 (raised again in the thread that asked)
            self._failure = error
        finally:
            self._is_ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with self.server:
            self._is_ready.set()
            await self._stop.wait()
