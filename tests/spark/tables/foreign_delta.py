"""Delta tables as others create them: by their log alone, with any protocol.

The first entry of a log says everything that a writer has to know of a table, so a table with a
feature that no library here can set is one line of JSON.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.spark.tables.formats.delta.table import DeltaLakeTable

FieldJson = dict[str, Any]
CREATED_MS = 1_780_000_000_000
LEGACY_FEATURES_MAX = 6
"""The last writer version that has no list of features."""


def column(
    name: str,
    kind: str = "long",
    metadata: Mapping[str, object] | None = None,
    *,
    nullable: bool = True,
) -> FieldJson:
    """A column as the log's schema has it."""
    return {"name": name, "type": kind, "nullable": nullable, "metadata": dict(metadata or {})}


PLAIN = (column("id"), column("amount", "double"))
ROWS = (
    column("_kafka_topic", "string"),
    column("_kafka_partition", "integer"),
    column("_kafka_offset"),
    column("_kafka_timestamp", "timestamp"),
    column("amount", "integer"),
    column("name", "string"),
)
"""The columns of `table_kinds.SCHEMA`."""


def protocol_of(
    *features: str, readers: bool = False, reader: int = 1, writer: int = 7
) -> dict[str, Any]:
    """The protocol action; with `readers` the features are those of readers, too."""
    if writer <= LEGACY_FEATURES_MAX:
        return {"minReaderVersion": reader, "minWriterVersion": writer}
    listed: dict[str, Any] = {"writerFeatures": list(features)}
    if readers:
        listed["readerFeatures"] = list(features)
    return {"minReaderVersion": 3 if readers else reader, "minWriterVersion": writer, **listed}


def create_foreign(
    folder: Path,
    protocol: Mapping[str, Any],
    *,
    fields: Sequence[FieldJson] = ROWS,
    properties: Mapping[str, str] | None = None,
) -> str:
    """Write the first entry of a table's log; returns where the table is."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    append_entry(folder, 0, {"protocol": dict(protocol)}, metadata_action(fields, properties or {}))
    return str(folder)


def metadata_action(fields: Sequence[FieldJson], properties: Mapping[str, str]) -> dict[str, Any]:
    """The action that sets columns and properties."""
    return {
        "metaData": {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": list(fields)}),
            "partitionColumns": [],
            "configuration": dict(properties),
            "createdTime": CREATED_MS,
        }
    }


def append_entry(folder: Path, version: int, *actions: Mapping[str, Any]) -> None:
    """Commit as another writer does."""
    information = {"timestamp": CREATED_MS, "operation": "MANUAL", "operationParameters": {}}
    lines = [json.dumps(one) for one in ({"commitInfo": information}, *actions)]
    place = folder / "_delta_log" / f"{version:020d}.json"
    place.write_text("\n".join(lines) + "\n")


def upgrade(folder: Path, protocol: Mapping[str, Any]) -> None:
    """Change the protocol of a table that is there, with an entry of its own."""
    version = max(int(one.stem) for one in (folder / "_delta_log").glob("*.json"))
    append_entry(folder, version + 1, {"protocol": dict(protocol)})


def opened(uri: str, *, has_upserts: bool = False) -> DeltaLakeTable:
    """The table as a pipeline opens it."""
    return DeltaLakeTable(uri, has_upserts=has_upserts)
