"""Apache Kafka and Penstock with TLS and SASL, for the comparison of their costs.

Each has the listeners PLAINTEXT, SSL (with client certificates), SASL_PLAINTEXT and SASL_SSL, the
same certificates of ECDSA P-256, and one SCRAM user with the same number of iterations. A third
broker is Penstock with an authorizer and rules for a hundred other users. It measures nothing.
"""

import base64
import contextlib
import dataclasses
import hashlib
import hmac
import os
import secrets
import socket
import ssl
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from penstock.protocol.connection import ClientConnection
from penstock.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.oracle.kafka_jars import SERVER_JVM
from tests.oracle.running_broker import HOST, Recipe, RunningBroker, free_port
from tests.oracle.secured_kafka import (
    PLAINTEXT,
    SASL_PLAINTEXT,
    SASL_SSL,
    SCRAM_256,
    SSL,
    USER,
    SecuredKafka,
    secured_kafka,
)

ADMIN_SECONDS = 60
ITERATIONS = 4_096
OTHER_USERS = 100


@dataclasses.dataclass
class Secured:
    """One running broker."""

    name: str
    pid: int
    ports: dict[str, int]
    context: ssl.SSLContext
    files: Mapping[str, str]
    """The authority, the client's certificate and its key, by the raw client's options."""
    password: str
    salted: dict[bytes, bytes] = dataclasses.field(default_factory=dict)
    """Salted passwords by salt: a login measures the broker, not the client's derivation."""
    made: int = 0
    _admin: AdminClient | None = None

    def address(self, *, has_tls: bool) -> tuple[str, int]:
        """The listener with TLS, or the one without."""
        return HOST, self.ports[SSL if has_tls else PLAINTEXT]

    def raw_options(self, *, has_tls: bool) -> dict[str, str]:
        """Return the options of the raw client for a listener."""
        host, port = self.address(has_tls=has_tls)
        return {"address": f"{host}:{port}", **(self.files if has_tls else {})}

    def admin(self) -> AdminClient:
        """A client for the listener without TLS; calls end with it, so it is kept."""
        if self._admin is None:
            bootstrap = f"{HOST}:{self.ports[PLAINTEXT]}"
            self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        return self._admin

    def create_topic(self) -> str:
        """Create a topic with one partition."""
        self.made += 1
        name = f"security-{self.made}"
        for done in self.admin().create_topics([NewTopic(name, 1, 1)]).values():
            done.result(ADMIN_SECONDS)
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        for done in self.admin().delete_topics([name]).values():
            done.result(ADMIN_SECONDS)

    def log_in(self) -> None:
        """Log in with SCRAM-SHA-256 on a new connection."""
        with socket.create_connection((HOST, self.ports[SASL_PLAINTEXT]), timeout=30) as line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire = _LoginWire(line)
            wire.ask(SaslHandshakeRequest(mechanism=SCRAM_256), 1)
            nonce = secrets.token_urlsafe(18)
            bare = f"n={USER},r={nonce}"
            server_first = wire.authenticate(f"n,,{bare}".encode()).decode()
            fields = dict(part.split("=", 1) for part in server_first.split(","))
            salted = self._salted(base64.b64decode(fields["s"]), int(fields["i"]))
            without_proof = f"c=biws,r={fields['r']}"
            signed = f"{bare},{server_first},{without_proof}".encode()
            key = hmac.digest(salted, b"Client Key", "sha256")
            signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
            proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
            wire.authenticate(f"{without_proof},p={base64.b64encode(proof).decode()}".encode())

    def _salted(self, salt: bytes, iterations: int) -> bytes:
        if salt not in self.salted:
            password = self.password.encode()
            self.salted[salt] = hashlib.pbkdf2_hmac("sha256", password, salt, iterations)
        return self.salted[salt]


class _LoginWire:
    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._client = ClientConnection("benchmark")

    def ask(self, request: object, version: int) -> object:
        _, parts = self._client.send_request(request, version)  # type: ignore[arg-type]
        self._line.sendall(b"".join(parts))
        while (response := self._client.next_response()) is None:
            self._client.receive_data(self._line.recv(65_536))
        return response.message

    def authenticate(self, token: bytes) -> bytes:
        answer = self.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert isinstance(answer, SaslAuthenticateResponse)
        assert not answer.error_code, answer.error_message
        return bytes(answer.auth_bytes)


