"""A mapped page that can no longer be read ends a connection, never the process.

A file that is cut under its mapping simulates a page whose read fails: both are SIGBUS for a thread
that touches the page, and EFAULT for a system call that gets it. Each case runs in a process of its
own, because it may end it.
"""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import asyncio, socket, sys

from penstock.storage.disk.filesystem import DiskFileSystem

SIZE = 8 << 20
folder, loop_kind, way = sys.argv[1:]
file = DiskFileSystem(is_mapped=loop_kind == "uvloop").create_file(folder + "/data")
file.write_at(b"x" * SIZE, 0)


class Connection(asyncio.Protocol):
    def __init__(self):
        self.lost = asyncio.get_running_loop().create_future()

    def connection_lost(self, error):
        self.lost.set_result(error)


async def main():
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    transport, connection = await loop.create_connection(Connection, sock=ours)
    view = file.view_nowait(0, SIZE)
    file.truncate(0)
    if way == "alone":
        transport.write(view)
    elif way == "after a head":
        transport.writelines([b"head", view])
    else:
        transport.write(b"y" * SIZE)
        transport.write(view)
    received = 0
    while True:
        read = asyncio.create_task(loop.sock_recv(theirs, 1 << 20))
        await asyncio.wait({read, connection.lost}, return_when="FIRST_COMPLETED")
        if connection.lost.done():
            read.cancel()
            print("lost", connection.lost.result().errno)
            return
        received += len(await read)
        if received >= SIZE and (way != "behind others" or received >= 2 * SIZE):
            print("received")
            return


if loop_kind == "uvloop":
    import uvloop

    uvloop.install()
asyncio.run(main())
"""


@pytest.mark.parametrize("way", ["alone", "after a head", "behind others"])
@pytest.mark.parametrize(("loop", "outcome"), [("uvloop", "lost 14"), ("asyncio", "received")])
def test_a_page_that_cannot_be_read_does_not_end_the_process(
    tmp_path: Path, loop: str, outcome: str, way: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(tmp_path), loop, way],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done
    assert done.stdout.strip() == outcome
