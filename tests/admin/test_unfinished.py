"""Requests that are abandoned after a timeout or because the broker stops: the answer of each."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self

import pytest

from penstock.admin import app, desk
from penstock.admin import server as admin_server
from penstock.admin.server import AdminServer
from penstock.client.cluster import Cluster
from penstock.core.errors import BrokerUnreachableError
from penstock.core.settings.admin_settings import AdminSettings
from tests.admin.fakes import FakeCheck, FakeDoor, FakeView

BODY = b'{"name":"orders"}'
HEAD = b"POST /api/v1/topics HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
CREATE = HEAD + b"content-length: %d\r\n\r\n" % len(BODY)
SECONDS_MAX = 20.0


class Scene:
    """A server whose one worker waits until the test releases it."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.began = threading.Event()
        self._server = AdminServer(FakeView(), FakeDoor(self._wait), FakeCheck(), AdminSettings())
        self._bound = socket.create_server(("127.0.0.1", 0))
        self._bound.setblocking(False)

    def _wait(self) -> Cluster:
        self.began.set()
        self.may_go_on.wait(SECONDS_MAX)
        raise BrokerUnreachableError("nobody")

    async def __aenter__(self) -> Self:
        await self._server.start(self._bound)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.may_go_on.set()
        await self.stop()
        self._bound.close()

    async def stop(self) -> None:
        await self._server.stop()

    async def send(self, request: bytes) -> "Caller":
        reader, writer = await asyncio.open_connection(*self._bound.getsockname())
        writer.write(request)
        return Caller(reader, writer)

    async def busy(self) -> "Caller":
        """Somebody whose operation is under way."""
        caller = await self.send(CREATE + BODY)
        assert await asyncio.to_thread(self.began.wait, SECONDS_MAX)
        return caller


class Caller:
    """A connection with one request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def answer(self) -> tuple[int, str, str]:
        """Status, detail and remedy of the problem that it gets."""
        async with asyncio.timeout(SECONDS_MAX):
            head = await self._reader.readuntil(b"\r\n\r\n")
            assert b"content-type: application/problem+json" in head, head
            length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            problem = json.loads(await self._reader.readexactly(length))
        self.writer.close()
        return problem["status"], problem["detail"], problem["remedy"]


@pytest.fixture(autouse=True)
def one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "WORKERS", 1)


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def test_only_what_has_begun_has_an_unknown_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "REQUEST_SECONDS_MAX", 0.5)

    async def work() -> None:
        async with Scene() as scene:
            under_way = await scene.busy()
            waiting = await scene.send(CREATE + BODY)
            status, detail, remedy = await under_way.answer()
            assert (status, "took longer" in detail) == (504, True)
            assert remedy.startswith("It may or may not have been carried out")
            status, detail, remedy = await waiting.answer()
            assert (status, "before its turn" in detail) == (503, True)
            assert remedy.startswith("Nothing was done")

    run(work)


def test_a_stop_tells_everybody_what_was_done(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(admin_server, "STOP_SECONDS_MAX", 0.5)

    async def work() -> None:
        async with Scene() as scene:
            under_way = await scene.busy()
            waiting = await scene.send(CREATE + BODY)
            late, silent = await scene.send(CREATE), await scene.send(CREATE)
            await asyncio.sleep(0.1)
            stop = asyncio.get_running_loop().create_task(scene.stop())
            await asyncio.sleep(0)
            late.writer.write(BODY)
            for nothing_done in (waiting, late, silent):
                status, detail, _ = await nothing_done.answer()
                assert (status, detail) == (503, "Stopping: nothing was done.")
            status, detail, remedy = await under_way.answer()
            assert (status, "stopped before" in detail) == (504, True)
            assert "look before you repeat it" in remedy
            await stop

    run(work)
    assert not caplog.records
