"""`penstock status` on a scripted admin port."""

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from penstock.cli.status import COLUMNS_MAX, amount_text, bar, duration_text
from penstock.core.settings.config import BrokerConfig
from penstock.testing import Broker
from tests.cli.conftest import Penstock

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
STATUS: dict[str, Any] = {
    "health": "Healthy",
    "ready": True,
    "reasons": [],
    "node_id": 1,
    "cluster_id": "abc",
    "version": "1.2.3",
    "address": "127.0.0.1:9092",
    "started_at_ms": 0,
    "uptime_seconds": 3725.2,
    "limits": [
        {"name": "connections", "current": 25, "limit": 100, "unit": "connections", "refused": 3},
        {
            "name": "disk_used_bytes",
            "current": 1536,
            "limit": 2048,
            "unit": "bytes",
            "refused": None,
        },
        {"name": "slow_reader", "current": None, "limit": 30.0, "unit": "seconds", "refused": 4},
    ],
}
REASON = {
    "code": "disk-low",
    "level": "Degraded",
    "message": "The disk is nearly full.",
    "remedy": "Make room.",
}


@contextmanager
def admin_port(text: str, code: int = 200) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code if self.path == "/api/v1/status" else 404)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *words: object) -> None:
            """Nothing is logged."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def test_a_healthy_broker(penstock: Penstock) -> None:
    with admin_port(json.dumps(STATUS)) as url:
        found = penstock("status", "--admin", url)
    assert found.code == 0
    assert found.output.splitlines() == [
        "Healthy  127.0.0.1:9092",
        "3 refused: connections",
        "4 refused: slow reader",
        "limit        used     of       share",
        "disk used    1.5 KiB  2.0 KiB  75%",
        "connections  25       100      25%",
        "slow reader  -        30 s     -",
        "node 1, Penstock 1.2.3, up 1 h 2 min",
        "cluster abc",
    ]


def worker(number: int, condition: str, url: str | None, restarts: int = 0) -> dict[str, Any]:
    return {
        "worker": number,
        "node_id": number,
        "condition": condition,
        "pid": 1_234_567 if condition == "running" else None,
        "restarts": restarts,
        "address": "127.0.0.1:9093",
        "admin": url,
    }


def test_all_workers_are_asked_and_the_worst_health_counts(penstock: Penstock) -> None:
    degraded = {**STATUS, "node_id": 2, "health": "Degraded", "reasons": [REASON], "workers": []}
    with admin_port(json.dumps(degraded)) as second:
        port = second.rpartition(":")[2].rstrip("/")
        # A worker tells the address that it listens on, which others may not reach.
        workers = [worker(1, "running", None), worker(2, "running", f"http://0.0.0.0:{port}", 3)]
        with admin_port(json.dumps({**STATUS, "workers": workers})) as first:
            shown = penstock("status", "--admin", first)
            ready = penstock("status", "--admin", first, "--ready")
            document = json.loads(penstock("status", "--admin", first, "--json").output)
    assert shown.code == 5
    assert ready.code == 0
    lines = shown.output.splitlines()
    assert lines[-3:] == [
        "worker  health    is       restarts  pid",
        "1       Healthy   running  0         1234567",
        "2       Degraded  running  3         1234567",
    ]
    assert max(map(len, lines)) <= COLUMNS_MAX
    assert [one["health"] for one in document["workers"]] == ["Healthy", "Degraded"]


@pytest.mark.parametrize("condition", ["running", "restarting"])
def test_a_worker_that_does_not_answer_is_critical(penstock: Penstock, condition: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    workers = [
        worker(1, "running", None),
        worker(2, condition, f"http://127.0.0.1:{port}", 1),
    ]
    with admin_port(json.dumps({**STATUS, "workers": workers})) as url:
        shown = penstock("status", "--admin", url)
        ready = penstock("status", "--admin", url, "--ready")
    assert (shown.code, ready.code) == (6, 6)
    assert re.search(rf"^2 +Critical +{condition} ", shown.output, re.MULTILINE)


def test_a_real_status_fits_half_of_a_screen(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 columns and a headline of 90: in a narrow terminal every line was broken."""
    with Broker(BrokerConfig(port=0, storage="memory", admin_port=0)) as broker:
        url = f"http://127.0.0.1:{broker.admin_port}"
        plain = penstock("status", "--admin", url).output.splitlines()
        monkeypatch.setenv("COLUMNS", "50")
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        drawn = penstock("status", "--admin", url).output
    assert max(map(len, plain)) <= COLUMNS_MAX
    bare = [ESCAPES.sub("", line).rstrip() for line in drawn.splitlines()]
    assert max(map(len, bare)) <= COLUMNS_MAX
    assert len(bare) == len(plain)
    shares = [int(line.split()[-1].rstrip("%")) for line in plain if line.endswith("%")]
    assert len(shares) > 8
    assert shares == sorted(shares, reverse=True)


