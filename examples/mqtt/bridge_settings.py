"""The settings of the bridge, from a TOML file. A wrong file is refused with the name to change."""

import ssl
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, TypeVar

from mqtt_mapping import DownRoute, MappingError, UpRoute, check_filter, check_routes

IN_FLIGHT_MAX: Final = 1_000
"""A push session answers at most this number of publishes at a time."""
SESSION_SECONDS: Final = 7 * 24 * 3600

Section = TypeVar("Section")


class SettingsError(Exception):
    """The file cannot be used."""


@dataclass(frozen=True, slots=True)
class Mqtt:
    """Mosquitto, and the session of the bridge there."""

    host: str = "127.0.0.1"
    port: int = 1883
    client_id: str = "penstock-bridge"
    session_seconds: int = SESSION_SECONDS
    """How long Mosquitto keeps messages for a bridge that is not connected."""
    in_flight: int = 100
    """Messages without an acknowledgement, in each direction."""
    receipts: str = ""
    """Response topics that the bridge answers to; empty: none."""
    user: str = ""
    password_file: str = ""
    ca_file: str = ""
    """Certificates to trust: TLS is used if this is set."""


@dataclass(frozen=True, slots=True)
class Penstock:
    """The push port of the broker."""

    host: str = "127.0.0.1"
    port: int = 9095
    socket_path: str = ""
    group: str = "mqtt-bridge"
    """The group whose offsets are the position of the routes down."""
    user: str = ""
    password_file: str = ""
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class BridgeSettings:
    """All of the file."""

    mqtt: Mqtt
    penstock: Penstock
    up: tuple[UpRoute, ...]
    down: tuple[DownRoute, ...]


def load(path: Path) -> BridgeSettings:
    """Return the settings of a file; raise `SettingsError`."""
    try:
        found = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"cannot read {path}: {error}") from error
    return parse(found)


def parse(found: dict[str, Any]) -> BridgeSettings:
    """Return the settings of a parsed file; raise `SettingsError`."""
    unknown = set(found) - {"mqtt", "penstock", "up", "down"}
    if unknown:
        raise SettingsError(f"unknown section '{min(unknown)}': use mqtt, penstock, up, down")
    settings = BridgeSettings(
        _section(Mqtt, "mqtt", found.get("mqtt", {})),
        _section(Penstock, "penstock", found.get("penstock", {})),
        tuple(_section(UpRoute, "up", one) for one in _list(found, "up")),
        tuple(_section(DownRoute, "down", one) for one in _list(found, "down")),
    )
    if not settings.up and not settings.down:
        raise SettingsError("no route: add [[up]] with filter and topic, or [[down]]")
    if not 1 <= settings.mqtt.in_flight <= IN_FLIGHT_MAX:
        raise SettingsError(
            f"mqtt.in_flight is {settings.mqtt.in_flight}: it must be 1 to {IN_FLIGHT_MAX:,}"
        )
    try:
        check_routes(settings.up, settings.down)
        if settings.mqtt.receipts:
            check_filter(settings.mqtt.receipts)
            check_routes((*settings.up, UpRoute(settings.mqtt.receipts, "receipts")), ())
    except MappingError as error:
        raise SettingsError(str(error)) from error
    return settings


def _list(found: dict[str, Any], name: str) -> list[Any]:
    value = found.get(name, [])
    if not isinstance(value, list):
        raise SettingsError(f"'{name}' is a list of routes: write [[{name}]]")
    return value


def _section(kind: type[Section], name: str, found: object) -> Section:
    if not isinstance(found, dict):
        raise SettingsError(f"'{name}' must be a table")
    known = {one.name: one for one in fields(kind)}  # type: ignore[arg-type]
    for key, value in found.items():
        if key not in known:
            raise SettingsError(f"unknown setting {name}.{key}: use {', '.join(known)}")
        wanted = known[key].type
        if type(value) is not wanted:
            raise SettingsError(f"{name}.{key} is {value!r}: it must be of type {wanted}")
    try:
        return kind(**found)
    except TypeError as error:
        raise SettingsError(f"{name}: {error}") from error


def password(path: str) -> str:
    """Return the password of a file; raise `SettingsError`."""
    if not path:
        return ""
    try:
        return Path(path).read_text().rstrip("\n")
    except OSError as error:
        raise SettingsError(f"cannot read the password file: {error}") from error


def tls(ca_file: str) -> ssl.SSLContext | None:
    """Return what checks the certificate of a server, or None without TLS."""
    if not ca_file:
        return None
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"cannot use the certificates of {ca_file}: {error}") from error
