"""Dead letters as text and JSON, and the replay with its question; for `dlq` and `group dlq`."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from penstock.cli.brokers import open_cluster
from penstock.cli.completing import complete_topics
from penstock.cli.confirmation import check_can_ask, confirm
from penstock.cli.options import WrongUsageError
from penstock.cli.output import note, print_json
from penstock.cli.text.record_text import document_of, timestamp_text
from penstock.client.cluster import Cluster
from penstock.consumers.dead_letter_replay import Chosen, ReplayTo, original_topics, replay
from penstock.consumers.dead_letter_topics import DeadLetter
from penstock.core.quantities import count_text, printable
from penstock.records.record import Header

_REASON_CHARACTERS_MAX: Final = 120
Command = TypeVar("Command", bound=Callable[..., Any])


def to_option(command: Command) -> Command:
    """Add the option `--to`."""
    return click.option(
        "--to",
        "target",
        metavar="TOPIC",
        shell_complete=complete_topics,
        help="Write all records to this topic, whatever the letters name.",
    )(command)


def run_replay(
    chosen: Chosen,
    target: str | None,
    connection: tuple[str, float],
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Ask, replay, and print the outcome; `connection` is the bootstrap address and the timeout."""
    if target is None:
        check_can_ask(yes=yes)
    with open_cluster(*connection) as cluster:
        if target is None:
            names = original_topics(cluster, chosen)
            if names and not yes:
                shown = ", ".join(f"{printable(one)} ({names[one]:,})" for one in sorted(names))
                confirm(f"Write the records of {chosen.topic} to {shown}?", yes=yes)
            to = ReplayTo(frozenset(names))
        else:
            to = _checked_target(cluster, chosen, target, yes=yes)
        done = replay(cluster, chosen, to)
    if as_json:
        print_json({"records": done.records, "passed_over": done.passed_over})
    else:
        click.echo(f"{count_text(done.count, 'record')} replayed")
        for name, count in sorted(done.records.items()):
            click.echo(f"  {printable(name)}: {count:,}")
    if done.passed_over and not as_json:
        passed_over = count_text(done.passed_over, "record")
        note(f"{passed_over} passed over: no origin, or its record is gone")
    if done.refused_topic is not None:
        note(
            f"stopped before a new letter that names {printable(done.refused_topic)}; run the "
            "command again"
        )


def _checked_target(cluster: Cluster, chosen: Chosen, target: str, *, yes: bool) -> ReplayTo:
    """Return the replay to one topic; ask before records of other topics are copied to it."""
    if target == chosen.topic:
        raise WrongUsageError(
            f"--to {target} is the dead-letter topic itself.", hint="Name another topic."
        )
    cluster.partitions_of(target)
    sources = set(original_topics(cluster, chosen, is_source=True)) - {target}
    if sources:
        shown = ", ".join(sorted(sources))
        confirm(f"Letters without a copy: copy records of {shown} to {target}?", yes=yes)
    return ReplayTo(frozenset(sources), target)


def letter_row(letter: DeadLetter) -> list[object]:
    """Return the row of a letter in a list."""
    record, origin = letter.record, letter.origin
    moment = timestamp_text(record.timestamp_ms)
    if origin is None:
        return [record.partition, record.offset, moment, None, None, None, None, None]
    return [
        record.partition,
        record.offset,
        moment,
        f"{printable(origin.topic)}-{origin.partition}@{origin.offset}",
        printable(origin.group),
        origin.attempts,
        printable(origin.error_type) or None,
        printable(origin.error_text)[:_REASON_CHARACTERS_MAX],
    ]


def print_letter(letter: DeadLetter) -> None:
    """Print a letter whole."""
    record, origin = letter.record, letter.origin
    place = f"{record.topic}-{record.partition} at offset {record.offset}"
    click.echo(f"{place}, {timestamp_text(record.timestamp_ms)}")
    if origin is None:
        click.echo("origin:    unknown, no consumer of Penstock wrote this record")
    else:
        source = f"{printable(origin.topic)}-{origin.partition} at offset {origin.offset}"
        by_group = f"by group {printable(origin.group)}"
        if letter.is_of_share_group:
            click.echo(f"origin:    {source}")
            click.echo(f"failed:    {_deliveries(origin.attempts)} {by_group}")
            click.echo(f"error:     {printable(origin.error_text)}")
        else:
            click.echo(f"origin:    {source}, {timestamp_text(origin.timestamp_ms)}")
            click.echo(
                f"failed:    {count_text(origin.attempts, 'attempt')} {by_group}, the last at "
                f"{timestamp_text(origin.failed_at_ms)}"
            )
            click.echo(f"error:     {printable(origin.error_type)}: {printable(origin.error_text)}")
    click.echo(f"key:       {_bytes_text(record.key)}")
    for name, value in letter.headers:
        click.echo(f"header:    {printable(name)}={_bytes_text(value)}")
    click.echo(f"value:     {_bytes_text(record.value)}")


def _deliveries(count: int) -> str:
    return "1 delivery" if count == 1 else f"{count:,} deliveries"


def letter_document(letter: DeadLetter, *, is_whole: bool) -> dict[str, Any]:
    """Return a letter as a JSON document."""
    record, origin = letter.record, letter.origin
    document: dict[str, Any] = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": timestamp_text(record.timestamp_ms),
        "origin": None
        if origin is None
        else {
            "topic": origin.topic,
            "partition": origin.partition,
            "offset": origin.offset,
            "timestamp": None if letter.is_of_share_group else timestamp_text(origin.timestamp_ms),
            "group": origin.group,
            "attempts": origin.attempts,
            "error_type": origin.error_type,
            "error_text": origin.error_text,
            "failed_at": timestamp_text(origin.failed_at_ms),
        },
    }
    if is_whole:
        headers = tuple(Header(name, value) for name, value in letter.headers)
        document["record"] = document_of(record._replace(headers=headers))
    return document


def _bytes_text(value: bytes | None) -> str:
    return "-" if value is None else value.decode(errors="backslashreplace")
