"""Security settings of Kafka and librdkafka give one value; mistakes are named, secrets are not."""

import dataclasses
import pickle
import typing

import pytest

from penstock.client.security.options import (
    NO_SECURITY,
    SECRET_SETTINGS,
    SECURITY_SETTINGS,
    CertificateStore,
    Identity,
    SaslOptions,
    Security,
    TlsOptions,
    TokenSource,
    parse_security,
)
from penstock.core.errors import ConfigError
from penstock.security.secret import HIDDEN, Secret, SecretForTask

CANARY = "canary"
TLS = {"security.protocol": "SSL"}
PLAIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
USER = {"sasl.username": "user", "sasl.password": CANARY}
BEARER = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
}
CLIENT = {"sasl.oauthbearer.client.id": "id", "sasl.oauthbearer.client.secret": CANARY}
LOGIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required password="{CANARY}"'
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


def parse(*settings: dict[str, str]) -> Security:
    return parse_security({name: value for each in settings for name, value in each.items()})


def tls(settings: dict[str, str]) -> TlsOptions:
    options = parse(TLS, settings).tls
    assert options is not None
    return options


def sasl(*settings: dict[str, str]) -> SaslOptions:
    options = parse(*settings).sasl
    assert options is not None
    return options


def tokens(*settings: dict[str, str]) -> TokenSource:
    source = sasl(BEARER, *settings).tokens
    assert source is not None
    return source


