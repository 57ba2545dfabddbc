"""`finished`: a transaction ends also while its pipe is being stopped, within a bound."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Final

from penstock.core.errors import PenstockError

STOP_SECONDS_MAX: Final = 2.0
"""Longest wait of a stopping pipe for the end of its transaction."""


async def finished(transaction: Coroutine[None, None, None]) -> None:
    """Carry out a transaction, also while the pipe is being stopped.

    An open transaction would hold back consumers of the parent until its timeout.
    """
    task = asyncio.get_running_loop().create_task(transaction)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(TimeoutError, PenstockError):
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await task
        raise
