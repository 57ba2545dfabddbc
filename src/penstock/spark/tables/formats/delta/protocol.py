"""Decides from the protocol in a table's log whether Penstock writes a Delta table (pure).

Guarantees: a table is written only when Penstock and `deltalake` implement every feature that its
protocol lists, and every requirement of its properties and columns. All other features are rejected
by name before anything is written, future ones included. Delta's protocol defines the requirements
of a feature; a listed feature that is not in use (a protocol of version 5 lists column mapping)
causes no rejection.

| feature | in a table that Penstock writes |
| --- | --- |
| appendOnly | appends; upserts are refused while `delta.appendOnly` is true |
| changeDataFeed | appends need no change files; the merge of an upsert writes them |
| ... with a column that has the name of one of the feed's | refused |
| checkConstraints, invariants | each is a rule that rows have to keep, see `delta.rules` |
| deletionVectors | appends and merges; a file with deleted rows is left alone by compaction |
| timestampNtz | written |
| columnMapping, generatedColumns, variantType | refused where a table or a column uses it |
| v2Checkpoint | refused while `delta.checkpointPolicy` is v2 |
| all others | refused |

This module reads no table: `delta` calls it before every commit, for the version before the commit.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.spark.tables.values.columns import FEED_NAMES

READER_VERSION_MAX: Final = 3
WRITER_VERSION_MAX: Final = 7
_IDENTITY_VERSION: Final = 6
"""The protocol version that implies identity columns, before features had names."""

PASSIVE: Final = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "generatedColumns",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
        "variantType",
        "variantType-preview",
    }
)
"""Features without requirements for a writer until a property or a column uses them."""

LENGTHS_KEY: Final = "__CHAR_VARCHAR_TYPE_STRING"
"""The key with Spark's type of a text column with a length; to Delta these are strings."""
VARCHAR: Final = re.compile(r"varchar\((?P<length>[0-9]+)\)", re.IGNORECASE)
_CHAR: Final = re.compile(r"\bchar\(", re.IGNORECASE)

_REMEDIES: Final[Mapping[str, str]] = {
    "allowColumnDefaults": "A pipeline writes NULL where a value is missing, never the default.",
    "catalogManaged": "Only the catalog may commit to this table.",
    "catalogOwned-preview": "Only the catalog may commit to this table.",
    "clustering": "Files would lie outside of the clustering.",
    "identityColumns": "Only the engine that owns the identity column can number rows.",
    "inCommitTimestamp": "Commits would have no timestamp of their own.",
    "rowTracking": "Rows would have no row ids.",
    "typeWidening": "Files from before a type change could not be read.",
}
"""The reason why a feature is rejected, where a sentence helps."""


@dataclass(frozen=True, slots=True)
class DeltaProtocol:
    """The protocol of a table in its log, at one version."""

    reader_version: int
    writer_version: int
    features: frozenset[str]
    """The listed features; empty before version 7, where the version number implies them."""
    properties: Mapping[str, str]
    fields: Sequence[Mapping[str, Any]]
    """The columns in the log's schema."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why Penstock does not write a table."""

    feature: str
    """The feature's name in the protocol."""
    text: str
    """The problem in this table, and the remedy."""


def refusals(protocol: DeltaProtocol, *, has_upserts: bool) -> tuple[Refusal, ...]:
    """Return every reason not to write this table; empty if Penstock can write it."""
    return (
        *_versions(protocol),
        *_features(protocol),
        *_properties(protocol, has_upserts=has_upserts),
        *feed_refusals(protocol.properties, (one["name"] for one in protocol.fields)),
        *_columns(protocol),
    )


def dropped(feature: str) -> str:
    """Return the instruction for an owner to drop a feature from a table."""
    return f"Run ALTER TABLE ... DROP FEATURE {feature} in Spark, or name another table."


def _versions(protocol: DeltaProtocol) -> Iterator[Refusal]:
    reader, writer = protocol.reader_version, protocol.writer_version
    if reader > READER_VERSION_MAX or writer > WRITER_VERSION_MAX:
        yield Refusal(
            f"protocol ({reader}, {writer})",
            f"the table needs reader version {reader} and writer version {writer}, and Penstock "
            f"knows versions up to {READER_VERSION_MAX} and {WRITER_VERSION_MAX}. Upgrade "
            "Penstock, or name another table.",
        )
    elif writer == _IDENTITY_VERSION:
        yield Refusal(
            "identityColumns",
            "the table has writer version 6, which means identityColumns. Upgrade it to version "
            "7 without that feature, or name another table.",
        )


def _features(protocol: DeltaProtocol) -> Iterator[Refusal]:
    for name in sorted(protocol.features - PASSIVE):
        known = _REMEDIES.get(name.removesuffix("-preview"), _REMEDIES.get(name, ""))
        reason = f" {known}" if known else ""
        yield Refusal(
            name, f"the table has the feature {name}, which is unsupported.{reason} {dropped(name)}"
        )


