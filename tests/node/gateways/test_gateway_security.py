"""Identities, rules and browsers at the HTTP port: SASL, certificates, ACLs, origins."""

import asyncio
import json
import ssl
import sys
from pathlib import Path

import pytest
import websockets
from websockets.typing import Subprotocol

from penstock import BrokerServer
from penstock.core.errors import ConfigError
from penstock.core.security_limits import USER_NAME_BYTES_MAX
from penstock.edge.gateways import web_limits
from penstock.node.gateways import web_callers
from penstock.node.gateways.web_callers import credentials_in
from penstock.node.push import push_door
from penstock.protocol.push.frames import FrameType, encode_frame
from penstock.protocol.push.payloads import Credentials
from tests.node.gateways.gateway_stage import (
    PLAIN_TEXT,
    Answer,
    BareSocket,
    basic,
    call,
    gateway_broker,
    opened,
    refused,
    run,
    subscribe,
    until,
    upgrade,
)
from tests.node.push.push_stage import settings_from
from tests.oracle.certificates import CertificateAuthority

PASSWORD = "administrator-secret"
GOOD = basic("admin", PASSWORD)
RECORDS = "/v1/topics/t/records"


def sasl_settings(folder: Path, more: str = "") -> str:
    """Return settings with one listener whose clients log in."""
    file = folder / "administrator.txt"
    file.write_text(f"admin:{PASSWORD}\n")
    file.chmod(0o600)
    return f"""
[node]
storage = "memory"
[security]
bootstrap_admin_file = "{file}"
failed_login_delay_ms = 0
{more}
[edge]
http_port = 0
[[listeners]]
name = "CLIENTS"
port = 0
protocol = "SASL_PLAINTEXT"
mechanisms = ["PLAIN"]
"""


def test_basic_credentials_are_checked_and_remembered(tmp_path: Path) -> None:
    async def test() -> None:
        async with gateway_broker(sasl_settings(tmp_path)) as broker:
            for path in (RECORDS, "/v1/topics/t/stream"):
                answer = await call(broker, "GET", path)
                assert answer.status == 401
                assert answer.headers["www-authenticate"].startswith("Basic realm=")
            for wrong in (basic("admin", "no"), basic("other", PASSWORD), "Bearer x", "Basic !"):
                answer = await call(broker, "GET", RECORDS, authorization=wrong)
                assert answer.status == 401, wrong
            for _ in range(3):
                answer = await call(broker, "POST", RECORDS, b"v", authorization=GOOD)
                assert answer.status == 200
            logins = broker.metrics()
            assert logins["push_sessions_opened_total"] == 0

    run(test)


def test_a_remembered_password_is_forgotten_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions: dict[str, object] = {}
    checks: list[str] = []

    async def test() -> None:
        async with gateway_broker(sasl_settings(tmp_path)) as broker:
            real = push_door.ListenerDoor.check

            async def counted(door: object, client: object, credentials: Credentials) -> object:
                checks.append(credentials.user or "")
                return await real(door, client, credentials)  # type: ignore[arg-type]

            monkeypatch.setattr(push_door.ListenerDoor, "check", counted)
            callers = _callers(broker)
            callers._password_version = versions.get
            for _ in range(3):
                assert (await call(broker, "GET", RECORDS, authorization=GOOD)).status == 200
            assert checks == ["admin"]
            versions["admin"] = "changed"
            assert (await call(broker, "GET", RECORDS, authorization=GOOD)).status == 200
            assert checks == ["admin", "admin"]

    run(test)


def _callers(broker: BrokerServer) -> web_callers.WebCallers:
    assert broker._gateways is not None
    assert broker._gateways._server is not None
    door = broker._gateways._server._connection.gateway._door  # type: ignore[attr-defined]
    assert isinstance(door, web_callers.WebCallers)
    return door


def test_checks_in_progress_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_callers, "PENDING_PER_ADDRESS_MAX", 1)
    begun = asyncio.Event()

    async def slow(door: object, client: object, credentials: object) -> object:
        begun.set()
        return await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(push_door.ListenerDoor, "check", slow)

    async def test() -> None:
        async with gateway_broker(sasl_settings(tmp_path)) as broker:
            first = asyncio.get_running_loop().create_task(
                call(broker, "GET", RECORDS, authorization=GOOD)
            )
            await begun.wait()
            answer = await call(broker, "GET", RECORDS, authorization=GOOD)
            assert answer.status == 503
            assert answer.headers["retry-after"] == "1"
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)

    run(test)


