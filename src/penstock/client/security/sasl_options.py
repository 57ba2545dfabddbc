"""`SaslOptions`: mechanism and credential of a client, from Kafka's `sasl.*` names (pure).

A credential is a user and a password, from `sasl.username` and `sasl.password` or from
`sasl.jaas.config`, or a client of an identity provider for OAUTHBEARER. Guarantees: a setting that
the mechanism does not use is rejected, the credential is complete, and a client secret is sent over
https only, or to this machine. No message has a secret. It does NOT log in, and it does not request
tokens.
"""

import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self

from penstock.client.security.given_settings import GivenSettings
from penstock.client.security.jaas import EXTENSION_PREFIX, SHADED_PREFIX, parse_jaas
from penstock.core.errors import ConfigError
from penstock.core.loopback import is_loopback
from penstock.security.sasl_client import OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from penstock.security.secret import Secret

MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)

MECHANISM_NAMES: Final = ("sasl.mechanism", "sasl.mechanisms")
USERNAME: Final = "sasl.username"
PASSWORD: Final = "sasl.password"  # noqa: S105 (a name)
JAAS: Final = "sasl.jaas.config"
ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID_NAMES: Final = (
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.id",
)
CLIENT_SECRET_NAMES: Final = (
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.client.secret",
)
SCOPE: Final = "sasl.oauthbearer.scope"
EXTENSIONS: Final = "sasl.oauthbearer.extensions"
METHOD: Final = "sasl.oauthbearer.method"
CALLBACK_HANDLER: Final = "sasl.login.callback.handler.class"

BEARER_SETTINGS: Final = frozenset(
    {
        ENDPOINT,
        *CLIENT_ID_NAMES,
        *CLIENT_SECRET_NAMES,
        SCOPE,
        EXTENSIONS,
        METHOD,
        CALLBACK_HANDLER,
    }
)
SASL_SETTINGS: Final = BEARER_SETTINGS | {*MECHANISM_NAMES, USERNAME, PASSWORD, JAAS}
SASL_SECRET_SETTINGS: Final = frozenset({PASSWORD, JAAS, *CLIENT_SECRET_NAMES})

_HANDLERS: Final = frozenset(
    f"{prefix}org.apache.kafka.common.security.oauthbearer.{package}OAuthBearerLoginCallbackHandler"
    for prefix in ("", SHADED_PREFIX)
    for package in ("", "secured.")
)
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x20-\x7e\t]+")
_RESERVED_EXTENSION: Final = "auth"


@dataclass(frozen=True, slots=True)
class TokenSource:
    """An identity provider, and the client that requests tokens of it (client credentials)."""

    endpoint: str = field(repr=False)
    """Its query may contain a key, so that messages have `place` instead."""
    client_id: str
    client_secret: Secret
    scope: str = ""
    extensions: tuple[tuple[str, str], ...] = ()
    """Names and values that a login sends to the broker beside the token."""

    @property
    def place(self) -> str:
        """Return the URL of the endpoint without its query."""
        return self.endpoint.partition("?")[0]

    def for_task(self) -> Self:
        """Return the same source for a task of Spark."""
        return replace(self, client_secret=self.client_secret.for_task())


@dataclass(frozen=True, slots=True)
class SaslOptions:
    """The SASL mechanism of a client, and its credential."""

    mechanism: str
    username: str = ""
    password: Secret | None = None
    tokens: TokenSource | None = None
    """The source of tokens for OAUTHBEARER; other mechanisms have a user and a password."""

    def __post_init__(self) -> None:
        assert self.mechanism in MECHANISMS

    def for_task(self) -> Self:
        """Return the same options for a task of Spark."""
        return replace(
            self,
            password=None if self.password is None else self.password.for_task(),
            tokens=None if self.tokens is None else self.tokens.for_task(),
        )


def parse_sasl(given: GivenSettings) -> SaslOptions:
    """Return the options; raise `ConfigError` for the first wrong setting."""
    mechanism = _mechanism(given)
    for name in (PASSWORD, USERNAME, *CLIENT_ID_NAMES, *CLIENT_SECRET_NAMES, SCOPE, EXTENSIONS):
        if given.has(JAAS) and given.has(name):
            raise given.contradiction(name, JAAS)
    config = given.secret(JAAS)
    jaas = {} if config is None else parse_jaas(config, mechanism, given.shown(JAAS))
    if mechanism == OAUTHBEARER:
        return SaslOptions(mechanism, tokens=_token_source(given, jaas))
    return _password_login(given, mechanism, jaas)


def _mechanism(given: GivenSettings) -> str:
    name = given.alias(MECHANISM_NAMES)
    choice = f"Set one of {', '.join(MECHANISMS)}."
    if name is None:
        raise ConfigError(
            f"{given.shown(MECHANISM_NAMES[0])} is missing. Kafka's default, GSSAPI, is not "
            f"supported. {choice}"
        )
    mechanism = given.text(name).upper()
    if mechanism not in MECHANISMS:
        raise ConfigError(f"{given.shown(name)}={mechanism} is not supported. {choice}")
    return mechanism


