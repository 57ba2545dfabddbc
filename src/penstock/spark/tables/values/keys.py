"""Converts a record's key to the key columns of a table, for deletions (pure).

A tombstone, a record without a value, identifies the deleted row by its key alone. Accepted keys:

| key of the table | bytes of the record's key |
| --- | --- |
| one column, binary | the bytes as they are |
| one column, string | a JSON text (`"a"` is a); else the text as it is: a, 42, 4.20, true |
| one column of another type | a JSON value (42), or a text without its quotes (2026-01-31) |
| several columns | a JSON object that has all of them |

A JSON object that has the column is accepted for one column too, unless it is binary. Keys with a
schema part of Kafka Connect (`{"schema": …, "payload": …}`) are read as their payload.

Texts are UTF-8. A type accepts the same as in a value, with the same result, see `json.rows`; so a
JSON text is not a number, and neither is 007. Other fields of an object are ignored. A null is not
a key. Keys in the format of a registry (Avro, Protobuf, JSON Schema: a zero byte and an id before
the rest) are not accepted, and are rejects with this reason.

Guarantees: those of the port `ValueParser`. It reads one key at a time; deletions are few.
"""

import json

import pyarrow as pa

from penstock.spark.tables.values.framing import HEADER_BYTES, MAGIC
from penstock.spark.tables.values.json.decoding import Number, decoded
from penstock.spark.tables.values.json.rows import JsonRows
from penstock.spark.tables.values.limits import time_rejects
from penstock.spark.tables.values.parser import (
    ErrorClass,
    Parsed,
    RowError,
    rejecting,
)
from penstock.spark.tables.values.row_batches import read_each, together
from penstock.spark.tables.values.schema_part import unwrapped


class KeyParser:
    """A parser of the keys of one table."""

    def __init__(self, schema: pa.Schema) -> None:
        """Create the parser; `schema` has the key's columns, as the table has them."""
        assert len(schema), "a key has columns"
        self._schema = pa.schema([pa.field(one.name, one.type, nullable=False) for one in schema])
        self._rows = JsonRows(self._schema)
        self._only = self._schema.field(0) if len(schema) == 1 else None

    @property
    def schema(self) -> pa.Schema:
        """The key's columns."""
        return self._schema

    def parse(self, keys: pa.Array) -> Parsed:
        """Read each key; a null is a reject."""
        read = read_each(enumerate(keys.to_pylist()), self._read, self._schema)
        parsed = together([read], self._schema, len(keys))
        return rejecting(parsed, time_rejects(parsed.rows))

    def _read(self, key: bytes | None) -> object:
        if key is None:
            raise RowError(
                ErrorClass.MISSING_VALUE,
                "the record has neither a key nor a value, so the row to delete is unknown. "
                "Produce deletions with the key of the row.",
            )
        if self._only is not None and pa.types.is_binary(self._only.type):
            return {self._only.name: key}
        return self._rows.read(self._object_of(unwrapped(_text_of(key))))

    def _object_of(self, text: str) -> str:
        """Return the key as a JSON object."""
        found, is_json = _loaded(text)
        if is_json and isinstance(found, dict):
            return text
        if self._only is None:
            names = ", ".join(self._schema.names)
            raise RowError(
                ErrorClass.MALFORMED,
                f"the key of a deletion is not a JSON object, and the table's key has the columns "
                f"{names}. Produce keys as JSON objects that have them.",
            )
        is_text = isinstance(found, str) and not isinstance(found, Number)
        if not is_json or (pa.types.is_string(self._only.type) and not is_text):
            return json.dumps({self._only.name: text})
        return f"{{{json.dumps(self._only.name)}: {text}}}"


def _text_of(key: bytes) -> str:
    if len(key) >= HEADER_BYTES and key[0] == MAGIC:
        raise RowError(
            ErrorClass.MALFORMED,
            "the key of a deletion begins with a zero byte, as keys of a schema registry do, and "
            "those are not read. Produce keys as plain text or JSON.",
        )
    try:
        return key.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RowError(
            ErrorClass.MALFORMED,
            f"the key of a deletion is not text in UTF-8: {error}. Produce keys as plain text or "
            "JSON.",
        ) from None


def _loaded(text: str) -> tuple[object, bool]:
    """Return the value of the JSON, and whether it is JSON."""
    try:
        return decoded(text), True
    except RecursionError:
        raise RowError(
            ErrorClass.MALFORMED, "the key of a deletion is nested too deeply."
        ) from None
    except ValueError:
        return None, False