def test_a_client_that_leaves_frees_its_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def slow(door: object, client: object, credentials: object) -> object:
        begun.set()
        return await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(push_door.ListenerDoor, "check", slow)

    async def test() -> None:
        async with gateway_broker(sasl_settings(tmp_path)) as broker:
            _, writer = await asyncio.open_connection("127.0.0.1", broker.http_port)
            head = f"GET {RECORDS} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: {GOOD}\r\n\r\n"
            writer.write(head.encode())
            await begun.wait()
            writer.transport.abort()
            await until(lambda: not _callers(broker)._pending)

    run(test)


def test_websockets_with_and_without_a_header(tmp_path: Path) -> None:
    async def test() -> None:
        async with gateway_broker(sasl_settings(tmp_path)) as broker:
            answer = await refused(broker, authorization=basic("admin", "no"))
            assert answer.status == 401
            assert answer.headers["www-authenticate"].startswith("Basic")
            known = await upgrade(broker, authorization=GOOD)
            assert isinstance(known, BareSocket)
            known.send(2, subscribe())
            assert (await known.receive_frames())[0].type is FrameType.ACK
            # A browser sends its credentials in the first SUBSCRIBE.
            page = await opened(broker)
            page.send(2, subscribe(user="admin", password=PASSWORD))
            (answer_frame,) = await page.receive_frames()
            assert b"subscription" in answer_frame.payload
            other = await opened(broker)
            other.send(2, subscribe())
            frames = await other.receive_frames()
            assert b"SASL_AUTHENTICATION_FAILED" in frames[0].payload
            early = await opened(broker)
            early.send(2, encode_frame(FrameType.HEARTBEAT, 0))
            assert b"authenticated" in (await early.receive_frames())[0].payload

    run(test)


def test_a_message_before_the_login_is_small(tmp_path: Path) -> None:
    async def test() -> None:
        async with gateway_broker(sasl_settings(tmp_path)) as broker:
            socket = await opened(broker)
            size = web_limits.FIRST_MESSAGE_BYTES_MAX + 1
            socket.writer.write(bytes([0x82, 0xFF]) + size.to_bytes(8, "big") + bytes(4))
            assert (await socket.receive())[1][:2] == (1009).to_bytes(2, "big")

    run(test)


def test_rules_of_access(tmp_path: Path) -> None:
    more = 'authorizer = "acl"\nsuper_users = "User:admin"\n'
    text = sasl_settings(tmp_path, more)

    async def test() -> None:
        async with gateway_broker(text) as broker:
            answer = await call(broker, "GET", RECORDS, authorization=GOOD)
            assert answer.status == 200

    run(test)
    denied = sasl_settings(tmp_path, more.replace("User:admin", "User:other"))

    async def test_denied() -> None:
        async with gateway_broker(denied) as broker:
            answer = await call(broker, "GET", RECORDS, authorization=GOOD)
            assert answer.status == 403
            assert answer.json()["kafka_error"] == "TOPIC_AUTHORIZATION_FAILED"
            answer = await call(broker, "POST", RECORDS, b"v", authorization=GOOD)
            assert answer.status == 403
            answer = await call(broker, "GET", "/v1/topics/t/stream", authorization=GOOD)
            assert answer.status == 403

    run(test_denied)


def test_tls_with_client_certificates(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path / "ca")
    server, client = authority.broker(), authority.client("CN=shelf")
    text = f"""
[node]
storage = "memory"
[security]
authorizer = "acl"
super_users = "User:CN=shelf"
[edge]
http_port = 0
[[listeners]]
name = "CLIENTS"
port = 0
protocol = "SSL"
[listeners.tls]
certificate = "{server.chain}"
key = "{server.key}"
client_ca = "{authority.certificate}"
client_auth = "required"
"""

    async def test() -> None:
        context = ssl.create_default_context(cafile=str(authority.certificate))
        context.load_cert_chain(client.chain, client.key)
        async with gateway_broker(text) as broker:
            url = f"wss://127.0.0.1:{broker.http_port}/v1/push"
            async with websockets.connect(
                url, subprotocols=[Subprotocol("penstock.json.v1")], ssl=context
            ) as socket:
                request = {"type": "SUBSCRIBE", "id": 1, "payload": {"topic": "t"}}
                await socket.send(json.dumps(request))
                assert json.loads(await socket.recv())["payload"]["subscription"] == 1
                publish = {"type": "DATA", "id": 2, "subscription": 1, "value": "x" * 300_000}
                await socket.send(json.dumps(publish))
                found: list[dict[str, object]] = []
                while len(found) < 2:
                    message = json.loads(await socket.recv())
                    found += message if isinstance(message, list) else [message]
                assert {one["type"] for one in found} == {"ACK", "DATA"}

    run(test)


