"""`penstock group reset-offsets`: change a group's offsets, after showing a plan.

Consumer groups have committed offsets, share groups start offsets: a record behind the new start
offset is delivered again, whatever became of it before.

Nothing is changed without `--execute`. The group must have no members at the plan and at the
commit; the coordinator checks the latter. One request commits all partitions. `groups.offset_reset`
creates the plan from the facts of `client.groups.reset_facts`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from penstock.cli.brokers import open_cluster
from penstock.cli.completing import complete_groups
from penstock.cli.numbers import WholeNumber
from penstock.cli.options import (
    blamed_on,
    bootstrap_option,
    examples,
    json_option,
    timeout_option,
)
from penstock.cli.output import note, print_json, print_table
from penstock.client.cluster import Cluster
from penstock.client.groups import offset_reset
from penstock.client.groups.groups import CONSUMER, SHARE, Groups
from penstock.client.groups.offset_reset import Change, Scenario, plan
from penstock.client.groups.reset_facts import check_empty, find_bounds
from penstock.client.groups.reset_file import read_plan, write_plan
from penstock.client.records.positions import AT_OFFSET, AT_TIMESTAMP, parse_start
from penstock.core.errors import InvalidRequestError
from penstock.core.types import TopicPartition

_SCENARIOS: Final = (
    "--to-earliest, --to-latest, --to-current, --to-offset, --to-timestamp, --shift-by or "
    "--from-file"
)


@click.command(
    name="reset-offsets",
    short_help="Move the offsets of a group; without --execute only show how.",
    epilog=examples(
        "penstock group reset-offsets billing --topic orders --to-earliest",
        "penstock group reset-offsets billing --topic orders:0,2 --shift-by -10 --execute",
        "penstock group reset-offsets billing --all-topics --to-current --export > plan.csv",
        "penstock group reset-offsets billing --from-file plan.csv --execute",
        "penstock group reset-offsets work --type share --topic jobs --to-earliest --execute",
    ),
)
@click.argument("name", metavar="GROUP", shell_complete=complete_groups)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME[:PARTITIONS]",
    help="Only this topic, or partitions of it, such as orders:0,2; may be repeated.",
)
@click.option("--all-topics", is_flag=True, help="Everything that the group committed.")
@click.option("--to-earliest", is_flag=True, help="To the first record that is kept.")
@click.option("--to-latest", is_flag=True, help="After the last record.")
@click.option("--to-current", is_flag=True, help="To what is committed; the end where nothing is.")
@click.option("--to-offset", type=WholeNumber(min=0), help="To this offset.")
@click.option(
    "--to-timestamp",
    metavar="TIME",
    help="To the first record at or after an ISO time, or milliseconds since 1970.",
)
@click.option("--shift-by", type=int, help="Forward by this number of records; back if negative.")
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False),
    help="To the offsets of a file that --export wrote, or Kafka's own tool.",
)
@click.option(
    "--type",
    "new_type",
    type=click.Choice((CONSUMER, SHARE), case_sensitive=False),
    default=CONSUMER,
    show_default=True,
    help="The type of a group that does not exist yet.",
)
@click.option("--execute", is_flag=True, help="Do it; otherwise the plan is only shown.")
@click.option("--export", is_flag=True, help="Print the plan as CSV, as Kafka's own tool does.")
@bootstrap_option
@timeout_option
@json_option()
def reset_offsets(
    name: str,
    topics: tuple[str, ...],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    to_timestamp: str | None,
    shift_by: int | None,
    from_file: str | None,
    new_type: str,
    execute: bool,
    export: bool,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Move the committed offsets of GROUP, or the start offsets of a share group.

    The group must have no members.
    Without --execute nothing is changed. Offsets outside of the log are moved to its nearest end.
    """
    scenarios = [
        Scenario(offset_reset.TO_EARLIEST) if to_earliest else None,
        Scenario(offset_reset.TO_LATEST) if to_latest else None,
        Scenario(offset_reset.TO_CURRENT) if to_current else None,
        None if to_offset is None else Scenario(offset_reset.TO_OFFSET, to_offset),
        None if to_timestamp is None else _at_time(to_timestamp),
        None if shift_by is None else Scenario(offset_reset.SHIFT_BY, shift_by),
        None if from_file is None else _of_file(from_file, name),
    ]
    scenario = _only_one([one for one in scenarios if one is not None])
    _check_scope(scenario, topics, all_topics=all_topics)
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        groups = Groups(cluster)
        group_type = check_empty(groups, name, new_type)
        places = _places(cluster, scenario, topics)
        changes = plan(scenario, find_bounds(cluster, groups, name, scenario, places, group_type))
        if execute and changes:
            groups.move(name, group_type, {change.at: change.offset for change in changes})
    _print(name, changes, executed=execute, export=export, as_json=as_json)


