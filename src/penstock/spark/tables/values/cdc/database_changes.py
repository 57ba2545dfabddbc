"""Reads values as changes of rows: new rows, deletions with their keys, and the order of both.

Guarantees: every record is a row, a deletion, a reject, or a tombstone that is passed over; never
two of them. Without an envelope a tombstone is a deletion. Rows and deletions have the record's
order in the column `_sequence` if the definition has `sequence_by`. The result depends on the
record alone.

A row has the values of `after`, or of the whole value without an envelope. A deletion has the
columns of the key: of Debezium's records from their key, with or without a schema part, and never
from `before`, which has empty values in columns that the database did not log. Other deletions have
them from the value if they are whole there, else from the record's key. Debezium's records without
a key are rejects: the table that they are from has no primary key, and their order is unknown.

Speed: values with one schema part are read together by `json.values`, so the kernel reads them; a
schema part costs a comparison of its bytes. Decimals and keys of deletions without a `before` are
converted one at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.option_values import shown
from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.definition.model import KAFKA, ChangeSettings, Envelope
from penstock.spark.tables.values.cdc.carried_columns import CARRIED, carried_field
from penstock.spark.tables.values.cdc.event_keys import EventKeys
from penstock.spark.tables.values.cdc.event_payloads import PayloadReader, PayloadReaders
from penstock.spark.tables.values.cdc.row_versions import HISTORY_COLUMNS, as_versions, times_of
from penstock.spark.tables.values.cdc.sequence import (
    SEQUENCE,
    require_ordered,
    sequence_texts,
    version_texts,
)
from penstock.spark.tables.values.columns import fit
from penstock.spark.tables.values.keys import KeyParser
from penstock.spark.tables.values.limits import time_rejects
from penstock.spark.tables.values.parser import ErrorClass, Parsed, Reject, rejecting
from penstock.spark.tables.values.row_batches import joined
from penstock.spark.tables.values.schema_part import Payloads, SchemaParts

_NO_KEY: Final = (
    "the record has no key, so the database's table has no primary key, and the changes of a row "
    "have no order. Set message.key.columns of the connector."
)

_NO_ORDER: Final = (
    "a record without a value has no field of sequence_by, so that its deletion has no order. "
    "Produce deletions as values, and set deleted_when."
)


@dataclass(frozen=True, slots=True)
class ReadChanges:
    """The changes of a batch of records; numbers are those of records."""

    rows: Parsed
    """The new rows, and all rejects."""
    deletions: pa.RecordBatch
    """The columns of the key, and `_sequence`."""
    deletion_numbers: pa.Array


@dataclass(slots=True)
class _Found:
    """The results so far."""

    is_sample: bool = False
    """Whether the records have no keys: deletions have those of `before`."""
    rows: list[tuple[pa.RecordBatch, pa.Array]] = field(default_factory=list)
    deletions: list[tuple[pa.RecordBatch, pa.Array]] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)

    def reject(self, bad: Sequence[Reject], numbers: pa.Array) -> None:
        """Add rejects, by their places in the numbers."""
        self.rejects += [one._replace(row=numbers[one.row].as_py()) for one in bad]

    def keep(self, parsed: Parsed, numbers: pa.Array) -> pa.Array:
        """Add the rejects; return the numbers of the other records."""
        self.reject(parsed.rejects, numbers)
        return numbers if parsed.row_numbers is None else numbers.take(parsed.row_numbers)


class ChangeValues:
    """A reader of changes with these columns."""

    def __init__(
        self, columns: pa.Schema, settings: ChangeSettings, key: Sequence[str] = ()
    ) -> None:
        self._columns = columns
        self._settings = settings
        self._key = tuple(name for name in key if name in columns.names)
        self._parts = SchemaParts()
        self._readers = PayloadReaders(columns, self._key, settings)
        order = [pa.field(SEQUENCE, pa.string())] if settings.sequence_by else []
        if settings.has_history:
            order += list(HISTORY_COLUMNS)
        for one in order:
            if one.name in columns.names:
                raise SchemaError(
                    "value.schema",
                    f"the column {one.name} has the name of one that changes of rows add.",
                    "Rename it.",
                )
        for name in settings.sequence_by:
            if name in columns.names:
                require_ordered(columns.field(name).type, name)
        self._schema = pa.schema([*columns, *order])
        self._rows_schema = self._plain()
        if settings.is_partial:
            others = [name for name in columns.names if name not in self._key]
            self._rows_schema = self._rows_schema.append(carried_field(others))
        own = [_key_field(name, columns) for name in key]
        self._is_in_row = len(self._key) == len(own)
        self._keys: KeyParser | EventKeys | None = None
        if own:
            is_plain = settings.envelope is Envelope.NONE
            self._keys = (
                KeyParser(pa.schema(own)) if is_plain else EventKeys(pa.schema(own), settings)
            )
        self._deletion_schema = pa.schema([*own, *order])

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self._schema

    def parse(self, values: pa.Array) -> Parsed:
        """Read values without their records, for a look at them; a deletion is a row of its key."""
        count = len(values)
        found = self._read_all(
            pa.RecordBatch.from_arrays(
                [
                    values,
                    pa.repeat(pa.scalar(b"null"), count),
                    pa.repeat(pa.scalar(0, pa.int32()), count),
                    pa.arange(0, count),
                    pa.nulls(count, pa.timestamp("us", tz="UTC")),
                ],
                names=["value", "key", "partition", "offset", "timestamp"],
            ),
            _Found(is_sample=True),
        )
        bad = {one.row for one in found.rows.rejects}
        numbers = [one for one in range(count) if one not in bad]
        places = pa.concat_arrays([_numbers(found.rows), found.deletion_numbers])
        plain = self._plain()
        rows = joined([fit(one, plain) for one in (found.rows.rows, found.deletions)], plain)
        at = pc.index_in(pa.array(numbers, pa.int64()), value_set=places)
        return Parsed(rows.take(at), pa.array(numbers, pa.int64()), found.rows.rejects)

    def read(self, records: pa.RecordBatch) -> ReadChanges:
        """Read the changes of records."""
        return self._read_all(records, _Found())

    def _read_all(self, records: pa.RecordBatch, found: _Found) -> ReadChanges:
        values = records.column("value")
        places = pc.indices_nonzero(values.is_valid()).cast(pa.int64())
        if self._settings.envelope is Envelope.NONE:
            groups = [Payloads(None, values.take(places), places)]
            self._add_tombstones(records, found)
        else:
            groups = [
                Payloads(one.schema, one.payloads, places.take(one.numbers))
                for one in self._parts.split(values.take(places))
            ]
        for one in groups:
            self._read(one, records, found)
        rows, numbers = _in_order(found.rows, self._rows_schema)
        deletions, deletion_numbers = _in_order(found.deletions, self._deletion_schema)
        rejects = tuple(sorted(found.rejects, key=lambda one: one.row))
        return ReadChanges(Parsed(rows, numbers, rejects), deletions, deletion_numbers)

    def _read(self, group: Payloads, records: pa.RecordBatch, found: _Found) -> None:
        reader = self._readers.of(group.schema)
        parsed = reader.parse(group.payloads)
        found.reject(parsed.rejects, group.numbers)
        events = parsed.rows
        numbers = group.numbers
        if parsed.row_numbers is not None:
            numbers = numbers.take(parsed.row_numbers)
        kinds = reader.kinds(events)
        found.reject(kinds.rejects, numbers)
        if self._settings.envelope is not Envelope.NONE:
            is_keyed = records.column("key").take(numbers).is_valid()
            is_change = pc.or_(kinds.is_row, kinds.is_deletion)
            for place in pc.indices_nonzero(pc.and_not(is_change, is_keyed)).to_pylist():
                found.reject([Reject(place, ErrorClass.MISSING_VALUE, _NO_KEY)], numbers)
            kinds = kinds.of(is_keyed)
        self._add_rows(
            reader, events.filter(kinds.is_row), numbers.filter(kinds.is_row), group, records, found
        )
        self._add_deletions(
            reader,
            events.filter(kinds.is_deletion),
            numbers.filter(kinds.is_deletion),
            records,
            found,
        )

    def _add_tombstones(self, records: pa.RecordBatch, found: _Found) -> None:
        """Add the deletions of records without a value, which have a key and no order."""
        numbers = pc.indices_nonzero(records.column("value").is_null()).cast(pa.int64())
        if not len(numbers) or self._keys is None:
            return
        if self._settings.sequence_by:
            bad = [Reject(one, ErrorClass.MISSING_VALUE, _NO_ORDER) for one in range(len(numbers))]
            found.reject(bad, numbers)
            return
        parsed = self._keys.parse(records.column("key").take(numbers))
        kept = found.keep(parsed, numbers)
        found.deletions.append((fit(parsed.rows, self._deletion_schema), kept))

    def _add_rows(
        self,
        reader: PayloadReader,
        events: pa.RecordBatch,
        numbers: pa.Array,
        group: Payloads,
        records: pa.RecordBatch,
        found: _Found,
    ) -> None:
        if not events.num_rows:
            return
        rows, bad = reader.rows(events)
        rows, unordered = self._ordered(rows, reader, events, records.take(numbers), deleted=False)
        if self._settings.is_partial:
            at = pc.index_in(numbers, value_set=group.numbers)
            carried, unclear = reader.carried(events, group.payloads.take(at))
            rows, bad = rows.append_column(CARRIED, carried), [*unclear, *bad]
        moved = reader.changed_keys(events)
        unfit = {one.row: one for one in [*time_rejects(rows), *unordered, *moved, *bad]}
        parsed = rejecting(Parsed(rows, None), sorted(unfit.values(), key=lambda one: one.row))
        kept = found.keep(parsed, numbers)
        found.rows.append((parsed.rows, kept))

    def _add_deletions(
        self,
        reader: PayloadReader,
        events: pa.RecordBatch,
        numbers: pa.Array,
        records: pa.RecordBatch,
        found: _Found,
    ) -> None:
        if not events.num_rows:
            return
        if self._keys is None:  # a look at values without a key
            nothing = pa.array([{}] * events.num_rows, pa.struct([]))
            keys = pa.RecordBatch.from_struct_array(nothing)
            self._add_keys(reader, keys, events, numbers, records, found)
            return
        if self._is_in_row and (found.is_sample or self._settings.envelope is Envelope.NONE):
            keys, is_whole = reader.keys(events)
            self._add_keys(
                reader,
                keys.filter(is_whole),
                events.filter(is_whole),
                numbers.filter(is_whole),
                records,
                found,
            )
            is_other = pc.invert(is_whole)
            numbers, events = numbers.filter(is_other), events.filter(is_other)
        parsed = self._keys.parse(records.column("key").take(numbers))
        found.reject(parsed.rejects, numbers)
        if parsed.row_numbers is not None:
            numbers, events = numbers.take(parsed.row_numbers), events.take(parsed.row_numbers)
        self._add_keys(reader, parsed.rows, events, numbers, records, found)

    def _add_keys(
        self,
        reader: PayloadReader,
        keys: pa.RecordBatch,
        events: pa.RecordBatch,
        numbers: pa.Array,
        records: pa.RecordBatch,
        found: _Found,
    ) -> None:
        if not keys.num_rows:
            return
        rows, bad = self._ordered(keys, reader, events, records.take(numbers), deleted=True)
        parsed = rejecting(Parsed(fit(rows, self._deletion_schema), None), bad)
        kept = found.keep(parsed, numbers)
        found.deletions.append((parsed.rows, kept))

    def _ordered(
        self,
        rows: pa.RecordBatch,
        reader: PayloadReader,
        events: pa.RecordBatch,
        records: pa.RecordBatch,
        *,
        deleted: bool,
    ) -> tuple[pa.RecordBatch, list[Reject]]:
        """Return the rows with their order, and rejects for rows without one."""
        if not self._settings.sequence_by:
            return rows, []
        parts = reader.sequences(events)
        texts = (
            version_texts(parts, reader.is_snapshot(events))
            if self._settings.has_history
            else sequence_texts(parts, records.column("partition"), records.column("offset"))
        )
        names = ", ".join(self._settings.sequence_by)
        message = f"the change has no order: {names} of sequence_by has no value."
        bad = [
            Reject(place, ErrorClass.MISSING_VALUE, message)
            for place in pc.indices_nonzero(texts.is_null()).to_pylist()
        ]
        rows = rows.append_column(pa.field(SEQUENCE, pa.string()), texts)
        if self._settings.has_history:
            times = times_of(reader.changed_ms(events), records.column("timestamp"))
            rows = as_versions(rows, times, deleted=deleted)
        return rows, bad

    def _plain(self) -> pa.Schema:
        """Return the columns of rows, all nullable: required ones were checked."""
        return pa.schema([pa.field(one.name, one.type) for one in self._schema])


def _key_field(name: str, columns: pa.Schema) -> pa.Field:
    if name in columns.names:
        return pa.field(name, columns.field(name).type)
    if name == f"{KAFKA}_key":
        return pa.field(name, pa.binary())
    raise SchemaError(
        "table.key",
        f"the values have no column {shown(name)}.",
        f"Name columns of value.schema, or {KAFKA}_key.",
    )


def _numbers(parsed: Parsed) -> pa.Array:
    assert parsed.row_numbers is not None, "changes always have numbers"
    return parsed.row_numbers


def _in_order(
    parts: Sequence[tuple[pa.RecordBatch, pa.Array]], schema: pa.Schema
) -> tuple[pa.RecordBatch, pa.Array]:
    rows = joined([one for one, _ in parts], schema)
    numbers = [one for _, one in parts]
    places = pa.concat_arrays(numbers) if numbers else pa.array([], pa.int64())
    if len(parts) > 1:
        order = pc.sort_indices(places)
        rows, places = rows.take(order), places.take(order)
    return rows, places
