"""Reads the keys of Debezium's records: the identity of the rows that they delete.

Guarantees: a key has the types of the table's columns, read as values are: by the key's own schema
part, or by the definition. A key without one of the columns is a reject, because `before` has no
value to replace it: a database that logs only its key fills other columns with empty texts and
zeros. Keys that are not JSON objects are read by `values.keys`, one at a time.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.option_values import shown
from penstock.spark.tables.definition.model import ChangeSettings, Envelope
from penstock.spark.tables.values.cdc.event_payloads import PayloadReaders
from penstock.spark.tables.values.columns import fit
from penstock.spark.tables.values.keys import KeyParser
from penstock.spark.tables.values.limits import time_rejects
from penstock.spark.tables.values.parser import ErrorClass, Parsed, Reject, rejecting
from penstock.spark.tables.values.row_batches import joined
from penstock.spark.tables.values.schema_part import Payloads, SchemaParts

_OBJECT: Final = rb"^\s*\{"


class EventKeys:
    """A reader of keys with these columns."""

    def __init__(self, columns: pa.Schema, settings: ChangeSettings) -> None:
        self._columns = pa.schema([pa.field(one.name, one.type) for one in columns])
        flat = ChangeSettings(
            Envelope.DEBEZIUM_FLAT, decimals=settings.decimals, time_unit=settings.time_unit
        )
        self._parts = SchemaParts()
        self._readers = PayloadReaders(self._columns, (), flat)
        self._other = KeyParser(columns)
        is_bytes = len(columns) == 1 and pa.types.is_binary(columns.field(0).type)
        self._is_object_possible = not is_bytes or columns.names[0] != "_kafka_key"

    def parse(self, keys: pa.Array) -> Parsed:
        """Read each key; none is null."""
        if not self._is_object_possible:
            return self._other.parse(keys)
        found: list[tuple[pa.RecordBatch, pa.Array]] = []
        rejects: list[Reject] = []
        places = pa.arange(0, len(keys))
        for one in self._parts.split(keys):
            is_object = pc.match_substring_regex(one.payloads, _OBJECT)
            some = Payloads(
                one.schema, one.payloads.filter(is_object), one.numbers.filter(is_object)
            )
            if len(some.payloads):
                _add(self._objects(some), some.numbers, found, rejects)
            left = one.numbers.filter(pc.invert(is_object))
            if len(left):
                _add(self._other.parse(keys.take(left)), left, found, rejects)
        rows = joined([fit(one, self._columns) for one, _ in found], self._columns)
        numbers = pa.concat_arrays([places.slice(0, 0), *(one for _, one in found)])
        order = pc.sort_indices(numbers)
        rejects.sort(key=lambda one: one.row)
        return Parsed(rows.take(order), numbers.take(order), tuple(rejects))

    def _objects(self, group: Payloads) -> Parsed:
        """Read keys that are JSON objects."""
        reader = self._readers.of(group.schema)
        parsed = reader.parse(group.payloads)
        rows, bad = reader.rows(parsed.rows)
        unfit = {one.row: one for one in [*self._missing(rows), *time_rejects(rows), *bad]}
        left = Parsed(rows, parsed.row_numbers, parsed.rejects)
        return rejecting(left, sorted(unfit.values(), key=lambda one: one.row))

    @staticmethod
    def _missing(rows: pa.RecordBatch) -> list[Reject]:
        found: list[Reject] = []
        for name in rows.schema.names:
            message = (
                f"the record's key has no value for {shown(name)}, a column of the table's key. "
                "Set table.key to the key of the database's table, or message.key.columns of the "
                "connector to the table's key."
            )
            places = pc.indices_nonzero(rows.column(name).is_null()).to_pylist()
            found += [Reject(one, ErrorClass.MISSING_VALUE, message) for one in places]
        return found


def _add(
    parsed: Parsed,
    numbers: pa.Array,
    found: list[tuple[pa.RecordBatch, pa.Array]],
    rejects: list[Reject],
) -> None:
    """Add the result for keys with these numbers."""
    rejects += [one._replace(row=numbers[one.row].as_py()) for one in parsed.rejects]
    kept = numbers if parsed.row_numbers is None else numbers.take(parsed.row_numbers)
    found.append((parsed.rows, kept))
