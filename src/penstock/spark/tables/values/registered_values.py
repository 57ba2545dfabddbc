"""Values with the id of their schema in a registry: each is read with its own schema.

Guarantees: ids of different schemas may follow each other in one column; the columns are those of
all schemas seen so far together, added and widened by the rules of `schema_changes`. Values whose
schema is unknown, or does not fit the others, are rejects with this reason. If the registry does
not respond, the batch fails: the records are not bad, and are read again.

The `compile_schema` of the format interprets a schema.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.tables.definition.ddl import COLUMNS_MAX
from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.values.columns import fit, reserved_among
from penstock.spark.tables.values.framing import HEADER_BYTES, MAGIC, schema_id_of
from penstock.spark.tables.values.parser import ErrorClass, Parsed, Reject, RowError, short
from penstock.spark.tables.values.registry import RegisteredSchema, UnknownSchemaError
from penstock.spark.tables.values.row_batches import (
    in_place,
    joined,
    null_rows,
    read_each,
    together,
)
from penstock.spark.tables.values.schema_changes import Incompatible, change_of, column_count

COMPILED_MAX: Final = 1_000
"""The same number as in the registry's own cache."""

Reading: TypeAlias = Callable[[pa.Array], Parsed]
"""Reads values without nulls, with their numbers in this array."""


@dataclass(frozen=True, slots=True)
class CompiledSchema:
    """One schema, ready to parse framed values."""

    columns: pa.Schema
    read: Reading


class MisfitError(Exception):
    """Values with these columns do not fit this table; the text has the reason."""


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns that values must fit."""

    columns: pa.Schema
    may_widen: bool = True
    derived: frozenset[str] = frozenset()
    """The names of columns that the table's partitions add: no value has them."""

    def with_columns(self, columns: pa.Schema) -> pa.Schema:
        """Return all columns together; raise `MisfitError` if these do not fit the table's."""
        taken = reserved_among(columns.names, self.derived)
        if taken is not None:
            raise MisfitError(
                f"column '{taken}' has the name of a column that rows get themselves."
            )
        if not len(self.columns):
            return columns
        change = change_of(self.columns, columns, may_widen=self.may_widen)
        if isinstance(change, Incompatible):
            raise MisfitError(" ".join(change.reasons))
        if change.steps and column_count(change.schema) > COLUMNS_MAX:
            raise MisfitError(
                f"with its columns the table has more than {COLUMNS_MAX}. Objects whose keys are "
                "data are maps."
            )
        return change.schema


class Schemas(Protocol):
    """A store of schemas by id; `Registry` is one."""

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """Return the schema, or raise `UnknownSchemaError`."""


