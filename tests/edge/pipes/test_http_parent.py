"""A parent over HTTP: its answers, hostile ones too, and the bounds of both sides."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from starlette.requests import Request

from penstock.client.security.options import parse_security
from penstock.client.transport.addresses import Address
from penstock.core.errors import (
    AuthenticationError,
    BrokerAnswerError,
    BrokerUnreachableError,
    ConfigError,
    MalformedResponseError,
)
from penstock.core.types import TopicPartition
from penstock.edge.gateways.gateway_problems import GatewayRefusedError
from penstock.edge.gateways.web_ports import CLIENT, LOST
from penstock.edge.pipes.down_pipe import EpochEnd
from penstock.edge.pipes.http import http_routes
from penstock.edge.pipes.http.http_link import HttpLink, LinkAnswer
from penstock.edge.pipes.http.http_parent import HttpParent
from penstock.edge.pipes.http.http_ports import SourcePartition, SourceTopic, partition_of
from penstock.edge.pipes.http.http_routes import PipeRoutes
from penstock.edge.pipes.ports import FetchAt, FetchLimits
from penstock.node.pipes.http_opening import _authorization
from penstock.protocol.error_codes import ErrorCode

TOPIC_ID = UUID(int=7)
AT, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
PART = SourcePartition(TOPIC_ID, 3, 1, 9, EpochEnd(3, 9))
LEADER = Address("parent", 8081)
PLACE = FetchAt(TOPIC_ID, 3, 5, 3)


class Link(HttpLink):
    """Answers from a list."""

    def __init__(self, *answers: LinkAnswer) -> None:
        super().__init__("http://parent:8081", None, None, seconds_max=1, answer_bytes_max=10)
        self.answers = list(answers)
        self.paths: list[str] = []

    async def get(self, path: str, *, wait_seconds: float = 0.0) -> LinkAnswer:
        assert wait_seconds >= 0
        self.paths.append(path)
        return self.answers.pop(0)


def answer(status: int, body: bytes = b"", retry_after: str = "") -> LinkAnswer:
    return LinkAnswer(status, {**PART.headers(), "retry-after": retry_after}, body)


def parent(*answers: LinkAnswer) -> HttpParent:
    return HttpParent(Link(*answers), ("t",), lambda: 100.0)


def test_headers_survive_both_sides() -> None:
    assert partition_of(PART.headers()) == PART
    for name in PART.headers():
        assert partition_of({**PART.headers(), name: "x"}) is None
        assert (
            partition_of({key: value for key, value in PART.headers().items() if key != name})
            is None
        )


@pytest.mark.parametrize(
    ("status", "code", "has_diverged", "records"),
    [
        (200, ErrorCode.NONE, False, b"abc"),
        (204, ErrorCode.NONE, False, b""),
        (409, ErrorCode.NONE, True, b""),
        (410, ErrorCode.OFFSET_OUT_OF_RANGE, False, b""),
        (404, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False, b""),
    ],
)
def test_statuses_become_answers_of_a_fetch(
    status: int, code: ErrorCode, has_diverged: bool, records: bytes
) -> None:
    limits = FetchLimits(wait_ms=10, bytes_max=100)
    found = asyncio.run(parent(answer(status, b"abc")).fetch(LEADER, {AT: PLACE}, limits))[AT]
    assert (found.code, found.has_diverged, bytes(found.records)) == (code, has_diverged, records)


def test_records_of_another_topic_are_not_used() -> None:
    limits = FetchLimits(wait_ms=10, bytes_max=100)
    other = PLACE._replace(topic_id=UUID(int=8))
    found = asyncio.run(parent(answer(200, b"abc")).fetch(LEADER, {AT: other}, limits))[AT]
    assert (found.code, bytes(found.records)) == (ErrorCode.UNKNOWN_TOPIC_ID, b"")
    with pytest.raises(BrokerAnswerError):
        asyncio.run(parent(answer(200, b"abc")).batch_at(LEADER, AT, other))


def test_a_busy_parent_delays_one_partition_only() -> None:
    busy = answer(503, retry_after="30")
    one = parent(busy, answer(200, b"a"), answer(200, b"b"))
    limits = FetchLimits(wait_ms=1, bytes_max=100)
    places = {AT: PLACE, OTHER: PLACE}
    assert list(asyncio.run(one.fetch(LEADER, places, limits))) == [OTHER]
    assert list(asyncio.run(one.fetch(LEADER, places, limits))) == [OTHER]


def test_refusals_and_strangers_are_told_apart() -> None:
    with pytest.raises(AuthenticationError):
        asyncio.run(parent(answer(401)).topics(None))
    with pytest.raises(BrokerAnswerError, match="AUTHORIZATION"):
        asyncio.run(parent(answer(403)).topics(None))
    with pytest.raises(BrokerUnreachableError):
        asyncio.run(parent(answer(502)).topics(None))
    for body in (b"", b"{}", b'{"topics": [{"name": "t"}]}', b'{"topics": 5}', b"[" * 100_000):
        with pytest.raises(MalformedResponseError):
            asyncio.run(parent(answer(200, body)).topics(None))
    with pytest.raises(MalformedResponseError):
        asyncio.run(parent(LinkAnswer(200, {}, b"page")).log_ends({AT: (TOPIC_ID, 3, 3)}))


def test_a_password_is_not_sent_in_the_clear() -> None:
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "p",
    }
    security = parse_security(given)
    assert _authorization(security, is_safe=True) == "Basic dTpw"
    with pytest.raises(ConfigError):
        _authorization(security, is_safe=False)
    assert _authorization(parse_security({}), is_safe=False) is None


# --- The link ---

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def called(serve: Serve, count: int = 1, seconds_max: float = 5) -> list[LinkAnswer]:
    under_way: set[asyncio.Event] = set()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        under_way.add(done := asyncio.Event())
        try:
            await serve(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            done.set()

    server = await asyncio.start_server(served, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        link = HttpLink(url, None, "Basic x", seconds_max=seconds_max, answer_bytes_max=100)
        try:
            return [await link.get("/v1/pipe") for _ in range(count)]
        finally:
            await link.close()
            for one in under_way:
                await one.wait()


def saying(*parts: bytes, ends: bool = True) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            with suppress(asyncio.IncompleteReadError, OSError):
                await reader.readuntil(b"\r\n\r\n")
            for part in parts:
                writer.write(part)
            await writer.drain()
            if ends:
                break

    return serve


def test_a_connection_is_kept_and_opened_again_when_the_parent_has_closed_it() -> None:
    good = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    for ends in (True, False):
        found = asyncio.run(called(saying(good, ends=ends), 2))
        assert [one.body for one in found] == [b"ok", b"ok"]


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ((b"HTTP/1.1 200 OK\r\ncontent-length: 101\r\n\r\n" + b"x" * 101,), "more than 100 bytes"),
        ((b"HTTP/1.1 200 OK\r\nx: " + b"y" * 20_000,), "cannot be used"),
        ((b"nonsense\r\n\r\n",), "cannot be used"),
        ((b"",), "without an answer"),
    ],
)
def test_a_hostile_parent_is_bounded(parts: tuple[bytes, ...], reason: str) -> None:
    with pytest.raises(BrokerUnreachableError, match=reason):
        asyncio.run(called(saying(*parts)))


def test_a_parent_that_never_ends_its_answer_is_bounded() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nx")
        await reader.read()

    with pytest.raises(BrokerUnreachableError, match="no answer within"):
        asyncio.run(called(serve, seconds_max=0.2))


# --- The bounds of the parent ---


class Source:
    """`http_ports.PipeSource` with a long log."""

    def reader(self, client: object) -> str:
        return str(client)

    def topics(self, client: object, is_topic: Callable[[str], bool]) -> Sequence[SourceTopic]:
        raise AssertionError((client, is_topic))

    def partition(
        self, client: object, topic: str, partition: int, epoch: int
    ) -> SourcePartition | None:
        assert (client, topic, partition, epoch) == (client, "t", 0, 3)
        return PART._replace(high_watermark=10**6, epoch_end=EpochEnd(3, 10**6))

    async def read(self, topic: str, partition: int, offset: int, bytes_max: int) -> memoryview:
        assert (topic, partition) == ("t", 0)
        return memoryview(b"x" * min(bytes_max, offset))

    async def wait(self, topic: str, partition: int, offset: int, seconds: float) -> None:
        raise AssertionError((topic, partition, offset, seconds))

    def charge(self, client: object, size_bytes: int) -> float:
        return 6.5 if client == "greedy" and not size_bytes else 0.0

    def catch_up_max(self) -> int:
        return 1

    def monotonic(self) -> float:
        return 0.0


def request_of(client: str, query: str) -> Request:
    scope = {
        "type": "http",
        "method": "GET",
        "query_string": query.encode(),
        "path_params": {"topic": "t", "partition": "0"},
        "headers": [],
        CLIENT: client,
    }
    return Request(scope)


async def _no_message() -> MutableMapping[str, Any]:
    raise AssertionError


async def _nothing(_message: object) -> None:
    pass


def test_children_that_are_behind_wait_for_a_place_and_answers_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_routes, "ANSWERS_BYTES_MAX", 150)
    routes = PipeRoutes(Source())

    async def story() -> None:
        old, live = "offset=100&epoch=3&max_bytes=100", "offset=999999&epoch=3&max_bytes=100"
        first = await routes._batches(request_of("a", old))
        with pytest.raises(GatewayRefusedError) as caught:
            await routes._batches(request_of("b", old))
        assert (caught.value.status, caught.value.retry_after_seconds) == (503, 3)
        with pytest.raises(GatewayRefusedError) as caught:
            await routes._batches(request_of("b", live))  # the first answer is not sent yet
        assert caught.value.retry_after_seconds == 1
        await first({"type": "http"}, _no_message, _nothing)
        assert (await routes._batches(request_of("b", live))).status_code == 200

    asyncio.run(story())


def test_a_comparison_needs_no_place_and_a_quota_delays_a_child() -> None:
    routes = PipeRoutes(Source())

    async def story() -> None:
        old = "offset=100&epoch=3&max_bytes=100"
        await routes._batches(request_of("a", old))
        with pytest.raises(GatewayRefusedError):
            await routes._batches(request_of("b", old))
        # Without the comparison of its last batch, a child could not copy live partitions either.
        compared = await routes._batches(request_of("b", "offset=100&epoch=3&max_bytes=1"))
        assert compared.status_code == 200
        with pytest.raises(GatewayRefusedError, match="quota") as caught:
            await routes._batches(request_of("greedy", "offset=999999&epoch=3"))
        assert (caught.value.status, caught.value.retry_after_seconds) == (503, 7)

    asyncio.run(story())


def test_a_body_counts_until_a_slow_client_has_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_routes, "PIECE_BYTES", 10)
    monkeypatch.setattr(http_routes, "ANSWERS_BYTES_MAX", 100)
    routes = PipeRoutes(Source())
    used: list[int] = []
    sent: list[bytes] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        used.append(routes._budget.used_bytes)
        sent.append(message.get("body", b""))

    async def story() -> None:
        query = "offset=25&epoch=3&max_bytes=100"
        first = await routes._batches(request_of("a", query))
        await first({"type": "http"}, _no_message, send)
        assert [len(one) for one in sent] == [0, 10, 10, 5, 0]
        assert set(used) == {25}
        assert routes._budget.used_bytes == 0
        # Reads that wait for the disk count too.
        gate = asyncio.Event()

        async def slow(*_: object) -> memoryview:
            await gate.wait()
            return memoryview(b"")

        monkeypatch.setattr(Source, "read", slow)
        async with asyncio.TaskGroup() as group:
            group.create_task(routes._batches(request_of("a", query)))
            await asyncio.sleep(0)
            with pytest.raises(GatewayRefusedError, match="on their way"):
                await routes._batches(request_of("a", query))
            gate.set()
        assert routes._budget.used_bytes == 0

    asyncio.run(story())


def test_the_wait_of_a_lost_client_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        lost, never = asyncio.Event(), asyncio.Event()
        begun = asyncio.Event()

        async def wait(*_: object) -> None:
            begun.set()
            await never.wait()

        monkeypatch.setattr(Source, "wait", wait)
        request = request_of("a", "offset=1000000&epoch=3&wait_ms=10000")
        request.scope["state"] = {LOST: lost}
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            answer = group.create_task(PipeRoutes(Source())._batches(request))
            await begun.wait()
            lost.set()
        assert answer.result().status_code == 204

    asyncio.run(story())