def refusal(settings: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as error:
        parse_security(settings, prefix="kafka.")
    assert CANARY not in f"{error.value} {error.value.hint}"
    return str(error.value)


def test_the_default_is_plaintext() -> None:
    assert parse_security({"bootstrap.servers": "a", "max.poll.records": "7"}) == NO_SECURITY
    assert (NO_SECURITY.protocol, NO_SECURITY.tls, NO_SECURITY.sasl) == ("PLAINTEXT", None, None)


@pytest.mark.parametrize(
    ("protocol", "uses_tls", "uses_sasl"),
    [
        ("plaintext", False, False),
        ("Ssl", True, False),
        ("SASL_PLAINTEXT", False, True),
        (" sasl_ssl ", True, True),
    ],
)
def test_protocols_in_any_case(protocol: str, uses_tls: bool, uses_sasl: bool) -> None:
    login = {**PLAIN, **USER} if uses_sasl else {}
    security = parse(login, {"security.protocol": protocol})
    assert security.protocol == protocol.strip().upper()
    assert (security.uses_tls, security.uses_sasl) == (uses_tls, uses_sasl)
    assert ((security.tls is not None), (security.sasl is not None)) == (uses_tls, uses_sasl)


# --- TLS ---


def test_tls_without_settings_is_strict() -> None:
    assert tls({}) == TlsOptions(None, None, True, (), ("TLSv1.2", "TLSv1.3"))


@pytest.mark.parametrize(
    ("settings", "store"),
    [
        ({"ssl.ca.location": "/a/ca.whatever"}, CertificateStore("/a/ca.whatever")),
        ({"ssl.ca.pem": "text"}, CertificateStore(text=Secret("text"))),
        ({"ssl.truststore.location": "/a/t.pem"}, CertificateStore("/a/t.pem")),
        (
            {"ssl.truststore.location": "/a/t.P12", "ssl.truststore.password": CANARY},
            CertificateStore("/a/t.P12", None, "PKCS12", Secret(CANARY)),
        ),
        (
            {"ssl.truststore.location": "/a/t.jks", "ssl.truststore.type": "pkcs12"},
            CertificateStore("/a/t.jks", None, "PKCS12"),
        ),
        ({"ssl.truststore.certificates": "text"}, CertificateStore(text=Secret("text"))),
        (
            {"ssl.truststore.certificates": "text", "ssl.truststore.type": "PEM"},
            CertificateStore(text=Secret("text")),
        ),
    ],
)
def test_trusted_certificates(settings: dict[str, str], store: CertificateStore) -> None:
    assert tls(settings) == TlsOptions(trust=store)


@pytest.mark.parametrize(
    ("settings", "identity"),
    [
        (
            {
                "ssl.certificate.location": "/c",
                "ssl.key.location": "/k",
                "ssl.key.password": CANARY,
            },
            Identity(CertificateStore("/c"), CertificateStore("/k", password=Secret(CANARY))),
        ),
        (
            {"ssl.certificate.location": "/c", "ssl.key.password": CANARY},
            Identity(CertificateStore("/c", password=Secret(CANARY))),
        ),
        (
            {"ssl.certificate.pem": "c", "ssl.key.pem": CANARY},
            Identity(CertificateStore(text=Secret("c")), CertificateStore(text=Secret(CANARY))),
        ),
        (
            {"ssl.keystore.certificate.chain": "c", "ssl.keystore.key": CANARY},
            Identity(CertificateStore(text=Secret("c")), CertificateStore(text=Secret(CANARY))),
        ),
        (
            {"ssl.keystore.location": "/k.pem", "ssl.key.password": CANARY},
            Identity(CertificateStore("/k.pem", password=Secret(CANARY))),
        ),
        (
            {"ssl.keystore.location": "/k.pfx", "ssl.keystore.password": CANARY},
            Identity(CertificateStore("/k.pfx", None, "PKCS12", Secret(CANARY))),
        ),
        (
            {
                "ssl.keystore.location": "/k",
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.password": CANARY,
                "ssl.key.password": CANARY,
            },
            Identity(CertificateStore("/k", None, "PKCS12", Secret(CANARY))),
        ),
    ],
)
def test_the_clients_certificate(settings: dict[str, str], identity: Identity) -> None:
    assert tls(settings) == TlsOptions(identity=identity)


@pytest.mark.parametrize(
    ("value", "checks"), [("https", True), ("HTTPS", True), ("", False), ("none", False)]
)
def test_the_check_of_the_host_name(value: str, checks: bool) -> None:
    assert tls({"ssl.endpoint.identification.algorithm": value}).checks_host_name is checks


@pytest.mark.parametrize(
    ("settings", "versions"),
    [
        ({"ssl.enabled.protocols": "TLSv1.3"}, ("TLSv1.3",)),
        ({"ssl.enabled.protocols": "TLSv1.3, TLSv1.2"}, ("TLSv1.2", "TLSv1.3")),
        ({"ssl.protocol": "TLSv1.2"}, ("TLSv1.2",)),
        ({"ssl.protocol": "TLSv1.3"}, ("TLSv1.2", "TLSv1.3")),
        ({"ssl.protocol": "TLS"}, ("TLSv1.2", "TLSv1.3")),
    ],
)
def test_versions(settings: dict[str, str], versions: tuple[str, ...]) -> None:
    assert tls(settings).versions == versions


NEWEST = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256"


@pytest.mark.parametrize(
    ("text", "suites", "versions"),
    [
        (
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
            ("ECDHE-RSA-AES256-GCM-SHA384",),
            ("TLSv1.2", "TLSv1.3"),
        ),
        (
            "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-CHACHA20-POLY1305",
            ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
            ("TLSv1.2", "TLSv1.3"),
        ),
        (NEWEST, (), ("TLSv1.3",)),
    ],
)
def test_ciphers(text: str, suites: tuple[str, ...], versions: tuple[str, ...]) -> None:
    options = tls({"ssl.cipher.suites": text})
    assert (options.cipher_suites, options.versions) == (suites, versions)


def test_a_java_key_store_is_refused_with_the_command() -> None:
    command = (
        "keytool -importkeystore -srckeystore /a/t.jks -destkeystore /a/t.jks.p12 "
        "-deststoretype PKCS12"
    )
    for family in ("truststore", "keystore"):
        location = {f"ssl.{family}.location": "/a/t.jks"}
        assert refusal({**TLS, **location}).endswith(command)
        assert refusal({**TLS, **location, f"ssl.{family}.type": "JKS"}).endswith(command)
    assert refusal({**TLS, "ssl.ca.location": "/a/t.jks"}).endswith(command)
    quoted = refusal({**TLS, "ssl.truststore.location": "/a b/t.jks"})
    assert "-srckeystore '/a b/t.jks' -destkeystore '/a b/t.jks.p12'" in quoted


@pytest.mark.parametrize(
    ("settings", "reported"),
    [
        (
            {"ssl.ca.location": "/a", "ssl.truststore.location": "/b"},
            "kafka.ssl.ca.location and kafka.ssl.truststore.location contradict each other",
        ),
        (
            {"ssl.ca.pem": CANARY, "ssl.truststore.certificates": CANARY},
            "kafka.ssl.ca.pem and kafka.ssl.truststore.certificates",
        ),
        ({"ssl.truststore.password": CANARY}, "needs kafka.ssl.truststore.location"),
        ({"ssl.truststore.type": "PEM"}, "needs kafka.ssl.truststore.location"),
        (
            {"ssl.ca.location": "/a", "ssl.truststore.password": CANARY},
            "needs kafka.ssl.truststore.location",
        ),
        (
            {"ssl.truststore.location": "/a.pem", "ssl.truststore.password": CANARY},
            "kafka.ssl.truststore.password does not fit PEM",
        ),
        ({"ssl.truststore.location": "/a.store"}, "kafka.ssl.truststore.type is missing"),
        (
            {"ssl.truststore.location": "/a", "ssl.truststore.type": "BCFKS"},
            "kafka.ssl.truststore.type=BCFKS is not supported. Use PEM or PKCS12",
        ),
        (
            {"ssl.truststore.certificates": "c", "ssl.truststore.type": "JKS"},
            "kafka.ssl.truststore.type=JKS does not fit",
        ),
        ({"ssl.truststore.location": " "}, "kafka.ssl.truststore.location is empty"),
        (
            {"ssl.keystore.location": "/a.p12", "ssl.certificate.location": "/c"},
            "kafka.ssl.keystore.location and kafka.ssl.certificate.location",
        ),
        (
            {"ssl.keystore.key": CANARY, "ssl.key.location": "/c"},
            "kafka.ssl.keystore.key and kafka.ssl.key.location",
        ),
        (
            {"ssl.certificate.location": "/c", "ssl.certificate.pem": "c"},
            "kafka.ssl.certificate.location and kafka.ssl.certificate.pem",
        ),
        (
            {"ssl.certificate.pem": "c", "ssl.key.location": "/k", "ssl.key.pem": CANARY},
            "kafka.ssl.key.location and kafka.ssl.key.pem",
        ),
        ({"ssl.key.pem": CANARY}, "Set kafka.ssl.certificate.location too"),
        ({"ssl.keystore.key": CANARY}, "Set kafka.ssl.keystore.certificate.chain too"),
        ({"ssl.key.password": CANARY}, "kafka.ssl.key.password is set without a key"),
        ({"ssl.keystore.password": CANARY}, "needs kafka.ssl.keystore.location"),
        (
            {
                "ssl.keystore.location": "/a.p12",
                "ssl.keystore.password": CANARY,
                "ssl.key.password": CANARY + "2",
            },
            "kafka.ssl.key.password differs from kafka.ssl.keystore.password",
        ),
        (
            {"ssl.keystore.location": "/a.pem", "ssl.keystore.password": CANARY},
            "kafka.ssl.key.password has the password of a key",
        ),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "=ldaps is not supported. Use https"),
        ({"ssl.enabled.protocols": "TLSv1.2,TLSv1.1"}, "version TLSv1.1 is not supported"),
        ({"ssl.enabled.protocols": ","}, "Use TLSv1.2 or TLSv1.3"),
        ({"ssl.protocol": "SSLv3"}, "kafka.ssl.protocol: version SSLv3"),
        ({"ssl.cipher.suites": "HIGH:!aNULL"}, "cipher HIGH is not supported"),
        ({"ssl.cipher.suites": "ADH-AES256-GCM-SHA384"}, "cipher ADH-AES256-GCM-SHA384"),
        ({"ssl.cipher.suites": "TLS_RSA_WITH_AES_128_CBC_SHA"}, "cipher TLS_RSA_WITH"),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "only some ciphers of TLS 1.3"),
        (
            {"ssl.cipher.suites": NEWEST, "ssl.enabled.protocols": "TLSv1.2"},
            "kafka.ssl.enabled.protocols excludes it",
        ),
        ({"ssl.key.pem": f"{CANARY}\udc80", "ssl.certificate.pem": "c"}, "not valid Unicode"),
    ],
)
def test_wrong_settings_of_tls(settings: dict[str, str], reported: str) -> None:
    assert reported in refusal({**TLS, **settings})


