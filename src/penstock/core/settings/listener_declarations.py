"""`[[listeners]]` of a settings file: named listeners, each with its own protocol (pure).

    [[listeners]]
    name = "CLIENTS"
    host = "0.0.0.0"
    port = 9093
    advertised_host = "broker1.example"
    protocol = "SASL_SSL"
    mechanisms = ["SCRAM-SHA-512"]
    tls = { certificate = "tls/server.crt", key = "tls/server.key" }

Guarantees: returned listeners are complete and agree with themselves: unique names and addresses,
a certificate exactly with TLS, mechanisms exactly with SASL. `core.settings.contradictions` holds
them against the other settings. Files are not read here.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError

from penstock.core.settings.settings_section import Section
from penstock.core.types import PLAINTEXT

SECTION: Final = "listeners"
LISTENERS_MAX: Final = 32
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SSL: Final = "SSL"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


class TlsFileSettings(Section):
    """The files of a listener with TLS."""

    certificate: Annotated[
        str,
        Field(
            min_length=1,
            description="File in PEM with the certificate of the broker, then the certificates of "
            "the authorities between it and the root.",
            json_schema_extra={"kafka": "ssl.keystore.certificate.chain"},
        ),
    ]
    key: Annotated[
        str,
        Field(
            min_length=1,
            description="File in PEM with the private key of the certificate.",
            json_schema_extra={"kafka": "ssl.keystore.key"},
        ),
    ]
    key_password_file: Annotated[
        str | None,
        Field(
            min_length=1,
            description="File with the password of an encrypted key.",
            json_schema_extra={"kafka": "ssl.key.password"},
        ),
    ] = None
    client_ca: Annotated[
        str | None,
        Field(
            min_length=1,
            description="File in PEM with the certificate authorities of clients; set it together "
            "with `client_auth`.",
            json_schema_extra={"kafka": "ssl.truststore.certificates"},
        ),
    ] = None
    client_auth: Annotated[
        Literal["none", "requested", "required"],
        Field(
            description="Whether clients send a certificate. `required`: a client without one is "
            "refused. `requested`: a client without one is `User:ANONYMOUS`.",
            json_schema_extra={"kafka": "ssl.client.auth"},
        ),
    ] = "none"
    principal_mapping_rules: Annotated[
        str,
        Field(
            min_length=1,
            max_length=4_096,
            description="Rules that create the name of the principal from the name in the "
            "certificate, with Kafka's syntax; the first rule that matches applies.",
            json_schema_extra={"kafka": "ssl.principal.mapping.rules"},
        ),
    ] = "DEFAULT"
    principal_source: Annotated[
        Literal["DN", "SAN:URI", "SAN:DNS"],
        Field(
            description="The name in the certificate that the rules map. `DN`: the subject. "
            "`SAN:URI`, `SAN:DNS`: the alternative name of this type.",
        ),
    ] = "DN"


class NamedListener(Section):
    """One listener of a settings file."""

    name: Annotated[
        str,
        Field(
            pattern=r"^[A-Z0-9_.\-]{1,64}$",
            description="Name of the listener in logs and metrics: capital letters, digits, `_`, "
            "`.` and `-`, at most 64 characters.",
            json_schema_extra={"kafka": "listeners"},
        ),
    ]
    host: Annotated[
        str,
        Field(
            description="Address to listen on. `0.0.0.0` is each address, and then "
            "`advertised_host` is needed.",
            json_schema_extra={"kafka": "listeners"},
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int,
        Field(
            ge=0,
            le=65_535,
            description="Port to listen on; 0 selects a free one.",
            json_schema_extra={"kafka": "listeners"},
        ),
    ]
    advertised_host: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Name or address that clients connect to; unset: `host`. With TLS the "
            "certificate must contain it.",
            json_schema_extra={"kafka": "advertised.listeners"},
        ),
    ] = None
    advertised_port: Annotated[
        int | None,
        Field(
            ge=1,
            le=65_535,
            description="Port that clients connect to; unset: the port of the listener.",
            json_schema_extra={"kafka": "advertised.listeners"},
        ),
    ] = None
    protocol: Annotated[
        Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"],
        Field(
            description="`PLAINTEXT`: no TLS, no login. `SSL`: TLS. `SASL_SSL`: TLS and a login. "
            "`SASL_PLAINTEXT`: a login without TLS.",
            json_schema_extra={"kafka": "listener.security.protocol.map"},
        ),
    ]
    mechanisms: Annotated[
        tuple[Mechanism, ...],
        Field(
            description="Mechanisms that clients may log in with; required with SASL, and only "
            "allowed there.",
            json_schema_extra={"kafka": "sasl.enabled.mechanisms"},
        ),
    ] = ()
    tls: Annotated[
        TlsFileSettings | None,
        Field(description="Files of TLS; required with `SSL` and `SASL_SSL`, and only there."),
    ] = None
    connections_max: Annotated[
        int | None,
        Field(
            ge=1,
            description="Connections of this listener at one time, besides the limits of "
            "`[listener]`.",
            json_schema_extra={"unit": "connections", "kafka": "max.connections"},
        ),
    ] = None
    reauthentication_ms_max: Annotated[
        int | None,
        Field(
            ge=0,
            le=2**53,
            description="As `security.reauthentication_ms_max`, for this listener; unset: that.",
            json_schema_extra={"unit": "milliseconds", "kafka": "connections.max.reauth.ms"},
        ),
    ] = None
    principal: Annotated[
        str | None,
        Field(
            pattern=r"^[A-Za-z]+:.+$",
            max_length=255,
            description="Fixed identity of all clients, such as `User:test`; for tests, with "
            "`PLAINTEXT` on a loopback address or with `storage` `memory`.",
        ),
    ] = None

    @property
    def has_tls(self) -> bool:
        """Whether its connections use TLS."""
        return self.protocol in (SSL, SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """Whether its clients log in."""
        return self.protocol in (SASL_PLAINTEXT, SASL_SSL)


_KEYS: Final = tuple(NamedListener.model_fields)
_FORMS: Final = {
    "name": "write capital letters, digits, '_', '.' and '-', at most 64 characters",
    "principal": "write kind, colon and name: User:test",
    "mechanisms": 'write a list: ["SCRAM-SHA-512"]',
    "tls": 'write a table: { certificate = "server.crt", key = "server.key" }',
}
"""The form of values whose validation messages name patterns and Python's types."""


