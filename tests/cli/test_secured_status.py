"""`penstock status` on admin ports with TLS and identities: real ports, and scripted ones."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from penstock.cli import admin_port as module
from penstock.core.settings.config import BrokerConfig, load_settings
from penstock.security.sasl.password_file import format_users, hash_password
from penstock.security.secret import Secret
from penstock.testing import Broker
from tests.cli.conftest import Outcome, Penstock
from tests.cli.test_status import STATUS
from tests.oracle.certificates import PASSWORD, CertificateAuthority

USERS = ("admin", "bob")
USER_PASSWORD = "correct horse battery"


class Ports:
    """Files of one authority, and brokers whose admin port uses them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = CertificateAuthority(folder / "authority")
        self.server = self.authority.server()
        self.users = folder / "users.txt"
        stored = hash_password(Secret(USER_PASSWORD), b"salt of 16 bytes")
        self.users.write_text(format_users(dict.fromkeys(USERS, stored)))
        self.users.chmod(0o600)

    @contextmanager
    def broker(self, auth: str) -> Iterator[str]:
        text = f"""
            [node]
            storage = "memory"
            [listener]
            port = 0
            [admin]
            port = 0
            auth = "{auth}"
            certificate = "{self.server.chain}"
            key = "{self.server.key}"
            client_ca = "{self.authority.certificate}"
            [security]
            authorizer = "acl"
            super_users = "User:admin;User:CN=admin"
            plain_verifier = "file"
            users_file = "{self.users}"
        """
        settings = load_settings(text, {}, {}).settings
        with Broker(BrokerConfig(settings=settings)) as broker:
            yield f"https://127.0.0.1:{broker.admin_port}"

    def properties(self, **settings: str) -> str:
        """A file of client settings, with the authority."""
        path = self.folder / "client.properties"
        given = {"security.protocol": "SSL", "ssl.ca.location": str(self.authority.certificate)}
        given |= {name.replace("_", "."): value for name, value in settings.items()}
        path.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        return str(path)

    def password(self, user: str, password: str = USER_PASSWORD, **more: str) -> str:
        return self.properties(
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username=user,
            sasl_password=password,
            **more,
        )

    def certificate(self, subject: str) -> str:
        client = self.authority.client(subject)
        return self.properties(
            ssl_keystore_location=str(client.keystore), ssl_keystore_password=PASSWORD
        )


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Ports:
    return Ports(tmp_path_factory.mktemp("ports"))


@pytest.fixture(scope="module")
def basic(ports: Ports) -> Iterator[str]:
    with ports.broker("basic") as url:
        yield url


@pytest.fixture(scope="module")
def mtls(ports: Ports) -> Iterator[str]:
    with ports.broker("mtls") as url:
        yield url


# --- Real ports ---


def test_the_file_of_the_other_commands_opens_the_port(
    penstock: Penstock, ports: Ports, basic: str
) -> None:
    found = penstock("status", "--admin", basic, "--command-config", ports.password("admin"))
    assert (found.code, found.errors) == (0, "")
    assert found.output.startswith("Healthy")


def test_a_wrong_password(penstock: Penstock, ports: Ports, basic: str) -> None:
    file = ports.password("admin", "guessed")
    found = penstock("status", "--admin", basic, "--command-config", file)
    assert found.code == 1
    assert "refused the user 'admin' or the password (401)" in found.errors
    assert "hint: Check sasl.username and sasl.password." in found.errors
    assert "guessed" not in found.errors


def test_a_user_without_the_right(penstock: Penstock, ports: Ports, basic: str) -> None:
    found = penstock("status", "--admin", basic, "--command-config", ports.password("bob"))
    assert found.code == 1
    assert "User:bob may not describe the cluster. (403)" in found.errors
    assert "hint: Allow it: `penstock acl add --principal User:bob" in found.errors


def test_a_password_is_missing(penstock: Penstock, ports: Ports, basic: str) -> None:
    found = penstock("status", "--admin", basic, "--command-config", ports.properties())
    assert found.code == 1
    assert "asks for a user and a password (401)." in found.errors
    assert "sasl.username and sasl.password" in found.errors


def test_the_authority_is_missing(penstock: Penstock, basic: str) -> None:
    found = penstock("status", "--admin", basic)
    assert found.code == 1
    assert "is not trusted" in found.errors
    assert "ssl.truststore.location, in the file of --command-config." in found.errors


def test_http_at_a_port_with_tls(penstock: Penstock, basic: str) -> None:
    found = penstock("status", "--admin", basic.replace("https", "http"))
    assert found.code == 3
    assert f"hint: If the admin port has TLS (admin.certificate), use {basic}" in found.errors


def test_a_certificate_is_the_identity(penstock: Penstock, ports: Ports, mtls: str) -> None:
    found = penstock("status", "--admin", mtls, "--command-config", ports.certificate("CN=admin"))
    assert (found.code, found.errors) == (0, "")
    stranger = ports.certificate("CN=stranger")
    found = penstock("status", "--admin", mtls, "--command-config", stranger)
    assert found.code == 1
    assert "User:CN=stranger may not describe the cluster. (403)" in found.errors


def test_a_certificate_is_missing(penstock: Penstock, ports: Ports, mtls: str) -> None:
    found = penstock("status", "--admin", mtls, "--command-config", ports.properties())
    assert found.code in (1, 3)
    assert "ssl.certificate.location and ssl.key.location" in found.errors
    assert "ssl.keystore.location" in found.errors


