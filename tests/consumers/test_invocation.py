"""Calls of handlers: sync and async, errors, timeouts, abandoned threads."""

import asyncio
import threading
from typing import Any

import pytest

from penstock.consumers.errors import ConsumerStoppedError
from penstock.consumers.running.invocation import HandlerTimeoutError, Invoker


def call(function: Any, argument: object = 1, *, timeout_seconds: float = 5.0) -> Any:  # noqa: ANN401
    async def run() -> Any:  # noqa: ANN401
        invoker = Invoker(concurrency=2, timeout_seconds=timeout_seconds, name="test")
        try:
            return await invoker.call(function, argument)
        finally:
            invoker.close()

    return asyncio.run(run())


async def doubled(number: int) -> int:
    return 2 * number


class Handler:
    async def __call__(self, number: int) -> int:
        return 3 * number


def test_async_sync_and_objects() -> None:
    assert call(doubled) == 2
    assert call(Handler()) == 3
    assert call(lambda number: number + 5) == 6
    assert call(lambda number: doubled(number + 1)) == 4
    assert call(lambda _: threading.current_thread() is threading.main_thread()) is False


@pytest.mark.parametrize("error", [ValueError("x"), TimeoutError("own"), KeyError("k")])
def test_errors_arrive_unchanged(error: Exception) -> None:
    def fail(_: object) -> None:
        raise error

    async def fail_async(_: object) -> None:
        raise error

    for handler in (fail, fail_async):
        with pytest.raises(type(error)) as raised:
            call(handler)
        assert raised.value is error


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, StopIteration])
def test_an_exit_in_a_thread_is_an_error_of_the_handler(kind: type[BaseException]) -> None:
    def leave(_: object) -> None:
        raise kind

    with pytest.raises(RuntimeError, match=f"the handler raised {kind.__name__}"):
        call(leave)


def test_an_async_handler_is_cancelled_at_its_timeout() -> None:
    ends = []

    async def slow(_: object) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ends.append(1)

    with pytest.raises(HandlerTimeoutError, match=r"did not return within 0\.01 s"):
        call(slow, timeout_seconds=0.01)
    assert ends == [1]


def test_threads_that_do_not_return_are_abandoned_and_limited() -> None:
    freed = threading.Event()

    async def run() -> None:
        invoker = Invoker(concurrency=2, timeout_seconds=0.01, name="test")
        for _ in range(2):
            with pytest.raises(HandlerTimeoutError):
                await invoker.call(lambda _: freed.wait(), 1)
        with pytest.raises(ConsumerStoppedError, match="2 handlers of test did not return"):
            await invoker.call(lambda _: 1, 1)
        freed.set()
        async with asyncio.timeout(5):
            while invoker._abandoned:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert await invoker.call(lambda number: number, 7) == 7
        invoker.close()

    asyncio.run(run())
