"""Reads the section `[table]` of a definition: format, name, catalog, partitions, key (pure).

Guarantees: a returned name is one that catalogs accept, or a template, which is checked with the
pattern of the topics. Settings that exclude each other are rejected.
"""

import re
from typing import Final

from penstock.spark.option_values import shown
from penstock.spark.tables.definition.catalogs import read_catalog, read_path
from penstock.spark.tables.definition.many_tables import is_template
from penstock.spark.tables.definition.model import (
    Metadata,
    PartitionField,
    TableFormat,
    TableSettings,
    Transform,
    Upserts,
    WriteMode,
)
from penstock.spark.tables.definition.values import Section

TABLE_NAME_CHARACTERS_MAX: Final = 250
"""Catalogs store 255 characters; the name of the table of bad records is longer."""
PARTITION_FIELDS_MAX: Final = 8
_TABLE_PART: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARTITION: Final = re.compile(r"(?:([a-z]+)\s*\(\s*)?([A-Za-z_][A-Za-z0-9_.]*)(?:\s*(\)))?")


def read_table(section: Section) -> TableSettings:
    """Return the settings in the section `[table]`."""
    format_ = section.choice("format", TableFormat)
    path = read_path(section, format_)
    found = TableSettings(
        format=format_,
        name=_table_name(section, path),
        catalog=read_catalog(section, format_, has_path=bool(path)),
        path=path,
        partition_by=tuple(
            _partition_field(section, text)
            for text in section.texts("partition_by", '["day(_kafka.timestamp)"]')
        ),
        mode=section.choice("mode", WriteMode, WriteMode.APPEND),
        key=section.texts("key", '["id"]'),
        metadata=section.choice("metadata", Metadata, Metadata.STRUCT),
        history=section.boolean("history", default=False),
        upserts=section.choice("upserts", Upserts, Upserts.COPY_ON_WRITE),
    )
    if found.upserts is Upserts.MERGE_ON_READ:
        _require_merge_on_read(section, found)
    if len(found.partition_by) > PARTITION_FIELDS_MAX:
        section.fail(
            "partition_by",
            f"it has {len(found.partition_by)} parts.",
            f"At most {PARTITION_FIELDS_MAX} are possible; each multiplies the files.",
        )
    if found.mode is WriteMode.UPSERT and not found.key:
        section.fail("key", "an upsert needs it.", 'Write key = ["id"], the columns of the key.')
    if found.mode is WriteMode.APPEND and found.key:
        section.fail("key", "append does not use it.", 'Remove it, or write mode = "upsert".')
    section.require_nothing_left()
    return found


def _require_merge_on_read(section: Section, found: TableSettings) -> None:
    if found.mode is not WriteMode.UPSERT:
        section.fail("upserts", "append does not use it.", 'Remove it, or write mode = "upsert".')
    if found.format is not TableFormat.ICEBERG:
        section.fail(
            "upserts",
            "deltalake cannot write deletion vectors, so Delta tables are only copied on write.",
            'Remove it, or write format = "iceberg".',
        )


def _table_name(section: Section, path: str) -> str:
    """Return the name; by default, that of the last two folders of a path."""
    folders = ".".join(path.split("/")[-2:])
    name = section.text("name", '"shop.orders"') if section.has("name") or not path else folders
    if is_template(name):
        return name  # checked with the pattern
    parts = name.split(".")
    if (
        len(parts) < 2
        or not all(_TABLE_PART.fullmatch(part) for part in parts)
        or len(name) > TABLE_NAME_CHARACTERS_MAX
    ):
        section.fail(
            "name",
            f"{shown(name)} cannot be the name of a table.",
            'Write the namespace and the name, of letters, digits and _: "shop.orders".',
        )
    return name


def _partition_field(section: Section, text: str) -> PartitionField:
    found = _PARTITION.fullmatch(text.strip())
    if found is None or bool(found.group(1)) != bool(found.group(3)):
        section.fail(
            "partition_by",
            f"{shown(text)} cannot be read.",
            'Write a column or a transform of one: "country", "day(_kafka.timestamp)".',
        )
    word = found.group(1) or "identity"
    if word not in {one.value for one in Transform}:
        section.fail(
            "partition_by",
            f"there is no transform {shown(word)}.",
            f"Use one of {', '.join(one.value for one in Transform)}.",
        )
    return PartitionField(Transform(word), found.group(2))
