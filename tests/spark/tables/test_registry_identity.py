"""The identity at a schema registry: token, user, client certificate, and clear errors.

The fronts check it with TLS; the stub behind them answers as a registry. The same with a real
registry is in `test_registry_apicurio.py`.
"""

import base64
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.tables.definition import references
from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.model import ValueSettings
from penstock.spark.tables.definition.reader import read_definition
from penstock.spark.tables.definition.references import SecretError, SecretFileError
from penstock.spark.tables.values.registry import Registry, RegistryError
from tests.oracle.certificates import CertificateAuthority, Identity
from tests.spark.tables.registry_front import RegistryFront, registry_front
from tests.spark.tables.registry_stub import RegistryStub, registry_stub

CANARY = "canary-91f0c3"
URL = "https://registry.example/apis/ccompat/v7"
KEY = "value.registry"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: CertificateAuthority) -> Identity:
    return authority.server()


@pytest.fixture
def stub() -> Iterator[RegistryStub]:
    with registry_stub() as running:
        running.answer("/schemas/ids/7", (200, {"schema": "text"}))
        yield running


@pytest.fixture
def front(stub: RegistryStub, server: Identity) -> Iterator[RegistryFront]:
    with registry_front(stub.address, server) as running:
        yield running


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text(f"{CANARY}\n")
    return file


def asked(front: RegistryFront, authority: CertificateAuthority, **options: str) -> str:
    """Ask for a schema; the text of the schema, or of the error."""
    given = {"ca": str(authority.certificate), **options}
    registry = Registry(front.address, given, sleep=lambda _: None)
    try:
        found = registry.by_id(7).text
    except RegistryError as error:
        found = str(error)
    assert CANARY not in found
    return found


def value(address: str = URL, **registry: object) -> ValueSettings:
    """The settings of values with these options, read from a definition."""
    definition: Mapping[str, Any] = {
        "pipeline": {"name": "orders", "bootstrap_servers": "b:9092", "checkpoint": "/c"},
        "source": {"topics": ["orders"]},
        "table": {"format": "delta", "name": "shop.orders", "catalog": {"warehouse": "/w"}},
        "value": {"format": "avro", "schema": address, "registry": registry},
    }
    return read_definition(definition, "orders.toml").value


# --- The definition ---


def test_options_are_kept_as_references() -> None:
    found = value(token="${env:TOKEN}", ca="/etc/ca.pem")
    assert found.registry == (("ca", "/etc/ca.pem"), ("token", "${env:TOKEN}"))


@pytest.mark.parametrize("name", ["token", "password", "key_password"])
@pytest.mark.parametrize("written", [CANARY, f"{CANARY}${{env:A}}"])
def test_a_secret_in_plain_text_is_refused(name: str, written: str) -> None:
    with pytest.raises(DefinitionError, match=r"\$\{env:NAME\}") as caught:
        value(username="me", certificate="/c.pem", **{name: written})
    assert f"{KEY}.{name}" in str(caught.value)
    assert CANARY not in str(caught.value)


def test_a_password_in_the_address_is_a_reference() -> None:
    assert value("https://me:${env:WORD}@registry.example").schema is not None
    with pytest.raises(DefinitionError, match=r"'value.schema'.*plain text") as caught:
        value(f"https://me:{CANARY}@registry.example")
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("user", [CANARY, f"{CANARY}:", f"{CANARY}${{env:A}}", f"a@{CANARY}"])
def test_a_user_without_a_password_is_a_reference(user: str) -> None:
    with pytest.raises(
        DefinitionError, match=r"'value.schema'.*may be a key.*plain text"
    ) as caught:
        value(f"https://{user}@registry.example")
    assert CANARY not in str(caught.value)
    for kind in ("${env:REGISTRY_KEY}", "${file:/run/secrets/key}", "${env:REGISTRY_KEY}:"):
        assert value(f"https://{kind}@registry.example").schema is not None
        with pytest.raises(DefinitionError, match=r"contradicts the user in value\.schema"):
            value(f"https://{kind}@registry.example", token="${env:A}")


