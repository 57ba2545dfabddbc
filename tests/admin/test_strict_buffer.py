"""Ambiguous HTTP framing on the admin port: 400, the connection ends, nothing behind it is read."""

import asyncio
from typing import Any

import h11
import pytest
from h11._receivebuffer import ReceiveBuffer
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.admin.problems import CONTENT_TYPE, Problem
from penstock.admin.strict_buffer import (
    CHUNK_LINE_BYTES_MAX,
    CHUNKS_MAX,
    HEAD_BYTES_MAX,
    HEADERS_MAX,
    StrictBuffer,
)
from tests.admin.test_server import LIVE, SECONDS_MAX, run, serving

POST = b"POST /x HTTP/1.1\r\nHost: localhost\r\n"
CHUNKS = b"5\r\nhello\r\n0\r\n\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n"

REFUSED = {
    "both": CHUNKED + b"Content-Length: 5\r\n\r\n" + CHUNKS,
    "both, the other way": POST
    + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n"
    + CHUNKS,
    "two equal lengths": POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "a list of lengths": POST + b"Content-Length: 5, 5\r\n\r\nhello",
    "a signed length": POST + b"Content-Length: +5\r\n\r\nhello",
    "a negative length": POST + b"Content-Length: -5\r\n\r\nhello",
    "another encoding": POST + b"Transfer-Encoding: gzip\r\n\r\n",
    "another encoding first": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS,
    "an encoding behind a tab": POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n" + CHUNKS,
    "chunked twice": CHUNKED + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    "chunked in HTTP/1.0": b"POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    "a space before the colon": POST + b"Transfer-Encoding : chunked\r\n\r\n" + CHUNKS,
    "a folded header": POST + b"X-A: 1\r\n Transfer-Encoding: chunked\r\n\r\n",
    "a folded value": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + CHUNKS,
    "a bare LF": POST + b"X-A: 1\nContent-Length: 5\r\n\r\nhello",
    "bare LFs": b"GET /x HTTP/1.1\nHost: localhost\n\n",
    "a bare CR": POST + b"X-A: 1\rContent-Length: 5\r\n\r\nhello",
    "a bare CR at the end": POST + b"X-A: 1\r\r\n\r\n",
    "two hosts": POST + b"Host: other\r\n\r\n",
    "many headers": POST + b"X: 1\r\n" * HEADERS_MAX + b"\r\n",
    "a long head": POST + b"X: " + b"a" * HEAD_BYTES_MAX + b"\r\n\r\n",
    "a long extension": CHUNKED
    + b"\r\n5;"
    + b"a" * CHUNK_LINE_BYTES_MAX
    + b"\r\nhello\r\n0\r\n\r\n",
    "a long size": CHUNKED + b"\r\n" + b"0" * CHUNK_LINE_BYTES_MAX + b"5\r\nhello\r\n0\r\n\r\n",
    "a bare LF in a chunk's line": CHUNKED + b"\r\n5;a\nb\r\nhello\r\n0\r\n\r\n",
    "many chunks": CHUNKED + b"\r\n" + b"1\r\na\r\n" * CHUNKS_MAX + b"0\r\n\r\n",
    "a folded trailer": CHUNKED + b"\r\n5\r\nhello\r\n0\r\nX: 1\r\n 2\r\n\r\n",
    "many trailers": CHUNKED + b"\r\n0\r\n" + b"X: 1\r\n" * (HEADERS_MAX + 2) + b"\r\n",
}
TAKEN = {
    "a length": (POST + b"Content-Length: 5\r\n\r\nhello", b"hello"),
    "chunked": (CHUNKED + b"\r\n" + CHUNKS, b"hello"),
    "chunked in capitals": (POST + b"TRANSFER-ENCODING: \tChunked \r\n\r\n" + CHUNKS, b"hello"),
    "an extension": (CHUNKED + b"\r\n5;a=b\r\nhello\r\n0\r\n\r\n", b"hello"),
    "trailers": (CHUNKED + b"\r\n5\r\nhello\r\n0\r\nX: 1\r\n\r\n", b"hello"),
    "as many headers as may be": (POST + b"X: 1\r\n" * (HEADERS_MAX - 1) + b"\r\n", b""),
    "as many chunks as may be": (
        CHUNKED + b"\r\n" + b"1\r\na\r\n" * (CHUNKS_MAX - 1) + b"0\r\n\r\n",
        b"a" * (CHUNKS_MAX - 1),
    ),
    "a URL that looks like a header": (
        b"GET /content-length:5 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"",
    ),
}


