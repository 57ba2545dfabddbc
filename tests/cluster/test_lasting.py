"""Work that lasts: its end ends its task group, or it begins again; a cancellation ends it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from penstock.cluster.link.lasting import kept, last
from penstock.core.errors import ServiceEndedError


async def returns() -> None:
    """Ends regularly."""


async def is_cancelled_within() -> None:
    """Awaits a call that other code cancels."""
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def fails() -> None:
    raise ValueError("a defect")


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize(
    ("work", "reason"),
    [(returns, "it returned"), (is_cancelled_within, "a call of it was cancelled")],
)
def test_work_that_ends_ends_the_broker(
    work: Callable[[], Awaitable[None]], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def act() -> None:
        async with asyncio.TaskGroup() as group:
            last(group, work(), "session")  # type: ignore[arg-type]
            await forever()

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(act())
    (error,) = raised.value.exceptions
    assert isinstance(error, ServiceEndedError)
    assert str(error) == f"the task session of the broker has ended: {reason}"
    assert [one.levelno for one in caplog.records] == [logging.CRITICAL]


def test_an_exception_of_work_is_that_of_the_group(caplog: pytest.LogCaptureFixture) -> None:
    async def act() -> None:
        async with asyncio.TaskGroup() as group:
            last(group, fails())
            await forever()

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(act())
    assert isinstance(raised.value.exceptions[0], ValueError)
    assert "the task fails has failed" in caplog.text


def test_cancelled_work_ends_without_an_error() -> None:
    async def act() -> None:
        async with asyncio.TaskGroup() as group:
            task = last(group, forever())
            await asyncio.sleep(0)
            task.cancel()
        assert task.cancelled()

    asyncio.run(act())


def test_kept_work_begins_again_until_it_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    ways = [returns, is_cancelled_within, fails]
    pauses: list[float] = []

    async def work() -> None:
        await (ways.pop(0) if ways else forever)()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    async def act() -> None:
        task = asyncio.get_running_loop().create_task(kept(work, "fetch-from-2", sleep))
        async with asyncio.timeout(1):
            while ways or len(pauses) < 3:  # noqa: ASYNC110 (has a deadline)
                await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(act())
    assert pauses == [1.0] * 3
    assert [one.levelno for one in caplog.records] == [logging.CRITICAL] * 3
