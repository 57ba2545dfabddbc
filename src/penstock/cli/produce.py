"""`penstock produce`: send the lines of standard input or of a file as records.

With acks=all, the default, exit code 0 means that every line is in the topic exactly once, even
after connection errors. A failure reports the number of acknowledged lines. Lines are sent in
order, so these are the first ones (with several partitions: of each partition).
"""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager

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
from penstock.cli.output import note, print_json
from penstock.cli.progress import progress_line
from penstock.cli.streams import input_descriptor
from penstock.cli.text.lines import bursts_of_lines
from penstock.cli.text.record_text import LineFormat, parse_headers
from penstock.client.cluster import Cluster
from penstock.client.records.topic_writer import TopicWriter
from penstock.core.errors import InvalidRequestError, PenstockError, RecordTooLargeError
from penstock.records.compression import CODEC_NAMES

_ACKS = {"all": -1, "1": 1, "0": 0}


@click.command(
    short_help="Send lines of standard input to a topic.",
    epilog=examples(
        "echo hello | penstock produce orders",
        "penstock produce orders --file orders.txt --key-separator : --compression zstd",
    ),
)
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--file", "path", type=click.Path(exists=True, dir_okay=False), help="Read this file."
)
@click.option("--key-separator", metavar="TEXT", help="A line is key, TEXT, value.")
@click.option("--null-marker", metavar="TEXT", help="A key or value that is TEXT is sent as null.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="Header of every record; may be repeated.",
)
@click.option(
    "--partition",
    type=WholeNumber(min=0),
    help="Send to this partition; without it by key, or in turns.",
)
@click.option(
    "--compression",
    type=click.Choice(CODEC_NAMES),
    default="none",
    show_default=True,
    help="Codec.",
)
@click.option(
    "--acks",
    type=click.Choice(list(_ACKS)),
    default="all",
    show_default=True,
    help="all: on every in-sync replica, each record once; 1: on the leader; 0: do not wait.",
)
@bootstrap_option
@timeout_option
@json_option("Print the count as a JSON document.")
def produce(
    topic: str,
    path: str | None,
    key_separator: str | None,
    null_marker: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    compression: str,
    acks: str,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Send each line of standard input, or of a file, to TOPIC as one record."""
    line_format = LineFormat(
        _separator(key_separator), None if null_marker is None else null_marker.encode()
    )
    with blamed_on("--header"):
        record_headers = parse_headers(headers)
    with _input(path) as descriptor, open_cluster(bootstrap, timeout_seconds) as cluster:
        writer = TopicWriter(
            cluster,
            topic,
            partition=partition,
            acks=_ACKS[acks],
            codec=CODEC_NAMES.index(compression),
        )
        writer.learn_limit()
        if writer.is_new_topic:
            _note_creation(cluster, writer, topic)
        if sys.stdin.isatty() and path is None:
            note("One record a line; Ctrl-D ends.")
        try:
            _send(writer, topic, descriptor, line_format, record_headers)
        except PenstockError:
            count = writer.records_sent
            were = "record was" if count == 1 else "records were"
            note(f"{count} {were} acknowledged before this:")
            raise
    if as_json:
        print_json(
            {"topic": topic, "records": writer.records_sent, "topic_created": writer.is_new_topic}
        )
    else:
        count = writer.records_sent
        click.echo(f"{count} record{'' if count == 1 else 's'} sent to {topic}")


def _note_creation(cluster: Cluster, writer: TopicWriter, topic: str) -> None:
    """Report that the topic is new: its name may be a mistake."""
    from penstock.cli.text.suggestions import nearest_topic

    count = writer.partition_count
    partitions = "1 partition" if count == 1 else f"{count} partitions"
    note(f"note: topic {topic} did not exist; the broker created it with {partitions}.")
    close = nearest_topic(cluster, topic)
    if close is not None:
        note(
            f"hint: Did you mean '{close}'? `penstock topic delete {topic}` deletes the new topic."
        )


def _separator(text: str | None) -> bytes | None:
    if text == "":
        raise click.BadParameter("a separator has at least one character.")
    return None if text is None else text.encode()


@contextmanager
def _input(path: str | None) -> Iterator[int]:
    if path is None:
        yield input_descriptor()
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _send(
    writer: TopicWriter,
    topic: str,
    descriptor: int,
    line_format: LineFormat,
    headers: tuple[tuple[str, bytes], ...],
) -> None:
    """Send the bursts, flushing each one: its lines are acknowledged before the next read."""
    line_number = 0
    with progress_line(f"sending to {topic}", _size_bytes(descriptor)) as advance:
        for lines in bursts_of_lines(descriptor):
            for line in lines:
                line_number += 1
                try:
                    writer.append(*line_format.parse(line, line_number), headers)
                except InvalidRequestError:
                    writer.flush()
                    raise
                except RecordTooLargeError as error:
                    writer.flush()
                    raise RecordTooLargeError(
                        f"line {line_number}: {error} Earlier lines were sent; this line and the "
                        "rest were not.",
                        hint=error.hint,
                    ) from error
            writer.flush()
            advance(sum(len(line) + 1 for line in lines), f"{writer.records_sent} records")


def _size_bytes(descriptor: int) -> int | None:
    status = os.fstat(descriptor)
    return status.st_size if stat.S_ISREG(status.st_mode) else None