# --- Scripted ports ---


class Script:
    """An admin port without TLS that asks for an identity, and a token endpoint beside it."""

    def __init__(self, challenge: str, good: str) -> None:
        self.challenge = challenge
        self.good = good
        self.headers: list[str | None] = []
        """`Authorization` of each request to the admin port."""
        self.redirect = ""

    @contextmanager
    def serve(self) -> Iterator[str]:
        script = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                self.answer(200, {"access_token": "a.good.token", "expires_in": 60})

            def do_GET(self) -> None:
                given = self.headers["authorization"]
                script.headers.append(given)
                if given == script.good:
                    self.answer(302 if script.redirect else 200, STATUS)
                else:
                    self.answer(401, {"detail": "no"})

            def answer(self, code: int, document: object) -> None:
                self.send_response(code)
                if code == 302:
                    self.send_header("Location", script.redirect)
                if code == 401 and script.challenge:
                    self.send_header("WWW-Authenticate", f'{script.challenge} realm="penstock"')
                self.end_headers()
                self.wfile.write(json.dumps(document).encode())

            def log_message(self, *words: object) -> None:
                """Nothing is logged."""

        with HTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_port}"
            finally:
                server.shutdown()
                thread.join()


def header_of(user: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{USER_PASSWORD}'.encode()).decode()}"


def test_a_password_is_sent_only_when_it_is_asked_for(penstock: Penstock, ports: Ports) -> None:
    script = Script("Basic", header_of("admin"))
    with script.serve() as url:
        found = penstock("status", "--admin", url, "--command-config", ports.password("admin"))
    assert found.code == 0
    assert script.headers == [None, header_of("admin")]


def test_a_token_of_the_identity_provider(penstock: Penstock, ports: Ports) -> None:
    script = Script("Bearer", "Bearer a.good.token")
    with script.serve() as url:
        file = ports.properties(
            security_protocol="SASL_SSL",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url=f"{url}/token",
            sasl_oauthbearer_client_id="ops",
            sasl_oauthbearer_client_secret="client secret",
        )
        assert penstock("status", "--admin", url, "--command-config", file).code == 0
        script.good = "another one"
        refused = penstock("status", "--admin", url, "--command-config", file)
        script.challenge = "Basic"
        other = penstock("status", "--admin", url, "--command-config", file)
    assert refused.code == 1
    assert "refused the token of 'ops' (401)" in refused.errors
    assert "asks for a user and a password (401), and the settings have OAUTHBEARER" in other.errors


def test_a_port_that_asks_for_a_token(penstock: Penstock, ports: Ports) -> None:
    script = Script("Bearer", "never")
    with script.serve() as url:
        found = penstock("status", "--admin", url, "--command-config", ports.password("admin"))
    assert script.headers == [None]
    assert "asks for a token (401), and the settings have SCRAM-SHA-512." in found.errors
    assert "sasl.mechanism=OAUTHBEARER" in found.errors


def test_a_port_that_asks_for_a_certificate(penstock: Penstock) -> None:
    with Script("", "never").serve() as url:
        found = penstock("status", "--admin", url)
    assert "asks for a client certificate that it trusts (401)." in found.errors
    assert "ssl.certificate.location" in found.errors


@pytest.mark.parametrize("challenge", ["Basic", "Bearer"])
def test_secrets_do_not_cross_a_network_without_tls(
    penstock: Penstock, ports: Ports, monkeypatch: pytest.MonkeyPatch, challenge: str
) -> None:
    monkeypatch.setattr(module.AdminPort, "_is_local", lambda _self: False)
    script = Script(challenge, header_of("admin"))
    with script.serve() as url:
        found = penstock("status", "--admin", url, "--command-config", ports.password("admin"))
    assert script.headers == [None]
    assert found.code == 1
    assert "is not sent to another machine without TLS" in found.errors
    assert url.replace("http", "https") in found.errors


def test_secrets_do_not_follow_a_redirect(penstock: Penstock, ports: Ports) -> None:
    script, other = Script("Basic", header_of("admin")), Script("Basic", header_of("admin"))
    with script.serve() as url, other.serve() as elsewhere:
        script.redirect = f"{elsewhere}/api/v1/status"
        found = penstock("status", "--admin", url, "--command-config", ports.password("admin"))
    assert found.code == 1
    assert "answers 302" in found.errors
    assert other.headers == []


def test_a_user_with_a_colon(penstock: Penstock, ports: Ports) -> None:
    with Script("Basic", "never").serve() as url:
        found = penstock("status", "--admin", url, "--command-config", ports.password("a:b"))
    assert "the user 'a:b' has a colon" in found.errors


def test_a_password_in_the_url_is_refused_and_not_shown(penstock: Penstock) -> None:
    found: Outcome = penstock("status", "--admin", "https://admin:s3cret@127.0.0.1:1")
    assert found.code == 2
    assert "--command-config" in found.errors
    assert "s3cret" not in found.errors


def test_https_at_a_port_without_tls(penstock: Penstock) -> None:
    with Script("", "").serve() as url:
        found = penstock("status", "--admin", url.replace("http", "https"))
    assert found.code == 1
    assert "does not answer in TLS" in found.errors
    assert f"use {url}" in found.errors
