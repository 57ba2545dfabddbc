"""Requests of the pipe commands to the admin port of a broker, and the text of a pipe."""

import json
from typing import Any, Final, cast

import click

from penstock.cli.admin_port import ADMIN_HINT, AdminPort, admin_option
from penstock.cli.options import TIMEOUT_SECONDS, Command, command_config_option
from penstock.core.errors import MalformedResponseError
from penstock.core.quantities import printable

PATH: Final = "/api/v1/pipes"

Document = dict[str, Any]


def port_options(command: Command) -> Command:
    """Add the options of a connection to the admin port."""
    timeout = click.option(
        "--timeout",
        "timeout_seconds",
        type=TIMEOUT_SECONDS,
        default=10.0,
        show_default=True,
        metavar="SECONDS",
        help="Time for each answer.",
    )
    return admin_option(command_config_option(timeout(command)))


def asked(port: AdminPort, method: str, path: str, body: Document | None = None) -> Document:
    """Return the document of an answer; empty for an answer without one."""
    sent = None if body is None else json.dumps(body).encode()
    data = port.ask(method, f"{PATH}{path}", sent)
    if not data:
        return {}
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise not_pipes(port) from error
    if not isinstance(document, dict):
        raise not_pipes(port)
    return cast("Document", document)


def field(port: AdminPort, document: Document, name: str, kind: type) -> Any:  # noqa: ANN401
    """Return a field of an answer, which has this type."""
    value = document.get(name)
    if not isinstance(value, kind):
        raise not_pipes(port)
    return value


def not_pipes(port: AdminPort) -> MalformedResponseError:
    """Return the error for an answer of another server."""
    return MalformedResponseError(
        f"{port.url}{PATH} answers, but not as the admin port of a Penstock broker.",
        hint=ADMIN_HINT,
    )


def text(document: Document, name: str) -> str:
    """Return a text of an answer, without control characters."""
    return printable(str(document.get(name, "")))


def duration(seconds: object) -> str:
    """Return a time in words, such as `2 h 5 min`."""
    if not isinstance(seconds, int | float):
        return "unknown"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 172_800:
        return f"{whole // 3_600} h {whole % 3_600 // 60} min"
    return f"{whole // 86_400} days"
