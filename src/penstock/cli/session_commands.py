"""`penstock session`: list the clients that are connected to a broker, and disconnect some.

Sessions are not in Kafka's protocol: the commands ask the admin port of one broker. A removed user
or authority does not end the sessions that it began; `penstock session end` does. A client whose
credential is still good connects again.
"""

from datetime import UTC, datetime
from typing import Final

import click

from penstock.cli.admin_port import (
    AdminRefusedError,
    Document,
    open_admin_port,
    port_options,
)
from penstock.cli.options import (
    examples,
    json_option,
)
from penstock.cli.output import note, print_json, print_table
from penstock.core.quantities import count_text, printable

PATH: Final = "/api/v1/sessions"
PAGE_SIZE: Final = 100
"""An answer with 100 sessions is within the bound of answers, whatever the clients send."""
_COLUMNS: Final = (
    *("id", "principal", "address", "listener", "mechanism", "client id", "since", "expires"),
)


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


@session.command(
    name="list",
    short_help="List connected clients.",
    epilog=examples("penstock session list", "penstock session list --principal User:alice"),
)
@click.option("--principal", metavar="TYPE:NAME", help="Only sessions of this principal.")
@port_options
@json_option()
def list_(principal: str | None, url: str, timeout_seconds: float, as_json: bool) -> None:
    """List the connected clients of a broker, the oldest connection first.

    Needs the permission Describe on the cluster.
    """
    sessions = open_admin_port(url, timeout_seconds).resource(PATH)
    found: list[Document] = []
    after: int | None = 0
    while after is not None:
        query = _query(principal=principal, after=after, limit=PAGE_SIZE)
        page = sessions.ask("GET", query)
        found += sessions.field(page, "sessions", list)
        last, after = after, page.get("next")
        if after is not None and not (isinstance(after, int) and after > last):
            raise sessions.malformed()
    if as_json:
        print_json(found)
        return
    try:
        rows = [_row(one) for one in found]
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise sessions.malformed() from error
    if rows:
        print_table(list(_COLUMNS), rows)
    else:
        of = "" if principal is None else f" of {principal}"
        click.echo(f"no clients{of} are connected to this broker")


@session.command(
    short_help="Disconnect clients.",
    epilog=examples("penstock session end 42", "penstock session end --principal User:alice"),
)
@click.argument("ids", nargs=-1, type=click.IntRange(min=1), metavar="[ID]...")
@click.option("--principal", metavar="TYPE:NAME", help="All sessions of this principal.")
@port_options
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
    sessions = open_admin_port(url, timeout_seconds).resource(PATH)
    ended = 0
    refusals: list[AdminRefusedError] = []
    for one in ids:
        try:
            sessions.ask("DELETE", f"/{one}")
            ended += 1
        except AdminRefusedError as error:
            refusals.append(error)  # a session may have ended by itself: go on with the next one
    has_more = principal is not None
    while has_more:
        answer = sessions.ask("DELETE", _query(principal=principal))
        ended += sessions.field(answer, "ended", int)
        has_more = sessions.field(answer, "has_more", bool)
    if as_json:
        print_json({"ended": ended})
    else:
        click.echo(f"{count_text(ended, 'session')} ended")
    if refusals:
        for refusal in refusals[:-1]:
            note(f"error: {refusal}")
        raise refusals[-1]


def _query(**given: object) -> str:
    from urllib.parse import urlencode

    return "?" + urlencode({name: value for name, value in given.items() if value is not None})


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
