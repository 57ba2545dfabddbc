"""The parts of the guide "Secure a broker" behind its first: settings, files and claims hold."""

import json
import re
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from penstock.broker.tls.contexts import build_server_tls
from penstock.broker.tls.tls_files import TlsFiles, read_files
from penstock.client.property_file import parse_properties
from penstock.client.security.options import parse_security
from penstock.client.security.tls import build_context
from penstock.client.transport.addresses import parse_addresses
from penstock.client.transport.blocking import connect
from penstock.core.errors import ConfigError
from penstock.core.settings.config import load_settings
from penstock.core.settings.tree import Settings
from penstock.node.security import credential_checks, rules_reload
from penstock.security.acls.roles import Role, role_rules
from penstock.security.acls.rules_file import parse_rules
from penstock.security.acls.values import (
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.security.audit import AuditEvent, line_of
from penstock.security.certificates.principal_mapping import PrincipalMapper
from penstock.security.sasl.throttle import DELAY_SECONDS_MAX, FAILURES_FREE
from tests.docs.guide_commands import Reader, blocks, section
from tests.docs.test_security_guide import (
    CLIENTS_PORT,
    GUIDE,
    OLD_PORT,
    Properties,
    create_topics,
    write_error,
)
from tests.oracle.certificates import CertificateAuthority, Identity
from tests.oracle.running_broker import HOST

MACHINES_PORT = 9094
ADMIN_PORT = 8080
WAIT_SECONDS_MAX = 30.0
EDGE = "CN=edge-7,OU=plants,O=Example"
TOKEN_LISTENER = """
[[listeners]]
name = "TOKENS"
port = 9095
protocol = "SASL_SSL"
mechanisms = ["OAUTHBEARER"]
tls = { certificate = "server.crt", key = "server.key" }
"""


def block(heading: str, language: str, number: int = 0) -> str:
    """One block of a part of the guide."""
    return blocks(section(GUIDE, heading), language)[number].text


def loaded(text: str) -> Settings:
    return load_settings(text, {}, {}).settings


# --- Settings and files ---


def test_the_listeners_of_the_first_part() -> None:
    settings = loaded(block("In ten minutes", "toml"))
    assert [(one.name, one.protocol) for one in settings.all_listeners] == [
        ("CLIENTS", "SASL_SSL"),
        ("OLD", "PLAINTEXT"),
    ]
    security = loaded(block("In ten minutes", "toml", 1)).security
    assert (security.authorizer, security.super_users) == ("acl", "User:admin;User:ANONYMOUS")


def test_a_new_broker_is_on_loopback() -> None:
    (listener,) = loaded("").all_listeners
    assert (listener.host, listener.protocol) == (HOST, "PLAINTEXT")


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_a_listener_without_tls_that_other_machines_reach_is_refused(protocol: str) -> None:
    mechanisms = 'mechanisms = ["SCRAM-SHA-512"]\n' if "SASL" in protocol else ""
    text = f'[[listeners]]\nname = "A"\nhost = "10.0.0.7"\nport = 1\nprotocol = "{protocol}"\n'
    with pytest.raises(ConfigError) as raised:
        loaded(text + mechanisms)
    for words in ("the listener A", "10.0.0.7", "without TLS", "security.allow_insecure = true"):
        assert words in str(raised.value)
    assert loaded(f"{text}{mechanisms}[security]\nallow_insecure = true\n").security.allow_insecure


def test_client_certificates() -> None:
    (listener,) = loaded(block("Client certificates", "toml")).all_listeners
    assert listener.tls is not None
    assert (listener.protocol, listener.tls.client_auth) == ("SSL", "required")
    text = section(GUIDE, "Client certificates")
    assert f"`User:{EDGE}`" in text
    rules = re.search(r"`(RULE:.*)`\. With", text)
    assert rules is not None
    assert PrincipalMapper(rules[1]).name_of(EDGE) == "edge-7"
    assert PrincipalMapper(rules[1]).name_of("O=Example") == "O=Example"
    mapped = block("Client certificates", "toml").replace(
        "client_auth =", f'principal_mapping_rules = "{rules[1]}", client_auth ='
    )
    assert loaded(mapped.replace("\\", "\\\\")).listeners[0].tls != listener.tls


def test_a_client_certificate_is_created_as_the_guide_says(tmp_path: Path) -> None:
    """Its commands give the principal of the text, which a broker with these files accepts."""
    for text in (block("In ten minutes", "bash"), block("Client certificates", "bash")):
        subprocess.run(["bash", "-e"], input=text, text=True, cwd=tmp_path, check=True, timeout=60)
    given = parse_properties(block("Client certificates", "properties"))
    del given["bootstrap.servers"]
    in_folder = {
        name: str(tmp_path / value) if "location" in name else value
        for name, value in given.items()
    }
    options = parse_security(in_folder).tls
    assert options is not None
    files = TlsFiles(
        str(tmp_path / "server.crt"),
        str(tmp_path / "server.key"),
        client_ca=str(tmp_path / "ca.crt"),
        client_auth="required",
    )
    context = build_server_tls(files, read_files(files), datetime.now(UTC)).context
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = build_context(options).wrap_bio(to_client, to_server, server_hostname="localhost")
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    certificate = server.getpeercert(binary_form=True)
    assert certificate is not None
    assert str(PrincipalMapper().principal(certificate)) == f"User:{EDGE}"
    assert (tmp_path / "edge-7.key").stat().st_mode & 0o077 == 0


def test_the_table_of_roles() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", section(GUIDE, "Roles"), re.MULTILINE)
    assert rows == [role.value for role in Role]
    viewer = {rule.operation for rule in role_rules(Role.VIEWER, "User:carol")}
    assert viewer == {Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS}
    operator = role_rules(Role.OPERATOR, "User:carol")
    topics = {one.operation for one in operator if one.resource_type is ResourceType.TOPIC}
    assert {Operation.CREATE, Operation.DELETE} < topics
    assert not topics & {Operation.READ, Operation.WRITE}
    clusters = {one.operation for one in operator if one.resource_type is ResourceType.CLUSTER}
    assert Operation.ALTER not in clusters


def test_tokens() -> None:
    settings = loaded(block("Tokens", "toml") + TOKEN_LISTENER)
    assert (settings.oidc.audience, settings.oidc.principal_claim) == ("penstock", "sub")
    with pytest.raises(ConfigError, match=r"needs oidc\.issuer"):
        loaded(TOKEN_LISTENER)


def test_a_directory() -> None:
    plain = TOKEN_LISTENER.replace("OAUTHBEARER", "PLAIN")
    settings = loaded(block("LDAP", "toml") + plain)
    assert settings.security.plain_verifier == "ldap"
    assert settings.ldap.user_dn_template is not None
    names = ("principal_attribute", "search_base", "search_filter", "bind_dn", "bind_password_file")
    for name in names:
        assert f"`{name}`" in section(GUIDE, "LDAP")
        assert hasattr(settings.ldap, name)


def test_rules_in_a_file() -> None:
    rules = parse_rules(block("Rules in a file", "json").encode())
    alice, everyone = "User:alice", "User:*"
    topic, group = ResourceType.TOPIC, ResourceType.GROUP
    read, allow, deny = Operation.READ, Permission.ALLOW, Permission.DENY
    literal = PatternType.LITERAL
    assert set(rules) == {
        AclBinding(topic, "orders-", PatternType.PREFIXED, alice, "*", read, allow),
        AclBinding(group, "billing", literal, alice, "*", read, allow),
        AclBinding(topic, "secrets", literal, everyone, "*", Operation.ALL, deny),
    }


def test_the_admin_port() -> None:
    admin = loaded(block("The admin port", "toml")).admin
    assert (admin.auth, admin.metrics_open) == ("basic", False)


def test_the_line_of_the_audit_log() -> None:
    values = json.loads(block("The audit log", "json"))
    time_text = values.pop("time")
    assert line_of(AuditEvent(**values), time_text) == block("The audit log", "json").strip()


def test_the_settings_of_the_client() -> None:
    security = parse_security(
        {
            name: value
            for name, value in parse_properties(block("In ten minutes", "properties")).items()
            if name != "bootstrap.servers"
        }
    )
    assert security.sasl is not None
    assert (security.sasl.username, security.sasl.mechanism) == ("admin", "SCRAM-SHA-512")


def test_numbers_of_the_text() -> None:
    text = " ".join(GUIDE.split())
    assert "after more than ten in a minute" in text
    assert FAILURES_FREE == 10
    assert "after up to five seconds" in text
    assert DELAY_SECONDS_MAX == 5
    assert text.count("in force within two seconds") == 2
    # A change is seen at one look, and used when the next look finds no other.
    assert credential_checks.LOOK_SECONDS == rules_reload.LOOK_SECONDS == 1


# --- One broker with all of it ---


class Scene:
    """A broker with a users file, client certificates, rules in a file and an admin port."""

    def __init__(self, reader: Reader, authority: CertificateAuthority) -> None:
        self.reader = reader
        self.authority = authority
        self.server = authority.server()
        folder = reader.folder
        (folder / "ca.crt").write_bytes(authority.certificate.read_bytes())
        self.install(self.server.chain.read_bytes())
        (folder / "server.key").write_bytes(self.server.key.read_bytes())
        for user in ("alice", "admin"):
            (folder / f"{user}.password").write_text(f"the password of {user}\n")
            reader.run(block("Users in a file", "bash").replace("alice", user))
        self.rules = json.loads(block("Rules in a file", "json"))
        self.allow("User:alice", "Write", "Topic:orders-*")
        self.allow(f"User:{EDGE}", "Write", "Topic:orders-1")
        admin = block("The admin port", "toml").replace("0.0.0.0", HOST)
        reader.write("penstock.toml", "\n".join([*self._tables(), admin + f"port = {ADMIN_PORT}"]))
        reader.serve("penstock serve --config penstock.toml")

    def _tables(self) -> Iterator[str]:
        yield '[node]\ndata_dir = "data"\n'
        yield block("Users in a file", "toml")
        yield 'authorizer = "acl"\nsuper_users = "User:admin"\nacl_file = "rules.json"\n'
        yield TOKEN_LISTENER.replace("OAUTHBEARER", "PLAIN").replace("9095", str(CLIENTS_PORT))
        yield block("Client certificates", "toml")

    def install(self, certificate: bytes) -> None:
        """Replace the certificate of the broker."""
        (self.reader.folder / "server.crt").write_bytes(certificate)

    def allow(self, principal: str, operation: str, resource: str) -> None:
        """Add a rule to the file."""
        rule = {"principal": principal, "operation": operation, "resource": resource}
        self.rules["rules"].append(rule)
        self.reader.write("rules.json", json.dumps(self.rules))

    def user(self, name: str) -> Properties:
        """The settings of a client with PLAIN."""
        return {
            "bootstrap.servers": f"{HOST}:{self.reader.ports[CLIENTS_PORT]}",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": name,
            "sasl.password": f"the password of {name}",
            "ssl.ca.location": str(self.authority.certificate),
        }

    def machine(self, identity: Identity) -> Properties:
        """The settings of a client with a certificate."""
        return {
            "bootstrap.servers": f"{HOST}:{self.reader.ports[MACHINES_PORT]}",
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority.certificate),
            "ssl.certificate.location": str(identity.chain),
            "ssl.key.location": str(identity.key),
        }

    def get(self, path: str, user: str | None = None) -> httpx.Response:
        """Ask the admin port."""
        trusted = ssl.create_default_context(cafile=self.authority.certificate)
        auth = None if user is None else (user, f"the password of {user}")
        url = f"https://{HOST}:{self.reader.ports[ADMIN_PORT]}{path}"
        return httpx.get(url, auth=auth, verify=trusted)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    ports = (CLIENTS_PORT, OLD_PORT, MACHINES_PORT, ADMIN_PORT)
    with Reader(tmp_path, ports, {}) as reader:
        yield Scene(reader, CertificateAuthority(tmp_path / "authority"))


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_other_parts_together(scene: Scene) -> None:
    create_topics(scene.user("admin"), "orders-1", "secrets", "other")
    check_logins(scene)
    check_rules(scene)
    check_admin_port(scene)
    check_sessions(scene)
    check_bad_files(scene)


