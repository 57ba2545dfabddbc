"""Reads payloads of one schema: their kind of change, the columns of their rows, further fields.

Guarantees: fields of the envelope are read together with the row by one parser of JSON. Columns
have the types of the table; a value that its column cannot hold is a problem of its row.

It looks at one payload at a time only for values that `json.values` looks at so.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.option_values import shown
from penstock.spark.tables.definition.change_definition import deletion_field
from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.definition.model import ChangeSettings, Envelope
from penstock.spark.tables.values.cdc.carried_columns import carried_columns
from penstock.spark.tables.values.cdc.debezium_types import Wire, known_type, wire_of
from penstock.spark.tables.values.cdc.unavailable import MESSAGE, NEEDED, WHOLE, unavailable
from penstock.spark.tables.values.json.values import JsonValues
from penstock.spark.tables.values.parser import ErrorClass, Parsed, Reject, short
from penstock.spark.tables.values.schema_part import ConnectType

_POSITIONS: Final = ("source", "transaction", "ts_ms", "ts_us", "ts_ns")
"""The fields of an event that every event has, also a deletion."""
_UPSERTS: Final = pa.array(["c", "u", "r"])
_KNOWN_OPS: Final = pa.array(["c", "u", "r", "d"])
_STRING: Final = pa.string()
_FLAT_TIME: Final = "__source_ts_ms"
"""The name that `add.fields = source.ts_ms` gives it."""
_MILLISECONDS: Final = r"^[0-9]{1,15}$"

_OTHER_KEY: Final = (
    "an update changes a column of the table's key, so that column is not in the key of the "
    "database's table: that database sends a deletion and a new row instead. Set table.key to the "
    "key of the database's table."
)
READERS_MAX: Final = 64
"""The number of readers that are kept; a topic has a new schema part when its table changes."""

Described = tuple[ConnectType | None, ...] | None
Path = tuple[str, ...]
Tree = dict[str, "pa.DataType | Tree"]


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds of the changes: each is a row, a deletion or a reject."""

    is_row: pa.Array
    is_deletion: pa.Array
    rejects: tuple[Reject, ...]

    def of(self, mask: pa.Array) -> "Kinds":
        """Return the kinds, with no kind where the mask is false."""
        is_row, is_deletion = pc.and_(self.is_row, mask), pc.and_(self.is_deletion, mask)
        return Kinds(is_row, is_deletion, self.rejects)


