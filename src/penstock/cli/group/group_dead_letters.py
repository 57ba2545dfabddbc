"""`penstock group dlq`: the dead letters of share groups, each with its cause.

The words are those of `penstock table dlq` and `penstock dlq`. The topic is the one that the
settings of the group name. Reading joins no group. A replay commits the records and its position in
one transaction, with a position of its own for each group.
"""

from itertools import islice
from typing import Final

import click

from penstock.cli.brokers import open_cluster
from penstock.cli.completing import complete_groups
from penstock.cli.confirmation import check_can_ask, yes_option
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
from penstock.client.groups.groups import Groups
from penstock.consumers.dead_letter_replay import Chosen
from penstock.consumers.dead_letter_topics import (
    count_letters,
    read_dead_letter,
    read_dead_letters,
)
from penstock.core.errors import PenstockError, UnknownTopicOrPartitionError
from penstock.core.quantities import count_text
from penstock.core.types import TopicPartition

TOPIC_SETTING: Final = "errors.deadletterqueue.topic.name"


class NoDeadLettersError(PenstockError):
    """The group has no dead-letter topic."""


@click.group(
    name="dlq",
    short_help="Look at dead letters of share groups, replay them.",
    epilog=examples(
        "penstock group dlq list",
        "penstock group dlq list packing",
        "penstock group dlq show packing 0 17",
        "penstock group dlq replay packing --to orders",
    ),
)
def dead_letters() -> None:
    """Dead letters: records that a share group has given up, and why.

    A share group has dead letters if its setting errors.deadletterqueue.topic.name names a topic.
    """


@dead_letters.command(
    name="list",
    short_help="List share groups with dead letters, or the letters of one.",
    epilog=examples("penstock group dlq list", "penstock group dlq list packing --limit 20"),
)
@click.argument("name", metavar="[GROUP]", required=False, shell_complete=complete_groups)
@click.option("--partition", type=WholeNumber(min=0), help="Only letters of this partition.")
@click.option(
    "--limit", type=WholeNumber(min=1), default=50, show_default=True, help="Letters to show."
)
@click.option("--all", "is_all", is_flag=True, help="Also letters that were replayed.")
@bootstrap_option
@timeout_option
@json_option()
def list_(
    name: str | None,
    partition: int | None,
    limit: int,
    is_all: bool,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """List the share groups with a dead-letter topic, or the letters of GROUP.

    The partition and the offset of a letter are those in the dead-letter topic.
    """
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        if name is None:
            _list_groups(cluster, as_json=as_json)
            return
        topic = _topic_of(cluster, name)
        letters = read_dead_letters(
            cluster, topic, partition=partition, is_all=is_all, share_group=name
        )
        found = list(islice(letters, limit + 1))
    if as_json:
        print_json([letter_document(one, is_whole=False) for one in found[:limit]])
    elif not found:
        click.echo(f"no letters of {name} in {topic}")
    else:
        rows = [letter_row(one) for one in found[:limit]]
        print_table(
            ["partition", "offset", "time", "from", "deliveries", "reason"],
            [[*row[:4], row[5], row[7]] for row in rows],
            folds="reason",
        )
    if len(found) > limit:
        note(f"the first {count_text(limit, 'letter')}; --limit shows more")


def _list_groups(cluster: Cluster, *, as_json: bool) -> None:
    groups = [one.group_id for one in Groups(cluster).list_all() if one.group_type == "share"]
    rows: list[tuple[str, str, int | None]] = []
    for name, topic in sorted(_topics(cluster, groups).items()):
        if topic:
            rows.append((name, topic, _end_of(cluster, topic)))
    if as_json:
        print_json([{"group": one, "topic": two, "records": three} for one, two, three in rows])
    elif rows:
        print_table(["group", "topic", "records"], [list(row) for row in rows])
    else:
        click.echo("no share group has a dead-letter topic")


def _end_of(cluster: Cluster, topic: str) -> int | None:
    """Return the number of records of a topic; None if it does not exist."""
    try:
        counted = count_letters(cluster, topic)
    except UnknownTopicOrPartitionError:
        return None
    return counted.waiting + counted.replayed


def _topics(cluster: Cluster, groups: list[str]) -> dict[str, str]:
    """Return the dead-letter topic of each group; empty if it has none."""
    return {
        name: next((one.value or "" for one in answer.configs if one.name == TOPIC_SETTING), "")
        for name, answer in cluster.group_configs(groups).items()
    }


def _topic_of(cluster: Cluster, name: str) -> str:
    topic = _topics(cluster, [name]).get(name, "")
    if not topic:
        raise NoDeadLettersError(
            f"share group {name!r} has no dead-letter topic.",
            hint=f"Set one: `penstock group configure {name} {TOPIC_SETTING}=dlq.{name}`.",
        )
    return topic


@dead_letters.command(
    short_help="Show one dead letter whole.",
    epilog=examples("penstock group dlq show packing 0 17 --json"),
)
@click.argument("name", metavar="GROUP", shell_complete=complete_groups)
@click.argument("partition", type=WholeNumber(min=0))
@click.argument("offset", type=WholeNumber(min=0))
@bootstrap_option
@timeout_option
@json_option()
def show(
    name: str,
    partition: int,
    offset: int,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Show one dead letter of GROUP: key, value, headers, origin and cause.

    PARTITION and OFFSET are those in the dead-letter topic.
    """
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        topic = _topic_of(cluster, name)
        found = read_dead_letter(cluster, TopicPartition(topic, partition), offset)
    if as_json:
        print_json(letter_document(found, is_whole=True))
    else:
        print_letter(found)


@dead_letters.command(
    short_help="Write records of dead letters to their topics again.",
    epilog=examples(
        "penstock group dlq replay packing",
        "penstock group dlq replay packing --to orders --limit 10",
    ),
)
@click.argument("name", metavar="GROUP", shell_complete=complete_groups)
@click.option("--partition", type=WholeNumber(min=0), help="Only letters of this partition.")
@click.option("--limit", type=WholeNumber(min=1), help="At most this number of letters.")
@to_option
@yes_option
@bootstrap_option
@timeout_option
@json_option()
def replay(
    name: str,
    partition: int | None,
    limit: int | None,
    target: str | None,
    yes: bool,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Write the records of the waiting letters of GROUP to their original topics, once each.

    A letter without a copy needs the original record, which must still be in its topic. Every
    group of that topic gets the records again. Records and the position of the replay are
    committed in one transaction, so an interrupted replay can be repeated.

    The command shows the topics and asks first. Without a terminal, give --to or --yes.
    """
    if target is None:
        check_can_ask(yes=yes)
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        topic = _topic_of(cluster, name)
    chosen = Chosen(topic, partition, limit, share_group=name)
    run_replay(chosen, target, (bootstrap, timeout_seconds), yes=yes, as_json=as_json)