def check_logins(scene: Scene) -> None:
    assert write_error(scene.user("alice"), "orders-1") is None
    assert write_error(scene.user("alice"), "other") == "TOPIC_AUTHORIZATION_FAILED"
    machine = scene.machine(scene.authority.client(EDGE))
    assert write_error(machine, "orders-1") is None
    assert write_error(machine, "other") == "TOPIC_AUTHORIZATION_FAILED"


def check_rules(scene: Scene) -> None:
    """A changed file is in force soon; `export` writes such a file, `import` reads it."""
    reader = scene.reader
    properties = "".join(f"{name}={value}\n" for name, value in scene.user("admin").items())
    reader.write("admin.properties", properties)
    reader.run("export PENSTOCK_COMMAND_CONFIG=admin.properties")
    scene.allow("User:alice", "Write", "Topic:other")
    wait_until(lambda: write_error(scene.user("alice"), "other") is None)
    exported = reader.run("penstock acl export > exported.json; cat exported.json").stdout
    written = parse_rules(json.dumps(scene.rules).encode())
    assert set(parse_rules(exported.encode())) == set(written)
    text = " ".join(section(GUIDE, "Roles").split())
    found = re.search(r"`(penstock acl import --role )([a-z|]+) (--principal User:carol)`", text)
    assert found is not None
    for role in found[2].split("|"):
        assert "for User:carol" in reader.run(f"{found[1]}{role} {found[3]}").stdout
    check = "penstock acl check --as User:carol --operation describe --cluster"
    assert reader.run(check).stdout.startswith("allow: ")


