"""Reads the keys of `[table]` that arrange rows in files: `partition_by` and `sort_by` (pure).

Guarantees: a returned field is one that the format can store. Delta stores no transforms and no
sort order, and `deltalake` writes no clustered tables, so these are rejected with a remedy. The
existence of columns is checked later, with the schema.
"""

import re
from typing import Final

from penstock.spark.option_values import shown
from penstock.spark.tables.definition.model import (
    PartitionField,
    SortField,
    TableFormat,
    Transform,
)
from penstock.spark.tables.definition.values import Section

PARTITION_FIELDS_MAX: Final = 8
SORT_FIELDS_MAX: Final = 8
WIDTH_MAX: Final = 2**31 - 1
"""Iceberg stores the number of buckets and the width as a 32-bit integer."""
_COLUMN: Final = r"[A-Za-z_][A-Za-z0-9_.]*"
_PARTITION: Final = re.compile(
    rf"(?:([a-z]+)\s*\(\s*(?:([0-9]{{1,10}})\s*,\s*)?)?({_COLUMN})(?:\s*(\)))?"
)
_SORT: Final = re.compile(rf"({_COLUMN})(?:\s+(asc|desc))?", re.IGNORECASE)


def read_partitions(section: Section, format_: TableFormat) -> tuple[PartitionField, ...]:
    """Return the fields of `partition_by`; `[]` is a table without partitions."""
    texts = section.texts("partition_by", '["day(_kafka.timestamp)"]', may_be_empty=True)
    found = tuple(_partition_field(section, text) for text in texts)
    if len(found) > PARTITION_FIELDS_MAX:
        section.fail(
            "partition_by",
            f"it has {len(found)} parts.",
            f"At most {PARTITION_FIELDS_MAX} are possible; each multiplies the files.",
        )
    for one in found:
        if format_ is TableFormat.DELTA and one.transform.has_width:
            section.fail(
                "partition_by",
                f"Delta has no transform {one.transform.value}, and deltalake cannot write "
                "generated columns.",
                "Let the function of the pipeline add a column with this value and partition by "
                'it, or write format = "iceberg".',
            )
    return found


def _partition_field(section: Section, text: str) -> PartitionField:
    found = _PARTITION.fullmatch(text.strip())
    if found is None or bool(found.group(1)) != bool(found.group(4)):
        section.fail(
            "partition_by",
            f"{shown(text)} cannot be read.",
            'Write a column or a transform of one: "country", "day(_kafka.timestamp)", '
            '"bucket(16, id)".',
        )
    word = found.group(1) or "identity"
    if word not in {one.value for one in Transform}:
        section.fail(
            "partition_by",
            f"there is no transform {shown(word)}.",
            f"Use one of {', '.join(one.value for one in Transform)}.",
        )
    transform, width = Transform(word), found.group(2)
    if transform.has_width != (width is not None):
        section.fail(
            "partition_by",
            f"{shown(text)} has {'no' if width is None else 'a'} number.",
            'Write "bucket(16, id)" or "truncate(4, name)"; other transforms have no number.',
        )
    number = int(width or 0)
    if width is not None and not 0 < number <= WIDTH_MAX:
        section.fail(
            "partition_by",
            f"{number} in {shown(text)} is out of range.",
            f"Write a whole number from 1 to {WIDTH_MAX}.",
        )
    return PartitionField(transform, found.group(3), number)


def read_sort(section: Section, format_: TableFormat) -> tuple[SortField, ...]:
    """Return the fields of `sort_by`; `[]` is a table without a sort order."""
    found = []
    for text in section.texts("sort_by", '["customer", "at desc"]', may_be_empty=True):
        match = _SORT.fullmatch(text.strip())
        if match is None:
            section.fail(
                "sort_by",
                f"{shown(text)} cannot be read.",
                'Write a column and its direction: "customer", "at desc".',
            )
        found.append(SortField(match.group(1), (match.group(2) or "").lower() == "desc"))
    columns = [one.column for one in found]
    if len(set(columns)) < len(columns) or len(columns) > SORT_FIELDS_MAX:
        section.fail(
            "sort_by",
            f"it has {len(columns)} columns, or one of them twice.",
            f"Name up to {SORT_FIELDS_MAX} different columns.",
        )
    if found and format_ is TableFormat.DELTA:
        section.fail(
            "sort_by",
            "a Delta table stores no sort order.",
            'Remove it, or write format = "iceberg".',
        )
    return tuple(found)


def refuse_clusters(section: Section) -> None:
    """Reject `cluster_by`, with the reason."""
    if section.has("cluster_by"):
        section.fail(
            "cluster_by",
            "deltalake cannot write tables with liquid clustering (the feature 'clustering').",
            "Remove it, and use partition_by, or sort_by in an Iceberg table.",
        )
