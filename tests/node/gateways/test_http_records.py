"""Records over HTTP: publish, read, long poll, limits, problems."""

import asyncio
import json
import os
import subprocess
import urllib.request

import httpx
import pytest

from penstock.edge.gateways import gateway_bodies, record_read, record_routes, web_limits
from penstock.edge.push.ports import PushBroker
from penstock.node.push.push_broker import NodePushBroker
from tests.node.gateways.gateway_stage import (
    PLAIN_TEXT,
    call,
    gateway_broker,
    read_head,
    run,
    until,
)

RECORDS = "/v1/topics/t/records"


def test_publish_answers_with_the_place_of_each_record() -> None:
    async def test() -> None:
        async with gateway_broker(topics={"t": 2}) as broker:
            rows = [{"key": "a", "value": "1"}, {"value_base64": "/w==", "partition": 1}]
            answer = await call(broker, "POST", RECORDS, {"records": rows})
            assert answer.status == 200
            places = answer.json()["records"]
            assert isinstance(places, list)
            assert places[1] == {"partition": 1, "offset": 0}
            more = f"{RECORDS}?partition=1&key=k%20k&timestamp=5"
            answer = await call(broker, "POST", more, b"\x00\xff")
            assert answer.json() == {"records": [{"partition": 1, "offset": 1}]}
            answer = await call(broker, "GET", f"{RECORDS}?partition=1")
            assert answer.json()["records"] == [
                {
                    "partition": 1,
                    "offset": 0,
                    "timestamp": answer.json()["records"][0]["timestamp"],  # type: ignore[index]
                    "key": None,
                    "value_base64": "/w==",
                },
                {"partition": 1, "offset": 1, "timestamp": 5, "key": "k k", "value_base64": "AP8="},
            ]
            assert answer.json()["next_offset"] == 2
            assert answer.json()["end_offset"] == 2

    run(test)


def test_reads_continue_at_the_next_offset() -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            rows = [{"value": str(number)} for number in range(25)]
            await call(broker, "POST", RECORDS, {"records": rows})
            values: list[str] = []
            offset: object = 0
            while len(values) < 25:
                found = (await call(broker, "GET", f"{RECORDS}?from={offset}&max=10")).json()
                records = found["records"]
                assert isinstance(records, list)
                assert 0 < len(records) <= 10
                values += [one["value"] for one in records]
                offset = found["next_offset"]
            assert values == [str(number) for number in range(25)]
            last = (await call(broker, "GET", f"{RECORDS}?from=latest")).json()
            assert (last["records"], last["next_offset"]) == ([], 25)

    run(test)


def test_an_answer_is_bounded_in_bytes_and_has_one_record_at_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(web_limits, "ANSWER_BYTES_MAX", 1_000)

    async def test() -> None:
        async with gateway_broker() as broker:
            rows = [{"value": "x" * size} for size in (400, 400, 400, 5_000, 1)]
            await call(broker, "POST", RECORDS, {"records": rows})
            offset: object = 0
            counts: list[int] = []
            while len(counts) < 4:
                found = (await call(broker, "GET", f"{RECORDS}?from={offset}")).json()
                counts.append(len(found["records"]))  # type: ignore[arg-type]
                offset = found["next_offset"]
            assert counts == [2, 1, 1, 1]

    run(test)


def test_a_long_poll_ends_with_the_next_record() -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            poll = asyncio.get_running_loop().create_task(
                call(broker, "GET", f"{RECORDS}?from=0&wait_ms=20000")
            )
            await until(lambda: len(broker._running.services.replicas.waits))
            await broker.publish("t", b"now")
            found = (await poll).json()["records"]
            assert isinstance(found, list)
            assert found[0]["value"] == "now"
            empty = (await call(broker, "GET", f"{RECORDS}?from=1&wait_ms=20")).json()
            assert (empty["records"], empty["next_offset"]) == ([], 1)

    run(test)


