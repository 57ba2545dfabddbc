"""A client is stalled when no waiting byte is sent, and not a moment earlier."""

import asyncio
import socket

from penstock.broker.connections.send_queue import Stall, unsent_bytes


def test_nothing_taken_for_the_whole_time() -> None:
    stall = Stall()
    stall.begin(100.0)
    assert [stall.lasts(500, 100.0 + later, 10.0) for later in (2.5, 5.0, 7.5, 10.0)] == [
        False,
        False,
        False,
        True,
    ]


def test_a_byte_taken_buys_the_whole_time() -> None:
    stall = Stall()
    stall.begin(100.0)
    assert not stall.lasts(500, 105.0, 10.0)
    assert not stall.lasts(499, 109.0, 10.0)
    assert not stall.lasts(499, 118.0, 10.0)
    assert stall.lasts(499, 119.0, 10.0)


def test_the_next_stall_begins_anew() -> None:
    stall = Stall()
    stall.begin(100.0)
    assert stall.lasts(500, 110.0, 10.0)
    stall.begin(110.0)
    assert not stall.lasts(500, 115.0, 10.0)


def test_what_the_kernel_holds_is_counted() -> None:
    """What a peer reads of a large answer shows before the loop's own buffer moves."""

    async def go() -> tuple[int, int]:
        ours, peer = socket.socketpair()
        ours.setblocking(False)
        _, writer = await asyncio.open_connection(sock=ours)
        writer.write(bytes(4_000_000))
        before = unsent_bytes(writer.transport)
        peer.recv(100_000)
        after = unsent_bytes(writer.transport)
        writer.transport.abort()
        peer.close()
        return before, after

    before, after = asyncio.run(go())
    assert after < before


def test_a_socket_that_is_closed_already_holds_nothing() -> None:
    class Closed(asyncio.WriteTransport):
        def get_write_buffer_size(self) -> int:
            return 7

        def get_extra_info(self, _name: str, _default: object = None) -> socket.socket:
            closed = socket.socket()
            closed.close()
            return closed

    assert unsent_bytes(Closed()) == 7