def parsed(data: bytes, cuts: list[int] | None = None) -> tuple[bytes, bool]:
    """Body and whether the request was complete; the bytes arrive in the pieces between `cuts`."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
    connection._receive_buffer = StrictBuffer()
    body, start = b"", 0
    for end in [*sorted(cuts or []), len(data)]:
        if end <= start:
            continue
        connection.receive_data(data[start:end])
        start = end
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                break
            if isinstance(event, h11.Data):
                body += event.data
            if isinstance(event, h11.EndOfMessage):
                return body, True
    return body, False


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name: str) -> None:
    with pytest.raises(h11.RemoteProtocolError):
        parsed(REFUSED[name])


@pytest.mark.parametrize("name", TAKEN)
def test_it_is_accepted(name: str) -> None:
    data, body = TAKEN[name]
    assert parsed(data) == (body, True)


SMALL = sorted(name for name, data in REFUSED.items() if len(data) < 1_000)


@settings(deadline=None)
@given(st.sampled_from(SMALL), st.lists(st.integers(1, 400), max_size=12))
def test_it_is_refused_however_it_arrives(name: str, cuts: list[int]) -> None:
    with pytest.raises(h11.RemoteProtocolError):
        parsed(REFUSED[name], [cut for cut in cuts if cut < len(REFUSED[name])])


@settings(deadline=None)
@given(st.sampled_from(sorted(TAKEN)), st.lists(st.integers(1, 400), max_size=12))
def test_it_is_accepted_however_it_arrives(name: str, cuts: list[int]) -> None:
    data, body = TAKEN[name]
    assert parsed(data, [cut for cut in cuts if cut < len(data)]) == (body, True)


async def exchange(port: int, data: bytes) -> bytes:
    """Everything that the server says until it hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        async with asyncio.timeout(SECONDS_MAX):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("name", ["both", "two lengths", "a folded value", "bare LFs"])
def test_the_connection_ends_and_nothing_behind_is_read(name: str) -> None:
    """A request that was smuggled behind it is not answered."""

    async def work() -> None:
        async with serving() as port:
            answer = await exchange(port, REFUSED[name] + LIVE)
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert answer.count(b"HTTP/1.1") == 1
            head, _, body = answer.partition(b"\r\n\r\n")
            assert f"Content-Type: {CONTENT_TYPE}".encode() in head
            problem = Problem.model_validate_json(body)
            assert problem.status == 400
            assert problem.detail.startswith("Invalid HTTP request: ")

    run(work)


def test_pipelined_requests_are_answered_in_order() -> None:
    last = LIVE.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")

    async def work() -> None:
        async with serving() as port:
            answer = await exchange(port, LIVE * 20 + last)
            assert answer.count(b"HTTP/1.1 200") == 21

    run(work)


def test_a_bad_chunk_behind_an_early_answer_ends_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The answer has begun: there is no second one, and no exception in the event loop."""

    async def work() -> None:
        async with serving() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(CHUNKED.replace(b"/x", b"/nothing") + b"\r\n5\r\nhello\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 4")
            writer.write(b"zz\r\n")
            async with asyncio.timeout(SECONDS_MAX):
                rest = await read_to_end(reader)
            assert b"HTTP/1.1" not in rest
            writer.close()

    run(work)
    assert "Fatal error" not in caplog.text


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


def test_h11_still_has_the_buffer_that_is_replaced() -> None:
    """The check depends on two names of h11 that are not public."""
    connection: Any = h11.Connection(h11.SERVER)
    assert type(connection._receive_buffer) is ReceiveBuffer
    for name in ("_extract", "maybe_extract_lines", "maybe_extract_next_line"):
        assert hasattr(ReceiveBuffer, name)