def test_a_stop_answers_waiting_reads() -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            poll = asyncio.get_running_loop().create_task(
                call(broker, "GET", f"{RECORDS}?wait_ms=30000")
            )
            await until(lambda: len(broker._running.services.replicas.waits))
        assert (await poll).json()["records"] == []

    run(test)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("GET", "/v1/topics/no/records", b"", 404, "penstock topic create no"),
        ("GET", f"{RECORDS}?partition=1", b"", 404, "1 partitions, there is no partition 1"),
        ("GET", f"{RECORDS}?from=1", b"", 410, "which has 0 to 0"),
        ("GET", f"{RECORDS}?from=-1", b"", 400, "not a number from 0"),
        ("GET", f"{RECORDS}?from={2**63}", b"", 400, "not a number from 0"),
        ("GET", f"{RECORDS}?max=0", b"", 400, "not a number from 1 to 1000"),
        ("GET", f"{RECORDS}?max=1001", b"", 400, "not a number from 1 to 1000"),
        ("GET", f"{RECORDS}?wait_ms=30001", b"", 400, "0 to 30000"),
        ("GET", f"{RECORDS}?x=1", b"", 400, "'x' is unknown"),
        ("GET", f"{RECORDS}?max=1&max=2", b"", 400, "twice"),
        ("GET", f"{RECORDS}?max=%ff", b"", 400, "UTF-8"),
        ("GET", "/v1/topics/%ff/records", b"", 400, "not UTF-8"),
        ("GET", f"/v1/topics/{'x' * 250}/records", b"", 404, "1 to 249"),
        ("GET", "/v1/topics/a%2Fb/records", b"", 404, "a/b"),
        ("HEAD", "/v1/topics/t/stream", b"", 405, ""),
        ("PUT", RECORDS, b"", 405, "Method Not Allowed"),
        ("GET", "/v1/other", b"", 404, "Not Found"),
        ("POST", RECORDS, {"records": []}, 400, "0 records"),
        ("POST", RECORDS, {"other": []}, 400, "not an object"),
        ("POST", RECORDS, {"records": [{"value": 1}]}, 400, "Record 0: member 'value'"),
        ("POST", RECORDS, {"records": [{"value": "a"}, {"x": 1}]}, 400, "Record 1"),
        ("POST", RECORDS, {"records": [{"value": "a", "partition": 3}]}, 404, "no partition 3"),
        ("POST", f"{RECORDS}?key=a", {"records": [{"value": "a"}]}, 400, "'key' is unknown"),
        ("POST", "/v1/topics/no/records", b"x", 404, "does not exist"),
        ("POST", RECORDS, b"x" * 1_100_000, 413, "max.message.bytes"),
    ],
)
def test_problems(
    method: str, path: str, body: bytes | dict[str, object], status: int, words: str
) -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            answer = await call(broker, method, path, body)
            assert answer.status == status, answer
            assert answer.headers["content-type"] == "application/problem+json"
            assert words in answer.body.decode()
            if method == "HEAD":
                return
            found = answer.json()
            assert found["status"] == status
            assert found["title"]

    run(test)


def test_a_body_that_is_not_json() -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            for body in (b"{", b"[]", b"[" * 200_000):
                answer = await call(broker, "POST", RECORDS, body, content_type="application/json")
                assert answer.status == 400, answer

    run(test)


def test_some_records_refused_shows_the_outcome_of_each() -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            rows = [{"value": "a"}, {"value": "b" * 1_100_000}, {"value": "c"}]
            answer = await call(broker, "POST", RECORDS, {"records": rows})
            assert answer.status == 413
            outcomes = answer.json()["records"]
            assert isinstance(outcomes, list)
            assert outcomes[0] == {"partition": 0, "offset": 0}
            assert outcomes[1]["code"] == "MESSAGE_TOO_LARGE"
            assert outcomes[2] == {"partition": 0, "offset": 1}

    run(test)