def test_reasons_come_first_and_are_folded_for_a_terminal(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = {**REASON, "message": "The disk is nearly full. " * 4, "remedy": "Make room. " * 9}
    document = {**STATUS, "health": "Degraded", "reasons": [long]}
    with admin_port(json.dumps(document)) as url:
        piped = penstock("status", "--admin", url).output.splitlines()
        monkeypatch.setenv("COLUMNS", "50")
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        drawn = penstock("status", "--admin", url, "--plain").output.splitlines()
    assert piped[1] == f"Degraded: {long['message'].strip()}"
    assert piped[2] == f"  {long['remedy'].strip()}"
    assert drawn[1] == "Degraded: The disk is nearly full. The disk is"
    assert max(map(len, drawn)) <= COLUMNS_MAX
    assert drawn[0] == piped[0]
    assert drawn[-1] == piped[-1]


def test_a_limit_with_a_long_name_keeps_its_columns(penstock: Penstock) -> None:
    named = {**STATUS["limits"][0], "name": "a_limit_that_somebody_adds_later_bytes"}
    with admin_port(json.dumps({**STATUS, "limits": [named]})) as url:
        found = penstock("status", "--admin", url)
    assert "a limit that somebo...  25    100  25%" in found.output


def test_plain_gives_a_terminal_what_a_pipe_gets(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with admin_port(json.dumps(STATUS)) as url:
        piped = penstock("status", "--admin", url).output
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        drawn = penstock("status", "--admin", url).output
        plain = penstock("status", "--admin", url, "--plain").output
    assert plain == piped
    assert "█████░░░░░░░░░░░░░░░  25%" in drawn


@pytest.mark.parametrize(("health", "code"), [("Degraded", 5), ("Critical", 6)])
def test_the_exit_code_says_it(penstock: Penstock, health: str, code: int) -> None:
    document = {**STATUS, "health": health, "reasons": [REASON]}
    with admin_port(json.dumps(document)) as url:
        found = penstock("status", "--admin", url)
    assert found.code == code
    assert found.output.startswith(health)
    assert "The disk is nearly full." in found.output
    assert "Make room." in found.output


def test_its_colour_is_the_one_that_was_asked_for(penstock: Penstock) -> None:
    with admin_port(json.dumps({**STATUS, "health": "Degraded"})) as url:
        colored = penstock("status", "--admin", url, "--color")
        plain = penstock("status", "--admin", url, "--plain")
    assert colored.output.startswith("\x1b[1;33mDegraded\x1b[0m")
    assert plain.output.startswith("Degraded  ")
    assert plain.output.isascii()


@pytest.mark.parametrize(("is_ready", "code"), [(True, 0), (False, 6)])
def test_ready_is_not_the_same_as_healthy(penstock: Penstock, is_ready: bool, code: int) -> None:
    with admin_port(json.dumps({**STATUS, "health": "Critical", "ready": is_ready})) as url:
        assert penstock("status", "--admin", url).code == 6
        assert penstock("status", "--admin", url, "--ready").code == code


def test_json(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    with admin_port(json.dumps(STATUS)) as url:
        monkeypatch.setenv("PENSTOCK_ADMIN_URL", url)
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        found = penstock("status", "--json")
    assert (found.code, json.loads(found.output)) == (0, STATUS)


def test_nobody_answers(penstock: Penstock) -> None:
    with admin_port("") as url:
        pass
    found = penstock("status", "--admin", url)
    assert found.code == 3
    assert "is unreachable: " in found.errors
    assert "--admin" in found.errors


@pytest.mark.parametrize(
    "text", ["<html>", "{}", '{"health": "Fine"}', "[]", '{"health": []}', "7", "[" * 100_000]
)
def test_somebody_else_answers(penstock: Penstock, text: str) -> None:
    with admin_port(text) as url:
        found = penstock("status", "--admin", url)
    assert found.code == 1
    assert "not as the admin port" in found.errors


def test_a_limit_without_a_name(penstock: Penstock) -> None:
    broken = {**STATUS["limits"][0], "name": None}
    with admin_port(json.dumps({**STATUS, "limits": [broken]})) as url:
        found = penstock("status", "--admin", url)
    assert found.code == 1
    assert "not as the admin port" in found.errors


def test_an_error_is_told(penstock: Penstock) -> None:
    with admin_port("", 500) as url:
        found = penstock("status", "--admin", url)
    assert (found.code, found.output) == (1, "")
    assert "answers 500" in found.errors


def test_somebody_answers_who_speaks_no_http(penstock: Penstock) -> None:
    def answer() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer)
        thread.start()
        found = penstock("status", "--admin", f"http://127.0.0.1:{server.getsockname()[1]}")
        thread.join()
    assert (found.code, found.output) == (1, "")
    assert "not in HTTP (BadStatusLine)" in found.errors
    assert "hint: Give the admin port" in found.errors


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8080",
        "http://",
        "http://localhost:abc",
        "http://localhost:99999",
        "http://[::1",
        "http://a b:80",
        "http://a..b:80",
        "http://localhost:8080/a b",
    ],
)
def test_a_url_that_is_none(penstock: Penstock, url: str) -> None:
    found = penstock("status", "--admin", url)
    assert found.code == 2
    assert "--admin" in found.errors


def test_an_address_without_its_scheme_gets_it(penstock: Penstock) -> None:
    assert penstock("status", "--admin", "localhost:8080").errors.splitlines() == [
        "error: --admin: 'localhost:8080' is not a URL such as http://127.0.0.1:8080.",
        "hint: Use http://localhost:8080.",
    ]


def test_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.status.can_draw", lambda: True)
    assert bar(0, 100) == "░" * 20 + "   0%"
    assert bar(1, 1000).startswith("█░")
    assert bar(200, 100) == "█" * 20 + " 100%"
    assert bar(0, 0) == "█" * 20 + " 100%"
    assert [amount_text(n, "bytes") for n in (0, 1023, 1024, 5 * 2**40)] == [
        "0 B",
        "1.0 KiB",
        "1.0 KiB",
        "5.0 TiB",
    ]
    assert [amount_text(n * 2**30, "bytes") for n in (99.94, 99.96, 251.8, 1000)] == [
        "99.9 GiB",
        "100 GiB",
        "252 GiB",
        "1.0 TiB",
    ]
    assert amount_text(12_000, "connections") == "12,000"
    assert [duration_text(n) for n in (5, 65, 3_700, 90_000)] == [
        "5 s",
        "1 min 5 s",
        "1 h 1 min",
        "1 d 1 h",
    ]
