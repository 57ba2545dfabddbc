"""`penstock topic`: create, list, describe, change and delete topics of any Kafka cluster."""

import base64
import time
import uuid

import click

from penstock.cli.brokers import open_cluster
from penstock.cli.completing import complete_topics
from penstock.cli.confirmation import confirm, yes_option
from penstock.cli.numbers import WholeNumber
from penstock.cli.options import (
    add_style_options,
    bootstrap_option,
    edits_arguments,
    examples,
    json_option,
    timeout_option,
)
from penstock.cli.output import print_json, print_table
from penstock.cli.text.settings_text import (
    changed_line,
    parse_edits,
    parse_settings,
    print_settings,
    setting_documents,
)
from penstock.client.calls import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NewTopic
from penstock.client.cluster import Cluster
from penstock.core.errors import BrokerAnswerError, UnknownTopicOrPartitionError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

_LOOK_SECONDS = 0.05


class TopicCommands(click.Group):
    """Commands for topics; the ones for a whole cluster are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in alphabetical order."""
        return sorted([*super().list_commands(ctx), "replicas"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command; None for an unknown name."""
        if cmd_name != "replicas":
            return super().get_command(ctx, cmd_name)
        from penstock.cli.cluster.topic_replicas import replicas

        add_style_options(replicas)
        return replicas


@click.group(
    cls=TopicCommands,
    short_help="Create, list, describe, change and delete topics.",
    epilog=examples("penstock topic create orders --partitions 3", "penstock topic list"),
)
def topic() -> None:
    """Create, list, describe, change and delete topics."""


@topic.command(
    short_help="Create a topic.",
    epilog=examples(
        "penstock topic create orders",
        "penstock topic create orders --partitions 3 --config retention.ms=86400000",
    ),
)
@click.argument("name")
@click.option(
    "--partitions",
    type=WholeNumber(min=1),
    help="Number of partitions; without it the broker's default.",
)
@click.option(
    "--replication-factor",
    type=WholeNumber(min=1),
    help="Copies of each partition; without it the broker's default.",
)
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    help="A topic setting, such as retention.ms=86400000; may be repeated.",
)
@click.option("--if-not-exists", is_flag=True, help="A topic that exists already is no failure.")
@bootstrap_option
@timeout_option
@json_option()
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Create the topic NAME."""
    new_topic = NewTopic(
        name, partitions or -1, replication_factor or -1, parse_settings(configs, "--config")
    )
    created = True
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        try:
            cluster.create_topic(new_topic)
        except BrokerAnswerError as error:
            if not (if_not_exists and error.code == ErrorCode.TOPIC_ALREADY_EXISTS):
                raise
            created = False
        count = len(_created(cluster, name, timeout_seconds).partitions)
    if as_json:
        print_json({"name": name, "created": created, "partitions": count})
    else:
        verb = "created" if created else "exists already"
        click.echo(f"{name} {verb}, {count} partition{'' if count == 1 else 's'}")


@topic.command(name="list", short_help="List the topics.", epilog=examples("penstock topic list"))
@click.option("--internal", is_flag=True, help="Show the cluster's own topics too.")
@bootstrap_option
@timeout_option
@json_option()
def list_(internal: bool, bootstrap: str, timeout_seconds: float, as_json: bool) -> None:
    """List the topics of the cluster."""
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        topics = [one for one in cluster.all_topics() if internal or not one.is_internal]
    documents = [
        {
            "name": one.name,
            "partitions": len(one.partitions),
            "replication_factor": _replication_factor(one),
            "internal": one.is_internal,
        }
        for one in topics
    ]
    if as_json:
        print_json(documents)
    elif documents:
        rows = [[one["name"], one["partitions"], one["replication_factor"]] for one in documents]
        print_table(["topic", "partitions", "replicas"], rows)
    else:
        click.echo("no topics; make one with `penstock topic create NAME`")


@topic.command(
    short_help="Show partitions, offsets and settings of topics.",
    epilog=examples("penstock topic describe orders"),
)
@click.argument("names", nargs=-1, required=True, shell_complete=complete_topics)
@bootstrap_option
@timeout_option
@json_option()
def describe(names: tuple[str, ...], bootstrap: str, timeout_seconds: float, as_json: bool) -> None:
    """Show the partitions, offsets and settings of the topics NAMES.

    Settings that have their default value are in the JSON document only.
    """
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        documents = [_described(cluster, cluster.topic(name)) for name in names]
    if as_json:
        print_json(documents)
        return
    for document in documents:
        _print_described(document)


@topic.command(
    short_help="Give a topic more partitions.",
    epilog=examples("penstock topic alter orders --partitions 6"),
)
@click.argument("name", shell_complete=complete_topics)
@click.option(
    "--partitions",
    type=WholeNumber(min=1),
    required=True,
    help="How many the topic shall have; there is no way back to fewer.",
)
@bootstrap_option
@timeout_option
@json_option()
def alter(
    name: str, partitions: int, bootstrap: str, timeout_seconds: float, as_json: bool
) -> None:
    """Give the topic NAME more partitions.

    Records stay where they are: keys may go to other partitions from now on.
    """
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        cluster.add_partitions(name, partitions)
    if as_json:
        print_json({"name": name, "partitions": partitions})
    else:
        click.echo(f"{name} has {partitions} partitions")


@topic.command(
    short_help="Change the settings of a topic.",
    epilog=examples(
        "penstock topic configure orders retention.ms=86400000 segment.bytes=104857600",
        "penstock topic configure orders --delete retention.ms",
    ),
)
@click.argument("name", shell_complete=complete_topics)
@edits_arguments
@bootstrap_option
@timeout_option
@json_option()
def configure(
    name: str,
    settings: tuple[str, ...],
    deleted: tuple[str, ...],
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Change settings of the topic NAME: all that are given, or none of them.

    They hold at once. `penstock topic describe` shows what is in force.
    """
    values = parse_edits(settings, deleted)
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        cluster.configure_topic(name, values)
    if as_json:
        print_json({"name": name, "settings": values})
    else:
        click.echo(changed_line(name, values))


@topic.command(
    short_help="Delete topics and all their records.",
    epilog=examples("penstock topic delete orders", "penstock topic delete --yes orders payments"),
)
@click.argument("names", nargs=-1, required=True, shell_complete=complete_topics)
@yes_option
@bootstrap_option
@timeout_option
@json_option()
def delete(
    names: tuple[str, ...], yes: bool, bootstrap: str, timeout_seconds: float, as_json: bool
) -> None:
    """Delete the topics NAMES and all their records.

    Asks first on a terminal; without one it refuses unless --yes is given.
    """
    confirm(f"Delete {', '.join(names)} and all records?", yes=yes)
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        for name in names:
            cluster.delete_topic(name)
            if not as_json:
                click.echo(f"{name} deleted")
    if as_json:
        print_json([{"name": name, "deleted": True} for name in names])


def _created(cluster: Cluster, name: str, timeout_seconds: float) -> MetadataResponseTopic:
    """Return a topic that exists; brokers learn of a new topic a moment after its creation."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            return cluster.topic(name)
        except UnknownTopicOrPartitionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_LOOK_SECONDS)


def _topic_id_text(topic_id: uuid.UUID | None) -> str | None:
    """Return the id as Kafka's own tools write it: URL-safe base64 without padding."""
    if topic_id is None:
        return None
    return base64.urlsafe_b64encode(topic_id.bytes).decode("ascii").rstrip("=")


def _replication_factor(topic: MetadataResponseTopic) -> int:
    return max((len(part.replica_nodes) for part in topic.partitions), default=0)


def _described(cluster: Cluster, topic: MetadataResponseTopic) -> dict[str, object]:
    name = topic.name or ""
    partitions = sorted(topic.partitions, key=lambda part: part.partition_index)
    places = [TopicPartition(name, part.partition_index) for part in partitions]
    first = cluster.find_offsets(dict.fromkeys(places, EARLIEST_TIMESTAMP))
    end = cluster.find_offsets(dict.fromkeys(places, LATEST_TIMESTAMP))
    result = cluster.topic_configs([name])[name]
    return {
        "name": name,
        "topic_id": _topic_id_text(topic.topic_id),
        "internal": topic.is_internal,
        "partitions": [
            _described_partition(part, first[place], end[place])
            for part, place in zip(partitions, places, strict=True)
        ],
        "configs": setting_documents(result.configs),
    }


def _described_partition(
    part: MetadataResponsePartition, first: int, end: int
) -> dict[str, object]:
    return {
        "partition": part.partition_index,
        "leader": part.leader_id,
        "leader_epoch": part.leader_epoch,
        "replicas": list(part.replica_nodes),
        "in_sync": list(part.isr_nodes),
        "first_offset": first,
        "end_offset": end,
    }


def _print_described(document: dict[str, object]) -> None:
    partitions = document["partitions"]
    configs = document["configs"]
    assert isinstance(partitions, list)
    assert isinstance(configs, list)
    click.echo(f"{document['name']}  id {document['topic_id'] or '-'}")
    print_table(
        ["partition", "leader", "replicas", "in sync", "first offset", "end offset"],
        [
            [
                part["partition"],
                part["leader"],
                ",".join(map(str, part["replicas"])),
                ",".join(map(str, part["in_sync"])),
                part["first_offset"],
                part["end_offset"],
            ]
            for part in partitions
        ],
    )
    print_settings(configs)