def check_sessions(scene: Scene) -> None:
    """The settings of the command line open the secured admin port too."""
    settings = {name: str(value) for name, value in scene.user("alice").items()}
    (address,) = parse_addresses(settings.pop("bootstrap.servers"))
    security = parse_security(settings)
    with closing(connect(address, timeout_seconds=WAIT_SECONDS_MAX, security=security)):
        printed = scene.reader.run(block("Sessions", "bash")).stdout
    assert printed.startswith("id ")
    assert "User:alice" in printed
    assert re.search(r"^[1-9]\d* sessions? ended$", printed, re.MULTILINE)
    status = f"penstock status --admin https://localhost:{ADMIN_PORT}"
    assert scene.reader.run(status).stdout.startswith("Healthy")


def check_admin_port(scene: Scene) -> None:
    assert [scene.get(f"/health/{one}").status_code for one in ("live", "ready")] == [200, 200]
    assert [scene.get("/metrics", one).status_code for one in (None, "alice")] == [401, 403]
    metrics = scene.get("/metrics", "admin").text
    names = re.findall(r"`(penstock_\w+)`", section(GUIDE, "The audit log"))
    assert len(names) == 5
    for name in names:
        assert f"\n{name}" in metrics
    topics = [one["name"] for one in scene.get("/api/v1/topics", "alice").json()["topics"]]
    assert topics == ["orders-1", "other"]


def check_bad_files(scene: Scene) -> None:
    """A bad file changes nothing; the health shows it until the file is good again."""
    good = scene.server.chain.read_bytes()

    def health() -> str:
        return str(scene.get("/api/v1/status", "admin").json()["health"])

    assert health() == "Healthy"
    scene.install(b"no certificate")
    wait_until(lambda: health() == "Degraded")
    assert scene.get("/health/ready").status_code == 200
    assert "server.crt" in scene.reader.log().splitlines()[-1]
    scene.install(good)
    wait_until(lambda: health() == "Healthy")
    users = (scene.reader.folder / "users.txt").read_text()
    scene.reader.write("users.txt", "bob:a plain password\n")
    wait_until(lambda: health() == "Degraded")
    assert write_error(scene.user("alice"), "orders-1") is None
    (scene.reader.folder / "bob.password").write_text("the password of bob\n")
    scene.reader.write("users.txt", users)
    scene.reader.run(block("Users in a file", "bash").replace("alice", "bob"))
    wait_until(lambda: scene.get("/metrics", "bob").status_code == 403)
    assert health() == "Healthy"
    assert "a plain password" not in scene.reader.log()
