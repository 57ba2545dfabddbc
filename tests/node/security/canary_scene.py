"""A broker with TLS and every kind of login, whose passwords, tokens and keys are canaries.

Guarantees: the broker is a process of its own, at log level debug and with asyncio's debug mode; it
has a TLS listener with all mechanisms and an encrypted key, a plain one, and an admin port with
TLS. Everything that the broker, commands and HTTP callers print or receive is in `outputs`.
"""

import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
from confluent_kafka import KafkaException, Producer
from cryptography.hazmat.primitives import serialization

from tests.node.security.canaries import Canaries
from tests.oracle.certificates import CertificateAuthority
from tests.oracle.penstock_broker import ROOT, _without_hypothesis
from tests.oracle.running_broker import HOST, Recipe, RunningBroker, free_port
from tests.oracle.token_server import AUDIENCE, ISSUER, TokenServer

PLAIN, SCRAM_256, SCRAM_512 = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"
OAUTHBEARER = "OAUTHBEARER"
ANSWER_SECONDS: Final = 15.0
COMMAND_SECONDS: Final = 60.0
ADMIN_READY: Final = "penstock.node.admin: admin port: "
_ADDRESSES: Final = (f"127.9.{a}.{b}" for a in range(256) for b in range(1, 255))


class CanaryScene:
    """The files, the broker and its clients."""

    def __init__(self, folder: Path, tokens: TokenServer, authority: CertificateAuthority) -> None:
        self.folder = folder
        self.tokens = tokens
        self.authority = authority
        self.server = authority.server()
        self.canaries = Canaries()
        self.outputs: list[tuple[str, str]] = []
        """Everything that was printed or answered, with its origin."""
        self.ports = {name: free_port() for name in ("CLIENTS", "OPEN", "ADMIN")}
        self.passwords = {name: self.canaries.new(name) for name in ("alice", "admin", "scram")}
        self.wrong = self.canaries.new("wrong")
        self.control = Canaries()
        """Not secrets: texts that must be found."""
        self.control_user = self.control.new("user")
        self.key_password = self.canaries.new("key-password")
        self.canaries.add("client-secret", tokens.client_secret)
        self._write_key()
        self._write("admin.password", self.passwords["admin"])
        self._write("bootstrap.txt", f"admin:{self.passwords['admin']}\n")
        self.broker = self._broker()

    # --- Files ---

    def path(self, name: str) -> Path:
        return self.folder / name

    def _write(self, name: str, text: str) -> Path:
        path = self.path(name)
        path.write_text(text)
        path.chmod(0o600)
        return path

    def _write_key(self) -> None:
        """Encrypt the key of the listener; each line of both forms is a secret."""
        plain = self.server.key.read_bytes()
        key = serialization.load_pem_private_key(plain, None)
        encrypted = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(self.key_password.encode()),
        )
        self._write("server.key", encrypted.decode())
        self._write("key.password", f"{self.key_password}\n")
        for kind, text in (("key", plain), ("encrypted-key", encrypted)):
            lines = [one for one in text.splitlines() if b"-----" not in one and len(one) >= 20]
            assert lines
            for number, line in enumerate(lines):
                self.canaries.add(f"{kind}-line-{number}", line)

    def settings(self, **changes: Mapping[str, object]) -> str:
        """The settings file; `changes` replace settings of a section."""
        tls = {
            "certificate": str(self.server.chain),
            "key": str(self.path("server.key")),
            "key_password_file": str(self.path("key.password")),
        }
        sections: dict[str, dict[str, object]] = {
            "node": {"data_dir": str(self.path("data")), "log_level": "debug", "uvloop": False},
            "security": {
                "authorizer": "acl",
                "super_users": "User:admin",
                "plain_verifier": "file",
                "users_file": str(self.path("users.txt")),
                "bootstrap_admin_file": str(self.path("bootstrap.txt")),
                "failed_login_delay_ms": 0,
            },
            "oidc": {"issuer": ISSUER, "audience": AUDIENCE, "jwks": str(self.path("jwks.json"))},
            "admin": {
                "port": self.ports["ADMIN"],
                "auth": "basic",
                "certificate": str(self.server.chain),
                "key": str(self.server.key),
            },
            "[listeners]": {
                "name": "CLIENTS",
                "port": self.ports["CLIENTS"],
                "protocol": "SASL_SSL",
                "mechanisms": [PLAIN, SCRAM_256, SCRAM_512, OAUTHBEARER],
            },
            "listeners.tls": {**tls},
        }
        lines = []
        for name, values in sections.items():
            lines.append(f"[{name}]")
            for key, value in {**values, **changes.get(name, {})}.items():
                lines.append(f"{key} = {json.dumps(value)}")
        lines.append('[[listeners]]\nname = "OPEN"\nprotocol = "PLAINTEXT"')
        lines.append(f"port = {self.ports['OPEN']}")
        return "\n".join(lines) + "\n"

    # --- Processes ---

    @property
    def environment(self) -> dict[str, str]:
        installed = os.environ.get("PENSTOCK_BROKER_PYTHON")
        parts = (str(_without_hypothesis(self.folder)), str(ROOT / "src"))
        inherited = os.environ.get("PYTHONPATH", "")
        path = os.pathsep.join(part for part in (*parts, inherited) if part)
        return {
            "PYTHONPATH": "" if installed else path,
            "PYTHONASYNCIODEBUG": "1",
            "PENSTOCK_ADMIN__ENABLED": "true",  # other tests run without an admin port
        }

    @property
    def python(self) -> str:
        return os.environ.get("PENSTOCK_BROKER_PYTHON") or sys.executable

    def _broker(self) -> RunningBroker:
        command = [
            self.python,
            "-m",
            "penstock",
            "serve",
            "--config",
            str(self.path("broker.toml")),
        ]
        recipe = Recipe("penstock", command, self.environment, self.path("data"))
        return RunningBroker(recipe, folder=self.folder, port=self.ports["OPEN"])

    def start(self, **changes: Mapping[str, object]) -> None:
        """Start the broker with these settings."""
        self._write("jwks.json", self.tokens.jwks())
        self._write("broker.toml", self.settings(**changes))
        begin = len(self.broker.log_text())
        self.broker.start()
        self.wait_until(lambda: ADMIN_READY in self.broker.log_text()[begin:])

    def wait_until(self, is_true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + COMMAND_SECONDS
        while not is_true():
            assert time.monotonic() < deadline, self.broker.log_text()
            time.sleep(0.01)

    def logins(self, principal: str) -> int:
        """How often this principal has logged in."""
        return self.broker.log_text().count(f'"event": "login", "principal": "{principal}"')

    def command(self, *words: str, typed: str = "", is_good: bool = True) -> str:
        """Run `penstock`; what it prints is kept."""
        done = subprocess.run(
            [self.python, "-m", "penstock", *words],
            input=typed,
            capture_output=True,
            text=True,
            env={**os.environ, **self.environment},
            cwd=self.folder,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        printed = done.stdout + done.stderr
        self.outputs.append((" ".join(words[:3]), printed))
        assert (done.returncode == 0) == is_good, printed
        return printed

    def begun(self, *words: str, **variables: str) -> "subprocess.Popen[bytes]":
        """Start `penstock` without ending it; it waits for its standard input."""
        return subprocess.Popen(
            [self.python, "-m", "penstock", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **self.environment, **variables},
            cwd=self.folder,
        )

    def see_process(self, pid: int) -> None:
        """Keep the arguments and the environment of a process of ours."""
        for name in ("cmdline", "environ"):
            text = Path(f"/proc/{pid}/{name}").read_text(errors="replace")
            assert text
            self.outputs.append((f"/proc/{pid}/{name}", text))

    def found_in_outputs(self) -> dict[str, set[str]]:
        """The secrets in everything that was printed or answered, by origin."""
        found = {origin: self.canaries.found_in(text) for origin, text in self.outputs}
        return {origin: secrets for origin, secrets in found.items() if secrets}

    # --- Clients ---

    def client_file(self, name: str, user: str, password: str, mechanism: str) -> str:
        """The settings of a client, as a file of properties."""
        lines = [
            f"bootstrap.servers=localhost:{self.ports['CLIENTS']}",
            "security.protocol=SASL_SSL",
            f"sasl.mechanism={mechanism}",
            f"ssl.ca.location={self.authority.certificate}",
        ]
        if mechanism == OAUTHBEARER:
            lines += [
                "sasl.oauthbearer.method=oidc",
                f"sasl.oauthbearer.token.endpoint.url={self.tokens.token_url}",
                f"sasl.oauthbearer.client.id={user}",
                f"sasl.oauthbearer.client.secret={password}",
            ]
        else:
            lines += [f"sasl.username={user}", f"sasl.password={password}"]
        return str(self._write(name, "\n".join(lines) + "\n"))

    def librdkafka(self, mechanism: str, user: str, password: str) -> dict[str, Any]:
        """The settings of a client; `password` is the token for OAUTHBEARER."""
        settings: dict[str, Any] = {
            "bootstrap.servers": f"localhost:{self.ports['CLIENTS']}",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "ssl.ca.location": str(self.authority.certificate),
            "log_level": 0,
        }
        if mechanism == OAUTHBEARER:
            settings["oauth_cb"] = lambda _: (password, 4e9)
        else:
            settings |= {"sasl.username": user, "sasl.password": password}
        return settings

    def logs_in(self, mechanism: str, user: str, password: str) -> bool:
        """Whether a client of librdkafka gets an answer."""
        errors: list[str] = []
        settings = self.librdkafka(mechanism, user, password)
        client = Producer({**settings, "error_cb": lambda error: errors.append(str(error))})
        try:
            client.list_topics(timeout=ANSWER_SECONDS)
        except KafkaException:
            return False
        finally:
            client.poll(0)
            self.outputs.append((f"librdkafka {mechanism}", "\n".join(errors)))
        return True

    def raw_socket(self, listener: str, *, has_tls: bool) -> socket.socket:
        """A connection without a protocol above it."""
        # Another address each time: failures of one address delay its next answers.
        source = (next(_ADDRESSES), 0)
        target = (HOST, self.ports[listener])
        opened = socket.create_connection(target, ANSWER_SECONDS, source_address=source)
        if not has_tls:
            return opened
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        return context.wrap_socket(opened, server_hostname=HOST)

    def get(
        self, path: str, authorization: str | None = None, auth: tuple[str, str] | None = None
    ) -> httpx.Response:
        """Ask the admin port; the answer is kept."""
        trusted = ssl.create_default_context(cafile=str(self.authority.certificate))
        headers = {} if authorization is None else {"Authorization": authorization}
        url = f"https://{HOST}:{self.ports['ADMIN']}{path}"
        answer = httpx.get(url, headers=headers, auth=auth, verify=trusted, timeout=ANSWER_SECONDS)
        self.outputs.append((f"GET {path}", f"{answer.headers}\n{answer.text}"))
        return answer
