"""The REST interface over a real socket, in front of a real broker in memory."""

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NoReturn
from urllib.parse import quote_from_bytes

import httpx
import pytest

from penstock.client.cluster import Cluster
from penstock.core.clock import SystemClock
from penstock.materialize import rest_app, topic_follower
from penstock.materialize.bounded_queries import QueryBounds
from penstock.materialize.file_export import copy_to_file
from penstock.materialize.progress_board import ProgressBoard, TooManyWaitsError
from penstock.materialize.rest_server import bind, tls_context
from penstock.materialize.row_store import RowStore, StoreFileError
from penstock.materialize.store_health import TopicFacts
from tests.client.certificates import issue
from tests.materialize.conftest import Write, eventually, materializer
from tests.materialize.topic_model import stored_positions, stored_rows

TOKEN = b"0123456789abcdef"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_follower, "FETCH_WAIT_MS", 30)


@contextmanager
def serving(
    bootstrap: str,
    path: Path,
    topic: str,
    context: ssl.SSLContext | None = None,
    verify: ssl.SSLContext | bool = True,
    **options: Any,  # noqa: ANN401 (those of MaterializeOptions)
) -> Iterator[httpx.Client]:
    """A client of a service that has loaded the topic."""
    with materializer(bootstrap, path, [topic], ["$.sku"], **options) as service:
        bound = bind("127.0.0.1", 0)
        port = bound.getsockname()[1]
        loop_of: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        is_ready = threading.Event()

        async def run() -> None:
            stop = asyncio.Event()
            loop_of.append((asyncio.get_running_loop(), stop))
            await service.serve(bound, context, ready=is_ready.set, stop=stop)

        thread = threading.Thread(target=lambda: asyncio.run(run()))
        thread.start()
        try:
            assert is_ready.wait(10)
            scheme = "http" if context is None else "https"
            address = f"{scheme}://localhost:{port}"
            with httpx.Client(base_url=address, verify=verify, timeout=30) as client:
                eventually(lambda: service.board.facts().topics[topic].lag_records == 0)
                yield client
        finally:
            loop, stop = loop_of[0]
            loop.call_soon_threadsafe(stop.set)
            thread.join(30)
            bound.close()
            assert not thread.is_alive()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.sqlite"


@pytest.fixture
def client(bootstrap: str, path: Path, topic: str, write: Write) -> Iterator[httpx.Client]:
    write(topic, *[(f"k{n:02}", json.dumps({"sku": n, "price": 1.5})) for n in range(25)])
    with serving(bootstrap, path, topic) as opened:
        yield opened


def test_one_row_by_key(client: httpx.Client, topic: str, write: Write, cluster: Cluster) -> None:
    answer = client.get(f"/v1/{topic}/k03")
    assert answer.status_code == 200
    assert answer.json()["value"] == {"sku": 3, "price": 1.5}
    assert answer.json()["kind"] == "json"
    assert answer.headers["cache-control"] == "no-store"
    missing = client.get(f"/v1/{topic}/none")
    assert (missing.status_code, missing.json()["title"]) == (404, "Unknown key")
    assert client.get("/v1/other/k").status_code == 404
    assert client.get(f"/v1/{topic}/k03?x=1").status_code == 400
    assert client.get("/nothing").status_code == 404
    assert client.post(f"/v1/{topic}").status_code == 405


def test_keys_of_any_bytes(client: httpx.Client, topic: str, cluster: Cluster) -> None:
    from penstock.client.records.topic_writer import TopicWriter

    keys = [b"a/b", b"\xff\x00", "grün".encode(), b""]
    writer = TopicWriter(cluster, topic, partition=0)
    for key in keys:
        writer.append(key, b"v:" + key)
    writer.flush()
    end = cluster.find_offsets(dict.fromkeys(cluster.partitions_of(topic, [0]), -1)).popitem()[1]
    for key in keys:
        answer = client.get(f"/v1/{topic}/{quote_from_bytes(key, safe='')}?at_least=0:{end - 1}")
        assert answer.status_code == 200, key


def test_pages_and_filters(client: httpx.Client, topic: str) -> None:
    keys: list[str] = []
    page = ""
    for _ in range(10):
        answer = client.get(f"/v1/{topic}?limit=10{page}").json()
        keys += [row["key"] for row in answer["rows"]]
        if answer["next_page"] is None:
            break
        page = f"&page={answer['next_page']}"
    assert keys == [f"k{n:02}" for n in range(25)]
    found = client.get(f"/v1/{topic}", params={"filter": "$.sku >= 20 and key != 'k22'"}).json()
    assert [row["key"] for row in found["rows"]] == ["k20", "k21", "k23", "k24"]
    for parameters in ({"filter": "nonsense"}, {"page": "x"}, {"limit": "0"}, {"sort": "x"}):
        answer2 = client.get(f"/v1/{topic}", params=parameters)
        assert answer2.status_code == 400, parameters
        assert answer2.headers["content-type"] == "application/problem+json"


def test_at_least_waits_for_a_record(
    client: httpx.Client, topic: str, write: Write, path: Path
) -> None:
    position = stored_positions(path, topic)[0]
    late = client.get(f"/v1/{topic}/k03?at_least=0:{position}&wait=0.05")
    assert (late.status_code, late.json()["title"]) == (504, "Not reached")
    writing = threading.Timer(0.05, lambda: write(topic, ("own", "1"), partition=0))
    writing.start()
    answer = client.get(f"/v1/{topic}/own?at_least=0:{position}")
    writing.join()
    assert answer.json()["value"] == 1
    assert client.get(f"/v1/{topic}/k03?at_least=x").status_code == 400


