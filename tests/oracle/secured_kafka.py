"""Apache Kafka with TLS and SASL: one process, four listeners, known users and certificates.

Guarantees: `secured_kafka(folder)` starts a fresh one-node cluster below `folder` with the
listeners PLAINTEXT, SSL (a client certificate is required), SASL_PLAINTEXT and SASL_SSL, each on a
free port of 127.0.0.1. Both SASL listeners accept every mechanism of `MECHANISMS`:

- PLAIN: `USER` and `HARD_USER`, from the JAAS settings of the listener.
- SCRAM: the same two, each mechanism with a password of its own, written when the storage is
  formatted. `add_scram_user` adds more.
- OAUTHBEARER: tokens of `tokens`, a `TokenServer` that lives as long as the broker. Kafka's own
  validator checks signature, issuer, audience and expiry.

PLAINTEXT is for the harness and for the broker itself. With `authorizer=True` its principal,
`User:ANONYMOUS`, is a super user, so that topics and ACLs can be created there.

It is NOT a test of Penstock, and it uses nothing of it.
"""

import contextlib
import dataclasses
import functools
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.oracle.cache import built, content_key, progress
from tests.oracle.certificates import CertificateAuthority, Identity
from tests.oracle.kafka_broker import (
    _CLUSTER_ID,
    NODE_ID,
    _properties,
    _write_properties,
    make_class_data_archive,
)
from tests.oracle.kafka_jars import KAFKA_VERSION, QUICK_JVM, java_command, run_kafka_tool
from tests.oracle.running_broker import HOST, Recipe, RunningBroker, free_port
from tests.oracle.scram_users import ITERATIONS, add_scram_user, remove_scram_user
from tests.oracle.token_server import AUDIENCE, ISSUER, TokenServer

PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"
PROTOCOLS: Final = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)
SASL_PROTOCOLS: Final = (SASL_PLAINTEXT, SASL_SSL)

PLAIN: Final = "PLAIN"
SCRAM_256: Final = "SCRAM-SHA-256"
SCRAM_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"
PASSWORD_MECHANISMS: Final = (PLAIN, SCRAM_256, SCRAM_512)
MECHANISMS: Final = (*PASSWORD_MECHANISMS, OAUTHBEARER)

USER: Final = "alice"
HARD_USER: Final = "ops=team+1@example.org"
"""With signs that SCRAM, URLs and settings files escape. Kafka's SCRAM takes ASCII names only."""

PASSWORDS: Final[Mapping[str, Mapping[str, str]]] = {
    PLAIN: {USER: "alice-plain", HARD_USER: 'pläin "quoted" \\ = #'},
    SCRAM_256: {USER: "alice-scram-256", HARD_USER: "grün=256"},
    SCRAM_512: {USER: "alice-scram-512", HARD_USER: "grün=512"},
}
"""By mechanism, then by user. No password fits two mechanisms: a mix-up is a failure."""

REMOVED_USER: Final = "leaver"
REMOVED_PASSWORD: Final = "leaver-password"

CLIENT_SUBJECT: Final = "CN=alice,OU=clients,O=Penstock"
_LOGIN_MODULES: Final = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    SCRAM_256: "org.apache.kafka.common.security.scram.ScramLoginModule",
    SCRAM_512: "org.apache.kafka.common.security.scram.ScramLoginModule",
    OAUTHBEARER: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_UTF_8: Final = {"LC_ALL": "C.UTF-8"}
"""Java reads its arguments by the locale."""

_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
_OAUTH_PROPERTY: Final = "org.apache.kafka.sasl.oauthbearer"


