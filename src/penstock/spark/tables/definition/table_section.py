"""Reads the section `[table]` of a definition: format, name, catalog, key (pure).

Guarantees: a returned name is one that catalogs accept, or a template, which is checked with the
pattern of the topics. Settings that exclude each other are rejected.
"""

import re
from typing import Final

from penstock.spark.option_values import shown
from penstock.spark.tables.definition.catalogs import read_catalog, read_path
from penstock.spark.tables.definition.layout_keys import read_partitions, read_sort, refuse_clusters
from penstock.spark.tables.definition.many_tables import is_template
from penstock.spark.tables.definition.model import (
    Metadata,
    TableFormat,
    TableSettings,
    Upserts,
    WriteMode,
)
from penstock.spark.tables.definition.values import Section

TABLE_NAME_CHARACTERS_MAX: Final = 250
"""Catalogs store 255 characters; the name of the table of bad records is longer."""
_TABLE_PART: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_table(section: Section) -> TableSettings:
    """Return the settings in the section `[table]`."""
    format_ = section.choice("format", TableFormat)
    path = read_path(section, format_)
    refuse_clusters(section)
    found = TableSettings(
        format=format_,
        name=_table_name(section, path),
        catalog=read_catalog(section, format_, has_path=bool(path)),
        path=path,
        partition_by=read_partitions(section, format_),
        keeps_partitions=not section.has("partition_by"),
        sort_by=read_sort(section, format_),
        keeps_sort=not section.has("sort_by"),
        mode=section.choice("mode", WriteMode, WriteMode.APPEND),
        key=section.texts("key", '["id"]'),
        metadata=section.choice("metadata", Metadata, Metadata.STRUCT),
        history=section.boolean("history", default=False),
        partial_updates=section.boolean("partial_updates", default=False),
        upserts=section.choice("upserts", Upserts, Upserts.COPY_ON_WRITE),
    )
    if found.upserts is Upserts.MERGE_ON_READ:
        _require_merge_on_read(section, found)
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
