"""`penstock status`: the health of a broker, from its admin port.

The output is ordered by importance: health, its reasons with remedies, rejections, the limits by
their use, then the broker's identity. It fits `COLUMNS_MAX` columns, half of a screen; only reasons
are longer, and a terminal folds them. The exit code reports the health too: 0 healthy, 5 degraded,
6 critical, 3 without an answer. A supervisor that must not stop a broker with a low disk uses
`--ready`.

A worker of `penstock serve --workers` names all workers. Each is asked, at the same host, and the
worst health counts. A worker that does not answer is critical.
"""

import json
import sys
import textwrap
from shutil import get_terminal_size
from typing import Any, Final, NamedTuple, cast

import click

from penstock.cli import exits
from penstock.cli.admin_port import AdminPort, admin_option, open_admin_port
from penstock.cli.options import (
    TIMEOUT_SECONDS,
    command_config_option,
    examples,
    json_option,
)
from penstock.cli.output import can_draw, console, print_colored, print_json, print_table
from penstock.core.errors import PenstockError

PATH: Final = "/api/v1/status"
COLUMNS_MAX: Final = 50
"""The maximum width of a status line, without bars and reasons."""
_BAR_CELLS: Final = 20
_BAR_COLUMNS_MIN: Final = 80
"""A narrower terminal shows the share only as a number."""
_NAME_CHARACTERS_MAX: Final = 22
"""Maximum length of a limit's name; longer names are cut, so that the numbers stay aligned."""
_SHORT_NAMES: Final = {"connections of one address": "connections, 1 address"}
_CODES: Final = {"Healthy": exits.DONE, "Degraded": exits.DEGRADED, "Critical": exits.CRITICAL}
_COLOURS: Final = {"Healthy": "green", "Degraded": "yellow", "Critical": "red"}

Document = dict[str, Any]


@click.command(
    short_help="Show a broker's health, reasons and limits.",
    epilog=examples(
        "penstock status",
        "penstock status --admin https://10.0.0.5:8080 --command-config admin.properties",
        "penstock status --json",
        "penstock status --ready",
    )
    + "\n\nExit codes: 0 healthy, 5 degraded, 6 critical, 3 unreachable.",
)
@admin_option
@command_config_option
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
    document = _read(open_admin_port(url, timeout_seconds))
    _ask_workers(document, url, timeout_seconds)
    if as_json:
        print_json(document)
    else:
        _print(document)
    asked = [document, *document.get("workers", ())]
    if only_ready:
        return exits.DONE if all(one["ready"] for one in asked) else exits.CRITICAL
    return max(_CODES[one["health"]] for one in asked)


def _ask_workers(document: Document, url: str, timeout_seconds: float) -> None:
    """Add the health of each worker to its entry; a broker alone has none."""
    for one in document.get("workers", ()):
        one["health"], one["ready"] = "Critical", False
        if one["node_id"] == document["node_id"]:
            one["health"], one["ready"] = document["health"], document["ready"]
        elif one["condition"] == "running" and one["admin"]:
            try:
                found = _read(open_admin_port(_same_host(url, one["admin"]), timeout_seconds))
                one["health"], one["ready"] = found["health"], found["ready"]
            except PenstockError:
                pass  # it has just ended: critical


def _same_host(url: str, admin: str) -> str:
    """Return the admin port of a worker, at the host that answered."""
    from urllib.parse import urlsplit

    parts, port = urlsplit(url), urlsplit(admin).port
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{port}"


def _read(port: AdminPort) -> Document:
    data = port.ask("GET", PATH)
    try:
        document = json.loads(data)
        if not _is_status(document):
            raise ValueError("no status")
        _lines(document)
        _workers({"workers": [{**one, "health": ""} for one in document.get("workers", [])]})
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise port.resource(PATH).malformed() from error
    return cast("Document", document)


def _is_status(document: object) -> bool:
    if not isinstance(document, dict):
        return False
    return document["health"] in _CODES and isinstance(document["ready"], bool)


