"""Push with the identities and rules of the broker: SASL, TLS, unix sockets, ACLs."""

import asyncio
import os
import ssl
import stat
from pathlib import Path

import pytest

from penstock import BrokerServer
from penstock.client.push import PushClosedError, PushRequestError, open_push
from penstock.core.errors import ConfigError
from penstock.edge.push import limits
from penstock.edge.push.connection import PushConnection
from penstock.protocol.push.frames import FrameType, encode_frame
from penstock.protocol.push.payloads import Credentials
from tests.node.push.push_stage import PLAIN_TEXT, push_broker, run, settings_from, take
from tests.oracle.certificates import CertificateAuthority

PASSWORD = "administrator-secret"
GOOD = Credentials(user="admin", password=PASSWORD)


def sasl_settings(folder: Path, mechanism: str = "PLAIN", more: str = "") -> str:
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
push_port = 0
socket_path = "{folder / "push.sock"}"
[[listeners]]
name = "CLIENTS"
port = 0
protocol = "SASL_PLAINTEXT"
mechanisms = ["{mechanism}"]
"""


def test_credentials_in_the_first_subscribe(tmp_path: Path) -> None:
    async def test() -> None:
        async with push_broker(sasl_settings(tmp_path)) as broker:
            assert broker.push_port is not None
            port = broker.push_port
            async with await open_push("127.0.0.1", port, credentials=GOOD) as client:
                subscription = await client.subscribe("t")
                await client.publish("t", b"v")
                await take(subscription, 1)
            path = str(tmp_path / "push.sock")
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
            async with await open_push(socket_path=path, credentials=GOOD) as client:
                await client.publish("t", b"w")
            assert broker._push is not None
            assert not broker._push.server._unproven

    run(test)
    assert not (tmp_path / "push.sock").exists()


@pytest.mark.parametrize(
    ("credentials", "message"),
    [
        (None, "needs credentials"),
        (Credentials(user="admin", password="wrong"), "not accepted"),
        (Credentials(user="nobody", password="x"), "not accepted"),
        (Credentials(token="x"), "does not accept OAUTHBEARER"),
    ],
)
def test_other_clients_are_refused(
    tmp_path: Path, credentials: Credentials | None, message: str
) -> None:
    async def test() -> None:
        async with push_broker(sasl_settings(tmp_path)) as broker:
            assert broker.push_port is not None
            client = await open_push("127.0.0.1", broker.push_port, credentials=credentials)
            with pytest.raises(PushRequestError, match=message) as refused:
                await client.subscribe("t")
            assert refused.value.code == "SASL_AUTHENTICATION_FAILED"
            ended = await client.wait_closed()
            await client.close()
            assert ended.code == "SASL_AUTHENTICATION_FAILED"
            assert broker.metrics()["push_login_failures_total"] == 1
            assert broker.metrics()["push_published_records_total"] == 0

    run(test)


def test_silent_connections_leave_room_for_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UNPROVEN_SESSIONS_MAX", 3)

    async def test() -> None:
        async with push_broker(sasl_settings(tmp_path)) as broker:
            silent = [
                await asyncio.open_connection("127.0.0.1", broker.push_port) for _ in range(6)
            ]
            assert broker.push_port is not None
            async with await open_push("127.0.0.1", broker.push_port, credentials=GOOD) as client:
                await client.publish("t", b"v")
            for reader, writer in silent[:3]:
                assert await reader.read() == b""
                writer.close()
            for _, writer in silent[3:]:
                writer.close()

    run(test)


def test_frames_before_the_login_reach_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with push_broker(sasl_settings(tmp_path)) as broker:
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.push_port)
            writer.write(encode_frame(FrameType.COMMIT_OFFSET, 1, b'{"t":{"0":5}}'))
            assert b"before the client was authenticated" in await reader.read()
            writer.close()

    run(test)


def test_rules_are_those_of_the_broker(tmp_path: Path) -> None:
    rules = 'authorizer = "acl"\nsuper_users = "User:operator"\n'

    async def test() -> None:
        async with push_broker(sasl_settings(tmp_path, more=rules)) as broker:
            assert broker.push_port is not None
            client = await open_push("127.0.0.1", broker.push_port, credentials=GOOD)
            with pytest.raises(PushRequestError) as refused:
                await client.subscribe("t")
            assert refused.value.code == "TOPIC_AUTHORIZATION_FAILED"
            with pytest.raises(PushRequestError) as refused:
                await client.publish("t", b"v")
            assert refused.value.code == "TOPIC_AUTHORIZATION_FAILED"
            await client.close()
            # The process of the broker has all rights.
            assert (await broker.publish("t", b"v")).offset == 0

    run(test)


def test_a_permission_that_is_taken_away_ends_the_session() -> None:
    class Rules:
        is_allowed = True

        def allows(self, *_: object, **__: object) -> bool:
            return self.is_allowed

    async def test() -> None:
        async with push_broker() as broker:
            rules = Rules()
            assert broker.push_port is not None
            client = await open_push("127.0.0.1", broker.push_port)
            subscription = await client.subscribe("t")
            assert broker._push is not None
            inner = broker._push.server.broker._services  # type: ignore[attr-defined]
            object.__setattr__(inner, "access", rules)
            await broker.publish("t", b"allowed")
            assert [one.value for one in await take(subscription, 1)] == [b"allowed"]
            rules.is_allowed = False
            await broker.publish("t", b"denied")
            with pytest.raises(PushClosedError) as ended:
                await anext(subscription)
            assert ended.value.code == "TOPIC_AUTHORIZATION_FAILED"
            await client.close()

    run(test)


def test_tls_with_client_certificates(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path / "ca")
    server, known = authority.broker(), authority.client("CN=shelf")
    text = f"""
