"""Delta tables with features that Penstock does not write are refused by name, before any commit.

The tables are created by their log alone, so every feature of the protocol can be tried, also
unknown ones. Guards defect C1: with column mapping every row was written under the wrong names, and
the run reported success.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from penstock.spark.tables.formats.delta.protocol import (
    LENGTHS_KEY,
    PASSIVE,
    DeltaProtocol,
    refusals,
)
from penstock.spark.tables.formats.port import TableRefusedError
from tests.spark.tables.foreign_delta import (
    PLAIN,
    ROWS,
    column,
    create_foreign,
    opened,
    protocol_of,
    upgrade,
)
from tests.spark.tables.table_kinds import (
    DeltaKind,
    commit_of,
    offsets_in,
    span,
    taken,
    written,
)

REFUSED_WRITER = (
    "allowColumnDefaults",
    "checkpointProtection",
    "clustering",
    "collations-preview",
    "coordinatedCommits-preview",
    "domainMetadata",
    "icebergCompatV1",
    "icebergCompatV2",
    "icebergCompatV3",
    "icebergWriterCompatV1",
    "identityColumns",
    "inCommitTimestamp",
    "materializePartitionColumns",
    "rowTracking",
    "thatNobodyKnows",
)
REFUSED_READER = (
    "geospatial",
    "redirectReaderWriter-preview",
    "thatNobodyKnows",
    "typeWidening",
    "typeWidening-preview",
    "vacuumProtocolCheck",
    "variantShredding",
    "variantShredding-preview",
)
PASSIVE_READER = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "v2Checkpoint",
        "variantType",
        "variantType-preview",
    }
)
COMPATIBILITY = "delta.compatibility"
GENERATED = {"delta.generationExpression": "id * 2"}


def refused_names(protocol: DeltaProtocol, *, has_upserts: bool = False) -> list[str]:
    return [one.feature for one in refusals(protocol, has_upserts=has_upserts)]


@pytest.mark.parametrize("name", REFUSED_WRITER)
def test_a_writer_feature_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    uri = create_foreign(tmp_path / "table", protocol_of(name))
    with pytest.raises(TableRefusedError, match=name):
        opened(uri)


@pytest.mark.parametrize("name", [*REFUSED_READER, "catalogManaged", "catalogOwned-preview"])
def test_a_reader_feature_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    uri = create_foreign(tmp_path / "table", protocol_of(name, readers=True))
    shown = "catalogManaged" if name.startswith("catalog") else name
    with pytest.raises(TableRefusedError, match=shown):
        opened(uri)


@pytest.mark.parametrize("name", sorted(PASSIVE))
def test_a_feature_that_is_listed_and_not_used_is_written(tmp_path: Path, name: str) -> None:
    """A protocol of version 5 lists column mapping; most such tables do not have it."""
    folder = tmp_path / "orders"
    create_foreign(folder, protocol_of(name, readers=name in PASSIVE_READER))
    assert offsets_in(written_by_us(tmp_path)) == span(0, 0, 10)


@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_versions_before_features_are_written(tmp_path: Path, version: int) -> None:
    reader = 2 if version == 5 else 1
    create_foreign(tmp_path / "orders", protocol_of(reader=reader, writer=version))
    assert offsets_in(written_by_us(tmp_path)) == span(0, 0, 10)


def written_by_us(folder: Path) -> pa.Table:
    kind = DeltaKind(folder)
    table = kind.open()
    driver, state = taken(table, "run-a")
    files = written(table, (0, 0, 10))
    table.append(commit_of(state, driver, (0, 0, 10)), files)
    return dataset(kind.uri)


def dataset(uri: str) -> pa.Table:
    """All rows, by the files: `deltalake` makes no dataset of tables with deletion vectors."""
    return pq.read_table([f"{uri}/{one.split('/')[-1]}" for one in DeltaTable(uri).file_uris()])


@pytest.mark.parametrize(
    ("name", "fields", "properties"),
    [
        ("columnMapping", PLAIN, {"delta.columnMapping.mode": "name"}),
        ("columnMapping", PLAIN, {"delta.columnMapping.mode": "id"}),
        ("v2Checkpoint", PLAIN, {"delta.checkpointPolicy": "v2"}),
        ("universalFormat", PLAIN, {"delta.universalFormat.enabledFormats": "iceberg"}),
        ("generatedColumns", [*PLAIN, column("twice", "long", GENERATED)], {}),
        ("identityColumns", [*PLAIN, column("n", "long", {"delta.identity.start": 1})], {}),
        ("allowColumnDefaults", [*PLAIN, column("n", "long", {"CURRENT_DEFAULT": "7"})], {}),
        ("char", [column("n", "string", {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"})], {}),
        ("char", [column("s", "string", {LENGTHS_KEY: "struct<a:bigint,c:char(5)>"})], {}),
        ("varchar", [column("s", "string", {LENGTHS_KEY: "struct<c:varchar(5)>"})], {}),
        ("varchar", [column("l", "string", {LENGTHS_KEY: "array<varchar(5)>"})], {}),
        ("varchar", [column("m", "string", {LENGTHS_KEY: "map<string,varchar(5)>"})], {}),
        (
            "symlinkFormatManifest",
            PLAIN,
            {f"{COMPATIBILITY}.symlinkFormatManifest.enabled": "true"},
        ),
        ("variantType", [*PLAIN, column("v", "variant")], {}),
    ],
)
def test_what_a_table_uses_is_refused_by_name(
    name: str, fields: list[dict[str, Any]], properties: dict[str, str]
) -> None:
    protocol = DeltaProtocol(2, 5, frozenset(), properties, fields)
    assert refused_names(protocol) == [name]


def test_a_length_of_a_whole_column_is_a_rule_and_no_refusal() -> None:
    fields = [column(name, "string", {LENGTHS_KEY: "varchar(5)"}) for name in ("name", "a.b")]
    assert refused_names(DeltaProtocol(1, 2, frozenset(), {}, fields)) == []
    inner = {"type": "struct", "fields": fields}
    field = {"name": "s", "type": inner, "nullable": True, "metadata": {}}
    assert refused_names(DeltaProtocol(1, 2, frozenset(), {}, [field])) == ["varchar"] * 2


def test_a_column_inside_of_others_is_looked_at() -> None:
    inner = {"type": "struct", "fields": [column("twice", "long", GENERATED)]}
    listed = {"type": "array", "elementType": inner, "containsNull": True}
    field = {"name": "items", "type": listed, "nullable": True, "metadata": {}}
    protocol = DeltaProtocol(1, 4, frozenset(), {}, [field])
    (refusal,) = refusals(protocol, has_upserts=False)
    assert "items.element.twice" in refusal.text


@pytest.mark.parametrize("name", ["_change_type", "_commit_version", "_Commit_Timestamp"])
def test_a_column_with_a_name_of_the_change_feed_is_refused(tmp_path: Path, name: str) -> None:
    """While the table has a feed: nobody could read it, and a merge would write it wrong."""
    fields = [*ROWS, column(name, "string")]
    for value, folder in (("false", "without"), ("true", "with")):
        properties = {"delta.enableChangeDataFeed": value}
        create_foreign(
            tmp_path / folder, protocol_of(writer=4), fields=fields, properties=properties
        )
    opened(str(tmp_path / "without"))
    with pytest.raises(TableRefusedError, match=rf"changeDataFeed.*'{name}'.*another name"):
        opened(str(tmp_path / "with"))


@pytest.mark.parametrize("name", ["_change_type", "_Commit_Version"])
def test_a_column_with_a_name_of_the_change_feed_is_not_added(tmp_path: Path, name: str) -> None:
    properties = {"delta.enableChangeDataFeed": "true"}
    create_foreign(tmp_path / "orders", protocol_of(writer=4), properties=properties)
    table = DeltaKind(tmp_path).open()
    driver, state = taken(table, "run-a")
    entries = log_of(tmp_path)
    grown = table.schema().append(pa.field(name, pa.string()))
    with pytest.raises(TableRefusedError, match=rf"changeDataFeed.*'{name}'"):
        table.append(commit_of(state, driver, (0, 0, 10)), written(table, (0, 0, 10)), grown)
    assert log_of(tmp_path) == entries


@pytest.mark.parametrize(("reader", "writer"), [(4, 7), (3, 8), (1, 6)])
def test_versions_of_the_protocol_that_are_not_written(reader: int, writer: int) -> None:
    protocol = DeltaProtocol(reader, writer, frozenset(), {}, PLAIN)
    assert len(refused_names(protocol)) == 1


def test_upserts_are_refused_where_appends_are_not(tmp_path: Path) -> None:
    properties = {"delta.appendOnly": "true"}
    uri = create_foreign(tmp_path / "table", protocol_of(writer=2), properties=properties)
    opened(uri)
    with pytest.raises(TableRefusedError, match="appendOnly"):
        opened(uri, has_upserts=True)


def test_column_mapping_of_a_real_log_is_refused(tmp_path: Path) -> None:
    fields = [
        column(
            one["name"],
            one["type"],
            {"delta.columnMapping.id": n, "delta.columnMapping.physicalName": f"col-{n}"},
        )
        for n, one in enumerate(PLAIN)
    ]
    properties = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
    uri = create_foreign(
        tmp_path / "table", protocol_of(reader=2, writer=5), fields=fields, properties=properties
    )
    with pytest.raises(TableRefusedError, match="column mapping"):
        opened(uri)
    assert len(list((tmp_path / "table" / "_delta_log").iterdir())) == 1


@pytest.mark.parametrize("act", ["append", "compact", "expire", "remove_orphans"])
def test_an_upgrade_between_two_commits_is_refused_by_the_next(tmp_path: Path, act: str) -> None:
    """Guards the check of each commit: the protocol may change while a pipeline runs."""
    kind = DeltaKind(tmp_path)
    table = kind.create()
    driver, state = taken(table, "run-a")
    files = written(table, (0, 0, 10))
    upgrade(tmp_path / "orders", protocol_of("rowTracking", "domainMetadata"))
    entries = log_of(tmp_path)
    state = table.load()
    acts: dict[str, Callable[[], object]] = {
        "append": lambda: table.append(commit_of(state, driver, (0, 0, 10)), files),
        "compact": lambda: table.compact(state, target_bytes=2**20),
        "expire": lambda: table.expire(older_than_ms=2**42, keep_count=1),
        "remove_orphans": lambda: table.remove_orphans(older_than_ms=2**42),
    }
    with pytest.raises(TableRefusedError, match="rowTracking"):
        acts[act]()
    assert log_of(tmp_path) == entries
    assert all((tmp_path / "orders" / one.path).exists() for one in files)


def log_of(folder: Path) -> dict[str, Any]:
    found = sorted((folder / "orders" / "_delta_log").glob("*.json"))
    return {one.name: json.loads(one.read_text().splitlines()[0]) for one in found}
