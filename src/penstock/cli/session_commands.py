"""`penstock session`: list the clients that are connected to a broker, and disconnect some.

Sessions are not in Kafka's protocol: the commands ask the admin port of one broker. A removed user
or authority does not end the sessions that it began; `penstock session end` does. A client whose
credential is still good connects again.
"""

import json
from datetime import UTC, datetime
from typing import Any, Final, cast

import click

from penstock.cli.admin_port import (
    ADMIN_HINT,
    AdminPort,
    AdminRefusedError,
    admin_option,
    open_admin_port,
)
from penstock.cli.options import (
    TIMEOUT_SECONDS,
    Command,
    command_config_option,
    examples,
    json_option,
)
from penstock.cli.output import note, print_json, print_table
from penstock.core.errors import MalformedResponseError
from penstock.core.quantities import count_text, printable

PATH: Final = "/api/v1/sessions"
PAGE_SIZE: Final = 100
"""An answer with 100 sessions is within the bound of answers, whatever the clients send."""
_COLUMNS: Final = (
    *("id", "principal", "address", "listener", "mechanism", "client id", "since", "expires"),
)

Document = dict[str, Any]


@click.group(
    short_help="List connected clients, disconnect some.",
    epilog=examples(
        "penstock session list",
        "penstock session end --principal User:alice",
        "penstock session end 42",
    ),
)
def session() -> None:
    """List the clients that are connected to a broker, and disconnect some.

    The commands ask the admin port of the broker.
    """


def _port_options(command: Command) -> Command:
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


@session.command(
    name="list",
    short_help="List connected clients.",
    epilog=examples("penstock session list", "penstock session list --principal User:alice"),
)
@click.option("--principal", metavar="TYPE:NAME", help="Only sessions of this principal.")
@_port_options
@json_option()
def list_(principal: str | None, url: str, timeout_seconds: float, as_json: bool) -> None:
    """List the connected clients of a broker, the oldest connection first.

    Needs the permission Describe on the cluster.
    """
    port = open_admin_port(url, timeout_seconds)
    found: list[Document] = []
    after: int | None = 0
    while after is not None:
        page = _asked(port, "GET", "", {"principal": principal, "after": after, "limit": PAGE_SIZE})
        found += _field(port, page, "sessions", list)
        last, after = after, page.get("next")
        if after is not None and not (isinstance(after, int) and after > last):
            raise _not_sessions(port)
    if as_json:
        print_json(found)
        return
    try:
        rows = [_row(one) for one in found]
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise _not_sessions(port) from error
    print_table(list(_COLUMNS), rows)


@session.command(
    short_help="Disconnect clients.",
    epilog=examples("penstock session end 42", "penstock session end --principal User:alice"),
)
@click.argument("ids", nargs=-1, type=click.IntRange(min=1), metavar="[ID]...")
@click.option("--principal", metavar="TYPE:NAME", help="All sessions of this principal.")
@_port_options
@json_option()
def end(
    ids: tuple[int, ...],
    principal: str | None,
    url: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Disconnect the clients of a principal, or those with these ids.

    A client connects again if its credential is still good: remove the user, or the certificate
    authority, first. Needs the permission Alter on the cluster.
    """
    if bool(ids) == (principal is not None):
        raise click.UsageError("Name sessions by ID, or a --principal.")
    port = open_admin_port(url, timeout_seconds)
    ended = 0
    refusals: list[AdminRefusedError] = []
    for one in ids:
        try:
            port.ask("DELETE", f"{PATH}/{one}")
            ended += 1
        except AdminRefusedError as error:
            refusals.append(error)  # a session may have ended by itself: go on with the next one
    has_more = principal is not None
    while has_more:
        answer = _asked(port, "DELETE", "", {"principal": principal})
        ended += _field(port, answer, "ended", int)
        has_more = _field(port, answer, "has_more", bool)
    if as_json:
        print_json({"ended": ended})
    else:
        click.echo(f"{count_text(ended, 'session')} ended")
    if refusals:
        for refusal in refusals[:-1]:
            note(f"error: {refusal}")
        raise refusals[-1]


def _asked(port: AdminPort, method: str, path: str, query: Document) -> Document:
    from urllib.parse import urlencode

    given = {name: value for name, value in query.items() if value is not None}
    data = port.ask(method, f"{PATH}{path}?{urlencode(given)}")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _not_sessions(port) from error
    if not isinstance(document, dict):
        raise _not_sessions(port)
    return cast("Document", document)


def _field(port: AdminPort, document: Document, name: str, kind: type) -> Any:  # noqa: ANN401
    """Return a field of the answer, which has this type."""
    value = document.get(name)
    if not isinstance(value, kind):
        raise _not_sessions(port)
    return value


def _not_sessions(port: AdminPort) -> MalformedResponseError:
    return MalformedResponseError(
        f"{port.url}{PATH} answers, but not as the admin port of a Penstock broker.",
        hint=ADMIN_HINT,
    )


def _row(one: Document) -> list[object]:
    texts = (one["principal"], one["address"], one["listener"], one["mechanism"], one["client_id"])
    shown = (None if text is None else printable(str(text)) for text in texts)
    expires = one["expires_at_ms"]
    return [
        int(one["id"]),
        *shown,
        _time_text(one["since_ms"]),
        None if expires is None else _time_text(expires),
    ]


def _time_text(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
