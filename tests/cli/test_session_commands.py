"""`penstock session` and its REST operations, on a broker with logins and access rules."""

import json
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest

from penstock.client.calls import describe_brokers
from penstock.client.security.options import parse_security
from penstock.client.transport.addresses import parse_addresses
from penstock.client.transport.blocking import BlockingConnection, connect
from penstock.core.clock import SystemClock
from penstock.core.errors import PenstockError
from penstock.core.settings.config import load_settings
from penstock.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.security.sasl.password_file import format_users, hash_password
from penstock.security.secret import Secret
from penstock.testing import Broker
from tests.broker.handlers.asker import Asker
from tests.cli.conftest import Outcome, Penstock
from tests.client.certificates import issue, write

PASSWORD = "a password"
USERS = ("admin", "alice", "bob", "viewer")
Open = Callable[..., BlockingConnection]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("sessions")
    stored = hash_password(Secret(PASSWORD), b"salt of 16 bytes")
    (folder / "users.txt").write_text(format_users(dict.fromkeys(USERS, stored)))
    (folder / "rules.json").write_text(
        json.dumps(
            {
                "rules": [
                    {
                        "principal": "User:viewer",
                        "operation": "Describe",
                        "resource": "Cluster:kafka-cluster",
                    }
                ]
            }
        )
    )
    text = f"""
        [node]
        storage = "memory"
        [admin]
        port = 0
        auth = "basic"
        [security]
        authorizer = "acl"
        super_users = "User:admin"
        acl_file = "{folder / "rules.json"}"
        plain_verifier = "file"
        users_file = "{folder / "users.txt"}"
        failed_login_delay_ms = 0
        [[listeners]]
        name = "LOGINS"
        port = 0
        protocol = "SASL_PLAINTEXT"
        mechanisms = ["PLAIN"]
        reauthentication_ms_max = 3600000
    """
    with Broker(load_settings(text, {}, {}).settings) as running:
        yield running


@pytest.fixture
def session(penstock: Penstock, broker: Broker, tmp_path: Path) -> Penstock:
    def run(*words: str, user: str = "admin") -> Outcome:
        file = tmp_path / f"{user}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in login(user).items()))
        url = f"http://127.0.0.1:{broker.admin_port}"
        return penstock("session", *words, "--admin", url, "--command-config", str(file))

    return run


@pytest.fixture
def opened(broker: Broker) -> Iterator[Open]:
    """Connect a client of a user."""
    (address,) = parse_addresses(broker.bootstrap_server)
    with ExitStack() as stack:

        def open_one(user: str, client_id: str = "a client") -> BlockingConnection:
            connection = connect(
                address,
                timeout_seconds=10,
                client_id=client_id,
                security=parse_security(login(user)),
            )
            connection.carry(describe_brokers(()))
            return stack.enter_context(closing(connection))

        yield open_one


def login(user: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORD,
    }


def is_connected(connection: BlockingConnection) -> bool:
    try:
        connection.carry(describe_brokers(()))
    except PenstockError:
        return False
    return True