def read_listeners(
    entries: list[object],
    lines: Mapping[str, int],
    file_name: str,
    problems: list[str],
    remedy_of: Callable[[str], str | None] = lambda _name: None,
) -> tuple[NamedListener, ...]:
    """Return the valid listeners; add the errors of the others to `problems`.

    `remedy_of` returns what to do with a name of Kafka; None for other names.
    """
    if len(entries) > LISTENERS_MAX:
        problems.append(
            f"{file_name} has {len(entries)} listeners, more than {LISTENERS_MAX}. Remove some."
        )
        return ()
    found: list[NamedListener] = []
    for index, entry in enumerate(entries):
        reader = _Entry(f"{SECTION}[{index}]", lines, file_name, remedy_of)
        listener = reader.read(entry, problems)
        if listener is not None:
            problems += _twice(listener, found, reader.where())
            found.append(listener)
    return tuple(found)


def _twice(listener: NamedListener, others: list[NamedListener], where: str) -> Iterator[str]:
    for other in others:
        if other.name == listener.name:
            yield f"{where}: the listener {listener.name} is declared twice. Rename one of them."
        if listener.port and (other.host, other.port) == (listener.host, listener.port):
            yield (
                f"{where}: the listeners {other.name} and {listener.name} both use "
                f"{listener.host}:{listener.port}. Give one of them another port."
            )


