"""`penstock pipe`: show the pipes of a broker, pause, resume, promote and restore them.

Pipes are not in Kafka's protocol: the commands ask the admin port of one broker.
"""

from typing import Final
from urllib.parse import quote

import click

from penstock.cli.admin_port import (
    AdminResource,
    Document,
    port_options,
)
from penstock.cli.confirmation import confirm, yes_option
from penstock.cli.options import examples, json_option
from penstock.cli.output import print_json, print_table
from penstock.cli.pipe.pipe_calls import duration, open_pipes, text

_COLUMNS: Final = ("pipe", "parent", "health", "partitions", "lag", "in step", "reason")
_PARTITION_COLUMNS: Final = ("topic", "partition", "phase", "end", "lag", "reason")

_name = click.argument("name", metavar="PIPE")
_topics = click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic; may be repeated."
)


@click.group(
    short_help="Show pipes, pause, resume, promote and restore them.",
    epilog=examples(
        "penstock pipe list",
        "penstock pipe status hq",
        "penstock pipe promote hq --topic orders",
    ),
)
def pipe() -> None:
    """Show the pipes of a broker, pause, resume, promote and restore them.

    A pipe copies topics of a parent's cluster to this broker, with their offsets, or sends records
    of this broker to the parent. Declare pipes in [[pipes]] of the settings file. The commands ask
    the admin port of the broker.
    """


@pipe.command(name="list", short_help="List pipes.", epilog=examples("penstock pipe list"))
@port_options
@json_option()
def list_(url: str, timeout_seconds: float, as_json: bool) -> None:
    """List the pipes of a broker with their health.

    Needs the permission Describe on the cluster.
    """
    pipes = open_pipes(url, timeout_seconds)
    found = pipes.field(pipes.ask("GET"), "pipes", list)
    if as_json:
        print_json(found)
        return
    try:
        rows = [_row(one) for one in found]
    except (LookupError, TypeError, AttributeError) as error:
        raise pipes.malformed() from error
    if rows:
        print_table(list(_COLUMNS), rows)
    else:
        click.echo("no pipes; add one with [[pipes]] in the settings file of the broker")


def _row(one: Document) -> list[object]:
    return [
        text(one, "name"),
        text(one, "parent"),
        text(one, "health"),
        one["partition_count"],
        one["lag_records"],
        "yes" if one["is_in_step"] else "no",
        text(one, "reason") or None,
    ]


@pipe.command(
    short_help="Show a pipe with its partitions.", epilog=examples("penstock pipe status hq")
)
@_name
@port_options
@json_option()
def status(name: str, url: str, timeout_seconds: float, as_json: bool) -> None:
    """Show the health, the lag and the partitions of a pipe.

    Needs the permission Describe on the cluster.
    """
    pipes = open_pipes(url, timeout_seconds)
    document = pipes.ask("GET", f"/{quote(name, safe='')}")
    if as_json:
        print_json(document)
        return
    shown = pipes.field(document, "pipe", dict)
    partitions = pipes.field(document, "partitions", list)
    try:
        for line in _lines(shown):
            click.echo(line)
        rows = [_partition(one) for one in partitions]
    except (LookupError, TypeError, AttributeError) as error:
        raise pipes.malformed() from error
    if rows:
        print_table(list(_PARTITION_COLUMNS), rows)
    else:
        click.echo("no partitions: the parent has none of its topics, or has not answered yet")


def _lines(one: Document) -> list[str]:
    left, silent = duration(one["seconds_to_catch_up"]), duration(one["silent_seconds"])
    rate = f"{one['records_per_second']} records/s"
    is_up = one["direction"] == "up"
    link = f"as {text(one, 'site')} to" if is_up else "from"
    waiting = f", {one['waiting_bytes']} bytes" if is_up else ""
    lag, done = f"{one['lag_records']} records{waiting}", "sent:  " if is_up else "copied:"
    lines = [
        f"pipe {text(one, 'name')} {link} {text(one, 'parent')}: {text(one, 'health')}",
        f"  {done} {one['records']} records, {one['size_bytes']} bytes; {rate}",
        f"  lag:    {lag}; {left} to catch up; last answer {silent} ago",
    ]
    if one["reason"]:
        lines.append(f"  reason: {text(one, 'reason')}")
        lines.append(f"  remedy: {text(one, 'remedy')}")
    if one["seconds_until_full"] is not None:
        lines.append(f"  disk:   full in {duration(one['seconds_until_full'])} at this rate")
    if one["gaps"]:
        lines.append(f"  gaps:   {one['gaps']} skipped, {one['gap_records']} offsets")
    if one["cut_records"]:
        lines.append(f"  cut:    {one['cut_records']} offsets that the parent did not have")
    for key, words in (("promoted", "promoted"), ("busy_groups", "groups not copied")):
        if one[key]:
            lines.append(f"  {words}: {', '.join(map(str, one[key]))}")
    return lines