ORIGINS = PLAIN_TEXT + 'allowed_origins = ["http://shop.example:8000"]\n'


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://shop.example:8000"}, 200),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "evil.example"}, 421),
        ({"host": "evil.example", "origin": "http://evil.example"}, 421),
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors"}, 403),
        ({"sec_fetch_site": "same-site", "sec_fetch_mode": "no-cors"}, 403),
        ({"sec_fetch_site": "same-origin"}, 200),
    ],
)
def test_pages_of_other_sites_are_refused(headers: dict[str, str], status: int) -> None:
    async def test() -> None:
        async with gateway_broker(ORIGINS) as broker:
            answer = await call(broker, "GET", RECORDS, b"", **headers)
            assert answer.status == status, answer
            allowed = answer.headers.get("access-control-allow-origin")
            expected = "http://shop.example:8000"
            assert allowed == (expected if headers.get("origin") == expected else None)
            assert "access-control-allow-credentials" not in answer.headers
            found = await upgrade(broker, **headers)
            if status == 200:
                assert isinstance(found, BareSocket)
            else:
                assert isinstance(found, Answer)
                assert found.status == status
                assert found.json()["remedy"]

    run(test)


def test_pages_of_this_host_and_preflights() -> None:
    async def test() -> None:
        async with gateway_broker(ORIGINS) as broker:
            own = f"http://127.0.0.1:{broker.http_port}"
            assert (await call(broker, "POST", RECORDS, b"v", origin=own)).status == 200
            origin = "http://shop.example:8000"
            answer = await call(broker, "OPTIONS", RECORDS, origin=origin)
            assert answer.status == 204
            assert "POST" in answer.headers["access-control-allow-methods"]
            assert "last-event-id" in answer.headers["access-control-allow-headers"]
            answer = await call(broker, "OPTIONS", RECORDS, origin="http://evil.example")
            assert answer.status == 403
            # Two headers of one name do not pass as one of them.
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.http_port)
            lines = f"host: 127.0.0.1\r\norigin: http://evil.example\r\norigin: {origin}"
            writer.write(f"GET {RECORDS} HTTP/1.1\r\n{lines}\r\n\r\n".encode())
            assert b" 403 " in await reader.readline()
            writer.close()

    run(test)


def test_settings_that_are_refused() -> None:
    async def start(text: str) -> None:
        async with BrokerServer(settings_from(text)):
            pass

    with pytest.raises(ConfigError, match=r"allowed_origins has 'shop\.example'"):
        asyncio.run(start(PLAIN_TEXT + 'allowed_origins = ["shop.example"]\n'))
    with pytest.raises(ConfigError, match="open to other machines without TLS"):
        settings_from(PLAIN_TEXT + 'host = "0.0.0.0"\n')


def test_headers_of_credentials() -> None:
    assert credentials_in(basic("a", "b:c")) == Credentials(user="a", password="b:c")
    assert credentials_in("bearer t") == Credentials(token="t")
    for wrong in ("", "Basic", "Basic YQ==", "Basic Og==", "Digest x", "Bearer ", "Basic /w=="):
        assert credentials_in(wrong) is None, wrong
    assert credentials_in(basic("a" * (USER_NAME_BYTES_MAX + 1), "b")) is None
    assert credentials_in(basic("a", "b" * 256)) is None


def test_a_broker_without_the_port_loads_nothing() -> None:
    script = (
        "import asyncio, sys\n"
        "from penstock import BrokerServer\n"
        "from tests.node.push.push_stage import settings_from\n"
        "async def main():\n"
        "    text = '[node]\\nstorage = \"memory\"\\n[listener]\\nport = 0\\n'\n"
        "    async with BrokerServer(settings_from(text)):\n"
        "        names = [n for n in sys.modules if 'gateways' in n or 'websockets' in n]\n"
        "        assert not names, names\n"
        "asyncio.run(main())\n"
    )

    async def test() -> None:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
        assert await process.wait() == 0

    run(test)
