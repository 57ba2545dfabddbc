"""Reads a Delta table's requirements for writers, and rejects unsupported tables.

Guarantees: `open_delta` and `require_supported` raise `TableRefusedError` with every reason, each
by the name of its feature. `require_supported` reads the version of the handle. Before a commit
this is the version that the commit follows. So the next commit rejects a table that its owner has
upgraded while a pipeline runs. `delta.protocol` decides.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from penstock.spark.tables.definition.model import Expectation
from penstock.spark.tables.files.data_files import FileReceipt
from penstock.spark.tables.files.upsert import CHANGE_COLUMNS
from penstock.spark.tables.formats.delta.protocol import (
    DeltaProtocol,
    Refusal,
    dropped,
    feed_refusals,
    refusals,
)
from penstock.spark.tables.formats.delta.rules import constraints_key
from penstock.spark.tables.formats.delta.storage import store_options
from penstock.spark.tables.formats.port import LayoutChangedError, TableRefusedError
from penstock.spark.tables.values.schema_changes import Incompatible, all_nullable, change_of

_UNKNOWN: Final = re.compile(r"Feature '(?P<name>[^']+)' is not supported")
"""The error of `deltalake` for a table with a feature that readers must support."""
_CATALOG: Final = "catalog-managed table"
_INVALID_ROWS: Final = "rows failed validation check"
"""The error of the merge of `deltalake` for rows that break a constraint."""
_OUTSIDE: Final = "is outside table root"
"""Its error for the replacement of another table's file."""


def open_delta(
    uri: str, storage_options: Mapping[str, str], version: int | None = None
) -> DeltaTable:
    """Return a handle on the table; raise `TableRefusedError` if `deltalake` cannot read it."""
    try:
        return DeltaTable(uri, version=version, storage_options=store_options(storage_options))
    except DeltaError as error:
        refusal = _unreadable(str(error))
        if refusal is None:
            raise
        raise _refused(uri, [refusal]) from error


def require_supported(table: DeltaTable, uri: str, *, has_upserts: bool) -> None:
    """Raise `TableRefusedError` if this version of the table requires an unsupported feature."""
    found = refusals(protocol_of(table), has_upserts=has_upserts)
    if found:
        raise _refused(uri, found)


def require_no_feed_columns(table: DeltaTable, uri: str, columns: pa.Schema) -> None:
    """Raise `TableRefusedError` if these columns would hide those of the change data feed."""
    found = tuple(feed_refusals(table.metadata().configuration, columns.names))
    if found:
        raise _refused(uri, found)


def require_judged(table: DeltaTable, files: Sequence[FileReceipt]) -> None:
    """Raise `LayoutChangedError` if rows were judged by other rules than this version has."""
    key = constraints_key(protocol_of(table))
    for one in files:
        if one.constraints_key != key:
            raise LayoutChangedError(
                f"the rows of {one.path} were judged by other constraints than the table has by "
                "now: its owner changed them meanwhile"
            )


def require_fitting(
    table: DeltaTable, files: Sequence[FileReceipt], growth: pa.Schema | None
) -> None:
    """Raise `LayoutChangedError` if files were written for other columns than this version has.

    `growth`: the columns that the same commit adds. An owner may replace the table's schema while a
    pipeline runs, and `deltalake` commits any file.
    """
    held = pa.schema(table.schema().to_arrow())
    grown = change_of(held, growth or held, may_widen=False)
    if isinstance(grown, Incompatible):
        return  # the columns are rejected before the files are committed
    wanted = {one.name: one.type for one in all_nullable(grown.schema)}
    for file in files:
        found = file.metadata().schema.to_arrow_schema()
        for one in all_nullable(found):
            if one.name not in CHANGE_COLUMNS.names and wanted.get(one.name) != one.type:
                raise LayoutChangedError(
                    f"column '{one.name}' was written as {one.type}, and the table has "
                    f"{wanted.get(one.name, 'none')}: its schema was changed meanwhile"
                )


def require_mergeable(table: DeltaTable, uri: str, rules: Sequence[Expectation]) -> None:
    """Raise `TableRefusedError` if `deltalake`, which merges, cannot evaluate a table's rule."""
    for rule in rules:
        if rule.name.startswith("VARCHAR"):
            continue  # only Spark treats it as a rule
        try:
            table.scan(predicate=rule.sql)
        except Exception as error:
            reason = str(error).splitlines()[0][:300]
            raise TableRefusedError(
                f"the Delta table at {uri} cannot be upserted to ({rule.name}): deltalake, which "
                f"merges changes, cannot evaluate {rule.sql!r}: {reason}. Write the constraint in "
                'simpler SQL, set table.mode to "append", or name another table.'
            ) from error


def refused_merge(uri: str, error: Exception) -> TableRefusedError | None:
    """Return the reason why a merge rejects the table; None for another error."""
    if _INVALID_ROWS in str(error):  # the changes were judged before: a row of the table is invalid
        return TableRefusedError(
            f"the Delta table at {uri} has rows that break its own constraints, and an upsert "
            f"cannot write their files again: {' '.join(str(error).split())[:700]}. Correct or "
            "delete these rows, then start the pipeline again."
        )
    if _OUTSIDE in str(error):
        return TableRefusedError(
            f"the Delta table at {uri} is a shallow clone, and an upsert would change rows in "
            "files of the table that it was cloned from, which is unsupported. Let Spark write "
            'its files again (INSERT OVERWRITE), set table.mode to "append", or name another table.'
        )
    return None


def protocol_of(table: DeltaTable) -> DeltaProtocol:
    """Return the table's protocol in the log, at the version of the handle."""
    protocol = table.protocol()
    features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    return DeltaProtocol(
        protocol.min_reader_version,
        protocol.min_writer_version,
        frozenset(features),
        table.metadata().configuration,
        json.loads(table.schema().to_json())["fields"],
    )


def _unreadable(text: str) -> Refusal | None:
    unknown = _UNKNOWN.search(text)
    if unknown is not None:
        name = unknown["name"]
        return Refusal(
            name, f"the table has the feature {name}, which is unsupported. {dropped(name)}"
        )
    if _CATALOG in text:
        return Refusal(
            "catalogManaged",
            "the table has the feature catalogManaged, which is unsupported: only its catalog may "
            "commit to it. Name another table.",
        )
    return None


def _refused(uri: str, found: "tuple[Refusal, ...] | list[Refusal]") -> TableRefusedError:
    reasons = " ".join(one.text for one in found)
    names = ", ".join(dict.fromkeys(one.feature for one in found))
    return TableRefusedError(f"the Delta table at {uri} cannot be written ({names}): {reasons}")