class PayloadReader:
    """A reader of payloads whose schema parts agree on the columns, or that have none."""

    def __init__(
        self,
        columns: pa.Schema,
        key: Sequence[str],
        settings: ChangeSettings,
        described: Described,
        json_values: Callable[[pa.Schema], JsonValues] = JsonValues,
    ) -> None:
        """Create the reader; `described` has the columns' types in the schema part."""
        self._columns = columns
        self._is_debezium = settings.envelope is not Envelope.NONE
        self._is_event = settings.envelope is Envelope.DEBEZIUM
        self._row_path: Path = ("after",) if self._is_event else ()
        self._old_path: Path = ("before",) if self._is_event else ()
        types = described or (None,) * len(columns)
        self._wires = {
            one.name: wire_of(one.type, kind, settings)
            for one, kind in zip(columns, types, strict=True)
        }
        self._when = None
        if settings.deleted_when is not None:
            path, self._text = deletion_field(settings.deleted_when)
            self._when = self._resolved(path)
        self._sequence = [self._resolved(one) for one in settings.sequence_by]
        self._time: Path | None = None
        if self._is_debezium and settings.has_history:
            self._time = ("source", "ts_ms") if self._is_event else self._flat_time()
        self._key = tuple(name for name in key if name in columns.names)
        self._may_lack = frozenset[str]()
        self._is_partial = settings.is_partial
        self._has_history = settings.has_history
        if self._is_partial:
            self._may_lack = frozenset(one.name for one in columns if one.nullable) - set(key)
        self._json = json_values(_schema_of(self._tree()))

    def _flat_time(self) -> Path | None:
        """Return the field of a flat row with the database's time, unless a column cannot be it."""
        wire = self._wires.get(_FLAT_TIME)
        is_text = wire is None or pa.types.is_integer(wire.type) or pa.types.is_string(wire.type)
        return (_FLAT_TIME,) if is_text else None

    def parse(self, payloads: pa.Array) -> Parsed:
        """Read the payloads into the columns that the other methods take."""
        return self._json.parse(payloads)

    def kinds(self, found: pa.RecordBatch) -> Kinds:
        """Return the kind of each change."""
        if not self._is_event:
            every = pa.repeat(pa.scalar(value=True), found.num_rows)
            is_deletion = pc.invert(every)
            if self._when is not None:
                value = _at(found, self._when).cast(_STRING)
                is_deletion = pc.fill_null(pc.equal(value, self._text), fill_value=False)
            return Kinds(pc.invert(is_deletion), is_deletion, ())
        ops, after = found.column("op"), found.column("after")
        is_upsert = pc.is_in(ops, value_set=_UPSERTS)
        is_row = pc.and_(is_upsert, after.is_valid())
        is_deletion = pc.fill_null(pc.equal(ops, "d"), fill_value=False)
        return Kinds(is_row, is_deletion, tuple(_bad_events(ops, is_upsert, is_row)))

    def rows(self, found: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Reject]]:
        """Return the new rows, and rejects for rows that do not fit.

        A placeholder of a column that a change may lack is null.
        """
        rejects: dict[int, Reject] = {}
        arrays = []
        for one in self._columns:
            path = (*self._row_path, one.name)
            given = _at(found, path)
            unsent, refused = self._unsent(one.name, given, found)
            array, problems = _converted(_without(given, unsent), self._wires[one.name])
            name = ".".join(path)
            for place in refused:
                message = short(f"column '{name}': {self._why_unsent(one.name)}")
                rejects.setdefault(place, Reject(place, ErrorClass.MISSING_VALUE, message))
            for place, text in problems.items():
                message = short(f"column '{name}': {text}.")
                rejects.setdefault(place, Reject(place, ErrorClass.TYPE_MISMATCH, message))
            if not one.nullable and array.null_count:
                for place in pc.indices_nonzero(array.is_null()).to_pylist():
                    message = f"column '{name}' is required, and has no value."
                    rejects.setdefault(place, Reject(place, ErrorClass.MISSING_VALUE, message))
            arrays.append(array)
        fields = [pa.field(one.name, one.type) for one in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)), list(rejects.values())

    def carried(
        self, found: pa.RecordBatch, payloads: pa.Array
    ) -> tuple[pa.StructArray, list[Reject]]:
        """Return the columns that each of these rows carries, see `cdc.carried_columns`."""
        names = [name for name in self._columns.names if name not in self._key]
        given = {name: _at(found, (*self._row_path, name)) for name in names}
        unsent = {name: self._unsent(name, one, found)[0] for name, one in given.items()}
        return carried_columns(payloads, self._row_path, given, unsent)

    def _unsent(
        self, name: str, given: pa.Array, found: pa.RecordBatch
    ) -> tuple[list[int], list[int]]:
        """Return the places of placeholders of stored values, and of refused placeholders.

        A new row has no stored values: it is one whose key has changed.
        """
        places = unavailable(given) if self._is_debezium else []
        if not places or name not in self._may_lack:
            return [], places
        if not self._is_event:
            return places, []
        ops = found.column("op").take(pa.array(places, pa.int64())).to_pylist()
        both = list(zip(places, ops, strict=True))
        return [at for at, op in both if op == "u"], [at for at, op in both if op != "u"]

    def _why_unsent(self, name: str) -> str:
        """Return what is wrong with a placeholder in this column, and what corrects it."""
        if self._is_partial:
            return NEEDED
        return WHOLE if self._has_history or name in self._key else MESSAGE

    def changed_keys(self, found: pa.RecordBatch) -> list[Reject]:
        """Return rejects for updates of the columns of the key, which no database sends as one."""
        if not self._is_event or not self._key:
            return []
        is_other = pa.repeat(pa.scalar(value=False), found.num_rows)
        for name in self._key:
            # Converted, because Arrow compares no structs, and a decimal may be one.
            old, new = (
                _converted(_at(found, (side, name)), self._wires[name])[0]
                for side in ("before", "after")
            )
            is_other = pc.or_(is_other, pc.fill_null(pc.not_equal(old, new), fill_value=False))
        return [
            Reject(place, ErrorClass.MALFORMED, _OTHER_KEY)
            for place in pc.indices_nonzero(is_other).to_pylist()
        ]

    def keys(self, found: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        """Return the keys of deletions, and whether each is whole."""
        is_whole = pa.repeat(pa.scalar(value=True), found.num_rows)
        arrays = []
        for name in self._key:
            array, _ = _converted(_at(found, (*self._old_path, name)), self._wires[name])
            is_whole = pc.and_(is_whole, array.is_valid())
            arrays.append(array)
        fields = [pa.field(name, self._columns.field(name).type) for name in self._key]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)), is_whole

    def changed_ms(self, found: pa.RecordBatch) -> pa.Array:
        """Return the database's times of the changes; null without one."""
        if self._time is None:
            return pa.nulls(found.num_rows, pa.int64())
        texts = _at(found, self._time).cast(_STRING)
        is_number = pc.match_substring_regex(texts, _MILLISECONDS)
        return pc.if_else(is_number, texts, pa.scalar(None, _STRING)).cast(pa.int64())

    def sequences(self, found: pa.RecordBatch) -> list[pa.Array]:
        """Return the fields that order the changes."""
        parts = []
        for one in self._sequence:
            array = _at(found, one)
            name = one[-1]
            is_column = not self._is_event and len(one) == 1 and name in self._wires
            parts.append(_converted(array, self._wires[name])[0] if is_column else array)
        return parts

    def is_snapshot(self, found: pa.RecordBatch) -> pa.Array | None:
        """Return whether each event is a row of a snapshot; None if flat rows do not say so."""
        if not self._is_event:
            return None
        return pc.fill_null(pc.equal(found.column("op"), "r"), fill_value=False)

    def _resolved(self, text: str) -> Path:
        """Return the path of a field that the definition names."""
        path: Path = tuple(text.split("."))
        if not self._is_event or path[0] in _POSITIONS:
            return path
        is_of_row = path[0] in {"before", "after"} or path[0] in self._columns.names
        raise SchemaError(
            f"value.sequence_by names {shown(text)}",
            "a deletion has a column of the row only with REPLICA IDENTITY FULL, and is older than "
            "its row otherwise."
            if is_of_row
            else "neither the event nor the row has it.",
            f'Name a field of {", ".join(_POSITIONS)}: sequence_by = ["source.lsn"].',
        )

    def _tree(self) -> Tree:
        """Return the fields to read, in their structure."""
        row: Tree = {name: wire.type for name, wire in self._wires.items()}
        tree: Tree = row
        if self._is_event:
            old = [name for name in row if name in self._key]
            tree = {"op": _STRING, "after": row, "before": {name: row[name] for name in old}}
            if not old:
                del tree["before"]
        for path in [*self._sequence, self._when, self._time]:
            if path is not None:
                _add(tree, path)
        return tree


