"""Penstock with TLS and SASL: the listeners, users, passwords and certificates of `secured_kafka`.

Guarantees: `secured_penstock(folder)` starts a fresh broker below `folder`, by `penstock serve
--config FILE`, with one listener for each protocol of `PROTOCOLS` on a free port of 127.0.0.1; SSL
requires a client certificate. A listener with SASL accepts every mechanism of `MECHANISMS` with the
credentials of `secured_kafka`: passwords of PLAIN from a users file, SCRAM users with 4096
iterations as in Kafka, tokens of `tokens`. The interface is that of `SecuredKafka`, so that a test
runs on both.

PLAINTEXT is for the harness. With `authorizer=True` its principal, `User:ANONYMOUS`, is a super
user, so that topics and ACLs can be created there.
"""

import contextlib
import dataclasses
import json
import os
import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from penstock.security.sasl.password_file import SALT_BYTES, format_users, hash_password
from penstock.security.secret import Secret
from tests.oracle.certificates import CertificateAuthority, Identity
from tests.oracle.penstock_broker import ROOT, _without_hypothesis
from tests.oracle.running_broker import HOST, Recipe, RunningBroker
from tests.oracle.scram_users import (
    CHANGE_SECONDS,
    ITERATIONS,
    add_scram_user,
    remove_scram_user,
)
from tests.oracle.secured_kafka import (
    CLIENT_SUBJECT,
    MECHANISMS,
    PASSWORDS,
    PLAIN,
    PLAINTEXT,
    PROTOCOLS,
    REMOVED_PASSWORD,
    REMOVED_USER,
    SASL_PROTOCOLS,
    SASL_SSL,
    SCRAM_256,
    SCRAM_512,
    SSL,
    USER,
    SecuredKafka,
    _free_ports,
)
from tests.oracle.token_server import AUDIENCE, ISSUER, TokenServer

_CLIENT_AUTH: Final = {SSL: "required", SASL_SSL: "none"}


@dataclasses.dataclass(frozen=True)
class SecuredPenstock:
    """The running broker, and everything that a client needs to connect."""

    broker: RunningBroker
    ports: Mapping[str, int]
    """By protocol."""
    authority: CertificateAuthority
    server: Identity
    client: Identity
    """The client certificate with the subject `CLIENT_SUBJECT`."""
    tokens: TokenServer
    users_file: Path
    """The passwords of PLAIN."""

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
        """A user without a credential any more, and its password."""
        if mechanism == PLAIN:
            _write_users(self.users_file, PASSWORDS[PLAIN])
            self._wait_for_users(len(PASSWORDS[PLAIN]))
        else:
            self.add_scram_user(REMOVED_USER, REMOVED_PASSWORD, mechanism=mechanism)
            remove_scram_user(self.bootstrap(PLAINTEXT), REMOVED_USER, mechanism=mechanism)
        return REMOVED_USER, REMOVED_PASSWORD

    def _wait_for_users(self, count: int) -> None:
        """Wait until the broker has read the users file."""
        deadline = time.monotonic() + CHANGE_SECONDS
        while f"users file: {count} users" not in self.broker.log_text():
            assert time.monotonic() < deadline, self.broker.log_text()[-2000:]
            time.sleep(0.05)


SecuredBroker = SecuredKafka | SecuredPenstock