class _Entry:
    """Reads one table of the array."""

    def __init__(
        self,
        key: str,
        lines: Mapping[str, int],
        file_name: str,
        remedy_of: Callable[[str], str | None],
    ) -> None:
        self._remedy_of = remedy_of
        self._key = key
        self._lines = lines
        self._file_name = file_name

    def where(self, name: str = "") -> str:
        """Return the file and line of one of the keys."""
        from penstock.core.settings.toml_lines import line_of  # only with declared listeners

        line = line_of(self._lines, f"{self._key}.{name}" if name else self._key)
        return self._file_name if line is None else f"{self._file_name} line {line}"

    def read(self, entry: object, problems: list[str]) -> NamedListener | None:
        """Return the listener, or None with a problem."""
        if not isinstance(entry, dict):
            problems.append(
                f"{self.where()}: a listener is a table, not {entry!r}. Write [[{SECTION}]], then "
                "name, port and protocol, each on a line."
            )
            return None
        values: dict[str, Any] = dict(entry)
        if isinstance(values.get("mechanisms"), list):
            values["mechanisms"] = tuple(values["mechanisms"])
        try:
            listener = NamedListener.model_validate(values)
        except ValidationError as error:
            problems += (self._problem(dict(one)) for one in error.errors(include_url=False))
            return None
        found = list(self._disagreements(listener))
        problems += found
        return None if found else listener

    def _problem(self, error: Mapping[str, Any]) -> str:
        # An index into `mechanisms` is left out: the value is in the message.
        location = [part for part in error["loc"] if isinstance(part, str)]
        key = ".".join(location)
        where = self.where(location[0])
        if error["type"] == "extra_forbidden":
            from penstock.core.settings.toml_lines import leaf_names

            for name in leaf_names(location[-1], error["input"]):
                of_kafka = self._remedy_of(name)
                if of_kafka is not None:
                    where = self.where(".".join([*location[:-1], name]))
                    return f"{where}: {name!r} is a name of Kafka. {of_kafka}"
            known = ", ".join(_KEYS if len(location) == 1 else TlsFileSettings.model_fields)
            return f"{where}: {key!r} is nothing that a listener has. There are {known}."
        if error["type"] == "missing":
            return f"{where}: the listener has no {key}. Add it."
        is_element = len(location) < len(error["loc"])
        form = None if is_element else _FORMS.get(key)
        reason = form or error["msg"][:1].lower() + error["msg"][1:]
        return f"{where}: {key} = {error['input']!r}: {reason}."

    def _disagreements(self, listener: NamedListener) -> Iterator[str]:
        name, protocol = listener.name, listener.protocol
        if listener.has_tls and listener.tls is None:
            yield (
                f"{self.where('protocol')}: the listener {name} with {protocol} needs a "
                'certificate: tls = { certificate = "server.crt", key = "server.key" }'
            )
        if listener.tls is not None and not listener.has_tls:
            yield (
                f"{self.where('tls')}: the listener {name} has a certificate and the protocol "
                f"{protocol}, which does not use it. Set protocol to SSL or SASL_SSL."
            )
        tls = listener.tls
        if tls is not None and tls.client_auth == "none" and tls.client_ca is not None:
            yield (
                f"{self.where('tls')}: the listener {name} has client_ca, but its client_auth is "
                '"none": clients send no certificate. Set client_auth to "required" or '
                '"requested", or remove client_ca.'
            )
        if tls is not None and tls.client_auth != "none" and tls.client_ca is None:
            yield (
                f'{self.where("tls")}: the listener {name} has client_auth = "{tls.client_auth}" '
                "and no client_ca. Set client_ca to the file of the authorities that sign the "
                "certificates of clients."
            )
        if listener.has_sasl and not listener.mechanisms:
            yield (
                f"{self.where('protocol')}: the listener {name} with {protocol} needs mechanisms, "
                f"some of {', '.join(MECHANISMS)}."
            )
        if listener.mechanisms and not listener.has_sasl:
            yield (
                f"{self.where('mechanisms')}: the listener {name} has mechanisms and the protocol "
                f"{protocol}, which has no login. Set protocol to SASL_SSL."
            )
        if listener.principal is not None and protocol != PLAINTEXT:
            yield (
                f"{self.where('principal')}: a fixed principal is for PLAINTEXT listeners of "
                f"tests; the listener {name} has {protocol}. Remove it."
            )