@dataclasses.dataclass(frozen=True)
class SecuredKafka:
    """The running broker, and everything that a client needs to connect."""

    broker: RunningBroker
    ports: Mapping[str, int]
    """By protocol."""
    authority: CertificateAuthority
    """Signs more certificates; the broker trusts all of them on its listener SSL."""
    server: Identity
    client: Identity
    """The client certificate with the subject `CLIENT_SUBJECT`."""
    tokens: TokenServer

    def bootstrap(self, protocol: str) -> str:
        """The address of the listener of this protocol."""
        return f"{HOST}:{self.ports[protocol]}"

    @property
    def ca(self) -> Path:
        """PEM: the authority that signed the broker's certificate."""
        return self.authority.certificate

    def password(self, mechanism: str, user: str = USER) -> str:
        """The right password of this user with this mechanism."""
        return PASSWORDS[mechanism][user]

    def add_scram_user(
        self, name: str, password: str, *, mechanism: str = SCRAM_256, iterations: int = ITERATIONS
    ) -> None:
        """Add or change a SCRAM credential."""
        address = self.bootstrap(PLAINTEXT)
        add_scram_user(address, name, password, mechanism=mechanism, iterations=iterations)

    def removed_user(self, mechanism: str) -> tuple[str, str]:
        """A user without a credential any more, and its password.

        Kafka reads the users of PLAIN when it starts; there it is a user that never was.
        """
        if mechanism != PLAIN:
            self.add_scram_user(REMOVED_USER, REMOVED_PASSWORD, mechanism=mechanism)
            remove_scram_user(self.bootstrap(PLAINTEXT), REMOVED_USER, mechanism=mechanism)
        return REMOVED_USER, REMOVED_PASSWORD


@contextlib.contextmanager
def secured_kafka(
    folder: Path,
    *,
    authority: CertificateAuthority | None = None,
    server: Identity | None = None,
    mechanisms: Sequence[str] = MECHANISMS,
    reauthentication_ms: Mapping[str, int] | None = None,
    authorizer: bool = False,
    super_users: Sequence[str] = (),
    allow_everyone_if_no_acl_found: bool = True,
    properties: Mapping[str, str] | None = None,
    java_options: Sequence[str] = QUICK_JVM,
    log_level: str = "warn",
) -> Iterator[SecuredKafka]:
    """Start the broker and its token server below `folder`, and stop both at the end.

    `mechanisms` are those that both listeners with SASL offer. `reauthentication_ms` sets
    `connections.max.reauth.ms` by listener (`SASL_SSL`) or by listener and mechanism
    (`SASL_SSL.PLAIN`). `super_users` are principals such as `User:alice`. `server` replaces the
    certificate of the broker. `properties` are added last and win.
    """
    make_class_data_archive()
    folder.mkdir(parents=True, exist_ok=True)
    if authority is None:
        authority = CertificateAuthority(folder / "certificates")
    server = server or authority.server()
    data_dir = folder / "data"
    if not data_dir.exists():
        shutil.copytree(_formatted_storage(), data_dir)
    ports = _free_ports(len(PROTOCOLS) + 1)
    controller_port = ports.pop()
    port_of = dict(zip(PROTOCOLS, ports, strict=True))
    with TokenServer() as tokens:
        key_set = folder / "jwks.json"
        key_set.write_text(tokens.jwks())
        chosen = {
            **_listener_properties(port_of, controller_port),
            **_tls_properties(authority, server),
            **_sasl_properties(key_set),
            "sasl.enabled.mechanisms": ",".join(mechanisms),
            **_reauthentication_properties(reauthentication_ms or {}),
            **(
                _authorizer_properties(super_users, allow_everyone_if_no_acl_found)
                if authorizer
                else {}
            ),
            **(properties or {}),
        }
        settings = folder / "server.properties"
        written = _properties(data_dir, port_of[PLAINTEXT], controller_port, chosen)
        _write_properties(settings, {name: _escaped(value) for name, value in written.items()})
        options = [*java_options, *_allowed_key_set(key_set)]
        command = java_command("kafka.Kafka", [settings], options=options, log_level=log_level)
        recipe = Recipe("kafka", command, {}, data_dir)
        with RunningBroker(recipe, folder=folder, port=port_of[PLAINTEXT]) as broker:
            yield SecuredKafka(
                broker=broker,
                ports=port_of,
                authority=authority,
                server=server,
                client=authority.client(CLIENT_SUBJECT),
                tokens=tokens,
            )


def _free_ports(count: int) -> list[int]:
    """Different ports: each of them is free until the broker takes it."""
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port())
    return list(ports)


