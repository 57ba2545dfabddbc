"""Large answers by sendfile: order, slow readers, files that vanish or shrink, cold data, leaks.

Each test uses a real socket and a real file, with the smallest socket buffers the kernel allows, so
that an answer never leaves in one piece.
"""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.broker.connections.file_sender import FileSender
from penstock.core.cancellation import Cancellation
from penstock.core.limits import SEND_CHUNK_BYTES
from penstock.storage.disk.file_range import sendable_range
from penstock.storage.disk.filesystem import DiskFile, DiskFileSystem

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sendfile to sockets is Linux's")

SIZE = 3_000_000
SECONDS_MAX = 20


class Transport(asyncio.WriteTransport):
    """As much of a transport as a sender looks at."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__({"socket": connected})


class Stage:
    """A connection's two ends, a file, and the sender's calls to its owner."""

    def __init__(self, folder: Path) -> None:
        self.ours, self.theirs = socket.socketpair()
        for end in (self.ours, self.theirs):
            end.setblocking(False)
        self.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        self.path = folder / "0.log"
        self.content = os.urandom(SIZE)
        self.path.write_bytes(self.content)
        self.said: list[str] = []
        self.loads: list[tuple[Callable[[], None], Callable[[Exception | None], None]]] = []
        self.load_clients: list[Cancellation] = []

    def open(self) -> DiskFile:
        file = DiskFileSystem().open_file(str(self.path))
        assert isinstance(file, DiskFile)
        return file

    def pause_writing(self) -> None:
        self.said.append("paused")

    def resume_writing(self) -> None:
        self.said.append("resumed")

    def abort(self) -> None:
        self.said.append("aborted")

    def load_cold(
        self,
        load: Callable[[], None],
        done: Callable[[Exception | None], None],
        client: Cancellation,
    ) -> None:
        self.loads.append((load, done))
        self.load_clients.append(client)

    async def serve_loads(self) -> None:
        while True:
            while self.loads:
                load, done = self.loads.pop()
                load()
                done(None)
            await asyncio.sleep(0)

    def sender(self) -> FileSender:
        loop = asyncio.get_running_loop()
        return FileSender(self, loop, self, Transport(self.ours))

    async def receive(self, count: int) -> bytes:
        loop = asyncio.get_running_loop()
        data = bytearray()
        async with asyncio.timeout(SECONDS_MAX):
            while len(data) < count:
                part = await loop.sock_recv(self.theirs, count - len(data))
                assert part, "the connection ended"
                data += part
        return bytes(data)

    async def until(self, said: list[str]) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while self.said != said:  # noqa: ASYNC110 (the awaited state is not an event)
                await asyncio.sleep(0)

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.close()


def open_descriptors(stage: Stage) -> int:
    """Descriptors of the stage's file and socket; other threads open and close their own."""
    ours = os.readlink(f"/proc/self/fd/{stage.ours.fileno()}")
    count = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile, such as the listing's own
            link = os.readlink(f"/proc/self/fd/{descriptor}")
            count += link == ours or link.startswith(str(stage.path))
    return count


def test_views_of_a_disk_are_sendable_only_from_their_beginning(stage: Stage) -> None:
    """Guards the file position: a slice from the middle must go out as bytes."""
    view = stage.open().view_nowait(5_000, 200_000)
    assert sendable_range(view) is not None
    assert sendable_range(view[:150_000]) is not None
    assert sendable_range(view[64:]) is None
    assert sendable_range(bytes(view)) is None


def test_answers_leave_in_order_and_whole(stage: Stage) -> None:
    """Heads, records and answers that were added later, through a socket that takes little."""

    async def scenario() -> None:
        file = stage.open()
        first, second = file.view_nowait(4_097, 1_000_000), file.view_nowait(0, SIZE)
        sender = stage.sender()
        sender.begin([b"head", first, b"", b"tail"])
        sender.add([b"next", second])
        assert stage.said == ["paused"]
        expected = b"head" + self_content[4_097:1_004_097] + b"tail" + b"next" + self_content
        assert await stage.receive(len(expected)) == expected
        await stage.until(["paused", "resumed"])
        assert sender.left_bytes == 0

    self_content = stage.content
    asyncio.run(scenario())


def test_an_answer_that_fits_the_socket_pauses_nobody(stage: Stage) -> None:
    async def scenario() -> None:
        stage.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_000_000)
        before = open_descriptors(stage)
        file = stage.open()
        sender = stage.sender()
        sender.begin([b"head", file.view_nowait(0, 150_000)])
        assert stage.said == []
        assert sender.left_bytes == 0
        assert await stage.receive(150_004) == b"head" + stage.content[:150_000]
        del file
        assert open_descriptors(stage) == before

    asyncio.run(scenario())


def test_a_deleted_segment_is_sent_whole(stage: Stage) -> None:
    """Retention and compaction unlink files and drop their handles while a client is reading."""

    async def scenario() -> None:
        file: DiskFile | None = stage.open()
        assert file is not None
        sender = stage.sender()
        sender.begin([file.view_nowait(0, SIZE)])
        file = None
        stage.path.unlink()
        assert await stage.receive(SIZE) == stage.content
        await stage.until(["paused", "resumed"])

    asyncio.run(scenario())