# --- The request ---


def _only_one(scenarios: Sequence[Scenario]) -> Scenario:
    if len(scenarios) != 1:
        raise click.UsageError(f"Give exactly one of {_SCENARIOS}.")
    return scenarios[0]


def _check_scope(scenario: Scenario, topics: Sequence[str], *, all_topics: bool) -> None:
    if scenario.kind == offset_reset.FROM_FILE:
        if topics or all_topics:
            raise click.UsageError("The file names the partitions; leave --topic out.")
    elif bool(topics) == all_topics:
        raise click.UsageError("Give --topic, or --all-topics for all that the group committed.")


def _at_time(text: str) -> Scenario:
    """Parse a time; a bare number is milliseconds, because offsets have --to-offset."""
    with blamed_on("--to-timestamp"):
        start = parse_start(text)
        if start.kind not in {AT_TIMESTAMP, AT_OFFSET}:
            raise InvalidRequestError(
                f"{text!r} is no time. Use an ISO time such as 2024-05-01T12:00:00Z, or "
                "milliseconds since 1970."
            )
    return Scenario(offset_reset.TO_TIMESTAMP, start.value)


def _of_file(path: str, group_id: str) -> Scenario:
    try:
        offsets = read_plan(Path(path).read_text(encoding="utf-8"), group_id)
    except (InvalidRequestError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"{path}: {error}") from error
    return Scenario(offset_reset.FROM_FILE, offsets=offsets)


def _parse_topic(text: str) -> tuple[str, list[int]]:
    """Parse `orders` or `orders:0,2`; a topic's name has no colon."""
    name, found, numbers = text.partition(":")
    parts = numbers.split(",")
    if not name or (found and not all(part.isdecimal() for part in parts)):
        raise click.BadParameter(
            f"{text!r} is not NAME or NAME:PARTITIONS, such as orders:0,2.", param_hint="--topic"
        )
    return name, [int(part) for part in parts] if found else []


# --- The facts ---


def _places(
    cluster: Cluster, scenario: Scenario, topics: Sequence[str]
) -> list[TopicPartition] | None:
    """Return the named partitions; None for all partitions with a committed offset."""
    if scenario.kind == offset_reset.FROM_FILE:
        return list(scenario.offsets)
    if not topics:
        return None
    return [
        at
        for topic, numbers in map(_parse_topic, topics)
        for at in cluster.partitions_of(topic, numbers)
    ]


# --- The output ---


def _print(
    name: str, changes: Sequence[Change], *, executed: bool, export: bool, as_json: bool
) -> None:
    for change in changes:
        if change.remark:
            note(f"{change.at}: {change.remark}; the new offset is {change.offset}.")
    if as_json:
        print_json(
            {
                "group": name,
                "executed": executed,
                "offsets": [
                    {
                        "topic": change.at.topic,
                        "partition": change.at.partition,
                        "committed": change.committed,
                        "new_offset": change.offset,
                        "remark": change.remark or None,
                    }
                    for change in changes
                ],
            }
        )
    elif export:
        click.echo(write_plan({change.at: change.offset for change in changes}), nl=False)
    elif changes:
        rows = [
            [name, change.at.topic, change.at.partition, change.committed, change.offset]
            for change in changes
        ]
        print_table(["group", "topic", "partition", "committed", "new offset"], rows)
    else:
        note(f"group {name} committed nothing, so there is nothing to move.")
    if not executed and changes and not export:
        note("Nothing was changed: this is the plan. Add --execute to do it.")