def _partition(one: Document) -> list[object]:
    return [
        text(one, "topic"),
        one["partition"],
        text(one, "phase"),
        one["end_offset"],
        one["lag_records"],
        text(one, "reason") or None,
    ]


@pipe.command(short_help="Pause a pipe.", epilog=examples("penstock pipe pause hq"))
@_name
@port_options
def pause(name: str, url: str, timeout_seconds: float) -> None:
    """Copy nothing until the pipe is resumed, or the broker restarts.

    Needs the permission Alter on the cluster.
    """
    open_pipes(url, timeout_seconds).ask("POST", f"/{quote(name, safe='')}/pause")
    click.echo(f"pipe {name} paused")


@pipe.command(short_help="Resume a pipe.", epilog=examples("penstock pipe resume hq"))
@_name
@port_options
def resume(name: str, url: str, timeout_seconds: float) -> None:
    """Copy again.

    Needs the permission Alter on the cluster.
    """
    open_pipes(url, timeout_seconds).ask("POST", f"/{quote(name, safe='')}/resume")
    click.echo(f"pipe {name} resumed")


@pipe.command(
    short_help="Let clients write the mirrors of a pipe.",
    epilog=examples("penstock pipe promote hq", "penstock pipe promote hq --topic orders --yes"),
)
@_name
@_topics
@yes_option
@port_options
def promote(
    name: str, topics: tuple[str, ...], yes: bool, url: str, timeout_seconds: float
) -> None:
    """Let clients write the mirrors of a pipe; the pipe does not write them any more.

    Open transactions of the parent's producers are aborted here. Needs the permission Alter on the
    cluster.
    """
    question = f"Clients will write {_chosen(topics)} of the pipe {name}. Promote?"
    _change(open_pipes(url, timeout_seconds), name, "promote", topics, question, yes=yes)


@pipe.command(
    short_help="Let a pipe write promoted topics again.",
    epilog=examples("penstock pipe restore hq", "penstock pipe restore hq --topic orders --yes"),
)
@_name
@_topics
@yes_option
@port_options
def restore(
    name: str, topics: tuple[str, ...], yes: bool, url: str, timeout_seconds: float
) -> None:
    """Let a pipe write promoted topics again.

    Records that clients wrote here, and that the parent does not have, are REMOVED. Needs the
    permission Alter on the cluster.
    """
    question = f"Records of {_chosen(topics)} that the parent does not have are removed. Restore?"
    _change(open_pipes(url, timeout_seconds), name, "restore", topics, question, yes=yes)


@pipe.command(
    short_help="Choose where an up pipe sends from.",
    epilog=examples("penstock pipe reset sales-up --to latest --topic sales"),
)
@_name
@click.option(
    "--to",
    "start",
    required=True,
    type=click.Choice(["earliest", "latest"]),
    help="earliest: send all records here again. latest: send only new records.",
)
@_topics
@yes_option
@port_options
def reset(
    name: str,
    start: str,
    topics: tuple[str, ...],
    yes: bool,
    url: str,
    timeout_seconds: float,
) -> None:
    """Choose where a pipe with direction "up" sends from.

    With earliest, the parent gets records again that it has. With latest, records that were not
    sent are never sent. Needs the permission Alter on the cluster.
    """
    effect = "are sent AGAIN" if start == "earliest" else "that were not sent are SKIPPED"
    confirm(f"Records of {_chosen(topics)} {effect}. Reset the pipe {name}?", yes=yes)
    pipes = open_pipes(url, timeout_seconds)
    wanted: Document = {"topics": list(topics), "start": start}
    path = f"/{quote(name, safe='')}/reset"
    changed = pipes.field(pipes.ask("POST", path, wanted), "topics", list)
    for topic in changed:
        click.echo(f"{topic} reset to {start}")
    if not changed:
        click.echo(f"the pipe {name} sends no such topics")


def _chosen(topics: tuple[str, ...]) -> str:
    return ", ".join(topics) if topics else "all topics"


def _change(
    pipes: AdminResource,
    name: str,
    action: str,
    topics: tuple[str, ...],
    question: str,
    *,
    yes: bool,
) -> None:
    confirm(question, yes=yes)
    path = f"/{quote(name, safe='')}/{action}"
    changed = pipes.field(pipes.ask("POST", path, {"topics": list(topics)}), "topics", list)
    for topic in changed:
        click.echo(f"{topic} {action}d")
    if not changed:
        click.echo(f"the pipe {name} has no topics to {action}")
