"""`EncodingTurns`: bounds the time in which all clients encode JSON in one turn of the event loop.

A record as JSON costs ten times the delivery of its bytes. A hundred streams that become ready at
once would delay every other client; here they wait for each other, and Kafka clients go on in
between.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from penstock.edge.gateways.web_limits import ENCODE_SECONDS

Result = TypeVar("Result")


class EncodingTurns:
    """The encoding work of one broker."""

    def __init__(self, read_seconds: Callable[[], float] = time.perf_counter) -> None:
        self._read_seconds = read_seconds
        self._lock = asyncio.Lock()
        self._spent_seconds = 0.0

    async def run(self, work: Callable[[], Result]) -> Result:
        """Return the result of a short call, in this turn or a later one."""
        async with self._lock:
            if self._spent_seconds >= ENCODE_SECONDS:
                await asyncio.sleep(0)
                self._spent_seconds = 0.0
            began = self._read_seconds()
            try:
                return work()
            finally:
                self._spent_seconds += self._read_seconds() - began
