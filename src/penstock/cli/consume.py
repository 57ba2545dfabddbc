"""`penstock consume`: print a topic's records to standard output, one on each line.

Without `--follow` it stops at the end offset that the topic had at the start. It joins no group and
commits no offsets, so it does not affect other consumers and can be repeated. With `--queue` it is
a member of a share group instead (`consumers.queue_consuming`): each record goes to one member.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

import click
from click.core import ParameterSource

from penstock.cli.brokers import open_cluster
from penstock.cli.completing import complete_topics
from penstock.cli.numbers import WholeNumber
from penstock.cli.options import (
    blamed_on,
    bootstrap_option,
    examples,
    json_option,
    timeout_option,
)
from penstock.cli.output import json_line
from penstock.cli.text.record_text import PARTS, document_of, line_of, parse_parts
from penstock.client.records.positions import parse_start
from penstock.client.records.topic_reader import ReadRecord, TopicReader


@click.command(
    short_help="Write a topic's records to standard output.",
    epilog=examples(
        "penstock consume orders --from -10 --show timestamp,key,value",
        "penstock consume orders --from 2024-05-01T12:00:00Z --count 100 --json",
        "penstock consume orders --from latest --follow",
        "penstock consume orders --queue --group packing --count 10",
    ),
)
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--from",
    "start",
    default="earliest",
    show_default=True,
    metavar="START",
    help="earliest, latest, an offset, -N for the last N of each partition, an ISO time, or "
    "@ and milliseconds since 1970.",
)
@click.option("--count", type=WholeNumber(min=0), help="End after this many records.")
@click.option("--follow", is_flag=True, help="Wait for new records; Ctrl-C ends.")
@click.option(
    "--partition",
    "partitions",
    type=WholeNumber(min=0),
    multiple=True,
    help="Only this partition; may be repeated.",
)
@click.option(
    "--show",
    default="value",
    show_default=True,
    metavar="PARTS",
    help=f"Parts of each line, with commas: {', '.join(PARTS)}.",
)
@click.option(
    "--queue",
    "is_queue",
    is_flag=True,
    help="Read as a member of a share group: each record goes to one member. Ends when no record "
    "comes for 5 s, unless --follow is given.",
)
@click.option("--group", "group_name", help="With --queue: the share group. [default: TOPIC]")
@click.option(
    "--acknowledge",
    type=click.Choice(("accept", "release", "reject")),
    help="With --queue: how printed records are acknowledged. [default: accept]",
)
@bootstrap_option
@timeout_option
@json_option("Print one JSON document a line, with all parts.")
def consume(
    topic: str,
    start: str,
    count: int | None,
    follow: bool,
    partitions: tuple[int, ...],
    show: str,
    is_queue: bool,
    group_name: str | None,
    acknowledge: str | None,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Write the records of TOPIC to standard output, one a line."""
    with blamed_on("--show"):
        parts = parse_parts(show)
    with blamed_on("--from"):
        first = parse_start(start)
    is_start_given = (
        click.get_current_context().get_parameter_source("start") is not ParameterSource.DEFAULT
    )
    if is_queue or group_name is not None or acknowledge is not None:
        _consume_queue(
            topic,
            group_name,
            acknowledge,
            bootstrap,
            partial(_line, parts=None if as_json else parts),
            is_queue=is_queue,
            is_placed=is_start_given or bool(partitions),
            count=count,
            follow=follow,
            timeout_seconds=timeout_seconds,
        )
        return
    output = sys.stdout.buffer
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        places = cluster.partitions_of(topic, partitions)
        reader = TopicReader(cluster, places, first, follow=follow)
        for record in islice(reader.records(), count):
            output.write(_line(record, None if as_json else parts))
            if follow:
                output.flush()
        output.flush()


def _line(record: ReadRecord, parts: Sequence[str] | None) -> bytes:
    """Return the line of a record: these parts, or JSON."""
    if parts is None:
        return json_line(document_of(record)).encode() + b"\n"
    return line_of(record, parts)


def _consume_queue(
    topic: str,
    group_name: str | None,
    acknowledge: str | None,
    bootstrap: str,
    to_line: Callable[[ReadRecord], bytes],
    *,
    is_queue: bool,
    is_placed: bool,
    count: int | None,
    follow: bool,
    timeout_seconds: float,
) -> None:
    from penstock.cli.consumers import queue_consuming as queue  # only a queue needs it

    queue.check_queue_options(is_queue=is_queue, is_placed=is_placed)
    queue.consume_queue(
        topic,
        group_name or topic,
        bootstrap,
        to_line,
        kind=queue.ACKNOWLEDGE_TYPES[acknowledge or "accept"],
        count=count,
        follow=follow,
        timeout_seconds=timeout_seconds,
    )
