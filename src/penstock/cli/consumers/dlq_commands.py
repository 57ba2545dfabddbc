"""`penstock dlq`: the dead letters of consumers (`@penstock.consumer`), each with its cause.

The words are those of `penstock table dlq`. Reading joins no group. A replay commits the records
and its position in one transaction.
"""

from itertools import islice
from typing import Any

import click

from penstock.cli.brokers import open_cluster
from penstock.cli.completing import complete_topics
from penstock.cli.numbers import WholeNumber
from penstock.cli.options import bootstrap_option, examples, json_option, timeout_option
from penstock.cli.output import note, print_json, print_table
from penstock.cli.text.record_text import document_of, timestamp_text
from penstock.client.cluster import Cluster
from penstock.consumers.dead_letter_replay import replay as write_again
from penstock.consumers.dead_letter_topics import (
    TOPIC_PREFIX,
    DeadLetter,
    list_topics,
    read_dead_letter,
    read_dead_letters,
)
from penstock.consumers.delivery.dead_letters import application_headers
from penstock.core.quantities import count_text, printable
from penstock.core.types import TopicPartition
from penstock.records.record import Header

_REASON_CHARACTERS_MAX = 120


@click.group(
    short_help="Look at dead letters of consumers, replay them.",
    epilog=examples(
        "penstock dlq list",
        "penstock dlq list dlq.orders",
        "penstock dlq show dlq.orders 0 17",
        "penstock dlq replay dlq.orders --limit 10",
    ),
)
def dlq() -> None:
    """Dead letters: records that a handler of @penstock.consumer could not handle, and why.

    Bad records of pipelines into tables: `penstock table dlq`.
    """


@dlq.command(
    name="list",
    short_help="List dead-letter topics, or the records of one.",
    epilog=examples("penstock dlq list", "penstock dlq list dlq.orders --limit 20"),
)
@click.argument("topic", required=False, shell_complete=complete_topics)
@click.option("--partition", type=WholeNumber(min=0), help="Only records of this partition.")
@click.option(
    "--limit", type=WholeNumber(min=1), default=50, show_default=True, help="Records to show."
)
@click.option("--all", "is_all", is_flag=True, help="Also records that were replayed.")
@click.option(
    "--prefix",
    default=TOPIC_PREFIX,
    show_default=True,
    help="Without TOPIC: the first letters of dead-letter topics.",
)
@bootstrap_option
@timeout_option
@json_option()
def list_(
    topic: str | None,
    partition: int | None,
    limit: int,
    is_all: bool,
    prefix: str,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """List the dead-letter topics, or the records of TOPIC that wait for a replay."""
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        if topic is None:
            _list_topics(cluster, prefix, as_json=as_json)
            return
        letters = read_dead_letters(cluster, topic, partition=partition, is_all=is_all)
        found = list(islice(letters, limit + 1))
    if as_json:
        print_json([_document(one, is_whole=False) for one in found[:limit]])
    elif not found:
        click.echo(f"no such records in {topic}")
    else:
        print_table(
            ["partition", "offset", "time", "from", "group", "attempts", "error", "reason"],
            [_row(one) for one in found[:limit]],
            folds="reason",
        )
    if len(found) > limit:
        note(f"the first {count_text(limit, 'record')}; --limit shows more")


def _list_topics(cluster: Cluster, prefix: str, *, as_json: bool) -> None:
    topics = list_topics(cluster, prefix)
    if as_json:
        print_json(
            [
                {
                    "topic": one.name,
                    "partitions": one.partitions,
                    "waiting": one.waiting,
                    "replayed": one.replayed,
                }
                for one in topics
            ]
        )
    elif not topics:
        click.echo(f"no topics with the prefix {prefix}")
    else:
        print_table(
            ["topic", "partitions", "waiting", "replayed"],
            [[one.name, one.partitions, one.waiting, one.replayed] for one in topics],
        )


@dlq.command(
    short_help="Show one dead letter whole.",
    epilog=examples("penstock dlq show dlq.orders 0 17 --json"),
)
@click.argument("topic", shell_complete=complete_topics)
@click.argument("partition", type=WholeNumber(min=0))
@click.argument("offset", type=WholeNumber(min=0))
@bootstrap_option
@timeout_option
@json_option()
def show(
    topic: str,
    partition: int,
    offset: int,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Show one dead letter of TOPIC: key, value, headers, origin, and why its attempts failed."""
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        found = read_dead_letter(cluster, TopicPartition(topic, partition), offset)
    if as_json:
        print_json(_document(found, is_whole=True))
        return
    record, origin = found.record, found.origin
    click.echo(f"{topic}-{partition} at offset {offset}, {timestamp_text(record.timestamp_ms)}")
    if origin is None:
        click.echo("origin:    unknown, no consumer of Penstock wrote this record")
    else:
        click.echo(
            f"origin:    {printable(origin.topic)}-{origin.partition} at offset {origin.offset}, "
            f"{timestamp_text(origin.timestamp_ms)}"
        )
        click.echo(
            f"failed:    {count_text(origin.attempts, 'attempt')} by group "
            f"{printable(origin.group)}, the last at {timestamp_text(origin.failed_at_ms)}"
        )
        click.echo(f"error:     {printable(origin.error_type)}: {printable(origin.error_text)}")
    click.echo(f"key:       {_bytes_text(record.key)}")
    for name, value in application_headers(tuple(record.headers)):
        click.echo(f"header:    {printable(name)}={_bytes_text(value)}")
    click.echo(f"value:     {_bytes_text(record.value)}")


@dlq.command(
    short_help="Write dead letters to their original topics again.",
    epilog=examples(
        "penstock dlq replay dlq.orders",
        "penstock dlq replay dlq.orders --partition 0 --limit 10",
    ),
)
@click.argument("topic", shell_complete=complete_topics)
@click.option("--partition", type=WholeNumber(min=0), help="Only records of this partition.")
@click.option("--limit", type=WholeNumber(min=1), help="At most this number of records.")
@bootstrap_option
@timeout_option
@json_option()
def replay(
    topic: str,
    partition: int | None,
    limit: int | None,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Write the waiting dead letters of TOPIC to their original topics, once each.

    Every group of the original topic gets them again. Records and the position of the replay are
    committed in one transaction, so an interrupted replay can be repeated.
    """
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        done = write_again(cluster, topic, partition=partition, limit=limit)
    if as_json:
        print_json({"records": done.records, "passed_over": done.passed_over})
        return
    click.echo(f"{count_text(done.count, 'record')} replayed")
    for name, count in sorted(done.records.items()):
        click.echo(f"  {printable(name)}: {count:,}")
    if done.passed_over:
        note(f"{count_text(done.passed_over, 'record')} without an origin passed over")


def _row(letter: DeadLetter) -> list[object]:
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
        printable(origin.error_type),
        printable(origin.error_text)[:_REASON_CHARACTERS_MAX],
    ]


def _document(letter: DeadLetter, *, is_whole: bool) -> dict[str, Any]:
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
            "timestamp": timestamp_text(origin.timestamp_ms),
            "group": origin.group,
            "attempts": origin.attempts,
            "error_type": origin.error_type,
            "error_text": origin.error_text,
            "failed_at": timestamp_text(origin.failed_at_ms),
        },
    }
    if is_whole:
        own = application_headers(tuple(record.headers))
        headers = tuple(Header(name, value) for name, value in own)
        document["record"] = document_of(record._replace(headers=headers))
    return document


def _bytes_text(value: bytes | None) -> str:
    return "-" if value is None else value.decode(errors="backslashreplace")
