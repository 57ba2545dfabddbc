"""Settings of the connection to a cluster: `--command-config` and `PENSTOCK_CLIENT_*`.

The file has Kafka's form and names, so that one file serves Kafka's tools and Penstock. A variable
overrides the setting of the same name: `PENSTOCK_CLIENT_SASL_PASSWORD` is `sasl.password`. Secrets
are never options of a command, because every user of a machine can list the arguments of processes.

Settings of Kafka without a meaning for a command, such as `acks`, are ignored with a note. Wrong
settings of TLS and SASL are errors.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource

from penstock.cli.options import BOOTSTRAP_DEFAULT, COMMAND_CONFIG
from penstock.cli.output import note
from penstock.client.property_file import is_setting_name, parse_properties
from penstock.client.security.options import (
    NO_SECURITY,
    SECURITY_SETTINGS,
    Security,
    parse_security,
)
from penstock.client.transport.options import checked_client_id
from penstock.client.transport.versions import CLIENT_NAME
from penstock.core.errors import ConfigError
from penstock.core.quantities import count_text

VARIABLE_PREFIX: Final = "PENSTOCK_CLIENT_"
FILE_BYTES_MAX: Final = 1_048_576
NOTED_NAMES_MAX: Final = 20

_BOOTSTRAP: Final = "bootstrap.servers"
_CLIENT_ID: Final = "client.id"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How a command connects."""

    security: Security = NO_SECURITY
    client_id: str = CLIENT_NAME
    bootstrap: str | None = None
    """Used unless `--bootstrap-server` is given."""


def client_settings(
    context: click.Context | None = None, *, is_quiet: bool = False
) -> ClientSettings:
    """Return the settings of the running command."""
    context = context or click.get_current_context(silent=True)
    path, given = _given(context)
    return _parsed(given, path, is_quiet=is_quiet)


def librdkafka_settings() -> dict[str, str]:
    """Return the settings of TLS and SASL as they were given, for a command with librdkafka."""
    _, given = _given(click.get_current_context(silent=True))
    return {name: value for name, value in given.items() if name in SECURITY_SETTINGS}


def _given(context: click.Context | None) -> tuple[str | None, dict[str, str]]:
    path = None if context is None else context.meta.get(COMMAND_CONFIG)
    return path, (_file_settings(path) if path else {}) | _variables(os.environ)


def settings_of_file(path: str | None) -> ClientSettings:
    """Return the settings in this file, without those of the environment; None: the defaults."""
    return ClientSettings() if path is None else _parsed(_file_settings(path), path, is_quiet=False)


def chosen_bootstrap(bootstrap: str, settings: ClientSettings) -> str:
    """Return the address of the settings, unless one was given to the command."""
    context = click.get_current_context(silent=True)
    if context is None:
        is_given = bootstrap != BOOTSTRAP_DEFAULT
    else:
        is_given = context.get_parameter_source("bootstrap") is not ParameterSource.DEFAULT
    return bootstrap if is_given else settings.bootstrap or bootstrap


def _parsed(given: dict[str, str], path: str | None, *, is_quiet: bool) -> ClientSettings:
    try:
        security = parse_security(given)
        client_id = checked_client_id(given.get(_CLIENT_ID, CLIENT_NAME))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}" if path else str(error), hint=error.hint) from error
    if not is_quiet:
        _note_unused(set(given) - SECURITY_SETTINGS - {_BOOTSTRAP, _CLIENT_ID})
    return ClientSettings(security, client_id, given.get(_BOOTSTRAP))


def _note_unused(names: set[str]) -> None:
    if not names:
        return
    listed = sorted(name for name in names if is_setting_name(name))[:NOTED_NAMES_MAX]
    others = len(names) - len(listed)
    if others:
        listed.append(count_text(others, "other name"))
    note(f"note: settings without an effect on a command: {', '.join(listed)}.")


def _file_settings(path: str) -> dict[str, str]:
    try:
        with Path(path).open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1).decode("utf-8-sig")
        return parse_properties(text)
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a properties file: it is not UTF-8.") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}.") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(VARIABLE_PREFIX).lower().replace("_", "."): value
        for name, value in environment.items()
        if name.startswith(VARIABLE_PREFIX)
    }
