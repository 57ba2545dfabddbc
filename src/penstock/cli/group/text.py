"""Groups as JSON documents, and the same documents as tables (no IO but print).

Fields of the documents are part of the interface: fields are added, never removed.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from penstock.cli.output import print_table
from penstock.cli.text.settings_text import print_settings, setting_documents
from penstock.client.groups.group_lag import LagRow, total_lag
from penstock.client.groups.groups import EMPTY, SHARE, GroupDescription, GroupMember, ListedGroup
from penstock.core.types import TopicPartition
from penstock.protocol.messages.describe_configs import DescribeConfigsResult

Document = dict[str, Any]

_REBALANCING: Final = frozenset(
    {"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"}
)


def listed_document(one: ListedGroup) -> Document:
    """Return one group of the list as a document."""
    return {
        "group": one.group_id,
        "type": one.group_type or None,
        "state": one.state or None,
        "protocol": one.protocol_type or None,
        "coordinator": one.coordinator_id,
    }


def group_document(
    found: GroupDescription,
    rows: Sequence[LagRow] | None,
    settings: DescribeConfigsResult | None,
    *,
    with_members: bool,
) -> Document:
    """Return a group as a document, with only the requested parts."""
    document: Document = {
        "group": found.group_id,
        "type": found.group_type,
        "state": found.state,
        "protocol": found.protocol_type or None,
        "assignor": found.assignor or None,
        "coordinator": {
            "broker": found.coordinator.broker_id,
            "host": found.coordinator.address.host,
            "port": found.coordinator.address.port,
        },
        "epoch": found.epoch,
        "assignment_epoch": found.assignment_epoch,
        "member_count": len(found.members),
    }
    if with_members:
        document["members"] = [_member_document(member) for member in found.members]
    if rows is not None:
        document["lag"] = total_lag(rows)
        document["offsets"] = [_row_document(row) for row in rows]
    if settings is not None:
        document["configs"] = setting_documents(settings.configs)
    return document


def lag_document(rows_by_group: Mapping[str, Sequence[LagRow]]) -> Document:
    """Return the lag of several groups as a document."""
    return {
        "lag": sum(map(total_lag, rows_by_group.values())),
        "groups": [
            {
                "group": name,
                "lag": total_lag(rows),
                "offsets": [_row_document(row) for row in rows],
            }
            for name, rows in rows_by_group.items()
        ],
    }


def remark_on(found: GroupDescription) -> str:
    """Return a warning about the tables; often empty."""
    if found.state == EMPTY:
        return f"group {found.group_id} has no members now."
    if found.state in _REBALANCING:
        return f"group {found.group_id} is rebalancing: what its members have is changing."
    return ""


def print_group(document: Document) -> None:
    """Print a group as a line and tables."""
    place = document["coordinator"]
    count = document["member_count"]
    click.echo(
        f"{document['group']}  {document['type']}, {document['state']}, "
        f"{count} member{'' if count == 1 else 's'}, assignor {document['assignor'] or '-'}, "
        f"coordinator {place['host']}:{place['port']} ({place['broker']})"
    )
    if document.get("members"):
        _print_members(document["members"])
    if document.get("offsets"):
        rows = [
            [*_offset_cells(row), row["member"], row["host"], row["client"]]
            for row in document["offsets"]
        ]
        columns = _SHARE_COLUMNS if document["type"] == SHARE else _OFFSET_COLUMNS
        print_table([*columns, "member", "host", "client"], rows)
        click.echo(f"total lag {document['lag']}")
    print_settings(document.get("configs", ()))


def print_lag(rows_by_group: Mapping[str, Sequence[LagRow]]) -> None:
    """Print one table of all groups and the sum."""
    cells = [
        [name, *_offset_cells(_row_document(row))]
        for name, rows in rows_by_group.items()
        for row in rows
    ]
    if cells:
        print_table(["group", *_OFFSET_COLUMNS], cells)
    click.echo(lag_line(rows_by_group))


def lag_line(rows_by_group: Mapping[str, Sequence[LagRow]]) -> str:
    """Return the sum as a sentence."""
    count = len(rows_by_group)
    total = sum(map(total_lag, rows_by_group.values()))
    return f"total lag {total} in {count} group{'' if count == 1 else 's'}"


_OFFSET_COLUMNS: Final = ("topic", "partition", "committed", "end offset", "lag")
_SHARE_COLUMNS: Final = ("topic", "partition", "start offset", "end offset", "lag")


def _offset_cells(row: Document) -> list[object]:
    return [row[name] for name in ("topic", "partition", "committed", "end_offset", "lag")]


def _print_members(members: Sequence[Document]) -> None:
    columns = ["member", "host", "client", "partitions", "assignment"]
    has_instances = any(member["instance"] for member in members)
    has_epochs = any(member["epoch"] is not None for member in members)
    rows = []
    for member in members:
        row = [member["member"], member["host"], member["client"]]
        assigned = member["partitions"]
        row += [None if assigned is None else len(assigned), _ranges(assigned)]
        if has_instances:
            row.append(member["instance"])
        if has_epochs:
            row += [member["epoch"], _ranges(member["target"])]
        rows.append(row)
    columns += ["instance"] if has_instances else []
    columns += ["epoch", "target"] if has_epochs else []
    print_table(columns, rows)


def _ranges(assigned: Sequence[Document] | None) -> str | None:
    """Return the partitions as `orders:0,1 payments:2`."""
    if not assigned:
        return None
    topics: dict[str, list[str]] = {}
    for one in assigned:
        topics.setdefault(one["topic"], []).append(str(one["partition"]))
    return " ".join(f"{topic}:{','.join(numbers)}" for topic, numbers in topics.items())


def _member_document(member: GroupMember) -> Document:
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.host,
        "type": member.member_type,
        "epoch": member.epoch,
        "rack": member.rack_id,
        "subscribed": None if member.subscribed is None else list(member.subscribed),
        "subscribed_regex": member.subscribed_regex,
        "partitions": _partition_documents(member.partitions),
        "target": _partition_documents(member.target),
    }


def _partition_documents(partitions: Sequence[TopicPartition] | None) -> list[Document] | None:
    if partitions is None:
        return None
    return [{"topic": at.topic, "partition": at.partition} for at in partitions]


def _row_document(row: LagRow) -> Document:
    document: Document = {
        "topic": row.at.topic,
        "partition": row.at.partition,
        "committed": row.committed,
        "end_offset": row.end_offset,
        "lag": row.lag,
        "member": row.member.member_id if row.member else None,
        "host": row.member.host if row.member else None,
        "client": row.member.client_id if row.member else None,
    }
    if row.share is not None:
        document["start_offset"] = row.share.start_offset
    return document