@pytest.mark.parametrize("value", ["false", "true"])
def test_verification_cannot_be_switched_off(value: str) -> None:
    message = refusal({**TLS, "enable.ssl.certificate.verification": value})
    assert "kafka.enable.ssl.certificate.verification cannot be set" in message
    assert "kafka.ssl.ca.location" in message


# --- SASL ---


@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "scram-sha-256", "SCRAM-SHA-512"])
def test_user_and_password(name: str, mechanism: str) -> None:
    options = sasl({"security.protocol": "SASL_SSL", name: mechanism}, USER)
    assert options == SaslOptions(mechanism.upper(), "user", Secret(CANARY))


def test_space_belongs_to_a_password() -> None:
    assert sasl(PLAIN, USER, {"sasl.password": " a "}).password == Secret(" a ")


def test_a_login_by_jaas() -> None:
    options = sasl(PLAIN, {"sasl.jaas.config": f"{LOGIN} username=user;"})
    assert options == SaslOptions("PLAIN", "user", Secret(CANARY))


@pytest.mark.parametrize(
    "names",
    [
        ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"),
        (
            "sasl.oauthbearer.client.credentials.client.id",
            "sasl.oauthbearer.client.credentials.client.secret",
        ),
    ],
)
def test_a_client_of_an_identity_provider(names: tuple[str, str]) -> None:
    source = tokens(
        {names[0]: "id", names[1]: CANARY},
        {"sasl.oauthbearer.scope": "a b", "sasl.oauthbearer.extensions": "tier=gold, pool=x=y,"},
        {"sasl.oauthbearer.method": "OIDC", "sasl.login.callback.handler.class": HANDLER},
    )
    assert source == TokenSource(
        "https://login.example/token",
        "id",
        Secret(CANARY),
        "a b",
        (("tier", "gold"), ("pool", "x=y")),
    )


