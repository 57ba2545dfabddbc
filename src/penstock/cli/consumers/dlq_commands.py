"""`penstock dlq`: the dead letters of consumers (`@penstock.consumer`), each with its cause.

The words are those of `penstock table dlq`. Reading joins no group. A replay commits the records
and its position in one transaction. It writes to the topics that letters name only after the user
has seen and confirmed them, or to the topic of `--to`.
"""

from itertools import islice

import click

from penstock.cli.brokers import open_cluster
from penstock.cli.completing import complete_topics
from penstock.cli.confirmation import yes_option
from penstock.cli.consumers.letter_text import (
    letter_document,
    letter_row,
    print_letter,
    run_replay,
    to_option,
)
from penstock.cli.numbers import WholeNumber
from penstock.cli.options import bootstrap_option, examples, json_option, timeout_option
from penstock.cli.output import note, print_json, print_table
from penstock.client.cluster import Cluster
from penstock.consumers.dead_letter_replay import Chosen
from penstock.consumers.dead_letter_topics import (
    TOPIC_PREFIX,
    list_topics,
    read_dead_letter,
    read_dead_letters,
)
from penstock.core.quantities import count_text
from penstock.core.types import TopicPartition


@click.group(
    short_help="Look at dead letters of consumers, replay them.",
    epilog=examples(
        "penstock dlq list",
        "penstock dlq list dlq.orders",
        "penstock dlq show dlq.orders 0 17",
        "penstock dlq replay dlq.orders --to orders --limit 10",
    ),
)
def dlq() -> None:
    """Dead letters: records that a handler of @penstock.consumer could not handle, and why.

    Dead letters of share groups: `penstock group dlq`. Bad records of pipelines into tables:
    `penstock table dlq`.
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
        print_json([letter_document(one, is_whole=False) for one in found[:limit]])
    elif not found:
        click.echo(f"no such records in {topic}")
    else:
        print_table(
            ["partition", "offset", "time", "from", "group", "attempts", "error", "reason"],
            [letter_row(one) for one in found[:limit]],
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
        print_json(letter_document(found, is_whole=True))
    else:
        print_letter(found)


@dlq.command(
    short_help="Write dead letters to their original topics again.",
    epilog=examples(
        "penstock dlq replay dlq.orders",
        "penstock dlq replay dlq.orders --to orders --partition 0 --limit 10",
    ),
)
@click.argument("topic", shell_complete=complete_topics)
@click.option("--partition", type=WholeNumber(min=0), help="Only records of this partition.")
@click.option("--limit", type=WholeNumber(min=1), help="At most this number of records.")
@to_option
@yes_option
@bootstrap_option
@timeout_option
@json_option()
def replay(
    topic: str,
    partition: int | None,
    limit: int | None,
    target: str | None,
    yes: bool,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Write the waiting dead letters of TOPIC to their original topics, once each.

    Every group of the original topic gets them again. Records and the position of the replay are
    committed in one transaction, so an interrupted replay can be repeated.

    Each producer of TOPIC can write letters that name any topic, so the command shows the topics
    and asks first. Without a terminal, give --to or --yes.
    """
    chosen = Chosen(topic, partition, limit)
    run_replay(chosen, target, (bootstrap, timeout_seconds), yes=yes, as_json=as_json)