class RegisteredValues:
    """A parser of framed values."""

    def __init__(
        self,
        schemas: Schemas,
        compile_schema: Callable[[RegisteredSchema], CompiledSchema],
        base: RegisteredSchema | None = None,
        table: TableColumns | None = None,
    ) -> None:
        """Start with the columns of the table; without a table, of the schema `base`."""
        self._schemas = schemas
        self._compile = compile_schema
        self._compiled: dict[int, CompiledSchema] = {}
        self._table = TableColumns(pa.schema([])) if table is None else table
        if table is None and base is not None:
            self._table = TableColumns(self._compiled_schema(base).columns)

    @property
    def schema(self) -> pa.Schema:
        """The columns of all schemas so far."""
        return self._table.columns

    def parse(self, values: pa.Array) -> Parsed:
        """Parse each value with its own schema."""
        if _have_one_header(values):
            one = self._read(values)
            return together(
                [replace(one, rows=fit(one.rows, self.schema))], self.schema, len(values)
            )
        return self._by_schema(values)

    def _by_schema(self, values: pa.Array) -> Parsed:
        is_framed = pc.and_(
            pc.starts_with(values, pattern=bytes([MAGIC])),
            pc.greater_equal(pc.binary_length(values), HEADER_BYTES),
        )
        unframed = _numbers_of(pc.invert(is_framed))
        framed = None if len(unframed) + values.null_count == 0 else _numbers_of(is_framed)
        parts = [
            in_place(self._read(part), places)
            for part, places in _by_header(values if framed is None else values.take(framed))
        ]
        # After all values: their schemas may have added columns.
        parts = [in_place(replace(one, rows=fit(one.rows, self.schema)), framed) for one in parts]
        parts.append(self._unframed(values, unframed))
        parts.append(null_rows(_numbers_of(values.is_null()), self.schema))
        return together(parts, self.schema, len(values))

    def _read(self, values: pa.Array) -> Parsed:
        """Read values that begin with the same header."""
        schema_id = schema_id_of(values[0].as_py())
        try:
            return self._known(schema_id).read(values)
        except RowError as error:
            rejects = [
                Reject(number, error.error, error.message, schema_id)
                for number in range(len(values))
            ]
            return Parsed(joined([], self.schema), pa.array([], pa.int64()), tuple(rejects))

    def _unframed(self, values: pa.Array, numbers: pa.Array) -> Parsed:
        """Reject the values that do not begin with a header."""
        return read_each(
            ((number, values[number].as_py()) for number in numbers.to_pylist()),
            schema_id_of,
            self.schema,
        )

    def _known(self, schema_id: int) -> CompiledSchema:
        """Return the schema of this id; raise `RowError` if its values are unreadable."""
        found = self._compiled.get(schema_id)
        if found is not None:
            return found
        try:
            compiled = self._compiled_schema(self._schemas.by_id(schema_id))
        except UnknownSchemaError as error:
            raise RowError(ErrorClass.UNKNOWN_SCHEMA, str(error)) from None
        except SchemaError as error:
            raise RowError(ErrorClass.INCOMPATIBLE_SCHEMA, short(str(error))) from None
        try:
            columns = self._table.with_columns(compiled.columns)
        except MisfitError as error:
            message = short(f"schema {schema_id}: {error}")
            raise RowError(ErrorClass.INCOMPATIBLE_SCHEMA, message) from None
        self._table = replace(self._table, columns=columns)
        if len(self._compiled) >= COMPILED_MAX:
            del self._compiled[next(iter(self._compiled))]
        self._compiled[schema_id] = compiled
        return compiled

    def _compiled_schema(self, schema: RegisteredSchema) -> CompiledSchema:
        try:
            return self._compile(schema)
        except SchemaError:
            raise
        except Exception as error:
            # A bad schema in the registry rejects only its own values.
            raise SchemaError(
                f"schema {schema.schema_id}",
                f"it cannot be understood: {type(error).__name__} {error}.",
                "Correct it.",
            ) from error


def one_by_one(
    read: Callable[[bytes], object], columns: pa.Schema, schema_id: int | None
) -> Reading:
    """Return a reading of each value alone; `read` raises `RowError`."""
    return lambda values: read_each(enumerate(values.to_pylist()), read, columns, schema_id)


class OneSchemaValues:
    """A parser of values that all have one schema and no id."""

    def __init__(self, compiled: CompiledSchema) -> None:
        self._compiled = compiled

    @property
    def schema(self) -> pa.Schema:
        """The columns of the schema."""
        return self._compiled.columns

    def parse(self, values: pa.Array) -> Parsed:
        """Read each value."""
        if not values.null_count:
            return together([self._compiled.read(values)], self.schema, len(values))
        filled = _numbers_of(values.is_valid())
        parts = [
            in_place(self._compiled.read(values.take(filled)), filled),
            null_rows(_numbers_of(values.is_null()), self.schema),
        ]
        return together(parts, self.schema, len(values))


def _have_one_header(values: pa.Array) -> bool:
    """Return whether all values begin with the same header: usual, and cheaper to find out."""
    if not len(values) or values.null_count:
        return False
    header = pc.binary_slice(values.slice(0, 1), 0, HEADER_BYTES)[0].as_py()
    is_framed = len(header) == HEADER_BYTES and header[0] == MAGIC
    return is_framed and pc.all(pc.starts_with(values, pattern=header)).as_py()


def _by_header(values: pa.Array) -> Iterator[tuple[pa.Array, pa.Array | None]]:
    """Yield the values grouped by their headers, with their places; None: all."""
    headers = pc.binary_slice(values, 0, HEADER_BYTES).dictionary_encode()
    if len(headers.dictionary) == 1:
        yield values, None
        return
    # The sort is stable, so places ascend, and headers come in the order of their first values.
    order = pc.sort_indices(headers.indices).cast(pa.int64())
    begin = 0
    for end in pc.run_end_encode(headers.indices.take(order)).run_ends.to_pylist():
        places = order.slice(begin, end - begin)
        yield values.take(places), places
        begin = end


def _numbers_of(mask: pa.Array) -> pa.Array:
    """Return the numbers of the rows for which the mask is true."""
    return pc.indices_nonzero(mask).cast(pa.int64())