@contextlib.contextmanager
def secured_penstock(
    folder: Path,
    *,
    authority: CertificateAuthority | None = None,
    server: Identity | None = None,
    mechanisms: Sequence[str] = MECHANISMS,
    reauthentication_ms: Mapping[str, int] | None = None,
    authorizer: bool = False,
    super_users: Sequence[str] = (),
    allow_everyone_if_no_acl_found: bool = True,
    security: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[SecuredPenstock]:
    """Start the broker and a token server below `folder`, and stop both at the end.

    `mechanisms` are those that both listeners with SASL offer. `reauthentication_ms` sets
    `reauthentication_ms_max` by listener (`SASL_PLAINTEXT`). `super_users` are principals such as
    `User:alice`. `security` has settings of `[security]` that are added last and win; `environment`
    has variables of the broker.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if authority is None:
        authority = CertificateAuthority(folder / "certificates")
    server = server or authority.server()
    ports = dict(zip(PROTOCOLS, _free_ports(len(PROTOCOLS)), strict=True))
    users_file = folder / "users.txt"
    _write_users(users_file, {**PASSWORDS[PLAIN], REMOVED_USER: REMOVED_PASSWORD})
    chosen: dict[str, object] = {"plain_verifier": "file", "users_file": str(users_file)}
    if authorizer:
        chosen["authorizer"] = "acl"
        chosen["super_users"] = ";".join(["User:ANONYMOUS", *super_users])
        chosen["allow_everyone_if_no_acl_found"] = allow_everyone_if_no_acl_found
    with TokenServer() as tokens:
        key_set = folder / "jwks.json"
        key_set.write_text(tokens.jwks())
        provider = {"issuer": ISSUER, "audience": AUDIENCE, "jwks": str(key_set)}
        lines = [
            *_table("[node]", {"data_dir": str(folder / "data")}),
            *_table("[admin]", {"enabled": False}),
            *_table("[security]", {**chosen, **(security or {})}),
            *_table("[oidc]", provider),
        ]
        for protocol, port in ports.items():
            session_ms = (reauthentication_ms or {}).get(protocol)
            lines += _listener(protocol, port, mechanisms, session_ms)
            if protocol in _CLIENT_AUTH:
                lines += _table("[listeners.tls]", _tls_files(protocol, authority, server))
        settings = folder / "penstock.toml"
        settings.write_text("\n".join(lines) + "\n")
        with _running(folder, settings, ports[PLAINTEXT], environment or {}) as broker:
            running = SecuredPenstock(
                broker=broker,
                ports=ports,
                authority=authority,
                server=server,
                client=authority.client(CLIENT_SUBJECT),
                tokens=tokens,
                users_file=users_file,
            )
            for mechanism in (SCRAM_256, SCRAM_512):
                for user, password in PASSWORDS[mechanism].items():
                    running.add_scram_user(user, password, mechanism=mechanism)
            yield running


def _running(
    folder: Path, settings: Path, port: int, environment: Mapping[str, str]
) -> RunningBroker:
    installed = os.environ.get("PENSTOCK_BROKER_PYTHON")
    command = [installed or sys.executable, "-m", "penstock", "serve", "--config", str(settings)]
    inherited = os.environ.get("PYTHONPATH", "")
    parts = (str(_without_hypothesis(folder)), str(ROOT / "src"), inherited)
    path = os.pathsep.join(part for part in parts if part)
    # The installed package must not be hidden by a source tree that tests have on their path.
    own = {"PYTHONPATH": "" if installed else path}
    recipe = Recipe("penstock", command, {**own, **environment}, folder / "data")
    return RunningBroker(recipe, folder=folder, port=port)


def _listener(
    protocol: str, port: int, mechanisms: Sequence[str], session_ms: int | None
) -> list[str]:
    values: dict[str, object] = {"name": protocol, "port": port, "protocol": protocol}
    if protocol in SASL_PROTOCOLS:
        values["mechanisms"] = list(mechanisms)
    if session_ms is not None:
        values["reauthentication_ms_max"] = session_ms
    return _table("[[listeners]]", values)


def _tls_files(protocol: str, authority: CertificateAuthority, server: Identity) -> dict[str, str]:
    files = {"certificate": str(server.chain), "key": str(server.key)}
    if _CLIENT_AUTH[protocol] != "none":
        files["client_ca"] = str(authority.certificate)
        files["client_auth"] = _CLIENT_AUTH[protocol]
    return files


def _table(head: str, values: Mapping[str, object]) -> list[str]:
    """Lines of TOML: its strings, numbers, truth values and flat lists are those of JSON."""
    return [head, *(f"{name} = {json.dumps(value)}" for name, value in values.items())]


def _write_users(path: Path, passwords: Mapping[str, str]) -> None:
    """Write the file as a whole: the broker may read it at any time."""
    users = {
        user: hash_password(Secret(password), secrets.token_bytes(SALT_BYTES))
        for user, password in passwords.items()
    }
    written = path.with_suffix(".new")
    written.write_text(format_users(users))
    written.chmod(0o600)
    written.replace(path)
