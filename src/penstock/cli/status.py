"""`penstock status`: how a broker is, from its admin port.

It shows health with its reasons, who the broker is, and how much of each limit is used. The exit
code says it too: 0 healthy, 5 degraded, 6 critical, 3 when nobody answers there. A supervisor that
must not stop a broker whose disk is low asks with `--ready`.
"""

import json
from typing import Any, Final, cast

import click

from penstock.cli import exits
from penstock.cli.options import TIMEOUT_SECONDS, examples, json_option
from penstock.cli.output import can_draw, print_colored, print_json, print_table
from penstock.core.errors import AdminUnreachableError, MalformedResponseError

ADMIN_URL_DEFAULT: Final = "http://127.0.0.1:8080"
ADMIN_URL_VARIABLE: Final = "PENSTOCK_ADMIN_URL"
ANSWER_BYTES_MAX: Final = 1_048_576
"""More is not a status."""
_BAR_CELLS: Final = 20
_CODES: Final = {"Healthy": exits.DONE, "Degraded": exits.DEGRADED, "Critical": exits.CRITICAL}
_COLOURS: Final = {"Healthy": "green", "Degraded": "yellow", "Critical": "red"}

Document = dict[str, Any]


@click.command(
    short_help="Show how a broker is: health, reasons, limits.",
    epilog=examples(
        "penstock status",
        "penstock status --admin http://10.0.0.5:8080 --json",
        "penstock status --ready",
    )
    + "\n\nExit codes: 0 healthy, 5 degraded, 6 critical, 3 nobody answers.",
)
@click.option(
    "--admin",
    "url",
    default=ADMIN_URL_DEFAULT,
    envvar=ADMIN_URL_VARIABLE,
    show_default=True,
    show_envvar=True,
    metavar="URL",
    help="Admin port of the broker.",
)
@click.option(
    "--timeout",
    "timeout_seconds",
    type=TIMEOUT_SECONDS,
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for the answer.",
)
@click.option(
    "--ready",
    "only_ready",
    is_flag=True,
    help="Exit code 0 when new clients can be sent there, whatever its health; 6 when not.",
)
@json_option()
def status(url: str, timeout_seconds: float, only_ready: bool, as_json: bool) -> int:
    """Show the health of a broker with its reasons, and how much of its limits is used."""
    _check_url(url)
    document = _read(url.rstrip("/"), timeout_seconds)
    if as_json:
        print_json(document)
    else:
        _print(document)
    if only_ready:
        return exits.DONE if document["ready"] else exits.CRITICAL
    return _CODES[document["health"]]


def _check_url(url: str) -> None:
    """What cannot be an address is wrong usage, told before anybody is asked."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")
        is_url = parts.scheme in {"http", "https"} and bool(host) and parts.port != 0
    except ValueError:  # a port that is no number, a bracket without its other
        is_url = False
    if not is_url or not url.isascii() or not url.isprintable() or " " in url:
        raise click.BadParameter(
            f"{url!r} is no URL such as {ADMIN_URL_DEFAULT}.", param_hint="--admin"
        )


def _read(url: str, timeout_seconds: float) -> Document:
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import ProxyHandler, Request, build_opener  # 40 ms that others do not pay

    # The admin port is near: a proxy for the way out does not know it.
    opener = build_opener(ProxyHandler({}))
    asked = f"{url}/api/v1/status"
    try:
        with opener.open(Request(asked), timeout=timeout_seconds) as answer:  # noqa: S310 (checked)
            data = answer.read(ANSWER_BYTES_MAX + 1)
    except HTTPError as error:
        raise MalformedResponseError(
            f"{asked} answers {error.code}. Is it the admin port of a Penstock broker?"
        ) from error
    except HTTPException as error:
        raise MalformedResponseError(
            f"{asked} answers, but not in HTTP ({type(error).__name__}). Is it the admin port of a "
            "Penstock broker?"
        ) from error
    except OSError as error:
        reason = getattr(error, "reason", None) or error
        raise AdminUnreachableError(f"nobody answers at {asked}: {reason}.") from error
    try:
        document = json.loads(data)
        if not _is_status(document):
            raise ValueError("no status")
        _lines(document)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise MalformedResponseError(
            f"{asked} answers, but not as the admin port of a Penstock broker."
        ) from error
    return cast("Document", document)


def _is_status(document: object) -> bool:
    if not isinstance(document, dict):
        return False
    return document["health"] in _CODES and isinstance(document["ready"], bool)


def _print(document: Document) -> None:
    headline, reasons, limits = _lines(document)
    health = document["health"]
    print_colored([(health, f"bold {_COLOURS[health]}"), (f"  {headline}", "")])
    if reasons:
        print_table(["level", "reason", "what to do"], reasons)
    print_table(["limit", "used", "of", "share", "refused"], limits)


def _lines(document: Document) -> tuple[str, list[list[object]], list[list[object]]]:
    """The first line, the reasons and the limits, as they are shown."""
    headline = (
        f"node {document['node_id']} at {document['address']}, "
        f"cluster {document['cluster_id'] or 'not known yet'}, Penstock {document['version']}, "
        f"up {duration_text(document['uptime_seconds'])}"
    )
    reasons = [[one["level"], one["message"], one["remedy"]] for one in document["reasons"]]
    limits = [
        [
            one["name"].removesuffix("_bytes").replace("_", " "),
            None if one["current"] is None else amount_text(one["current"], one["unit"]),
            amount_text(one["limit"], one["unit"]),
            None if one["current"] is None else bar(one["current"], one["limit"]),
            one["refused"],
        ]
        for one in document["limits"]
    ]
    return headline, reasons, limits


def bar(current: float, limit: float) -> str:
    """A share as cells and percent; something is never shown as nothing."""
    share = min(1.0, current / limit) if limit else 1.0
    if not can_draw():
        return f"{share:.0%}"
    cells = min(_BAR_CELLS, -int(-share * _BAR_CELLS // 1))
    return f"{'█' * cells}{'░' * (_BAR_CELLS - cells)} {share:4.0%}"


def amount_text(amount: float, unit: str) -> str:
    """Bytes in a unit that a person reads; anything else as it is."""
    if unit == "seconds":
        return f"{amount:g} s"
    if unit != "bytes":
        return f"{amount:,.0f}"
    size = float(amount)
    for name in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {name}" if name == "B" else f"{size:.1f} {name}"
        size /= 1024
    return f"{size:.1f} TiB"


def duration_text(seconds: float) -> str:
    """The two largest units."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
