"""`penstock txn`: list and describe transactions, and abort a hanging one.

A hanging transaction is open in a partition but unknown to every coordinator. It blocks all
consumers with `read_committed`. `hanging` finds such transactions and `abort` ends one. A
transaction that its coordinator knows is NOT aborted without `--force`: the coordinator aborts it
after its timeout.
"""

from datetime import UTC, datetime
from typing import Any, Final

import click

from penstock.cli.brokers import open_cluster
from penstock.cli.completing import complete_topics
from penstock.cli.confirmation import check_can_ask, confirm, yes_option
from penstock.cli.numbers import WholeNumber
from penstock.cli.options import bootstrap_option, examples, json_option, timeout_option
from penstock.cli.output import print_json, print_table
from penstock.client.transactions.transactions import (
    NO_TIME,
    PartitionProducer,
    TransactionDescription,
    Transactions,
)
from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition

Document = dict[str, Any]

SILENT_FOR_MS_DEFAULT: Final = 900_000
"""Fifteen minutes: the longest timeout that brokers allow a producer by default."""

_STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)

_TRANSACTION_COLUMNS: Final = {
    "coordinator": "coordinator",
    "producer_id": "producer",
    "producer_epoch": "epoch",
    "timeout_ms": "timeout ms",
    "started": "started",
    "duration_ms": "duration ms",
}
_PRODUCER_COLUMNS: Final = {
    "topic": "topic",
    "partition": "partition",
    "producer_id": "producer",
    "producer_epoch": "epoch",
    "last_sequence": "last sequence",
    "last_time": "last time",
    "coordinator_epoch": "coordinator epoch",
    "start_offset": "start offset",
}
"""Field of a document to heading of a column."""


class LivingTransactionError(PenstockError):
    """The transaction to abort is not hanging."""


@click.group(
    short_help="Look at transactions, abort one that hangs.",
    epilog=examples(
        "penstock txn list --state Ongoing",
        "penstock txn describe payments-1",
        "penstock txn hanging",
        "penstock txn abort --topic orders --partition 0 --start-offset 42",
    ),
)
def txn() -> None:
    """Look at transactions, abort one that hangs."""