def test_a_client_of_an_identity_provider_by_jaas() -> None:
    module = "kafkashaded.org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    login = f'{module} required clientId="id" clientSecret="{CANARY}" extension_tier="gold";'
    source = tokens({"sasl.jaas.config": login})
    assert (source.client_id, source.client_secret) == ("id", Secret(CANARY))
    assert (source.scope, source.extensions) == ("", (("tier", "gold"),))


@pytest.mark.parametrize(
    "handler",
    [
        HANDLER,
        HANDLER.replace(".OAuth", ".secured.OAuth"),
        f"kafkashaded.{HANDLER}",
    ],
)
def test_kafkas_handler_is_accepted(handler: str) -> None:
    assert tokens(CLIENT, {"sasl.login.callback.handler.class": handler}) == tokens(CLIENT)


@pytest.mark.parametrize(
    "url",
    [
        "https://login.example",
        "https://login.example:8443/a/b?c=d",
        "http://localhost:8080/token",
        "http://127.0.0.1/token",
        "http://[::1]:80/token",
    ],
)
def test_endpoints(url: str) -> None:
    assert tokens(CLIENT, {"sasl.oauthbearer.token.endpoint.url": url}).endpoint == url


@pytest.mark.parametrize(
    ("url", "reported"),
    [
        ("http://login.example/token", "to login.example without TLS. Use https"),
        ("http://localhost.evil.example/", "without TLS"),
        ("http://127.0.0.1.evil.example/", "without TLS"),
        ("http://2130706433/", "without TLS"),
        (f"https://id:{CANARY}@login.example/", "has a user or a fragment"),
        (f"http://localhost@{CANARY}/", "has a user or a fragment"),
        (f"https://login.example/#{CANARY}", "has a user or a fragment"),
        ("file:///etc/passwd", "is not a URL with https"),
        ("https:///token", "is not a URL with https"),
        (f"login.example/{CANARY}", "is not a URL with https"),
        ("https://login.example:port/", "is not a URL"),
        ("https://[::1/", "is not a URL"),
        (f"https://login.example/ {CANARY}", "is not a URL with https"),
        (f"https://login.example/\r\nHost: {CANARY}", "is not a URL with https"),
    ],
)
def test_endpoints_that_would_leak(url: str, reported: str) -> None:
    message = refusal({**BEARER, **CLIENT, "sasl.oauthbearer.token.endpoint.url": url})
    assert message.startswith("kafka.sasl.oauthbearer.token.endpoint.url ")
    assert reported in message