def test_bodies_are_bounded_for_each_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_limits, "BODY_BYTES_MAX", 1_000)

    async def test() -> None:
        async with gateway_broker() as broker:
            assert (await call(broker, "POST", RECORDS, b"x" * 1_000)).status == 200
            answer = await call(broker, "POST", RECORDS, b"x" * 1_001)
            assert answer.status == 413
            assert b"larger than 1000 bytes" in answer.body
            # The same without a declared length.
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.http_port)
            host = f"host: 127.0.0.1:{broker.http_port}"
            head = f"POST {RECORDS} HTTP/1.1\r\n{host}\r\ntransfer-encoding: chunked\r\n\r\n"
            writer.write(head.encode() + b"3e9\r\n" + b"x" * 1_001 + b"\r\n")
            assert (await read_head(reader))[0] == 413
            writer.close()

    run(test)


def test_many_bodies_that_do_not_end_leave_room(monkeypatch: pytest.MonkeyPatch) -> None:
    budgets: list[gateway_bodies.BodyBudget] = []

    def budget() -> gateway_bodies.BodyBudget:
        budgets.append(gateway_bodies.BodyBudget(100_000))
        return budgets[-1]

    monkeypatch.setattr(record_routes, "BodyBudget", budget)

    async def test() -> None:
        async with gateway_broker() as broker:
            head = (
                f"POST {RECORDS} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 60000\r\n\r\n"
            ).encode()
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.http_port)
            writer.write(head + bytes(59_999))
            await until(lambda: budgets[0].held_bytes >= 59_999)
            answer = await call(broker, "POST", RECORDS, bytes(60_000))
            assert answer.status == 503
            assert answer.headers["retry-after"] == "1"
            writer.write(b"x")
            assert (await read_head(reader))[0] == 200
            writer.close()
            assert (await call(broker, "POST", RECORDS, bytes(60_000))).status == 200
            assert budgets[0].held_bytes == 0

    run(test)


def test_large_bodies_are_parsed_on_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    async def test() -> None:
        async with gateway_broker() as broker:
            assert broker._push is not None
            real = broker._push.server.broker.run_heavy

            async def noted(parse: object, size_bytes: int) -> object:
                sizes.append(size_bytes)
                return await real(parse, size_bytes)  # type: ignore[arg-type]

            monkeypatch.setattr(broker._push.server.broker, "run_heavy", noted)
            small, large = {"records": [{"value": "a"}]}, {"records": [{"value": "a" * 40_000}]}
            assert (await call(broker, "POST", RECORDS, small)).status == 200
            assert (await call(broker, "POST", RECORDS, large)).status == 200
            assert len(sizes) == 1

    run(test)


def test_reads_share_the_records_of_push_sessions() -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            await broker.publish("t", b"v")
            assert broker._push is not None
            cache = broker._push.server.cache
            for _ in range(3):
                await call(broker, "GET", RECORDS)
            assert (cache.hits, cache.misses) == (2, 1)

    run(test)


