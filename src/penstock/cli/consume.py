"""`penstock consume`: print a topic's records to standard output, one on each line.

Without `--follow` it stops at the end offset that the topic had at the start. It joins no group and
commits no offsets, so it does not affect other consumers and can be repeated.
"""

import sys
from itertools import islice

import click

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
from penstock.client.records.topic_reader import TopicReader


@click.command(
    short_help="Write a topic's records to standard output.",
    epilog=examples(
        "penstock consume orders --from -10 --show timestamp,key,value",
        "penstock consume orders --from 2024-05-01T12:00:00Z --count 100 --json",
        "penstock consume orders --from latest --follow",
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
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Write the records of TOPIC to standard output, one a line."""
    with blamed_on("--show"):
        parts = parse_parts(show)
    with blamed_on("--from"):
        first = parse_start(start)
    output = sys.stdout.buffer
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        places = cluster.partitions_of(topic, partitions)
        reader = TopicReader(cluster, places, first, follow=follow)
        for record in islice(reader.records(), count):
            if as_json:
                output.write(json_line(document_of(record)).encode() + b"\n")
            else:
                output.write(line_of(record, parts))
            if follow:
                output.flush()
        output.flush()