def test_a_file_that_was_cut_ends_the_connection(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Fewer bytes than the frame promised would make the client read the next answer as records."""
    caplog.set_level("INFO")

    async def scenario() -> None:
        sender = stage.sender()
        sender.begin([stage.open().view_nowait(0, SIZE)])
        os.truncate(stage.path, SIZE // 2)
        received = await stage.receive(SIZE // 2)
        assert received == stage.content[: SIZE // 2]
        await stage.until(["paused", "aborted"])
        assert sender.left_bytes == 0

    asyncio.run(scenario())
    assert "cannot be sent" in caplog.text


def test_a_peer_that_is_gone_ends_the_connection(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not logged: a client could write a line for each connection that it resets."""
    caplog.set_level("INFO")

    async def scenario() -> None:
        sender = stage.sender()
        sender.begin([stage.open().view_nowait(0, SIZE)])
        stage.theirs.close()
        await stage.until(["paused", "aborted"])

    asyncio.run(scenario())
    assert not caplog.text


@pytest.mark.parametrize("while_loading", [False, True])
def test_closing_gives_descriptors_and_files_back(stage: Stage, *, while_loading: bool) -> None:
    """An aborted connection must not keep a deleted segment's disk space."""

    async def scenario() -> None:
        before = open_descriptors(stage)
        file = stage.open()
        view = file.view_nowait(0, SIZE)
        file_range = sendable_range(view)
        assert file_range is not None
        if while_loading:
            file_range.checked_at = 0.0
            file_range.source = Cold(file)
        sender = stage.sender()
        sender.begin([view])
        del file, view, file_range
        assert open_descriptors(stage) > before
        sender.close()
        sender.close()
        assert [client.is_cancelled for client in stage.load_clients] == [True] * while_loading
        stage.loads.clear()
        assert open_descriptors(stage) == before
        assert stage.said == ["paused"]

    asyncio.run(scenario())


class Cold:
    """A file whose pages are not in memory until they are loaded."""

    def __init__(self, file: DiskFile) -> None:
        self._file = file
        self.is_open = True
        self.loaded: set[int] = set()

    def is_cached(self, position: int, size: int) -> bool:
        return position in self.loaded

    def load(self, position: int, size: int) -> None:
        self.loaded.add(position)

    def send_to(self, descriptor: int, position: int, size: int) -> int:
        assert any(place <= position for place in self.loaded), "sendfile would wait for the disk"
        return self._file.send_to(descriptor, position, size)


def test_cold_data_is_loaded_on_a_thread_before_it_is_sent(stage: Stage) -> None:
    """Sendfile waits for the disk, and with it every client of the broker."""

    async def scenario() -> None:
        file = stage.open()
        view = file.view_nowait(0, SIZE)
        file_range = sendable_range(view)
        assert file_range is not None
        file_range.checked_at -= 60.0
        cold = file_range.source = Cold(file)
        sender = stage.sender()
        sender.begin([b"head", view])
        assert cold.loaded == set()
        loads = asyncio.create_task(stage.serve_loads())  # noqa: TID251
        assert await stage.receive(SIZE + 4) == b"head" + stage.content
        loads.cancel()
        await stage.until(["paused", "resumed"])
        assert len(cold.loaded) >= 3

    asyncio.run(scenario())


def test_a_disk_that_cannot_be_read_ends_the_connection(stage: Stage) -> None:
    async def scenario() -> None:
        file = stage.open()
        view = file.view_nowait(0, SIZE)
        file_range = sendable_range(view)
        assert file_range is not None
        file_range.checked_at -= 60.0
        file_range.source = Cold(file)
        sender = stage.sender()
        sender.begin([view])
        ((_load, done),) = stage.loads
        done(OSError("the disk is gone"))
        assert stage.said == ["paused", "aborted"]

    asyncio.run(scenario())


class Taking(Cold):
    """A file that goes into a socket that takes everything at once."""

    def __init__(self, file: DiskFile) -> None:
        super().__init__(file)
        self.sent: list[tuple[int, int]] = []

    def send_to(self, descriptor: int, position: int, size: int) -> int:
        self.sent.append((position, size))
        return size


def test_what_was_just_read_leaves_in_one_call(stage: Stage) -> None:
    """Each call more is a turn through the interpreter, and a look at the socket."""

    async def scenario() -> None:
        file = stage.open()
        view = file.view_nowait(0, SIZE)
        file_range = sendable_range(view)
        assert file_range is not None
        taking = file_range.source = Taking(file)
        stage.sender().begin([b"head", view])
        assert taking.sent == [(0, SIZE)]
        assert stage.said == []

    asyncio.run(scenario())


def test_what_is_not_known_to_be_in_memory_leaves_in_checked_chunks(stage: Stage) -> None:
    """A chunk was checked; behind it sendfile might wait for the disk."""

    async def scenario() -> None:
        file = stage.open()
        view = file.view_nowait(0, SIZE)
        file_range = sendable_range(view)
        assert file_range is not None
        file_range.checked_at -= 60.0
        taking = file_range.source = Taking(file)
        taking.loaded = set(range(0, SIZE, SEND_CHUNK_BYTES))
        stage.sender().begin([view])
        assert taking.sent == [
            (place, min(SEND_CHUNK_BYTES, SIZE - place))
            for place in range(0, SIZE, SEND_CHUNK_BYTES)
        ]

    asyncio.run(scenario())