class PayloadReaders:
    """The readers of the schemas of one table, by what their schemas say about its columns.

    Other differences of schemas cost no new reader, and readers share their parsers of JSON.
    """

    def __init__(self, columns: pa.Schema, key: Sequence[str], settings: ChangeSettings) -> None:
        self._columns, self._key, self._settings = columns, key, settings
        self._readers: dict[Described, PayloadReader] = {}
        self._parsers: dict[pa.Schema, JsonValues] = {}
        self.of(None)  # raises for a field that does not exist

    def of(self, schema: ConnectType | None) -> PayloadReader:
        """Return the reader of payloads with this schema."""
        is_event = self._settings.envelope is Envelope.DEBEZIUM
        row = schema.field("after") if schema is not None and is_event else schema
        described: Described = None
        if row is not None:
            described = tuple(known_type(row.field(name)) for name in self._columns.names)
        if described not in self._readers:
            if len(self._readers) >= READERS_MAX:
                self._readers.clear()
            self._readers[described] = PayloadReader(
                self._columns, self._key, self._settings, described, self._parser
            )
        return self._readers[described]

    def _parser(self, schema: pa.Schema) -> JsonValues:
        if schema not in self._parsers:
            if len(self._parsers) >= READERS_MAX:
                self._parsers.clear()
            self._parsers[schema] = JsonValues(schema)
        return self._parsers[schema]


def _add(tree: Tree, path: Path) -> None:
    """Add a field that no column has, as a text."""
    here = tree
    for name in path[:-1]:
        inner = here.setdefault(name, {})
        if not isinstance(inner, dict):
            return  # a column of structs, whose type has the field or lacks it
        here = inner
    here.setdefault(path[-1], _STRING)


def _schema_of(tree: Tree) -> pa.Schema:
    return pa.schema([pa.field(name, _type_of(inner)) for name, inner in tree.items()])


def _type_of(inner: "pa.DataType | Tree") -> pa.DataType:
    if not isinstance(inner, dict):
        return inner
    return pa.struct([pa.field(name, _type_of(one)) for name, one in inner.items()])


def _at(found: pa.RecordBatch, path: Path) -> pa.Array:
    """Return the column of a path; a null struct has null fields."""
    array = found.column(path[0])
    for name in path[1:]:
        kind = array.type
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            raise SchemaError(
                f"the field {shown('.'.join(path))}",
                "the columns of the values do not have it.",
                "Correct value.sequence_by or value.deleted_when.",
            )
        array = array.flatten()[kind.get_field_index(name)]
    return array


def _without(array: pa.Array, places: Sequence[int]) -> pa.Array:
    """Return the array with nulls at these places."""
    if not places:
        return array
    every = pa.arange(0, len(array))
    is_gone = pc.is_in(every, value_set=pa.array(places, pa.int64()))
    return array.take(pc.if_else(is_gone, pa.scalar(None, pa.int64()), every))


def _converted(array: pa.Array, wire: Wire) -> tuple[pa.Array, Mapping[int, str]]:
    return (array, {}) if wire.convert is None else wire.convert(array)


def _bad_events(ops: pa.Array, is_upsert: pa.Array, is_row: pa.Array) -> Iterable[Reject]:
    is_known = pc.is_in(ops, value_set=_KNOWN_OPS)
    for place in pc.indices_nonzero(pc.invert(is_known)).to_pylist():
        op = ops[place].as_py()
        if op is None:
            message = "the value is no event of Debezium: it has no field 'op'."
        elif op == "t":
            message = (
                "op 't' (TRUNCATE) is not applied: the table keeps its rows. Delete them there, "
                "or drop the table and take a new snapshot."
            )
        else:
            message = f"op {shown(op)} changes no row: only c, u, r and d do."
        yield Reject(place, ErrorClass.MALFORMED, short(message))
    for place in pc.indices_nonzero(pc.and_not(is_upsert, is_row)).to_pylist():
        message = f"op '{ops[place].as_py()}' has no row in 'after'."
        yield Reject(place, ErrorClass.MISSING_VALUE, message)