@pytest.mark.parametrize(
    "end", [f"?token={CANARY}", f"/v7?api-key={CANARY}", f"#{CANARY}", "?token=${env:A}"]
)
def test_an_address_with_a_query_is_refused(end: str) -> None:
    with pytest.raises(DefinitionError, match=r"'value.schema'.*query or a fragment") as caught:
        value(f"https://registry.example{end}")
    assert CANARY not in str(caught.value)


IDENTITIES: list[tuple[str, dict[str, object], str]] = [
    ("", {"token": "${env:A}"}, "value.registry.token"),
    ("", {"username": "me", "password": "${env:A}"}, "value.registry.username"),
    ("me:${env:A}@", {}, "value.schema"),
    ("${file:/run/secrets/key}@", {}, "value.schema"),
]


@pytest.mark.parametrize(("user", "options", "key"), IDENTITIES)
@pytest.mark.parametrize(
    "place", ["registry:8081", "127.example", "localhost.example", "[::2]", "10.0.0.1", "[::1"]
)
def test_credentials_without_tls_are_refused(
    user: str, options: dict[str, object], key: str, place: str
) -> None:
    with pytest.raises(DefinitionError, match=rf"'{key}'.*without TLS.*https://"):
        value(f"http://{user}{place}/v7", **options)


@pytest.mark.parametrize(("user", "options"), [one[:2] for one in IDENTITIES])
@pytest.mark.parametrize("place", ["localhost:8081", "127.0.0.1", "127.8.9.1:80", "[::1]:8081"])
def test_a_registry_on_the_machine_needs_no_tls(
    user: str, options: dict[str, object], place: str
) -> None:
    found = value(f"http://{user}{place}/v7", **options)
    assert dict(found.registry) == options


@pytest.mark.parametrize("address", ["http://registry:8081", "http://registry/a@b:8081/x@y"])
def test_a_registry_without_credentials_needs_no_tls(address: str) -> None:
    assert value(address).schema == address