def listed(session: Penstock, *words: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(session("list", "--json", *words).output)
    return found


def test_sessions_are_listed_with_their_identity(session: Penstock, opened: Open) -> None:
    begun = SystemClock().now_ms()
    opened("alice", "reports")
    opened("bob")
    (alice,) = listed(session, "--principal", "User:alice")
    assert isinstance(alice["since_ms"], int)
    assert isinstance(alice["expires_at_ms"], int)
    assert begun - 1000 < alice["since_ms"] < begun + 60_000
    assert 0 < alice["expires_at_ms"] - begun - 3_600_000 + 60_000 < 120_000
    assert {name: alice[name] for name in alice if not name.endswith("_ms") and name != "id"} == {
        "principal": "User:alice",
        "address": "127.0.0.1",
        "listener": "LOGINS",
        "mechanism": "PLAIN",
        "client_id": "reports",
    }
    assert {one["principal"] for one in listed(session)} >= {"User:alice", "User:bob"}
    head, *rows = session("list").output.splitlines()
    assert head.split() == [
        *("id", "principal", "address", "listener", "mechanism", "client", "id", "since"),
        "expires",
    ]
    assert any("User:alice" in row and "reports" in row for row in rows)


def test_the_sessions_of_a_principal_end(session: Penstock, opened: Open) -> None:
    first, second, other = opened("alice"), opened("alice"), opened("bob")
    assert len(listed(session, "--principal", "User:alice")) >= 2
    done = session("end", "--principal", "User:alice")
    assert done.code == 0
    assert done.output.endswith("sessions ended\n")
    assert [is_connected(one) for one in (first, second, other)] == [False, False, True]
    assert listed(session, "--principal", "User:alice") == []
    assert session("end", "--principal", "User:alice").output == "0 sessions ended\n"
    none = session("list", "--principal", "User:alice").output
    assert none == "no clients of User:alice are connected to this broker\n"


def test_one_session_ends(session: Penstock, opened: Open) -> None:
    known = {one["id"] for one in listed(session, "--principal", "User:bob")}
    first, second = opened("bob"), opened("bob")
    ids = sorted(
        str(one["id"])
        for one in listed(session, "--principal", "User:bob")
        if one["id"] not in known
    )
    assert session("end", ids[0]).output == "1 session ended\n"
    assert sorted([is_connected(first), is_connected(second)]) == [False, True]
    gone = session("end", ids[0])
    assert gone.code == 1
    assert f"There is no session {ids[0]}. (404)" in gone.errors
    assert "GET /api/v1/sessions" in gone.errors


def test_rules_decide(session: Penstock, opened: Open) -> None:
    client = opened("bob")
    assert session("list", user="viewer").code == 0
    for user, words, operation in (
        ("bob", ("list",), "describe"),
        ("bob", ("end", "--principal", "User:bob"), "alter"),
        ("viewer", ("end", "--principal", "User:bob"), "alter"),
        ("viewer", ("end", "1"), "alter"),
    ):
        found = session(*words, user=user)
        assert found.code == 1
        assert f"User:{user} may not {operation} the cluster. (403)" in found.errors
        assert f"`penstock acl add --principal User:{user} --operation {operation}" in found.errors
    assert is_connected(client)


def test_pages(broker: Broker, opened: Open) -> None:
    for _ in range(3):
        opened("bob")
    url = f"http://127.0.0.1:{broker.admin_port}/api/v1/sessions"
    asked = {"principal": "User:bob", "limit": "1"}
    ids: list[int] = []
    after = 0
    while True:
        found = httpx.get(url, params={**asked, "after": str(after)}, auth=("admin", PASSWORD))
        page = found.json()
        ids += [one["id"] for one in page["sessions"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert len(ids) >= 3
    assert ids == sorted(set(ids))


def test_an_end_is_in_the_audit_log(
    session: Penstock, opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    opened("alice")
    with caplog.at_level("INFO", "penstock.audit"):
        session("end", "--principal", "User:alice")
    lines = [json.loads(one.getMessage()) for one in caplog.records if "END_SESS" in one.message]
    (line,) = lines
    assert (line["principal"], line["resource"]) == ("User:admin", "User:alice")
    assert (line["event"], line["operation"], line["listener"]) == ("allowed", "ALTER", "ADMIN")


def test_a_client_that_has_not_logged_in_is_no_session(session: Penstock, broker: Broker) -> None:
    (address,) = parse_addresses(broker.bootstrap_server)
    with socket.create_connection(address):
        assert "User:ANONYMOUS" not in {one["principal"] for one in listed(session)}


def test_a_handshake_of_tls_is_no_session(tmp_path: Path) -> None:
    authority = issue("authority")
    server = issue("server", authority, hosts=("127.0.0.1",))
    ca = write(tmp_path / "ca.pem", authority.certificate_pem)
    chain = write(tmp_path / "server.pem", server.certificate_pem)
    key = write(tmp_path / "server.key", server.key_pem())
    text = f"""
        [node]
        storage = "memory"
        [admin]
        port = 0
        [[listeners]]
        name = "SECURED"
        port = 0
        protocol = "SSL"
        tls = {{ certificate = "{chain}", key = "{key}" }}
    """
    with Broker(load_settings(text, {}, {}).settings) as broker:
        url = f"http://127.0.0.1:{broker.admin_port}/api/v1/sessions"
        (address,) = parse_addresses(broker.bootstrap_server)
        with socket.create_connection(address) as silent:
            silent.sendall(b"\x16\x03\x01")
            while broker.metrics()["connections"] < 1:
                pass
            assert httpx.get(url).json()["sessions"] == []
            context = ssl.create_default_context(cafile=ca)
            with (
                socket.create_connection(address) as plain,
                context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
            ):
                secured.sendall(b"\0")
                while not (found := httpx.get(url).json()["sessions"]):
                    pass
                assert [one["listener"] for one in found] == ["SECURED"]


def test_a_session_in_its_renewal_is_listed_and_ended(session: Penstock, broker: Broker) -> None:
    (address,) = parse_addresses(broker.bootstrap_server)
    handshake = SaslHandshakeRequest(mechanism="PLAIN")
    token = SaslAuthenticateRequest(auth_bytes=f"\0viewer\0{PASSWORD}".encode())
    with Asker(address.port) as asker:
        assert not asker.ask(handshake, 1, SaslHandshakeResponse).error_code
        assert not asker.ask(token, 2, SaslAuthenticateResponse).error_code
        assert not asker.ask(handshake, 1, SaslHandshakeResponse).error_code
        assert len(listed(session, "--principal", "User:viewer")) == 1
        assert session("end", "--principal", "User:viewer").output == "1 session ended\n"
        assert asker.is_closed()


def test_a_long_client_id_is_kept_in_part(session: Penstock, opened: Open) -> None:
    opened("bob", "x" * 10_000)
    found = [one["client_id"] for one in listed(session, "--principal", "User:bob")]
    assert "x" * 249 in found


def test_a_session_that_has_ended_does_not_keep_the_others(session: Penstock, opened: Open) -> None:
    client = opened("viewer")
    (one,) = listed(session, "--principal", "User:viewer")
    done = session("end", "999999", str(one["id"]), "999998")
    assert done.code == 1
    assert done.output == "1 session ended\n"
    assert "There is no session 999999." in done.errors
    assert "There is no session 999998." in done.errors
    assert not is_connected(client)


def test_wrong_usage(session: Penstock) -> None:
    for words in (("end",), ("end", "1", "--principal", "User:a")):
        found = session(*words)
        assert found.code == 2
        assert "Name sessions by ID, or a --principal." in found.errors
    assert session("end", "0").code == 2
    bad = session("list", "--principal", "alice")
    assert bad.code == 1
    assert "'alice' is not a principal" in bad.errors