@pytest.mark.parametrize(
    ("settings", "reported"),
    [
        (
            {**PLAIN, **USER, "sasl.jaas.config": f"{LOGIN};"},
            "kafka.sasl.password and kafka.sasl.jaas.config contradict each other",
        ),
        (
            {**PLAIN, "sasl.username": "u", "sasl.jaas.config": f"{LOGIN};"},
            "kafka.sasl.username and kafka.sasl.jaas.config",
        ),
        (
            {**BEARER, **CLIENT, "sasl.jaas.config": CANARY},
            "kafka.sasl.oauthbearer.client.id and kafka.sasl.jaas.config",
        ),
        ({"security.protocol": "SASL_SSL", **USER}, "default, GSSAPI, is not supported"),
        ({**PLAIN, **USER, "sasl.mechanism": "GSSAPI"}, "kafka.sasl.mechanism=GSSAPI is not supp"),
        ({**PLAIN, **USER, "sasl.mechanism": "AWS_MSK_IAM"}, "Set one of PLAIN, SCRAM-SHA-256"),
        (
            {**PLAIN, **USER, "sasl.mechanisms": "SCRAM-SHA-256"},
            "kafka.sasl.mechanism and kafka.sasl.mechanisms contradict",
        ),
        ({**PLAIN, "sasl.username": "u"}, "kafka.sasl.password is missing"),
        ({**PLAIN, "sasl.password": CANARY}, "kafka.sasl.username is missing"),
        ({**PLAIN}, "kafka.sasl.username is missing"),
        ({**PLAIN, **USER, "sasl.password": ""}, "kafka.sasl.password is empty"),
        ({**PLAIN, **USER, "sasl.password": f"{CANARY}\0"}, "has a NUL character"),
        ({**PLAIN, **USER, "sasl.password": f"{CANARY}\udc80"}, "is not valid Unicode"),
        (
            {**PLAIN, "sasl.jaas.config": f"{LOGIN};"},
            "username in kafka.sasl.jaas.config is missing",
        ),
        ({**PLAIN, "sasl.jaas.config": f"{LOGIN} username='';"}, "username in kafka.sasl.jaas"),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule "
                f"required username=u password={CANARY} tokenauth=true;",
            },
            "tokenauth (delegation tokens) is not supported",
        ),
        (
            {**PLAIN, **USER, "sasl.oauthbearer.scope": "x"},
            "kafka.sasl.oauthbearer.scope is for OAUTHBEARER, but sasl.mechanism is PLAIN",
        ),
        ({**BEARER, **CLIENT, "sasl.password": CANARY}, "kafka.sasl.password is not used by OAUTH"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", **CLIENT},
            "kafka.sasl.oauthbearer.token.endpoint.url is missing",
        ),
        (
            {**BEARER, "sasl.oauthbearer.client.id": "id"},
            "kafka.sasl.oauthbearer.client.credentials.client.secret is missing",
        ),
        (
            {**BEARER, "sasl.oauthbearer.client.secret": CANARY},
            "kafka.sasl.oauthbearer.client.credentials.client.id is missing",
        ),
        (
            {**BEARER, **CLIENT, "sasl.oauthbearer.client.credentials.client.secret": CANARY + "2"},
            (
                "kafka.sasl.oauthbearer.client.credentials.client.secret and "
                "kafka.sasl.oauthbearer.client.secret contradict"
            ),
        ),
        (
            {**BEARER, **CLIENT, "sasl.oauthbearer.method": "default"},
            "kafka.sasl.oauthbearer.method=default is not supported. Set it to oidc",
        ),
        (
            {**BEARER, **CLIENT, "sasl.login.callback.handler.class": "com.example.Handler"},
            "kafka.sasl.login.callback.handler.class=com.example.Handler is not supported",
        ),
        (
            {**BEARER, **CLIENT, "sasl.oauthbearer.extensions": f"auth={CANARY}"},
            "kafka.sasl.oauthbearer.extensions: the name of an extension is invalid",
        ),
        ({**BEARER, **CLIENT, "sasl.oauthbearer.extensions": "a b=c"}, "Use letters only"),
        ({**BEARER, **CLIENT, "sasl.oauthbearer.extensions": "=c"}, "Use letters only"),
        (
            {**BEARER, **CLIENT, "sasl.oauthbearer.extensions": f"a={CANARY}\x01"},
            "the value of extension a is invalid",
        ),
        ({**BEARER, **CLIENT, "sasl.oauthbearer.extensions": "a"}, "extension a is invalid"),
        ({**BEARER, **CLIENT, "sasl.oauthbearer.extensions": "a=b,a=c"}, "is repeated"),
    ],
)
def test_wrong_settings_of_sasl(settings: dict[str, str], reported: str) -> None:
    assert reported in refusal(settings)


# --- All settings ---