def test_queries(client: httpx.Client, topic: str) -> None:
    def query(sql: str, **more: object) -> httpx.Response:
        return client.post("/v1/query", json={"sql": sql, **more})

    sql = f"SELECT key, sku FROM {topic} WHERE sku = ?"
    assert query(sql, parameters=[7]).json() == {
        "columns": ["key", "sku"],
        "rows": [["k07", 7]],
        "truncated": False,
    }
    assert query(f"SELECT * FROM {topic}", limit=3).json()["truncated"] is True
    assert query("SELECT x'ff', 9e999").json()["rows"] == [[{"base64": "/w=="}, "inf"]]
    for hostile in (f"DELETE FROM {topic}", "ATTACH '/tmp/x' AS y", "PRAGMA user_version = 2"):
        assert query(hostile).status_code == 400
    assert client.post("/v1/query", content=b"{}").status_code == 415
    large = client.post("/v1/query", json={"sql": "x" * 300_000})
    assert large.status_code == 413


def test_a_query_without_an_end(bootstrap: str, path: Path, topic: str) -> None:
    bounds = QueryBounds(seconds_max=0.1)
    with serving(bootstrap, path, topic, bounds=bounds) as client:
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT max(i) FROM n"
        answer = client.post("/v1/query", json={"sql": endless})
        assert (answer.status_code, answer.json()["title"]) == (408, "Too slow")


def test_export_is_a_database(client: httpx.Client, topic: str, path: Path, tmp_path: Path) -> None:
    answer = client.get("/v1/export.sqlite")
    copied = tmp_path / "copied.sqlite"
    copied.write_bytes(answer.content)
    assert stored_rows(copied, topic) == stored_rows(path, topic)
    assert stored_positions(copied, topic) == stored_positions(path, topic)


def test_one_export_at_a_time(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slow(found: Path, is_cancelled: Callable[[], bool]) -> BinaryIO:
        begun.set()
        assert may_end.wait(10)
        return copy_to_file(found, is_cancelled)

    monkeypatch.setattr(rest_app, "copy_to_file", slow)
    answers: list[int] = []
    first = threading.Thread(
        target=lambda: answers.append(client.get("/v1/export.sqlite").status_code)
    )
    first.start()
    assert begun.wait(10)
    second = client.get("/v1/export.sqlite")
    assert (second.status_code, second.headers["retry-after"]) == (429, "10")
    may_end.set()
    first.join(10)
    assert answers == [200]
    assert client.get("/v1/export.sqlite").status_code == 200


def test_health_and_token(bootstrap: str, path: Path, topic: str, write: Write) -> None:
    write(topic, ("a", "1"))
    with serving(bootstrap, path, topic, token=TOKEN) as client:
        assert client.get("/health").json() == {"status": "HEALTHY"}
        for header in ("", "Bearer wrong", f"Basic {TOKEN.decode()}", "Bearer"):
            refused = client.get(f"/v1/{topic}/a", headers={"authorization": header})
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        client.headers["authorization"] = f"Bearer {TOKEN.decode()}"
        assert client.get(f"/v1/{topic}/a").status_code == 200
        shown = client.get("/health").json()
        assert shown["topics"][topic]["state"] == "FOLLOWING"
        assert shown["topics"][topic]["lag_records"] == 0


def test_pages_of_other_sites_are_rejected(client: httpx.Client, topic: str) -> None:
    foreign = client.get(f"/v1/{topic}", headers={"host": "evil.example"})
    assert foreign.status_code == 421
    assert "--allowed-host" in foreign.json()["remedy"]
    headers = {"origin": "https://evil.example"}
    answer = client.post("/v1/query", json={"sql": "SELECT 1"}, headers=headers)
    assert answer.status_code == 403


def test_tls(bootstrap: str, path: Path, topic: str, tmp_path: Path) -> None:
    authority = issue("authority")
    server = issue("localhost", authority, hosts=["localhost"])
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificate.write_text(server.certificate_pem)
    key.write_text(server.key_pem())
    context = tls_context(certificate, key)
    verify = ssl.create_default_context(cadata=authority.certificate_pem)
    with serving(bootstrap, path, topic, context, verify) as client:
        assert client.get("/health").json()["status"] == "HEALTHY"
        with socket.create_connection(("127.0.0.1", client.base_url.port or 0)) as plain:
            plain.sendall(b"GET /health HTTP/1.1\r\n\r\n")
            assert b"HEALTHY" not in plain.recv(1_000)
        assert client.get("/health").status_code == 200


def test_waits_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.materialize.progress_board.WAITS_MAX", 0)
    board = ProgressBoard({"t": TopicFacts()}, SystemClock())
    with pytest.raises(TooManyWaitsError):
        asyncio.run(board.wait("t", {0: 1}, 1))


def test_a_failure_of_the_follower_ends_the_service_with_its_error(
    bootstrap: str, path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_store: RowStore) -> NoReturn:
        raise StoreFileError("the store cannot be used: disk I/O error.")

    with materializer(bootstrap, path, [topic]) as service, bind("127.0.0.1", 0) as bound:
        monkeypatch.setattr(RowStore, "topics", fail)
        with pytest.raises(StoreFileError, match="disk I/O error"):
            asyncio.run(service.serve(bound, stop=asyncio.Event()))