[node]
storage = "memory"
[edge]
push_port = 0
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
        async with push_broker(text) as broker:
            assert broker.push_port is not None
            trusted = ssl.create_default_context(cafile=str(authority.certificate))
            trusted.load_cert_chain(known.chain, known.key)
            async with await open_push("127.0.0.1", broker.push_port, tls=trusted) as client:
                subscription = await client.subscribe("t", group="g")
                await client.publish("t", b"v" * 200_000)
                (record,) = await take(subscription, 1)
                assert record.value == b"v" * 200_000
                assert broker._push is not None
                (connection,) = broker._push.server.connections
                assert isinstance(connection, PushConnection)
                assert "shelf" in str(connection.client)
            stranger = ssl.create_default_context(cafile=str(authority.certificate))
            other = await open_push("127.0.0.1", broker.push_port, tls=stranger)
            with pytest.raises(PushClosedError):
                await other.subscribe("t")
            await other.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.push_port)
            writer.write(encode_frame(FrameType.SUBSCRIBE, 1, b'{"topic":"t"}'))
            assert b"subscription" not in await reader.read()
            writer.close()

    run(test)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("push_port = 0", 'push_port = 0\nlistener = "NONE"'), "edge.listener is NONE"),
        (("push_port = 0", 'socket_path = "/nowhere/x.sock"'), "cannot create the unix socket"),
    ],
)
def test_a_wrong_address_ends_the_start(change: tuple[str, str], message: str) -> None:
    async def test() -> None:
        with pytest.raises(ConfigError, match=message):
            async with BrokerServer(settings_from(PLAIN_TEXT.replace(*change))):
                pass

    run(test)


def test_a_used_port_ends_the_start() -> None:
    async def test() -> None:
        async with push_broker() as broker:
            text = PLAIN_TEXT.replace("push_port = 0", f"push_port = {broker.push_port}")
            with pytest.raises(ConfigError, match="for push: Address already in use"):
                async with BrokerServer(settings_from(text)):
                    pass

    run(test)


def test_scram_alone_is_refused_at_the_start(tmp_path: Path) -> None:
    async def test() -> None:
        with pytest.raises(ConfigError, match="PLAIN or OAUTHBEARER"):
            async with BrokerServer(settings_from(sasl_settings(tmp_path, "SCRAM-SHA-512"))):
                pass

    run(test)


def test_a_stale_socket_is_replaced_and_a_used_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "push.sock"
    text = PLAIN_TEXT + f'socket_path = "{path}"\n'

    async def test() -> None:
        stale = await asyncio.start_unix_server(lambda *_: None, path)
        stale.close()
        await stale.wait_closed()
        async with push_broker(text) as broker:
            async with await open_push(socket_path=str(path)) as client:
                await client.publish("t", b"v")
            with pytest.raises(ConfigError, match="is in use"):
                async with BrokerServer(settings_from(text)):
                    pass
            assert broker.metrics()["push_published_records_total"] == 1

    run(test)


def test_sessions_are_bounded_live() -> None:
    async def test() -> None:
        async with push_broker() as broker:
            assert broker.push_port is not None
            assert broker._push is not None
            text = (
                PLAIN_TEXT
                + "sessions_max = 1\nsessions_per_address_max = 7\nsessions_per_principal_max = 8\n"
            )
            await broker._running.live.take(settings_from(text))
            assert broker._push.server.sessions_per_address_max == 7
            assert broker._push.server.sessions_per_principal_max == 8
            async with await open_push("127.0.0.1", broker.push_port) as client:
                await client.publish("t", b"v")
                reader, writer = await asyncio.open_connection("127.0.0.1", broker.push_port)
                assert await reader.read() == b""
                writer.close()
            assert broker.metrics()["push_sessions_refused_total"] == 1

    run(test)


def test_an_address_open_to_other_machines_needs_tls() -> None:
    text = PLAIN_TEXT + 'host = "0.0.0.0"\n'
    with pytest.raises(ConfigError, match="open to other machines without TLS"):
        settings_from(text)
    accepted = settings_from(text + "[security]\nallow_insecure = true\n")
    assert accepted.edge.host == "0.0.0.0"