@pytest.mark.parametrize(
    ("settings", "reported"),
    [
        ({"security.protocol": "TLS"}, "kafka.security.protocol=TLS is unknown. Set one of PLAIN"),
        ({"security.protocol": ""}, "kafka.security.protocol is empty"),
        (
            {"ssl.ca.location": "/a"},
            (
                "kafka.ssl.ca.location needs TLS, but kafka.security.protocol is PLAINTEXT, the "
                "default. Set it to SSL or SASL_SSL"
            ),
        ),
        (
            {**PLAIN, **USER, "ssl.endpoint.identification.algorithm": ""},
            (
                "kafka.ssl.endpoint.identification.algorithm needs TLS, but "
                "kafka.security.protocol is SASL_PLAINTEXT. "
            ),
        ),
        (
            {**TLS, **USER},
            (
                "kafka.sasl.password needs SASL, but kafka.security.protocol is SSL. Set it to "
                "SASL_PLAINTEXT or SASL_SSL"
            ),
        ),
        ({"ssl.ca.locaton": CANARY}, "Did you mean 'kafka.ssl.ca.location'?"),
        ({"sasl.mecanism": CANARY}, "Did you mean 'kafka.sasl.mechanism'?"),
        ({"security.protocl": "SSL"}, "Did you mean 'kafka.security.protocol'?"),
        ({"Security.Protocol": "SSL"}, "Did you mean 'kafka.security.protocol'?"),
        ({"sasl.kerberos.service.name": "kafka"}, "is unknown or not supported. Remove it."),
        ({"ssl.engine.factory.class": CANARY}, "kafka.ssl.engine.factory.class is unknown or not"),
        ({"security.providers": CANARY}, "kafka.security.providers is unknown or not supported."),
    ],
)
def test_settings_without_an_effect_are_refused(settings: dict[str, str], reported: str) -> None:
    assert reported in refusal(settings)


def test_names_of_the_settings() -> None:
    assert SECRET_SETTINGS < SECURITY_SETTINGS
    own = [name for name in SECURITY_SETTINGS if name.startswith(("security.", "ssl.", "sasl."))]
    assert len(own) == len(SECURITY_SETTINGS) - 1
    wanted = ("password", "secret", ".pem", "jaas.config", "store.key", "certificate.chain")
    assert {name for name in SECURITY_SETTINGS if name.endswith(wanted)} <= SECRET_SETTINGS


def outcome(settings: dict[str, str]) -> Security | str:
    try:
        return parse_security(settings)
    except ConfigError as error:
        return str(error)


@pytest.mark.parametrize("name", sorted(SECURITY_SETTINGS))
@pytest.mark.parametrize("base", [{**PLAIN, **USER}, {**BEARER, **CLIENT}], ids=["plain", "bearer"])
def test_no_name_is_ignored(base: dict[str, str], name: str) -> None:
    secured = {**base, "security.protocol": "SASL_SSL"}
    assert isinstance(outcome(secured), Security)
    assert outcome({**secured, name: "x"}) != outcome(secured)


def every_secret() -> Security:
    return parse(
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},
        BEARER,
        CLIENT,
        {"ssl.ca.pem": CANARY, "ssl.certificate.pem": CANARY},
        {"ssl.key.pem": CANARY, "ssl.key.password": CANARY},
    )


def secrets_in(value: object) -> list[Secret]:
    if isinstance(value, Secret):
        return [value]
    if not dataclasses.is_dataclass(value):
        return []
    fields = dataclasses.fields(value)
    return [found for field in fields for found in secrets_in(getattr(value, field.name))]


@pytest.mark.parametrize("security", [every_secret(), parse(PLAIN, USER)], ids=["bearer", "plain"])
def test_secrets_survive_only_for_a_task(security: Security) -> None:
    assert CANARY not in repr(security)
    assert all(secret == Secret(CANARY) for secret in secrets_in(security))
    data = pickle.dumps(security)
    assert CANARY.encode() not in data
    assert {secret.reveal() for secret in secrets_in(pickle.loads(data))} == {HIDDEN}
    for_task = security.for_task()
    assert for_task == security
    assert hash(for_task) == hash(security)
    assert all(isinstance(secret, SecretForTask) for secret in secrets_in(for_task))
    assert pickle.loads(pickle.dumps(for_task)) == security


def test_every_field_with_a_secret_is_covered() -> None:
    assert len(secrets_in(every_secret())) == 5
    kinds = (CertificateStore, TokenSource, SaslOptions)
    count = sum(
        "Secret" in str(hint) for kind in kinds for hint in typing.get_type_hints(kind).values()
    )
    assert count == 4, "a new field of secrets needs a case in the test above"


def test_security_is_consistent() -> None:
    for create in (
        lambda: Security("SSL"),
        lambda: Security("PLAINTEXT", TlsOptions()),
        lambda: Security("SASL_PLAINTEXT"),
        lambda: Security("TLS"),
        lambda: SaslOptions("GSSAPI"),
    ):
        with pytest.raises(AssertionError):
            create()
