"""Wide answers wait for a thread, a few at a time; none is refused because much else waits."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import TypeVar

import pytest

from penstock.broker.dispatch import Dispatcher
from penstock.broker.wide_requests import WrittenAnswer
from penstock.core.cancellation import Cancellation
from penstock.core.errors import StorageBusyError
from penstock.core.limits import BATCHES_QUEUED_BYTES_MAX, WIDE_REQUESTS_MAX
from penstock.core.metrics import Registry
from penstock.node.adapters import HeavyBatches
from penstock.protocol.connection import Request
from penstock.protocol.headers import RequestHead
from penstock.protocol.messages.api_versions import ApiVersionsResponse
from penstock.storage.worker_pool import WorkClass
from tests.broker.handlers.fakes import FakeServices

Result = TypeVar("Result")
ANSWER = ApiVersionsResponse(api_keys=())
CLIENTS = 3 * WIDE_REQUESTS_MAX


class Group:
    """`Tasks` over a task group."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        self._group.create_task(coroutine)


class SlowThreads:
    """Work that ends when the test says so."""

    def __init__(self) -> None:
        self.begun = 0
        self.go_on = asyncio.Event()

    async def run(
        self, call: Callable[[], Result], size_bytes: int, client: Cancellation | None
    ) -> Result:
        assert size_bytes == 0, "answers must not take the room of produced batches"
        self.begun += 1
        await self.go_on.wait()
        return call()


def test_answers_wait_for_each_other() -> None:
    """Guards `Dispatcher._write_wide`: 27 of 300 clients that asked for all topics were closed."""
    asyncio.run(_write_many())


async def _write_many() -> None:
    threads = SlowThreads()
    written: list[WrittenAnswer | None] = []
    head = RequestHead(api_key=18, api_version=0, correlation_id=1, client_id=None, body_start=0)
    request = Request(head, memoryview(b"x"), is_version_unsupported=False)
    gone = Cancellation()
    async with asyncio.TaskGroup() as group:
        services = replace(FakeServices().services, heavy_work=threads, tasks=Group(group))
        dispatcher = Dispatcher(services, {}, Registry())
        for _ in range(CLIENTS):
            dispatcher.write_wide(request, ANSWER, written.append, Cancellation())
        dispatcher.write_wide(request, ANSWER, written.append, gone)
        await asyncio.sleep(0)
        assert threads.begun == WIDE_REQUESTS_MAX
        gone.cancel()
        threads.go_on.set()
    assert len(written) == CLIENTS + 1
    assert written.count(None) == 1
    assert threads.begun == CLIENTS


class OneThread:
    """A pool whose jobs end when the test says so."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def run(
        self, kind: WorkClass, call: Callable[[], Result], client: Cancellation | None
    ) -> Result:
        assert kind is WorkClass.BATCHES
        await self.go_on.wait()
        return call()


class Storage:
    """The part of storage that `HeavyBatches` uses."""

    def __init__(self) -> None:
        self.pool = OneThread()


def test_batches_that_wait_do_not_refuse_what_is_bounded_elsewhere() -> None:
    """Guards `HeavyBatches.run`: one large batch had the connections of wide requests closed."""
    asyncio.run(_wait_behind_a_batch())


async def _wait_behind_a_batch() -> None:
    storage = Storage()
    heavy = HeavyBatches(storage)  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as group:
        group.create_task(heavy.run(lambda: None, BATCHES_QUEUED_BYTES_MAX + 1, None))
        await asyncio.sleep(0)
        with pytest.raises(StorageBusyError):
            await heavy.run(lambda: None, 1, None)
        wide = group.create_task(heavy.run(lambda: "done", 0, None))
        storage.pool.go_on.set()
    assert wide.result() == "done"