def _properties(protocol: DeltaProtocol, *, has_upserts: bool) -> Iterator[Refusal]:
    properties = protocol.properties
    mode = properties.get("delta.columnMapping.mode", "none").lower()
    if mode != "none":
        yield Refusal(
            "columnMapping",
            f"the table has column mapping (delta.columnMapping.mode = {mode}), which is "
            "unsupported: its files name columns otherwise than its schema. "
            + dropped("columnMapping"),
        )
    if properties.get("delta.checkpointPolicy", "classic").lower() != "classic":
        yield Refusal(
            "v2Checkpoint",
            "the table has checkpoints of version 2 (delta.checkpointPolicy), which is "
            "unsupported. Set delta.checkpointPolicy to classic, or name another table.",
        )
    formats = properties.get("delta.universalFormat.enabledFormats", "")
    if formats:
        yield Refusal(
            "universalFormat",
            f"the table is read as {formats} too (delta.universalFormat.enabledFormats), and "
            "Penstock does not write that metadata. Unset the property, or name another table.",
        )
    if _is_true(properties, "delta.compatibility.symlinkFormatManifest.enabled"):
        yield Refusal(
            "symlinkFormatManifest",
            "the table is read by manifests too "
            "(delta.compatibility.symlinkFormatManifest.enabled), and Penstock does not write "
            "them. Unset the property, or name another table.",
        )
    if has_upserts and _is_true(properties, "delta.appendOnly"):
        yield Refusal(
            "appendOnly",
            "delta.appendOnly is true, so rows may not be changed, and table.mode is upsert. Set "
            'table.mode to "append", unset the property, or name another table.',
        )


def feed_refusals(properties: Mapping[str, str], names: Iterable[str]) -> Iterator[Refusal]:
    """Return refusals of columns that would hide those of the change data feed."""
    if not _is_true(properties, "delta.enableChangeDataFeed"):
        return
    for name in names:
        if name.lower() in FEED_NAMES:
            yield Refusal(
                "changeDataFeed",
                f"the table has a change data feed (delta.enableChangeDataFeed), and column "
                f"'{name}' has the name of one of the feed's own. Give it another name, set the "
                "property to false, or name another table.",
            )


def _columns(protocol: DeltaProtocol) -> Iterator[Refusal]:
    for path, field in fields_within(protocol.fields):
        metadata = field.get("metadata") or {}
        if "delta.generationExpression" in metadata:
            yield Refusal(
                "generatedColumns",
                f"column '{path}' is generated ({metadata['delta.generationExpression']}), which "
                "is unsupported. Name a table without generated columns.",
            )
        if any(key.startswith("delta.identity.") for key in metadata):
            yield Refusal(
                "identityColumns",
                f"column '{path}' is an identity column, which is unsupported. Name a table "
                "without identity columns.",
            )
        if "CURRENT_DEFAULT" in metadata:
            yield Refusal(
                "allowColumnDefaults",
                f"column '{path}' has a default ({metadata['CURRENT_DEFAULT']}), and a pipeline "
                "writes NULL where a value is missing. Drop the default, or name another table.",
            )
        yield from _lengths(
            path, str(metadata.get(LENGTHS_KEY, "")), is_inside=path != field["name"]
        )
        if field.get("type") == "variant":
            yield Refusal(
                "variantType",
                f"column '{path}' is of type variant, which is unsupported. Name a table without "
                "such columns.",
            )


def _lengths(path: str, declared: str, *, is_inside: bool) -> Iterator[Refusal]:
    """Return refusals of texts with a length. Spark writes a column's whole type, structs too."""
    if _CHAR.search(declared):
        yield Refusal(
            "char",
            f"column '{path}' is {declared}, whose values are padded, which is unsupported. "
            "Declare it as varchar or string, or name another table.",
        )
    elif declared and (is_inside or not VARCHAR.fullmatch(declared)):
        yield Refusal(
            "varchar",
            f"column '{path}' is {declared}, and the lengths of texts within a column are "
            "unsupported. Declare them as string, or name another table.",
        )


def fields_within(
    fields: Sequence[Mapping[str, Any]], path: str = ""
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return every column and every field inside of one, with its path."""
    for field in fields:
        name = f"{path}{field['name']}"
        yield name, field
        yield from _inside(field.get("type"), f"{name}.")


def _inside(kind: object, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not isinstance(kind, Mapping):
        return
    yield from fields_within(kind.get("fields") or (), path)
    for part, name in (("elementType", "element"), ("keyType", "key"), ("valueType", "value")):
        if part in kind:
            if kind[part] == "variant":
                yield f"{path}{name}", {"type": "variant"}
            yield from _inside(kind[part], f"{path}{name}.")


def _is_true(properties: Mapping[str, str], key: str) -> bool:
    return properties.get(key, "").strip().lower() == "true"
