"""Server-sent events over real sockets: ids, resume, heartbeats, slow readers, ends."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from penstock import BrokerServer
from penstock.edge.gateways import web_limits
from penstock.edge.push import limits
from tests.node.gateways.gateway_stage import call, gateway_broker, run, until

STREAM = "/v1/topics/t/stream"


class Events:
    """Reads the events of a stream."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines
        self.comments = 0

    async def next(self) -> dict[str, str]:
        """Return the fields of the next event."""
        found: dict[str, str] = {}
        async for line in self._lines:
            if not line and found:
                return found
            if line.startswith(":"):
                self.comments += 1
            elif line:
                name, _, value = line.partition(": ")
                found[name] = value
        return found

    async def values(self, count: int) -> tuple[list[str], str]:
        """Return the values of the next records, and the id of the last one."""
        values: list[str] = []
        last = ""
        while len(values) < count:
            event = await self.next()
            assert event, "the stream ended"
            if "data" in event and "event" not in event:
                values.append(json.loads(event["data"])["value"])
                last = event["id"]
        return values, last


@asynccontextmanager
async def stream(
    broker: BrokerServer, query: str = "", last_event_id: str | None = None
) -> AsyncIterator[Events]:
    """Open a stream."""
    headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
    url = f"http://127.0.0.1:{broker.http_port}{STREAM}{query}"
    async with (
        httpx.AsyncClient(timeout=20) as client,
        client.stream("GET", url, headers=headers) as answer,
    ):
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Events(answer.aiter_lines())


def test_a_stream_resumes_exactly_behind_its_last_event() -> None:
    async def test() -> None:
        async with gateway_broker(topics={"t": 2}) as broker:
            sent = [f"{number % 2}-{number}" for number in range(40)]
            for number, value in enumerate(sent):
                await broker.publish("t", value.encode(), partition=number % 2)
            got: list[str] = []
            async with stream(broker, "?from=earliest") as events:
                found, last = await events.values(7)
                got += found
            while len(got) < 40:
                async with stream(broker, "?from=earliest", last) as events:
                    found, last = await events.values(min(11, 40 - len(got)))
                    got += found
            assert sorted(got) == sorted(sent)
            for partition in "01":
                of_one = [one for one in got if one.startswith(partition)]
                assert of_one == [one for one in sent if one.startswith(partition)]
            assert last == "0:19,1:19"

    run(test)


def test_the_first_event_has_the_positions_of_the_start() -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            await broker.publish("t", b"old")
            async with stream(broker) as events:
                first = await events.next()
                assert first == {"retry": "1000", "id": "0:0"}
            await broker.publish("t", b"between")
            async with stream(broker, "", first["id"]) as events:
                assert (await events.values(1))[0] == ["between"]
            async with stream(broker, "?from=0:1") as events:
                assert (await events.values(1))[0] == ["between"]

    run(test)


def test_heartbeats_keep_an_idle_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEARTBEAT_SECONDS", 0.02)
    monkeypatch.setattr(limits, "SILENCE_SECONDS_MAX", 0.1)

    async def test() -> None:
        async with gateway_broker() as broker, stream(broker) as events:
            await events.next()
            waiting = asyncio.get_running_loop().create_task(events.next())
            await asyncio.sleep(0.3)
            await broker.publish("t", b"late")
            assert json.loads((await waiting)["data"])["value"] == "late"
            assert events.comments > 3

    run(test)


def test_a_slow_reader_pauses_its_session_and_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STALL_SECONDS_MAX", 0.3)

    async def test() -> None:
        async with gateway_broker() as broker:
            for _ in range(40):
                await broker.publish("t", b"x" * 500_000)
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.http_port)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            head = f"GET {STREAM}?from=earliest HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
            writer.write(head.encode())
            assert broker._push is not None
            server = broker._push.server
            await until(lambda: server._stalled)
            (connection,) = server._stalled
            highest = 0
            while connection in server.connections:
                highest = max(highest, connection.unsent_bytes)
                await asyncio.sleep(0.001)
            assert highest < 2 * 565_536
            writer.close()
            del reader

    run(test)


def test_a_client_that_leaves_ends_its_session() -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            async with stream(broker) as events:
                await events.next()
                assert broker.metrics()["push_sessions"] == 1
            await until(lambda: not broker.metrics()["push_sessions"])
            assert broker._push is not None
            assert len(broker._push.server.feeds) == 0

    run(test)


def test_a_stop_is_an_event_with_the_time_of_the_next_try() -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            opened = stream(broker)
            events = await opened.__aenter__()
            await events.next()
        end = await events.next()
        assert end["event"] == "end"
        assert 500 <= int(end["retry"]) <= 5_000
        assert json.loads(end["data"])["code"] == "BROKER_NOT_AVAILABLE"
        assert await events.next() == {}
        await opened.__aexit__(None, None, None)

    run(test)


@pytest.mark.parametrize(
    ("path", "last_event_id", "status", "words"),
    [
        (STREAM, "x", 400, "not a position"),
        (STREAM, "0:1,0:2", 400, "two positions"),
        (STREAM, "0:5", 410, "which has 0 to 0"),
        (STREAM, "9:5", 421, "names partition 9"),
        (STREAM + "?from=0:-1", "", 400, "below 0"),
        (STREAM + "?from=", "", 400, "not a position"),
        (STREAM + "?group=g", "", 400, "'group' is unknown"),
        ("/v1/topics/no/stream", "", 404, "does not exist"),
    ],
)
def test_streams_that_are_refused(path: str, last_event_id: str, status: int, words: str) -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            answer = await call(broker, "GET", path, last_event_id=last_event_id)
            assert answer.status == status, answer
            assert words in answer.body.decode()
            assert answer.headers["content-type"] == "application/problem+json"
            await until(lambda: not broker.metrics()["push_sessions"])

    run(test)


def test_too_many_partitions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_limits, "STREAM_PARTITIONS_MAX", 2)

    async def test() -> None:
        async with gateway_broker(topics={"t": 3}) as broker:
            answer = await call(broker, "GET", STREAM)
            assert answer.status == 422
            assert b"3 partitions, at most 2" in answer.body
            async with stream(broker, "?from=0:0,2:0") as events:
                assert (await events.next())["id"] == "0:-1,2:-1"

    run(test)


def test_sessions_above_the_bound_are_refused() -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            assert broker._push is not None
            broker._push.server.sessions_max = 1
            async with stream(broker) as events:
                await events.next()
                answer = await call(broker, "GET", STREAM)
                assert answer.status == 503
                assert answer.headers["retry-after"] == "1"

    run(test)


def test_streams_have_no_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.edge.gateways.gateway_app.REQUEST_SECONDS_MAX", 0.1)
    monkeypatch.setattr("penstock.admin.server.ANSWER_SECONDS_MAX", 0.2)

    async def test() -> None:
        async with gateway_broker() as broker:
            async with stream(broker) as events:
                await events.next()
                await asyncio.sleep(0.3)
                await broker.publish("t", b"v")
                assert (await events.values(1))[0] == ["v"]
            late = await call(broker, "GET", "/v1/topics/t/records?from=1&wait_ms=5000")
            assert late.status == 503

    run(test)
