"""`BodyBudget` and `read_body`: the bodies of requests, bounded for each and in all; `pause`.

A body counts from its first byte until its request is answered. Many clients that begin a large
body do not fill the memory.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from starlette.requests import ClientDisconnect, Request

from penstock.edge.gateways.gateway_problems import GatewayRefusedError, malformed
from penstock.edge.gateways.web_limits import BODIES_BYTES_MAX, RETRY_AFTER_SECONDS


class BodyBudget:
    """The bytes of all bodies that are held now."""

    def __init__(self, bytes_max: int = BODIES_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self.held_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Count more bytes; raise if there are too many."""
        if self.held_bytes + size_bytes > self._bytes_max:
            raise GatewayRefusedError(
                503,
                "Not now",
                f"All requests hold {self.held_bytes} bytes of bodies (at most {self._bytes_max}).",
                "Nothing was stored: repeat it in a moment.",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        self.held_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Count fewer bytes."""
        self.held_bytes -= size_bytes


@asynccontextmanager
async def read_body(
    request: Request, bytes_max: int, budget: BodyBudget
) -> AsyncIterator[bytearray]:
    """Yield the body of a request; its bytes count until the end of the block."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > bytes_max:
        raise _too_large(bytes_max)
    data, held = bytearray(), 0
    try:
        try:
            async for chunk in request.stream():
                budget.take(len(chunk))
                held += len(chunk)
                if held > bytes_max:
                    raise _too_large(bytes_max)
                data += chunk
        except ClientDisconnect as error:
            raise malformed("The body ended too early.") from error
        yield data
    finally:
        budget.release(held)


async def pause(seconds: float, lost: asyncio.Event | None) -> None:
    """Delay an answer, unless its client is gone."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await (lost or asyncio.Event()).wait()


def _too_large(bytes_max: int) -> GatewayRefusedError:
    return GatewayRefusedError(
        413,
        "Too large",
        f"The body is larger than {bytes_max} bytes.",
        "Send several smaller requests.",
    )