def _password_login(
    given: GivenSettings, mechanism: str, jaas: Mapping[str, Secret]
) -> SaslOptions:
    given.refuse(
        sorted(BEARER_SETTINGS),
        f"is for OAUTHBEARER, but sasl.mechanism is {mechanism}. Remove it.",
    )
    if "tokenauth" in jaas and jaas["tokenauth"].reveal().lower() != "false":
        raise ConfigError(
            f"{given.shown(JAAS)}: tokenauth (delegation tokens) is not supported. "
            "Use a user and a password."
        )
    if given.has(JAAS):
        username, password = jaas.get("username"), jaas.get("password")
    else:
        username, password = given.secret(USERNAME), given.secret(PASSWORD)
    for name, value in (("username", username), ("password", password)):
        setting = (
            f"{name} in {given.shown(JAAS)}" if given.has(JAAS) else given.shown(f"sasl.{name}")
        )
        if value is None or not value.reveal():
            raise ConfigError(
                f"{setting} is missing: {mechanism} needs a user and a password. Set it."
            )
        if "\0" in value.reveal():
            raise ConfigError(f"{setting} has a NUL character. Remove it from the value.")
    assert username is not None
    return SaslOptions(mechanism, username.reveal(), password)


def _token_source(given: GivenSettings, jaas: Mapping[str, Secret]) -> TokenSource:
    given.refuse((USERNAME, PASSWORD), "is not used by OAUTHBEARER. Remove it.")
    _check_method(given)
    if not given.has(ENDPOINT):
        raise ConfigError(
            f"{given.shown(ENDPOINT)} is missing: OAUTHBEARER requests its tokens there. Set it."
        )
    endpoint = _endpoint(given)
    if given.has(JAAS):
        client_id, client_secret = jaas.get("clientId"), jaas.get("clientSecret")
        scope = jaas["scope"].reveal() if "scope" in jaas else ""
        named = [
            (name.removeprefix(EXTENSION_PREFIX), value.reveal())
            for name, value in jaas.items()
            if name.startswith(EXTENSION_PREFIX)
        ]
        places = [f"{name} in {given.shown(JAAS)}" for name in ("clientId", "clientSecret")]
    else:
        client_id = given.secret(given.alias(CLIENT_ID_NAMES) or "")
        client_secret = given.secret(given.alias(CLIENT_SECRET_NAMES) or "")
        scope = given.text(SCOPE)
        named = _named_extensions(given)
        places = [given.shown(CLIENT_ID_NAMES[0]), given.shown(CLIENT_SECRET_NAMES[0])]
    for place, value in zip(places, (client_id, client_secret), strict=True):
        if value is None or not value.reveal():
            raise ConfigError(f"{place} is missing: OAUTHBEARER needs an id and a secret. Set it.")
    assert client_id is not None
    assert client_secret is not None
    if ":" in client_id.reveal():
        raise ConfigError(f"{places[0]} has a colon, which Basic authentication cannot carry.")
    if not f"{client_id.reveal()}{client_secret.reveal()}{scope}".isprintable():
        raise ConfigError(f"{places[0]}, its secret or its scope has an invisible character.")
    extensions = _extensions(named, given.shown(JAAS if given.has(JAAS) else EXTENSIONS))
    return TokenSource(endpoint, client_id.reveal(), client_secret, scope, extensions)


def _check_method(given: GivenSettings) -> None:
    method = given.text(METHOD, "oidc").lower()
    if method != "oidc":
        raise ConfigError(
            f"{given.shown(METHOD)}={method} is not supported. Set it to oidc, and set "
            f"{given.shown(ENDPOINT)}."
        )
    handler = given.text(CALLBACK_HANDLER)
    if handler and handler not in _HANDLERS:
        raise ConfigError(
            f"{given.shown(CALLBACK_HANDLER)}={handler} is not supported: Java classes are not "
            "loaded. Remove it, or use Kafka's OAuthBearerLoginCallbackHandler."
        )


def _endpoint(given: GivenSettings) -> str:
    """Return the checked URL. Messages have its host at most: a URL can contain a credential."""
    text = given.text(ENDPOINT)
    name = given.shown(ENDPOINT)
    try:
        parts = urllib.parse.urlsplit(text)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise ConfigError(f"{name} is not a URL. Use https://host/path.") from None
    is_plain = text.isascii() and text.isprintable() and " " not in text
    if not host or not is_plain or parts.scheme not in {"https", "http"}:
        raise ConfigError(f"{name} is not a URL with https. Use https://host/path.")
    if "@" in parts.netloc or parts.fragment:
        raise ConfigError(
            f"{name} has a user or a fragment. Use https://host/path, and set "
            f"{given.shown(CLIENT_ID_NAMES[0])} for the client."
        )
    if parts.scheme == "http" and not is_loopback(host):
        raise ConfigError(
            f"{name} sends the client's secret to {host} without TLS. Use https; http is accepted "
            "for localhost only."
        )
    return text


def _named_extensions(given: GivenSettings) -> list[tuple[str, str]]:
    """Return names and values of librdkafka's form, `name=value,name=value`."""
    parts = [part.strip().partition("=") for part in given.text(EXTENSIONS).split(",")]
    return [(name, value) for name, separator, value in parts if name or separator]


def _extensions(named: list[tuple[str, str]], setting: str) -> tuple[tuple[str, str], ...]:
    """Return the extensions if RFC 7628 allows them; messages do not show a value."""
    for name, value in named:
        if not _EXTENSION_NAME.fullmatch(name) or name == _RESERVED_EXTENSION:
            raise ConfigError(
                f"{setting}: the name of an extension is invalid. Use letters only, and not "
                f"'{_RESERVED_EXTENSION}'."
            )
        if not _EXTENSION_VALUE.fullmatch(value):
            raise ConfigError(
                f"{setting}: the value of extension {name} is invalid. Use printable ASCII."
            )
    if len({name for name, _ in named}) != len(named):
        raise ConfigError(f"{setting}: an extension is repeated. Set each one once.")
    return tuple(named)
