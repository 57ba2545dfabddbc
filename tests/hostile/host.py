"""`penstock serve` with a meter on its event loop: `python -m tests.hostile.host DOOR serve ...`.

A client that connects to the socket file DOOR receives every metric and the pauses of the loop as
JSON. A pause is the CPU time of the loop's thread between two ticks of a timer that is due every
few milliseconds: the cost of one turn of the loop, however busy the machine is. Time that the host
took meanwhile is subtracted. Only Penstock and the standard library are imported, so that it also
runs on an installed, compiled package.
"""

import asyncio
import json
import os
import time
from typing import Final, Self

from tests.hostile.stacks import Stacks
from tests.soak import host
from tests.soak.stolen_time import StolenTime

TICK_SECONDS: Final = 0.004
LONG_SECONDS: Final = 0.050
SHOWN_SECONDS: Final = 0.035
"""What is written to the log with PENSTOCK_STACKS=1."""


class PauseMeter:
    """The CPU time of each turn of the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._last = time.thread_time()
        self._last_moment = time.monotonic()
        self._host = StolenTime()
        self._stacks = Stacks() if os.environ.get("PENSTOCK_STACKS") else None
        self.longest_seconds = 0.0
        self.long_pauses = 0
        self._tick()

    def _tick(self) -> None:
        now = time.thread_time()
        pause = now - self._last
        if self._stacks is not None:
            moment = time.monotonic()
            if pause > SHOWN_SECONDS:
                self._stacks.report(self._last_moment, moment, pause)
            self._last_moment = moment
        self._last = now
        pause -= self._host.seconds()
        self.longest_seconds = max(self.longest_seconds, pause)
        self.long_pauses += pause > LONG_SECONDS
        self._loop.call_later(TICK_SECONDS, self._tick)

    def skip(self) -> None:
        """Leave out what was done since the last tick: it was for the meter itself."""
        self._last = time.thread_time()

    def read(self) -> dict[str, float]:
        """Return the figures since the last reading, and start again."""
        found = {
            "loop_longest_pause_ms": 1_000 * self.longest_seconds,
            "loop_long_pauses": self.long_pauses,
        }
        self.longest_seconds, self.long_pauses = 0.0, 0
        return found


class MeteredServer(host.WatchedServer):
    """A broker that reports its metrics and the pauses of its loop."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._meter = PauseMeter()
        return self

    async def _tell(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # All metrics of 20,000 partitions take 100 ms: no client asks for them here.
        writer.write(json.dumps({**self.metrics(), **self._meter.read()}).encode())
        writer.close()
        self._meter.skip()


def main() -> None:
    host.run(MeteredServer)


if __name__ == "__main__":
    main()