def test_no_append_falls_between_the_read_and_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record comes after the read that found none, and before the wait is parked."""

    async def test() -> None:
        async with gateway_broker() as broker:
            real = record_read.Reads._run
            calls = 0

            async def late(reads: record_read.Reads, asked: object, offset: int) -> object:
                nonlocal calls
                found = await real(reads, asked, offset)  # type: ignore[arg-type]
                calls += 1
                if calls == 1:
                    await broker.publish("t", b"between")
                return found

            monkeypatch.setattr(record_read.Reads, "_run", late)
            found = (await call(broker, "GET", f"{RECORDS}?wait_ms=20000")).json()["records"]
            assert isinstance(found, list)
            assert found[0]["value"] == "between"

    run(test)


def test_a_long_poll_ends_with_its_connection() -> None:
    """Otherwise clients that come and go hold more waits than there are connections."""

    async def test() -> None:
        async with gateway_broker() as broker:
            head = f"GET {RECORDS}?wait_ms=30000 HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()

            def polls() -> int:
                return sum("run_asgi" in repr(one) for one in asyncio.all_tasks())

            for _ in range(5):
                _, writer = await asyncio.open_connection("127.0.0.1", broker.http_port)
                writer.write(head)
                await until(polls)
                writer.transport.abort()
                await until(lambda: not polls())

    run(test)


def test_the_delay_of_a_quota_holds_no_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client above its quota must not use the budget of all."""
    monkeypatch.setattr(NodePushBroker, "charge_publish", lambda *_: 30.0)
    budgets: list[gateway_bodies.BodyBudget] = []
    create = gateway_bodies.BodyBudget.__init__

    def note(self: gateway_bodies.BodyBudget) -> None:
        create(self)
        budgets.append(self)

    monkeypatch.setattr(gateway_bodies.BodyBudget, "__init__", note)

    async def test() -> None:
        async with gateway_broker() as broker, asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(call(broker, "POST", RECORDS, b"v" * 100_000))
            assert broker._push is not None
            backing: PushBroker = broker._push.server.broker
            await until(lambda: backing.view("t", 0).end_offset)
            (budget,) = budgets
            await until(lambda: not budget.held_bytes)
            assert not asking.done()
            asking.cancel()

    run(test)


def test_quotas_delay_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            assert broker._push is not None
            backing: PushBroker = broker._push.server.broker
            charged: list[int] = []

            def charge(client: object, size_bytes: int) -> float:
                charged.append(size_bytes)
                return 0.05

            monkeypatch.setattr(backing, "charge_publish", charge)
            monkeypatch.setattr(backing, "charge_delivery", charge)
            loop = asyncio.get_running_loop()
            before = loop.time()
            await call(broker, "POST", RECORDS, b"x" * 100)
            await call(broker, "GET", RECORDS)
            assert loop.time() - before >= 0.1
            assert len(charged) == 2
            assert min(charged) > 100

    run(test)


def test_connections_of_one_address_are_bounded() -> None:
    async def test() -> None:
        text = PLAIN_TEXT + "sessions_per_address_max = 2\n"
        async with gateway_broker(text) as broker:
            silent = [
                await asyncio.open_connection("127.0.0.1", broker.http_port) for _ in range(3)
            ]
            async with asyncio.timeout(3):  # below the deadline of a silent connection
                assert await silent[0][0].read() == b""
            assert (await call(broker, "GET", RECORDS)).status == 200
            for _, writer in silent:
                writer.close()

    run(test)


def test_third_party_clients() -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            url = f"http://127.0.0.1:{broker.http_port}{RECORDS}"
            async with httpx.AsyncClient() as client:
                answer = await client.post(url, json={"records": [{"value": "httpx"}]})
                assert answer.json() == {"records": [{"partition": 0, "offset": 0}]}
            body = json.dumps({"records": [{"value": "curl"}]})
            words = ["curl", "-sS", "-H", "Content-Type: application/json", "-d", body, url]
            done = await asyncio.to_thread(
                subprocess.run, words, check=True, capture_output=True, env=dict(os.environ)
            )
            assert json.loads(done.stdout) == {"records": [{"partition": 0, "offset": 1}]}

            def read() -> bytes:
                with urllib.request.urlopen(url) as found:
                    content = found.read()
                assert isinstance(content, bytes)
                return content

            found = json.loads(await asyncio.to_thread(read))["records"]
            assert [one["value"] for one in found] == ["httpx", "curl"]

    run(test)


def test_the_library_for_browsers_is_served() -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            answer = await call(broker, "GET", "/penstock.js")
            assert answer.status == 200
            assert answer.headers["content-type"].startswith("text/javascript")
            assert b"export class Penstock " in answer.body
            types = await call(broker, "GET", "/penstock.d.ts")
            assert types.status == 200
            assert types.headers["content-type"].startswith("application/typescript")
            assert b"export class Penstock " in types.body

    run(test)
