"""Fields of JSON values without a column: counted, kept in a column, or a reason to reject.

A field that is not in the schema has no column in the table. This parser wraps a parser of JSON, so
that such a field is not lost silently:

| `value.unknown_fields` | |
| --- | --- |
| `count` | counted by name, in up to `LOOKED_AT_MAX` values of each part that is read at once |
| `rescue` | counted, and written as JSON into the column `_rescued_data` of their row |
| `reject` | counted, and the record is a reject that names the first of them |
| `ignore` | nothing |

Fields of structs are checked like fields of the value, by their path (`address.zip`); fields in
lists and maps are not. `rescue` and `reject` check every value. A name counts once for a record.
`NAMES_MAX` names are counted; others are one name together.

Guarantees: those of the port `ValueParser`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa

from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.definition.model import UnknownFields
from penstock.spark.tables.values.json.decoding import decoded, json_text
from penstock.spark.tables.values.parser import (
    ErrorClass,
    Parsed,
    Reject,
    ValueParser,
    rejecting,
)

LOOKED_AT_MAX: Final = 256
"""The maximum number of values of one part that are read in Python for the count: half a
millisecond."""
NAMES_MAX: Final = 20
"""A note has all names. An object whose keys are data would have a name for each record."""
NAME_CHARACTERS_MAX: Final = 100
OTHERS: Final = "(others)"
RESCUED: Final = "_rescued_data"


class UnknownFieldValues:
    """A parser that also reports fields without a column."""

    def __init__(self, parser: ValueParser, mode: UnknownFields) -> None:
        if mode is UnknownFields.RESCUE and RESCUED in parser.schema.names:
            raise SchemaError(
                "the schema of the values",
                f"it has a column {RESCUED}, and value.unknown_fields is rescue.",
                'Rename the column, or set unknown_fields = "count".',
            )
        self._parser = parser
        self._mode = mode
        self.counts: Counter[str] = Counter()
        """The number of checked values with a field, by its path."""
        self.looked_at = 0

    @property
    def schema(self) -> pa.Schema:
        """The columns of the parser, and the column of rescued fields."""
        schema = self._parser.schema
        if self._mode is UnknownFields.RESCUE:
            return schema.append(pa.field(RESCUED, pa.string()))
        return schema

    def parse(self, values: pa.Array) -> Parsed:
        """Read each value."""
        parsed = self._parser.parse(values)
        numbers = parsed.row_numbers
        kept = values if numbers is None else values.take(numbers)
        looked = kept.slice(0, LOOKED_AT_MAX) if self._mode is UnknownFields.COUNT else kept
        found = [self._unknown(one.as_py()) for one in looked]
        self.looked_at += len(found)
        for one in found:
            for path in dict.fromkeys(path for path, _ in one):
                self._count(path)
        if self._mode is UnknownFields.RESCUE:
            texts = pa.array([_text(one) for one in found], pa.string())
            return replace(parsed, rows=parsed.rows.append_column(RESCUED, texts))
        if self._mode is UnknownFields.REJECT:
            return rejecting(parsed, list(_rejects(found)))
        return parsed

    def _count(self, path: str) -> None:
        name = path[:NAME_CHARACTERS_MAX]
        is_known = name in self.counts or len(self.counts) < NAMES_MAX
        self.counts[name if is_known else OTHERS] += 1

    def _unknown(self, value: bytes | None) -> list[tuple[str, object]]:
        """Return the fields without a column, by their paths; the parser has accepted the value."""
        if value is None:
            return []
        try:
            found = decoded(value.decode())
        except (ValueError, RecursionError):  # values that only the parser accepts
            return []
        return list(_fields(found, self._parser.schema)) if isinstance(found, dict) else []


def _fields(
    value: Mapping[str, object], columns: pa.Schema | pa.StructType, path: str = ""
) -> Iterator[tuple[str, object]]:
    known = {one.name: one.type for one in columns}
    for name, inner in value.items():
        if name not in known:
            yield f"{path}{name}", inner
        elif isinstance(inner, dict) and pa.types.is_struct(known[name]):
            yield from _fields(inner, known[name], f"{path}{name}.")


def _text(found: list[tuple[str, object]]) -> str | None:
    return json_text(dict(found)) if found else None


def _rejects(found: list[list[tuple[str, object]]]) -> Iterator[Reject]:
    for number, one in enumerate(found):
        if one:
            message = (
                f"the value has a field '{one[0][0][:NAME_CHARACTERS_MAX]}' that no column has, "
                "and value.unknown_fields is reject."
            )
            yield Reject(number, ErrorClass.INCOMPATIBLE_SCHEMA, message)