@txn.command(
    name="list",
    short_help="List the transactional ids.",
    epilog=examples("penstock txn list", "penstock txn list --state Ongoing --longer-than 60000"),
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES, case_sensitive=False),
    help="Only those in this state; may be repeated.",
)
@click.option(
    "--producer-id",
    "producer_ids",
    multiple=True,
    type=WholeNumber(min=0),
    help="Only those of this producer; may be repeated.",
)
@click.option(
    "--longer-than",
    "longer_than_ms",
    type=WholeNumber(min=0),
    metavar="MILLISECONDS",
    help="Only transactions that are open for longer than this.",
)
@bootstrap_option
@timeout_option
@json_option()
def list_(
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    longer_than_ms: int | None,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """List the transactional ids of the cluster with their state."""
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        found = Transactions(cluster).list_all(
            states,
            producer_ids,
            longer_than_ms=NO_TIME if longer_than_ms is None else longer_than_ms,
        )
    if as_json:
        print_json(
            [
                {
                    "transactional_id": one.transactional_id,
                    "coordinator": one.coordinator_id,
                    "producer_id": one.producer_id,
                    "state": one.state,
                }
                for one in found
            ]
        )
    elif found:
        print_table(["transactional id", "coordinator", "producer", "state"], found)
    else:
        click.echo("no transactional ids")


@txn.command(
    short_help="Show the transactions of transactional ids.",
    epilog=examples("penstock txn describe payments-1"),
)
@click.argument("names", metavar="IDS...", nargs=-1, required=True)
@bootstrap_option
@timeout_option
@json_option()
def describe(names: tuple[str, ...], bootstrap: str, timeout_seconds: float, as_json: bool) -> None:
    """Show what the coordinator knows of the transactional IDS."""
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        transactions = Transactions(cluster)
        now_ms = cluster.clock.now_ms()
        documents = [_described(transactions.describe(name), now_ms) for name in names]
    if as_json:
        print_json(documents)
        return
    for document in documents:
        _print_described(document)


@txn.command(
    short_help="Show the producers of a topic and their open transactions.",
    epilog=examples("penstock txn producers orders", "penstock txn producers orders --open"),
)
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--partition",
    "partitions",
    type=WholeNumber(min=0),
    multiple=True,
    help="Only this partition; may be repeated.",
)
@click.option("--open", "only_open", is_flag=True, help="Only those with an open transaction.")
@bootstrap_option
@timeout_option
@json_option()
def producers(
    topic: str,
    partitions: tuple[int, ...],
    only_open: bool,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Show the producers that the partitions of TOPIC remember.

    The start offset of an open transaction is what `abort` wants to know.
    """
    documents = []
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        transactions = Transactions(cluster)
        for at in cluster.partitions_of(topic, partitions):
            documents += [
                _producer(at, one)
                for one in transactions.producers(at)
                if not only_open or one.start_offset is not None
            ]
    _print_producers(
        documents, "no open transactions" if only_open else "no producers", as_json=as_json
    )


@txn.command(
    short_help="Find transactions that hang.",
    epilog=examples("penstock txn hanging", "penstock txn hanging orders --silent-for 60000"),
)
@click.argument("topics", nargs=-1, shell_complete=complete_topics)
@click.option(
    "--silent-for",
    "silent_for_ms",
    type=WholeNumber(min=0),
    default=SILENT_FOR_MS_DEFAULT,
    show_default=True,
    metavar="MILLISECONDS",
    help="Only transactions without a write for this long.",
)
@bootstrap_option
@timeout_option
@json_option()
def hanging(
    topics: tuple[str, ...],
    silent_for_ms: int,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Find transactions in TOPICS, or in all topics, that no coordinator will ever end.

    Every partition is asked. A young transaction may not be known to its coordinator yet, so those
    that were written to not long ago are left out.
    """
    documents = []
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        transactions = Transactions(cluster)
        silent_since_ms = cluster.clock.now_ms() - silent_for_ms
        for topic in topics or [one.name or "" for one in cluster.all_topics()]:
            for at in cluster.partitions_of(topic):
                found = transactions.hanging(at, silent_since_ms=silent_since_ms)
                documents += [_producer(at, one) for one in found]
    _print_producers(documents, "no transaction hangs", as_json=as_json)


@txn.command(
    short_help="Abort a transaction that hangs in a partition.",
    epilog=examples("penstock txn abort --topic orders --partition 0 --start-offset 42"),
)
@click.option(
    "--topic", required=True, shell_complete=complete_topics, help="Topic that it hangs in."
)
@click.option("--partition", required=True, type=WholeNumber(min=0), help="Partition of it.")
@click.option(
    "--start-offset",
    required=True,
    type=WholeNumber(min=0),
    help="Where it begins; `penstock txn producers TOPIC --open` shows it.",
)
@click.option("--force", is_flag=True, help="Also when a coordinator knows it.")
@yes_option
@bootstrap_option
@timeout_option
@json_option()
def abort(
    topic: str,
    partition: int,
    start_offset: int,
    force: bool,
    yes: bool,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Abort the transaction that begins at an offset of a partition.

    Asks first on a terminal; without one it refuses unless --yes is given. Consumers with
    read_committed skip its records there. A transaction that a coordinator knows is left alone
    without --force: its producer could still commit the rest of it.
    """
    check_can_ask(yes=yes)
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        (at,) = cluster.partitions_of(topic, [partition])
        transactions = Transactions(cluster)
        producer = transactions.open_at(at, start_offset)
        owner = None if force else transactions.owner(producer.producer_id, at)
        if owner is not None:
            raise LivingTransactionError(
                f"this transaction does not hang: it belongs to {owner.transactional_id}, which is "
                f"{owner.state}. Its coordinator aborts it after {owner.timeout_ms} ms.",
                hint="Add --force to abort this part of it anyway.",
            )
        whose = f"producer {producer.producer_id}, epoch {producer.producer_epoch}"
        confirm(f"Abort the transaction of {whose} in {at}?", yes=yes)
        transactions.abort(at, producer)
    if as_json:
        print_json({**_producer(at, producer), "aborted": True})
    else:
        click.echo(
            f"the transaction of producer {producer.producer_id} at offset {start_offset} of {at} "
            "is aborted"
        )


def _print_producers(documents: list[Document], nothing: str, *, as_json: bool) -> None:
    if as_json:
        print_json(documents)
    elif documents:
        rows = [[document[name] for name in _PRODUCER_COLUMNS] for document in documents]
        print_table(list(_PRODUCER_COLUMNS.values()), rows)
    else:
        click.echo(nothing)


def _time(milliseconds: int | None) -> str | None:
    if milliseconds is None or milliseconds < 0:
        return None
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _described(found: TransactionDescription, now_ms: int) -> Document:
    started = found.started_at_ms
    return {
        "transactional_id": found.transactional_id,
        "coordinator": found.coordinator.broker_id,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "state": found.state,
        "timeout_ms": found.timeout_ms,
        "started": _time(started),
        "started_ms": started,
        "duration_ms": None if started is None else max(0, now_ms - started),
        "partitions": [{"topic": at.topic, "partition": at.partition} for at in found.partitions],
    }


def _print_described(document: Document) -> None:
    click.echo(f"{document['transactional_id']}  {document['state']}")
    row = [document[name] for name in _TRANSACTION_COLUMNS]
    print_table(list(_TRANSACTION_COLUMNS.values()), [row])
    if document["partitions"]:
        rows = [[one["topic"], one["partition"]] for one in document["partitions"]]
        print_table(["topic", "partition"], rows)


def _producer(at: TopicPartition, producer: PartitionProducer) -> Document:
    return {
        "topic": at.topic,
        "partition": at.partition,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "last_sequence": producer.last_sequence,
        "last_time": _time(producer.last_timestamp_ms),
        "last_time_ms": producer.last_timestamp_ms,
        "coordinator_epoch": producer.coordinator_epoch,
        "start_offset": producer.start_offset,
    }
