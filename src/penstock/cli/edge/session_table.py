"""`penstock edge sessions`: list the push clients of a broker with their subscriptions.

Push sessions are not in Kafka's protocol: the command asks the admin port of one broker.
`penstock session end` disconnects them.
"""

from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

import click

from penstock.cli.admin_port import Document, open_admin_port, port_options
from penstock.cli.options import examples, json_option
from penstock.cli.output import print_json, print_table
from penstock.cli.pipe.pipe_calls import text

PATH: Final = "/api/v1/push/sessions"
PAGE_SIZE: Final = 100
_COLUMNS: Final = (
    *("id", "principal", "address", "since", "topic", "group", "mode"),
    *("in flight", "credit", "unacknowledged", "lag"),
)


@click.command(
    short_help="List push clients with their subscriptions.",
    epilog=examples(
        "penstock edge sessions",
        "penstock edge sessions --principal User:till-7",
        "penstock session end 1000000000042",
    ),
)
@click.option("--principal", metavar="TYPE:NAME", help="Only sessions of this principal.")
@port_options
@json_option()
def sessions(principal: str | None, url: str, timeout_seconds: float, as_json: bool) -> None:
    """List the push clients of a broker, the oldest first, one line for each subscription.

    Clients of the WebSocket gateway are among them. The command asks the admin port of the
    broker, and needs the permission Describe on the cluster. Disconnect a client with
    `penstock session end ID`.
    """
    sessions = open_admin_port(url, timeout_seconds).resource(PATH)
    found: list[Document] = []
    after: object = 0
    while isinstance(after, int):
        query: Document = {"after": after, "limit": PAGE_SIZE}
        if principal is not None:
            query["principal"] = principal
        page = sessions.ask("GET", f"?{urlencode(query)}")
        shown, last, after = page.get("sessions"), after, page.get("next")
        if not isinstance(shown, list) or (isinstance(after, int) and after <= last):
            raise sessions.malformed()
        found += shown
    if as_json:
        print_json(found)
        return
    try:
        rows = [row for one in found for row in _rows(one)]
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise sessions.malformed() from error
    if not rows:
        click.echo("No push clients are connected.")
        return
    print_table(list(_COLUMNS), rows)


def _rows(one: Document) -> list[list[object]]:
    since = datetime.fromtimestamp(one["since_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    head: list[object] = [one["id"], text(one, "principal"), text(one, "address"), since]
    if not one["subscriptions"]:
        return [[*head, None, None, None, 0, None, 0, None]]
    return [
        [
            *head,
            text(each, "topic"),
            None if each["group"] is None else text(each, "group"),
            text(each, "mode"),
            each["in_flight"],
            each["credit"],
            each["unacknowledged_bytes"],
            each["lag"],
        ]
        for each in one["subscriptions"]
    ]