@functools.cache
def _formatted_storage() -> Path:
    """The storage with the SCRAM users, formatted once for these users and passwords."""
    credentials = [
        f"{mechanism}=[name={user},password={password}]"
        for mechanism in (SCRAM_256, SCRAM_512)
        for user, password in PASSWORDS[mechanism].items()
    ]

    def build(folder: Path) -> None:
        progress("formatting a storage folder with SCRAM users for Apache Kafka")
        settings = folder / "server.properties"
        _write_properties(settings, _properties(folder / "data", 1, 2, {}))
        users = [word for one in credentials for word in ("--add-scram", one)]
        arguments: list[str | Path] = ["format", "-t", _CLUSTER_ID, "-c", settings, *users]
        run_kafka_tool("kafka.tools.StorageTool", arguments, environment=_UTF_8)

    key = content_key(_CLUSTER_ID, str(NODE_ID), *credentials)
    return built(f"kafka-{KAFKA_VERSION}/formatted-{key}", build) / "data"


def _listener_properties(port_of: Mapping[str, int], controller_port: int) -> dict[str, str]:
    listeners = [f"{protocol}://{HOST}:{port}" for protocol, port in port_of.items()]
    return {
        "listeners": ",".join([*listeners, f"CONTROLLER://{HOST}:{controller_port}"]),
        "listener.security.protocol.map": ",".join(
            [*(f"{protocol}:{protocol}" for protocol in PROTOCOLS), "CONTROLLER:PLAINTEXT"]
        ),
        "inter.broker.listener.name": PLAINTEXT,
    }


def _tls_properties(authority: CertificateAuthority, server: Identity) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server.combined),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.sasl_ssl.ssl.client.auth": "none",
    }


def _sasl_properties(key_set: Path) -> dict[str, str]:
    users = [
        f"{_quoted(f'user_{user}')}={_quoted(password)}"
        for user, password in PASSWORDS[PLAIN].items()
    ]
    properties: dict[str, str] = {}
    for protocol in SASL_PROTOCOLS:
        for mechanism, module in _LOGIN_MODULES.items():
            prefix = f"listener.name.{protocol.lower()}.{mechanism.lower()}."
            words = [module, "required", *(users if mechanism == PLAIN else [])]
            properties[prefix + "sasl.jaas.config"] = " ".join(words) + ";"
        prefix = f"listener.name.{protocol.lower()}.{OAUTHBEARER.lower()}."
        properties[prefix + "sasl.server.callback.handler.class"] = (
            f"{_OAUTH}.OAuthBearerValidatorCallbackHandler"
        )
        properties[prefix + "sasl.oauthbearer.jwks.endpoint.url"] = key_set.as_uri()
        properties[prefix + "sasl.oauthbearer.expected.audience"] = AUDIENCE
        properties[prefix + "sasl.oauthbearer.expected.issuer"] = ISSUER
    return properties


def _allowed_key_set(key_set: Path) -> list[str]:
    """Kafka reads a key set only from the URLs and files that these system properties allow."""
    return [
        f"-D{_OAUTH_PROPERTY}.allowed.urls={key_set.as_uri()}",
        f"-D{_OAUTH_PROPERTY}.allowed.files={key_set}",
    ]


def _reauthentication_properties(chosen: Mapping[str, int]) -> dict[str, str]:
    return {
        f"listener.name.{place.lower()}.connections.max.reauth.ms": str(milliseconds)
        for place, milliseconds in chosen.items()
    }


def _authorizer_properties(super_users: Sequence[str], allow_everyone: bool) -> dict[str, str]:
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": ";".join(["User:ANONYMOUS", *super_users]),
        "allow.everyone.if.no.acl.found": str(allow_everyone).lower(),
    }


def _quoted(text: str) -> str:
    """A text between quotes, as the parser of JAAS settings reads it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _escaped(value: str) -> str:
    """A value of a properties file: Java reads it as Latin-1 with escapes of UTF-16 units."""
    units = value.replace("\\", "\\\\").encode("utf-16-be")
    numbers = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(one) if one < 128 else f"\\u{one:04x}" for one in numbers)
