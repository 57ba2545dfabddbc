"""`penstock group`: list and describe groups, show their lag, configure, reset and delete them.

It works on classic groups, groups of the consumer protocol and share groups, in any Kafka cluster.
It joins no group. Resetting or deleting needs a group without members: otherwise the coordinator
rejects it. Settings can change while the group has members.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

import click

from penstock.cli.brokers import open_cluster
from penstock.cli.completing import complete_groups
from penstock.cli.confirmation import confirm, yes_option
from penstock.cli.group.group_dead_letters import dead_letters
from penstock.cli.group.offset_deletion import delete_offsets
from penstock.cli.group.reset import reset_offsets
from penstock.cli.group.text import (
    group_document,
    lag_document,
    listed_document,
    print_group,
    print_lag,
    remark_on,
)
from penstock.cli.numbers import Number, WholeNumber
from penstock.cli.options import (
    bootstrap_option,
    edits_arguments,
    examples,
    json_option,
    timeout_option,
)
from penstock.cli.output import json_line, note, print_json, print_table
from penstock.cli.text.settings_text import changed_line, parse_edits
from penstock.client.groups.groups import GroupDescription, Groups, ListedGroup
from penstock.client.groups.lag_facts import lag_of

_STATES: Final = (
    "Empty",
    "Assigning",
    "Reconciling",
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
)
_TYPES: Final = ("classic", "consumer", "share", "streams")
_TYPES_WITH_LAG: Final = frozenset({"", "classic", "consumer", "share"})
"""Types whose members have partitions; an old broker reports no type."""


@click.group(
    short_help="Look at groups, their lag and their offsets.",
    epilog=examples(
        "penstock group list",
        "penstock group list --type share",
        "penstock group describe billing",
        "penstock group lag",
        "penstock group reset-offsets billing --all-topics --to-earliest --execute",
    ),
)
def group() -> None:
    """Look at groups, their lag and their offsets: consumer groups and share groups (queues)."""


group.add_command(reset_offsets)
group.add_command(delete_offsets)
group.add_command(dead_letters)


@group.command(
    name="list",
    short_help="List the groups.",
    epilog=examples("penstock group list", "penstock group list --state empty --type classic"),
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES, case_sensitive=False),
    help="Only groups in this state; may be repeated.",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    type=click.Choice(_TYPES, case_sensitive=False),
    help="Only groups of this type; may be repeated.",
)
@bootstrap_option
@timeout_option
@json_option()
def list_(
    states: tuple[str, ...],
    types: tuple[str, ...],
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """List the groups of the cluster with their type and state."""
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        groups = [one for one in Groups(cluster).list_all() if _is_wanted(one, states, types)]
    if as_json:
        print_json([listed_document(one) for one in groups])
    elif groups:
        rows = [
            [one.group_id, one.group_type or None, one.state or None, one.protocol_type or None]
            for one in groups
        ]
        print_table(["group", "type", "state", "protocol"], rows)
    else:
        click.echo("no such groups" if states or types else "no groups; a consumer makes one")


@group.command(
    short_help="Show state, members, offsets and lag of groups.",
    epilog=examples("penstock group describe billing", "penstock group describe --members billing"),
)
@click.argument("names", metavar="GROUPS...", nargs=-1, shell_complete=complete_groups)
@click.option("--all", "every", is_flag=True, help="All groups.")
@click.option("--members", "only_members", is_flag=True, help="Only the members.")
@click.option("--offsets", "only_offsets", is_flag=True, help="Only offsets and lag.")
@bootstrap_option
@timeout_option
@json_option()
def describe(
    names: tuple[str, ...],
    every: bool,
    only_members: bool,
    only_offsets: bool,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Show GROUPS: state and coordinator, members with what they have, offsets, lag, settings.

    With --members or --offsets, only that part; all are in the JSON document otherwise. Settings
    that have their default value are in the JSON document only.
    """
    if every == bool(names):
        raise click.UsageError("Name a group, or give --all.")
    with_members = only_members or not only_offsets
    with_offsets = only_offsets or not only_members
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        groups = Groups(cluster)
        found = _chosen(groups, names)
        rows = lag_of(cluster, groups, found) if with_offsets else {}
        settings = (
            cluster.group_configs([one.group_id for one in found])
            if with_members and with_offsets
            else {}
        )
    documents = [
        group_document(
            one, rows.get(one.group_id), settings.get(one.group_id), with_members=with_members
        )
        for one in found
    ]
    for remark in filter(None, map(remark_on, found)):
        note(remark)
    if as_json:
        print_json(documents)
        return
    for document in documents:
        print_group(document)


