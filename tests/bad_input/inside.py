"""A broker inside the test's own process, on a thread, so that its metrics and limits are in reach.

Guarantees: `InsideBroker(settings)` answers when entering returns; leaving stops it, and raises its
error. Its log is in memory. `settles` waits, briefly, for a metric to reach a value, because a
connection ends on the broker's thread a moment after the test has seen it end.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from penstock.core.limit_use import LimitUse
from penstock.core.settings.config import BrokerConfig
from penstock.core.settings.tree import Settings
from penstock.node.server import BrokerServer

SECONDS_MAX = 10.0


class InsideBroker:
    """One `BrokerServer` with a thread and an event loop of its own."""

    def __init__(self, **listener: float) -> None:
        """`listener` are settings of that section."""
        tree = Settings.model_validate({"listener": listener, "admin": {"enabled": False}})
        self._settings = BrokerConfig(port=0, storage="memory", data_dir="/inside", settings=tree)
        self._server = BrokerServer(self._settings)
        self._ready = threading.Event()
        self._stop: Callable[[], object] = lambda: None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="broker", daemon=True)

    @property
    def port(self) -> int:
        return self._server.port

    def metrics(self) -> Mapping[str, float]:
        """Every metric now."""
        return self._server.metrics()

    def settles(self, name: str, value: float) -> bool:
        """Whether a metric comes to a value within a short time."""
        deadline = time.monotonic() + SECONDS_MAX
        while self.metrics()[name] != value:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        return True

    def rises(self, name: str, value: float) -> bool:
        """Whether a metric comes to a value or above it within a short time."""
        deadline = time.monotonic() + SECONDS_MAX
        while self.metrics()[name] < value:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        return True

    def limits(self) -> dict[str, LimitUse]:
        """Every limit now, by name."""
        return {row.name: row for row in self._server.limits()}

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 (raised in the thread that waits)
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(stop.set)
        async with self._server:
            self._ready.set()
            await stop.wait()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(SECONDS_MAX)
        if self._error is not None:
            raise self._error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()
        self._thread.join(SECONDS_MAX)
        assert not self._thread.is_alive(), "the broker does not stop"
        if self._error is not None and kind is None:
            raise self._error
