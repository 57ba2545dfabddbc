"""`last`, `kept`: work that ends only when its owner cancels it.

A task can end unnoticed: its coroutine returns, or a future that it awaits was cancelled by other
code. A task group takes both for a regular end, and a task outside of a group reports nothing at
all. So each lasting task of a broker is started with one of these:

- `last`: the broker cannot go on without this work. Its end is an error of the task group, and so
  the end of the broker: half a broker is worse than none.
- `kept`: the work serves one peer or one disk. It begins again after a pause, with a critical log.

An exception that work does not handle itself counts as its end. Work that may end regularly, such
as the answer of one request, does NOT belong here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, NoReturn

from penstock.core.errors import ServiceEndedError

logger = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 1.0
"""Before work begins again."""


def last(
    tasks: asyncio.TaskGroup, work: Coroutine[object, object, None], name: str = ""
) -> asyncio.Task[None]:
    """Start work that lasts as long as the broker; if it ends before, the task group fails."""
    name = name or str(getattr(work, "__qualname__", work))
    task = tasks.create_task(_lasting(work, name), name=name)
    # A task that is cancelled before its first step never awaits the work.
    task.add_done_callback(lambda _: work.close())
    return task


async def _lasting(work: Awaitable[None], name: str) -> NoReturn:
    try:
        await work
        reason = "it returned"
    except asyncio.CancelledError:
        if _is_wanted():
            raise
        reason = "a call of it was cancelled"
    except Exception:
        logger.critical("the task %s has failed, so this broker stops", name)
        raise
    logger.critical("the task %s has ended, so this broker stops: %s", name, reason)
    raise ServiceEndedError(
        f"the task {name} of the broker has ended: {reason}",
        hint="This is a defect of Penstock: start the broker again, and report it with its log.",
    )


async def kept(
    work: Callable[[], Awaitable[None]],
    name: str,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> NoReturn:
    """Do work until cancelled; begin it again whenever it ends."""
    while True:
        try:
            await work()
            logger.critical("the task %s has returned; it begins again", name)
        except asyncio.CancelledError:
            if _is_wanted():
                raise
            logger.critical("a call of the task %s was cancelled; it begins again", name)
        except Exception:
            logger.critical("the task %s has failed; it begins again", name, exc_info=True)
        await sleep(PAUSE_SECONDS)


def _is_wanted() -> bool:
    """Whether this task itself was cancelled, not a future that it awaited."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