@contextlib.contextmanager
def secured_brokers(folder: Path) -> Iterator[dict[str, Secured]]:
    """Start the three brokers; the names are `kafka`, `penstock` and `rules`."""
    with contextlib.ExitStack() as stack:
        kafka = stack.enter_context(
            secured_kafka(folder / "kafka", java_options=SERVER_JVM, log_level="warn")
        )
        context = ssl.create_default_context(cafile=str(kafka.ca))
        context.load_cert_chain(kafka.client.chain, kafka.client.key)
        files = {
            "ca": str(kafka.ca),
            "certificate": str(kafka.client.chain),
            "key": str(kafka.client.key),
        }
        password = kafka.password(SCRAM_256)
        found = {
            "kafka": Secured("kafka", kafka.broker.pid, dict(kafka.ports), context, files, password)
        }
        for name in ("penstock", "rules"):
            process, ports = _penstock(folder / name, kafka, has_rules=name == "rules")
            stack.enter_context(process)
            found[name] = Secured(name, process.pid, ports, context, files, password)
            _add_user(found[name])
        _add_rules(found["rules"])
        yield found


def _penstock(
    folder: Path, kafka: SecuredKafka, *, has_rules: bool
) -> tuple[RunningBroker, dict[str, int]]:
    """Return a broker that is not started, and its ports."""
    folder.mkdir(parents=True)
    ports = {name: free_port() for name in (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)}
    files = f'certificate = "{kafka.server.chain}", key = "{kafka.server.key}"'
    mutual = f'client_ca = "{kafka.ca}", client_auth = "required"'
    extra = {
        PLAINTEXT: "",
        SSL: f"tls = {{ {files}, {mutual} }}",
        SASL_PLAINTEXT: f'mechanisms = ["{SCRAM_256}"]',
        SASL_SSL: f'mechanisms = ["{SCRAM_256}"]\ntls = {{ {files} }}',
    }
    listeners = "".join(
        f'[[listeners]]\nname = "{name}"\nport = {ports[name]}\nprotocol = "{name}"\n{text}\n'
        for name, text in extra.items()
    )
    security = '[security]\nauthorizer = "acl"\nsuper_users = "User:root"\n' if has_rules else ""
    if has_rules:
        security += f'acl_file = "{_open_rules(folder)}"\n'
    settings = folder / "penstock.toml"
    settings.write_text(
        f'[node]\ndata_dir = "{folder / "data"}"\n[flush]\nmode = "os"\n'
        f"[admin]\nenabled = false\n{security}{listeners}"
    )
    python = os.environ.get("PENSTOCK_BROKER_PYTHON") or sys.executable
    command = [python, "-m", "penstock", "serve", "--config", str(settings)]
    recipe = Recipe("penstock", command, {"PYTHONPATH": ""}, folder / "data")
    return RunningBroker(recipe, folder=folder, port=ports[PLAINTEXT]), ports


def _open_rules(folder: Path) -> Path:
    """Return a file of rules that allow everything to clients without a login."""
    path = folder / "rules.json"
    kinds = ("Topic:*", "Group:*", "Cluster:kafka-cluster")
    rules = ",".join(
        f'{{"principal": "User:ANONYMOUS", "operation": "All", "resource": "{kind}"}}'
        for kind in kinds
    )
    path.write_text(f'{{"rules": [{rules}]}}')
    return path


def _add_user(broker: Secured) -> None:
    """Create the SCRAM user with Kafka's number of iterations."""
    from confluent_kafka.admin._scram import (
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, ITERATIONS)
    change = UserScramCredentialUpsertion(USER, info, broker.password.encode())
    for done in broker.admin().alter_user_scram_credentials([change]).values():
        done.result(ADMIN_SECONDS)


def _add_rules(broker: Secured) -> None:
    """Create rules of other users, so that the authorizer has something to search."""
    rules = [
        AclBinding(
            ResourceType.TOPIC,
            f"team-{number}-",
            ResourcePatternType.PREFIXED,
            f"User:other-{number}",
            "*",
            AclOperation.WRITE,
            AclPermissionType.ALLOW,
        )
        for number in range(OTHER_USERS)
    ]
    for done in broker.admin().create_acls(rules).values():
        done.result(ADMIN_SECONDS)
