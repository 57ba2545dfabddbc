"""`end_tasks`: cancels tasks of a part that stops, and waits for their ends."""

import asyncio
from collections.abc import Iterable


async def end_tasks(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel the tasks; return when all of them have ended."""
    ending = tuple(tasks)
    for task in ending:
        task.cancel()
    if ending:
        await asyncio.wait(ending)