def _print(document: Document) -> None:
    shown = _lines(document)
    health = document["health"]
    print_colored([(health, f"bold {_COLOURS[health]}"), (f"  {document['address']}", "")])
    for level, reason, remedy in shown.reasons:
        _print_folded(f"{level}: ", reason, _COLOURS[level])
        _print_folded("  ", remedy, "")
    for line in shown.refusals:
        print_colored([(line, "yellow")])
    print_table(["limit", "used", "of", "share"], shown.limits)
    for line in shown.identity:
        print_colored([(line, "")])
    if document.get("workers"):
        print_table(["worker", "health", "is", "restarts", "pid"], _workers(document))


def _print_folded(head: str, text: str, colour: str) -> None:
    """Print one line for a pipe; a terminal folds it between words, under the first word."""
    if not sys.stdout.isatty():
        print_colored([(head, colour), (text, "")])
        return
    width = max(COLUMNS_MAX, get_terminal_size().columns) - len(head)
    for number, line in enumerate(textwrap.wrap(text, width)):
        print_colored([(head if number == 0 else "  ", colour), (line, "")])


class _Shown(NamedTuple):
    """A status as text, the most important parts first."""

    reasons: list[tuple[str, str, str]]
    """Level, problem and remedy."""
    refusals: list[str]
    limits: list[list[object]]
    identity: list[str]


def _lines(document: Document) -> _Shown:
    """Return the output; raise the lookup or type error of a document that is not a status."""
    up = duration_text(document["uptime_seconds"])
    limits = sorted(document["limits"], key=lambda one: -_share(one))  # stable for equal shares
    return _Shown(
        [(one["level"], one["message"], one["remedy"]) for one in document["reasons"]],
        [f"{one['refused']:,} refused: {_name(one)}" for one in limits if one["refused"]],
        [
            [
                _name(one),
                None if one["current"] is None else amount_text(one["current"], one["unit"]),
                amount_text(one["limit"], one["unit"]),
                None if one["current"] is None else bar(one["current"], one["limit"]),
            ]
            for one in limits
        ],
        [
            f"node {document['node_id']}, Penstock {document['version']}, up {up}",
            f"cluster {document['cluster_id'] or 'not known yet'}",
        ],
    )


def _workers(document: Document) -> list[list[object]]:
    return [
        [one["worker"], one["health"], one["condition"], one["restarts"], one["pid"]]
        for one in document["workers"]
    ]


def _share(limit: Document) -> float:
    """Return the used share of a limit; a time limit, which applies to each client, sorts last."""
    if limit["current"] is None:
        return -1.0
    return float(limit["current"] / limit["limit"]) if limit["limit"] else 1.0


def _name(limit: Document) -> str:
    name = limit["name"].removesuffix("_bytes").replace("_", " ")
    name = _SHORT_NAMES.get(name, name)
    if len(name) <= _NAME_CHARACTERS_MAX:
        return str(name)
    return f"{name[: _NAME_CHARACTERS_MAX - 3]}..."


def bar(current: float, limit: float) -> str:
    """Return a share as cells and percent; a small share is never shown as zero."""
    share = min(1.0, current / limit) if limit else 1.0
    if not can_draw() or console().width < _BAR_COLUMNS_MIN:
        return f"{share:.0%}"
    cells = min(_BAR_CELLS, -int(-share * _BAR_CELLS // 1))
    return f"{'█' * cells}{'░' * (_BAR_CELLS - cells)} {share:4.0%}"


def amount_text(amount: float, unit: str) -> str:
    """Return bytes in a readable unit, at most eight characters; other units unchanged."""
    if unit == "seconds":
        return f"{amount:g} s"
    if unit != "bytes":
        return f"{amount:,.0f}"
    size = float(amount)
    for name in ("B", "KiB", "MiB", "GiB"):
        if size < 999.5:
            return _rounded(size, name)
        size /= 1024
    return _rounded(size, "TiB")


def _rounded(size: float, unit: str) -> str:
    """Return the number with two or three significant digits."""
    return f"{size:.0f} {unit}" if unit == "B" or size >= 99.95 else f"{size:.1f} {unit}"


def duration_text(seconds: float) -> str:
    """Return the duration in its two largest units."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
