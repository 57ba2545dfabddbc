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

from collections.abc import Iterator, Mapping
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

    certificate: Annotated[str, Field(min_length=1)]
    """Certificate of the broker, then the certificates of the authorities that sign it, in PEM."""
    key: Annotated[str, Field(min_length=1)]
    """Private key of the certificate, in PEM."""
    key_password_file: Annotated[str | None, Field(min_length=1)] = None
    """File with the password of an encrypted key."""
    client_ca: Annotated[str | None, Field(min_length=1)] = None
    """Certificate authorities of clients, in PEM."""
    client_auth: Literal["none", "requested", "required"] = "none"
    principal_mapping_rules: Annotated[str, Field(min_length=1, max_length=4_096)] = "DEFAULT"
    """Kafka's `ssl.principal.mapping.rules`."""
    principal_source: Literal["DN", "SAN:URI", "SAN:DNS"] = "DN"
    """The name that the rules map: the subject, or an alternative name."""


class NamedListener(Section):
    """One listener of a settings file."""

    name: Annotated[str, Field(pattern=r"^[A-Z0-9_.\-]{1,64}$")]
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)]
    advertised_host: Annotated[str | None, Field(min_length=1)] = None
    advertised_port: Annotated[int | None, Field(ge=1, le=65_535)] = None
    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    mechanisms: tuple[Mechanism, ...] = ()
    tls: TlsFileSettings | None = None
    connections_max: Annotated[int | None, Field(ge=1)] = None
    """Connections of this listener at one time, besides the bound of the broker."""
    reauthentication_ms_max: Annotated[int | None, Field(ge=0, le=2**53)] = None
    """As `security.reauthentication_ms_max`, for this listener."""
    principal: Annotated[str | None, Field(pattern=r"^[A-Za-z]+:.+$", max_length=255)] = None
    """The fixed identity of its clients, for tests."""

    @property
    def has_tls(self) -> bool:
        """Whether its connections use TLS."""
        return self.protocol in (SSL, SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """Whether its clients log in."""
        return self.protocol in (SASL_PLAINTEXT, SASL_SSL)


_KEYS: Final = tuple(NamedListener.model_fields)


def read_listeners(
    entries: list[object], lines: Mapping[str, int], file_name: str, problems: list[str]
) -> tuple[NamedListener, ...]:
    """Return the valid listeners; add the errors of the others to `problems`."""
    if len(entries) > LISTENERS_MAX:
        problems.append(
            f"{file_name} has {len(entries)} listeners, more than {LISTENERS_MAX}. Remove some."
        )
        return ()
    found: list[NamedListener] = []
    for index, entry in enumerate(entries):
        reader = _Entry(f"{SECTION}[{index}]", lines, file_name)
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

    def __init__(self, key: str, lines: Mapping[str, int], file_name: str) -> None:
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
            problems.append(f"{self.where()}: a listener is a table, not {entry!r}.")
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
        location = [str(part) for part in error["loc"]]
        key = ".".join(location)
        where = self.where(location[0])
        if error["type"] == "extra_forbidden":
            known = ", ".join(_KEYS if len(location) == 1 else TlsFileSettings.model_fields)
            return f"{where}: {key!r} is nothing that a listener has. There are {known}."
        if error["type"] == "missing":
            return f"{where}: the listener has no {key}. Add it."
        reason = error["msg"][:1].lower() + error["msg"][1:]
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
        if tls is not None and (tls.client_auth == "none") != (tls.client_ca is None):
            yield (
                f"{self.where('tls')}: client_auth and client_ca belong together: the listener "
                f"{name} has client_auth = {tls.client_auth!r} and client_ca = {tls.client_ca!r}."
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
                f"tests; the listener {name} has {protocol}."
            )