@group.command(
    short_help="Show how far groups are behind.",
    epilog=examples("penstock group lag", "penstock group lag billing --watch 2"),
)
@click.argument("names", metavar="[GROUPS]...", nargs=-1, shell_complete=complete_groups)
@click.option(
    "--watch",
    "watch_seconds",
    type=Number(min=0, min_open=True),
    metavar="SECONDS",
    help="Repeat at this interval; Ctrl-C stops.",
)
@click.option("--count", type=WholeNumber(min=1), help="With --watch: the number of repetitions.")
@bootstrap_option
@timeout_option
@json_option("Print a JSON document; with --watch one a line.")
def lag(
    names: tuple[str, ...],
    watch_seconds: float | None,
    count: int | None,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Show the lag of GROUPS, or of all groups: committed offset, end of the log, difference.

    A share group has a start offset instead of a committed one; its lag counts the records whose
    delivery is not complete. Lag is unknown (-) where nothing was committed, before the first fetch
    of a share group, or when the topic is gone. The last line is the sum.
    """
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        groups = Groups(cluster)
        for _ in _rounds(watch_seconds, count):
            rows_by_group = lag_of(cluster, groups, _chosen(groups, names))
            if not as_json:
                print_lag(rows_by_group)
            elif watch_seconds is None:
                print_json(lag_document(rows_by_group))
            else:
                click.echo(json_line(lag_document(rows_by_group)))
            sys.stdout.flush()


@group.command(
    short_help="Change the settings of a group.",
    epilog=examples(
        "penstock group configure billing consumer.session.timeout.ms=50000",
        "penstock group configure billing --delete consumer.session.timeout.ms",
        "penstock group configure work share.auto.offset.reset=earliest",
    ),
)
@click.argument("name", metavar="GROUP", shell_complete=complete_groups)
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
    """Change settings of GROUP: all that are given, or none of them.

    Members of consumer groups and share groups follow from their next heartbeat on. The group need
    not exist yet, and keeps its settings when it is deleted. `penstock group describe` shows what
    is set.
    """
    values = parse_edits(settings, deleted)
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        cluster.configure_group(name, values)
    if as_json:
        print_json({"group": name, "settings": values})
    else:
        click.echo(changed_line(name, values))


@group.command(
    short_help="Delete groups and their offsets.",
    epilog=examples("penstock group delete billing", "penstock group delete --yes billing audit"),
)
@click.argument(
    "names", metavar="GROUPS...", nargs=-1, required=True, shell_complete=complete_groups
)
@yes_option
@bootstrap_option
@timeout_option
@json_option()
def delete(
    names: tuple[str, ...], yes: bool, bootstrap: str, timeout_seconds: float, as_json: bool
) -> None:
    """Delete GROUPS and their offsets: committed ones, or the deliveries of a share group.

    Asks first on a terminal; without one it refuses unless --yes is given. A group that has
    members is not deleted.
    """
    confirm(f"Delete {', '.join(names)} and their offsets?", yes=yes)
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        groups = Groups(cluster)
        for name in names:
            groups.delete(name)
            if not as_json:
                click.echo(f"{name} deleted")
    if as_json:
        print_json([{"group": name, "deleted": True} for name in names])


def _is_wanted(one: ListedGroup, states: Sequence[str], types: Sequence[str]) -> bool:
    return (not states or one.state.lower() in {state.lower() for state in states}) and (
        not types or one.group_type in {kind.lower() for kind in types}
    )


def _chosen(groups: Groups, names: Sequence[str]) -> list[GroupDescription]:
    """Return the named groups; without names, all groups that consume topics."""
    if names:
        return [groups.describe(name) for name in names]
    found = (
        groups.find(one.group_id, one.group_type)
        for one in groups.list_all()
        if one.group_type in _TYPES_WITH_LAG
    )
    return [one for one in found if one is not None]  # some may have been deleted since the listing


def _rounds(watch_seconds: float | None, count: int | None) -> Iterator[int]:
    """Yield once, or repeatedly with pauses."""
    if watch_seconds is None:
        yield 0
        return
    done = 0
    while True:
        yield done
        done += 1
        if done == count:
            return
        time.sleep(watch_seconds)
