"""`penstock refresh`: build a snapshot of a topic with Spark, verify, install and send it.

`build` needs the extra `spark`; the others do not. `install` and `send` ask the admin port of a
broker, which does the work itself. `verify` reads a snapshot in this process.
"""

from time import sleep
from typing import Final
from urllib.parse import quote

import click

from penstock.cli.admin_port import (
    AdminResource,
    Document,
    open_admin_port,
    port_options,
)
from penstock.cli.client_settings import chosen_bootstrap, client_settings
from penstock.cli.completing import complete_topics
from penstock.cli.extras import extras_named
from penstock.cli.options import blamed_on, bootstrap_option, examples, json_option
from penstock.cli.output import print_json
from penstock.cli.pipe.pipe_calls import text
from penstock.cli.table.spark_options import SparkWish, chosen_session, spark_options
from penstock.client.transport.addresses import parse_addresses
from penstock.client.transport.options import ClientOptions
from penstock.core.errors import PenstockError
from penstock.core.quantities import count_text

LOOK_SECONDS: Final = 0.25
"""Between two looks at an installation."""
REFRESHES: Final = "/api/v1/refreshes"

_topic = click.argument("topic", metavar="TOPIC", shell_complete=complete_topics)


class RefreshFailedError(PenstockError):
    """A snapshot was not installed."""


@click.group(
    short_help="Build snapshots of topics, install and send them.",
    epilog=examples(
        "penstock refresh build price --to /var/snapshots/price",
        "penstock refresh verify /var/snapshots/price",
        "penstock refresh install price --from /var/snapshots/price",
        "penstock refresh send price --group shelf",
    ),
)
def refresh() -> None:
    """Build snapshots of topics, install them in mirrors, and refresh push subscribers.

    A snapshot has the last value of each key of a topic. It replaces a data set as a whole: until
    it is complete, the old data set is served.
    """


@refresh.command(
    short_help="Build a snapshot with Spark.",
    epilog=examples(
        "penstock refresh build price --to /var/snapshots/price",
        "penstock refresh build price --to s3://bucket/price --master spark://spark:7077",
    ),
)
@_topic
@click.option(
    "--to", "place", required=True, metavar="DIR", help="Directory or s3:// address to write."
)
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="zstd",
    show_default=True,
    help="Compression of the batches.",
)
@bootstrap_option
@spark_options
@json_option()
def build(
    topic: str,
    place: str,
    compression: str,
    bootstrap: str,
    master: str | None,
    settings: tuple[str, ...],
    log: str | None,
    as_json: bool,
) -> None:
    """Write the last committed value of each key of TOPIC as segments, with their offsets.

    The brokers may be Penstock or Apache Kafka. One task of Spark reads each partition. DIR has the
    old snapshot until the new one is complete; on several machines it must be a shared directory.
    """
    with extras_named():
        from penstock.spark.refresh.snapshot_build import BuildOptions
        from penstock.spark.refresh.snapshot_job import run_build

    found = client_settings()
    with blamed_on("--bootstrap-server"):
        addresses = parse_addresses(chosen_bootstrap(bootstrap, found))
    client = ClientOptions(tuple(addresses), found.client_id, security=found.security)
    options = BuildOptions(client, topic, place, compression)
    with chosen_session(SparkWish(master, settings, log)) as session:
        manifest = run_build(options, master=session.master, conf=session.conf, log=session.log)
    document: Document = {
        "topic": topic,
        "id": manifest.id,
        "place": place,
        "partitions": len(manifest.partitions),
        "records": manifest.records,
        "size_bytes": manifest.size_bytes,
        "ends": {str(partition): end for partition, end in manifest.ends.items()},
    }
    if as_json:
        print_json(document)
        return
    click.echo(
        f"snapshot {manifest.id}: {count_text(manifest.records, 'record')} of "
        f"{count_text(len(manifest.partitions), 'partition')}, {manifest.size_bytes} bytes in "
        f"{place}"
    )


@refresh.command(
    short_help="Verify a snapshot.", epilog=examples("penstock refresh verify /var/snapshots/price")
)
@click.argument("place", metavar="DIR")
@json_option()
def verify(place: str, as_json: bool) -> None:
    """Read a whole snapshot and compare it with its manifest: checksums, offsets, epochs."""
    from penstock.edge.refresh.snapshot_files import records_of, verified_batches
    from penstock.edge.refresh.snapshot_stores import load_manifest, open_store

    store = open_store(place)
    manifest = load_manifest(store)
    records = 0
    for partition in manifest.partitions:
        for batch in verified_batches(store, partition):
            records += len(records_of(batch))
    if as_json:
        print_json({"topic": manifest.topic, "id": manifest.id, "records": records})
        return
    click.echo(
        f"snapshot {manifest.id} of {manifest.topic} is complete: {count_text(records, 'record')}"
    )


@refresh.command(
    short_help="Install a snapshot in a mirror.",
    epilog=examples("penstock refresh install price --from /var/snapshots/price"),
)
@_topic
@click.option(
    "--from", "place", required=True, metavar="DIR", help="Snapshot, as the broker finds it."
)
@click.option(
    "--force",
    "is_forced",
    is_flag=True,
    help="Also if the mirror does not continue the snapshot: its end moves back.",
)
@port_options
@json_option()
def install(
    topic: str, place: str, is_forced: bool, url: str, timeout_seconds: float, as_json: bool
) -> None:
    """Replace the records of a mirror by a snapshot; its pipe goes on behind it.

    The broker verifies the snapshot first. All partitions change at once, also if the broker
    crashes meanwhile. Needs the permission Alter on the cluster.
    """
    refreshes = open_admin_port(url, timeout_seconds).resource(REFRESHES)
    path = f"/{quote(topic, safe='')}"
    wanted: Document = {"place": place, "is_forced": is_forced}
    state = refreshes.ask("POST", path, wanted)
    while refreshes.field(state, "state", str) == "RUNNING":
        sleep(LOOK_SECONDS)
        state = refreshes.ask("GET", path)
    _print_installed(refreshes, topic, state, as_json=as_json)


def _print_installed(
    refreshes: AdminResource, topic: str, state: Document, *, as_json: bool
) -> None:
    if refreshes.field(state, "state", str) != "DONE":
        reason = text(state, "reason") or "the broker was restarted meanwhile"
        raise RefreshFailedError(
            f"{topic!r} is not refreshed: {reason}", hint=text(state, "remedy")
        )
    if as_json:
        print_json(state)
        return
    click.echo(
        f"{topic} is refreshed: {count_text(refreshes.field(state, 'records', int), 'record')} in "
        f"{state['seconds']} s"
    )


@refresh.command(
    short_help="Refresh the push subscribers of a topic.",
    epilog=examples("penstock refresh send price", "penstock refresh send price --group shelf"),
)
@_topic
@click.option("--group", metavar="GROUP", help="Only subscribers with this group.")
@port_options
@json_option()
def send(topic: str, group: str | None, url: str, timeout_seconds: float, as_json: bool) -> None:
    """Send RESET, all records of TOPIC and READY to its push subscribers that accept refreshes.

    Needs the permission Alter on the cluster.
    """
    refreshes = open_admin_port(url, timeout_seconds).resource(REFRESHES)
    path = f"/{quote(topic, safe='')}/send"
    found = refreshes.ask("POST", path, {"group": group})
    count = refreshes.field(found, "subscribers", int)
    if as_json:
        print_json(found)
        return
    click.echo(f"refresh of {count_text(count, 'subscriber')} of {topic} began")
