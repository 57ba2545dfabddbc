"""Decides from a table's metadata whether Penstock writes an Iceberg table (no IO).

Guarantees: a table is written only if Penstock meets all its requirements for writers. Other
features are rejected by name, when the table is opened and before every commit.

| what a table may have | what Penstock does |
| --- | --- |
| format version 1 or 2 | writes it |
| format version 3 and above | refuses it: `pyiceberg` does not write it, and no row lineage |
| types that `pyiceberg` does not know | refuses it: they come with version 3 |
| required columns | stay required; a row without a value is a reject, see `schema_changes` |
| identifier fields | writes it; Iceberg asks no writer to keep them unique, and an upsert does |
| a sort order by columns | writes sorted files |
| a sort order by transforms | files say that they are not sorted, as Iceberg allows it |
| partitions that changed | writes files of the newest partitions; older files stay |
| partitions by identity, hour, day, month, year, bucket, truncate | writes it |
| partitions by void | refuses it |
| position deletes | reads them, and writes them with `upserts = "merge_on_read"` (version 2) |
| data files of ORC | writes it; they are compacted and changed by upserts |
| data files of Avro | appends; compaction leaves them alone, an upsert that changes one stops |
| `write.data.path` | writes files there |
| encryption, write-audit-publish | refuses it |
| equality deletes, as Flink writes them | refuses it: `pyiceberg` cannot read its rows |
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyiceberg.exceptions import ValidationError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from penstock.spark.tables.formats.iceberg.arrangement import fields_of
from penstock.spark.tables.formats.port import TableRefusedError

VERSIONS: Final = (1, 2)
DELETES_VERSION: Final = 2
"""The first format version with delete files."""
ENCRYPTION_KEY: Final = "encryption.key-id"
AUDIT_KEY: Final = "write.wap.enabled"
DATA_PATH_KEY: Final = "write.data.path"
EQUALITY_DELETES_KEY: Final = "total-equality-deletes"
"""A key in the summary of a snapshot."""
REASON_CHARACTERS_MAX: Final = 300


@contextmanager
def readable_metadata(name: str) -> Iterator[None]:
    """Raise `TableRefusedError` if `pyiceberg` cannot read the table's metadata."""
    try:
        yield
    except ValidationError as error:
        lines = [line.strip() for line in str(error).splitlines()]
        line = next((one for one in lines if one.startswith("Value error, ")), lines[0])
        reason = line.removeprefix("Value error, ").partition(" [type=")[0]
        raise TableRefusedError(
            f"the Iceberg table {name} cannot be read: {reason[:REASON_CHARACTERS_MAX]}. Types "
            "such as variant and geometry belong to format version 3, which is unsupported. Name "
            "another table."
        ) from error


def require_supported(table: Table) -> None:
    """Raise `TableRefusedError` if the table requires an unsupported feature."""
    found = list(refusals(table.metadata))
    if found:
        names = ", ".join(name for name, _ in found)
        reasons = " ".join(text for _, text in found)
        name = ".".join(table.name())
        raise TableRefusedError(f"the Iceberg table {name} cannot be written ({names}): {reasons}")
    fields_of(table)  # rejects unsupported partitions


def require_merge_on_read(table: Table) -> None:
    """Raise `TableRefusedError` if the table cannot have delete files."""
    version = table.metadata.format_version
    if version < DELETES_VERSION:
        name = ".".join(table.name())
        raise TableRefusedError(
            f"the Iceberg table {name} has format version {version}, and merge on read needs "
            f"version {DELETES_VERSION}. Upgrade it, in Spark with `ALTER TABLE <table> SET "
            f"TBLPROPERTIES ('format-version' = '{DELETES_VERSION}')`, or write "
            'upserts = "copy_on_write" in [table].'
        )


def refusals(metadata: TableMetadata) -> Iterator[tuple[str, str]]:
    """Return the unsupported features of this table: name and remedy."""
    if metadata.format_version not in VERSIONS:
        yield (
            f"format version {metadata.format_version}",
            (
                f"it has format version {metadata.format_version}, and Penstock writes versions 1 "
                "and 2. Name another table."
            ),
        )
    if ENCRYPTION_KEY in metadata.properties:
        yield (
            "encryption",
            (
                f"its files are encrypted ({ENCRYPTION_KEY}), which is unsupported. Name another "
                "table."
            ),
        )
    if metadata.properties.get(AUDIT_KEY, "").lower() == "true":
        yield (
            "write-audit-publish",
            (
                f"{AUDIT_KEY} is true, so commits have to be staged for an audit, which is "
                f"unsupported. Unset {AUDIT_KEY}, or name another table."
            ),
        )

    deletes = _equality_deletes(metadata)
    if deletes:
        yield (
            "equality deletes",
            (
                f"it has {deletes} equality deletes, which are unsupported. Rewrite its data "
                "files, in Spark with "
                "`CALL <catalog>.system.rewrite_data_files(table => '<table>', "
                "options => map('delete-file-threshold', '1'))`, or name another table."
            ),
        )


def _equality_deletes(metadata: TableMetadata) -> int:
    snapshot = metadata.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        return 0
    return int(snapshot.summary[EQUALITY_DELETES_KEY] or 0)


def data_directory(metadata: TableMetadata) -> str:
    """Return the folder of the table's data files."""
    path = metadata.properties.get(DATA_PATH_KEY) or f"{metadata.location.rstrip('/')}/data"
    return path.rstrip("/")