@pytest.mark.parametrize(
    ("address", "options", "message"),
    [
        (URL, {"tokn": "${env:A}"}, "value.registry.tokn.*Did you mean 'token'"),
        (URL, {"password": "${env:A}"}, "value.registry.password.*it needs registry.username"),
        (URL, {"username": "me"}, "value.registry.username.*it needs registry.password"),
        (URL, {"key": "/k"}, "value.registry.key.*it needs registry.certificate"),
        (
            URL,
            {"token": "${env:A}", "username": "me", "password": "${env:B}"},
            "value.registry.username.*it contradicts registry.token",
        ),
        (
            "https://me:${env:B}@registry.example",
            {"token": "${env:A}"},
            "value.registry.token.*it contradicts the user in value.schema",
        ),
        ("http://registry:8081", {"ca": "/c"}, "value.registry.ca.*without TLS.*https://"),
        ("http://registry:8081", {"certificate": "/c"}, "value.registry.certificate.*without TLS"),
        ("orders.avsc", {"token": "${env:A}"}, "'value.registry'.*only a registry of schemas"),
    ],
)
def test_options_that_cannot_be_used(address: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        value(address, **options)


# --- Requests ---


def test_a_token_is_read_for_each_request(
    front: RegistryFront, authority: CertificateAuthority, secret: Path
) -> None:
    front.authorization = f"Bearer {CANARY}"
    registry = Registry(
        front.address, {"ca": str(authority.certificate), "token": f"${{file:{secret}}}"}
    )
    assert registry.by_id(7).text == "text"
    secret.write_text("another-token")
    with pytest.raises(RegistryError, match="401"):
        registry.latest("orders-value")
    assert front.seen == [f"Bearer {CANARY}", "Bearer another-token"]


def test_a_user_and_a_password(
    front: RegistryFront, authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_WORD", "s@crt")
    front.authorization = "Basic bWU6c0BjcnQ="
    assert asked(front, authority, username="me", password="${env:REGISTRY_WORD}") == "text"
    front.address = front.address.replace("https://", "https://me:${env:REGISTRY_WORD}@")
    assert asked(front, authority) == "text"


@pytest.mark.parametrize(
    ("status", "options", "remedy"),
    [
        (401, {}, "Set value.registry.token, or value.registry.username and"),
        (401, {"token": "${file:SECRET}"}, "Check value.registry.token"),
        (401, {"username": "me", "password": "${file:SECRET}"}, "Check value.registry.username"),
        (403, {"token": "${file:SECRET}"}, "Allow the identity of value.registry.token to read"),
    ],
)
def test_a_refused_identity_is_named_and_not_tried_again(
    front: RegistryFront,
    authority: CertificateAuthority,
    secret: Path,
    status: int,
    options: dict[str, str],
    remedy: str,
) -> None:
    front.authorization, front.status = "Bearer right", status
    given = {name: text.replace("SECRET", str(secret)) for name, text in options.items()}
    message = asked(front, authority, **given)
    assert f"{status} " in message
    assert remedy in message
    assert len(front.seen) == 1


def test_a_client_certificate(
    stub: RegistryStub, server: Identity, authority: CertificateAuthority, tmp_path: Path
) -> None:
    client = authority.client()
    word = tmp_path / "word"
    word.write_text(client.password)
    with registry_front(stub.address, server, authority) as front:
        chain, key = str(client.chain), str(client.key)
        assert asked(front, authority, certificate=chain, key=key) == "text"
        assert asked(front, authority, certificate=str(client.combined)) == "text"
        encrypted = {"key": str(client.encrypted_key), "key_password": f"${{file:{word}}}"}
        assert asked(front, authority, certificate=chain, **encrypted) == "text"
        missing = asked(front, authority)
        assert "value.registry.certificate and value.registry.key" in missing
        stranger = CertificateAuthority(tmp_path / "stranger").client()
        wrong = asked(front, authority, certificate=str(stranger.combined))
        assert "Check value.registry.certificate" in wrong or "Check value.schema" in wrong


def test_an_unknown_authority_of_the_registry(
    front: RegistryFront, authority: CertificateAuthority, tmp_path: Path
) -> None:
    other = CertificateAuthority(tmp_path / "other")
    message = asked(front, other)
    assert "Set value.registry.ca" in message
    assert front.seen == [], "no credentials are sent to an unknown server"


def test_a_certificate_that_is_replaced_is_read_again(
    front: RegistryFront, authority: CertificateAuthority, tmp_path: Path
) -> None:
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes(CertificateAuthority(tmp_path / "other").certificate.read_bytes())
    registry = Registry(front.address, {"ca": str(trusted)}, sleep=lambda _: None)
    with pytest.raises(RegistryError):
        registry.by_id(7)
    time.sleep(0.01)
    trusted.write_bytes(authority.certificate.read_bytes() + b"\n")
    assert registry.by_id(7).text == "text"


@pytest.mark.parametrize("name", ["ca", "certificate", "key"])
def test_a_file_that_cannot_be_used_is_named(
    front: RegistryFront, authority: CertificateAuthority, tmp_path: Path, name: str
) -> None:
    client = authority.client()
    files = {"ca": str(authority.certificate), "certificate": str(client.chain),
             "key": str(client.key), name: str(tmp_path / "missing")}  # fmt: skip
    with pytest.raises(SecretFileError, match=f"'value.registry.{name}'.*No such file"):
        Registry(front.address, files).by_id(7)
    (tmp_path / "missing").write_text("not a certificate")
    with pytest.raises(SecretFileError, match=r"not PEM"):
        Registry(front.address, files).by_id(7)


def test_an_encrypted_key_without_its_password_asks_nobody(
    front: RegistryFront, authority: CertificateAuthority
) -> None:
    client = authority.client()
    files = {"ca": str(authority.certificate), "certificate": str(client.chain),
             "key": str(client.encrypted_key)}  # fmt: skip
    with pytest.raises(SecretFileError, match="key and password do not fit"):
        Registry(front.address, files).by_id(7)


def test_credentials_are_not_sent_to_another_server(
    front: RegistryFront, authority: CertificateAuthority, stub: RegistryStub, secret: Path
) -> None:
    front.redirect = stub.address
    message = asked(front, authority, token=f"${{file:{secret}}}")
    assert f"302 redirects to another server, {stub.address}" in message
    assert len(front.seen) == 1
    assert stub.calls == []


def test_a_redirect_within_the_registry_is_followed(stub: RegistryStub) -> None:
    stub.answer("/v2/schemas/ids/7", (200, {"schema": "moved"}))
    stub.redirects["/schemas/ids/7"] = f"{stub.address}/v2/schemas/ids/7"
    assert Registry(stub.address).by_id(7).text == "moved"


def test_a_token_with_a_line_break_is_not_shown(
    stub: RegistryStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_TOKEN", f"{CANARY}\nHost: other")
    with pytest.raises(SecretError, match=r"'value.registry.token'.*line break") as caught:
        Registry(stub.address, {"token": "${env:REGISTRY_TOKEN}"}).by_id(7)
    assert CANARY not in str(caught.value)
    assert stub.calls == []


def test_a_registry_that_repeats_a_token_is_not_quoted(stub: RegistryStub, secret: Path) -> None:
    stub.answer("/schemas/ids/7", (401, {"message": f"bad token {CANARY}"}))
    with pytest.raises(RegistryError, match=r"401 bad token \*\*\*"):
        Registry(stub.address, {"token": f"${{file:{secret}}}"}).by_id(7)


@pytest.mark.parametrize("word", ["right-word", "right-words", "right-words1"])
def test_a_registry_that_repeats_the_header_is_not_quoted(
    stub: RegistryStub, word: str, secret: Path
) -> None:
    secret.write_text(word)
    header = base64.b64encode(f"me:{word}".encode()).decode()
    reference = f"${{file:{secret}}}"
    in_address = stub.address.replace("http://", f"http://me:{reference}@")
    for address, options in (
        (stub.address, {"username": "me", "password": reference}),
        (in_address, {}),
    ):
        for shown in (header, header.rstrip("=")):
            stub.answer("/schemas/ids/7", (401, {"message": f"bad Basic {shown}"}))
            references.forget()
            with pytest.raises(RegistryError, match=r"401 bad Basic \*\*\*") as caught:
                Registry(address, options).by_id(7)
            assert header.rstrip("=") not in str(caught.value)


@pytest.mark.parametrize(
    ("secret_text", "user", "sent"),
    [
        ("k/e@y%40:1", "{}", "k/e@y%40:1:"),
        ("k/e@y%40:1", "m%40e:{}", "m@e:k/e@y%40:1"),
        ("part", "a%40-{}:{}", "a@-part:part"),
    ],
)
def test_a_user_in_the_address_is_sent_as_it_is(
    stub: RegistryStub, secret: Path, secret_text: str, user: str, sent: str
) -> None:
    secret.write_text(secret_text)
    written = user.replace("{}", f"${{file:{secret}}}")
    Registry(stub.address.replace("http://", f"http://{written}@")).by_id(7)
    header = base64.b64encode(sent.encode()).decode()
    assert stub.calls == [("/schemas/ids/7", f"Basic {header}")]


@pytest.mark.parametrize("content", ["", "\n", " "])
def test_an_empty_secret_is_not_sent(
    stub: RegistryStub, secret: Path, content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_TOKEN", content)
    with pytest.raises(SecretError, match=r"'value.registry.token'.*is empty") as caught:
        Registry(stub.address, {"token": "${env:REGISTRY_TOKEN}"}).by_id(7)
    assert not isinstance(caught.value, SecretFileError), "a variable does not change"
    secret.write_text(content)
    with pytest.raises(SecretFileError, match=r"'value.registry.token'.*is empty"):
        Registry(stub.address, {"token": f"${{file:{secret}}}"}).by_id(7)
    key = stub.address.replace("http://", "http://${env:REGISTRY_TOKEN}@")
    with pytest.raises(SecretError, match=r"'value.schema'.*is empty"):
        Registry(key).by_id(7)
    assert stub.calls == []


def test_a_proxy_gets_no_credentials_of_a_registry_on_the_machine(
    stub: RegistryStub, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with registry_stub() as proxy:
        monkeypatch.setenv("http_proxy", proxy.address)
        assert Registry(stub.address, {"token": f"${{file:{secret}}}"}).by_id(7).text == "text"
        assert proxy.calls == []
