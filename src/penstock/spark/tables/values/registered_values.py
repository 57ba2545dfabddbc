"""Values with the id of their schema in a registry: each is read with its own schema.

Guarantees: ids of different schemas may follow each other in one column; the columns are those of
all schemas seen so far together, added and widened by the rules of `schema_changes`. Values whose
schema is unknown, or does not fit the others, are rejects with this reason. If the registry does
not respond, the batch fails: the records are not bad, and are read again.

The `compile_schema` of the format interprets a schema.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

import pyarrow as pa

from penstock.spark.tables.definition.ddl import COLUMNS_MAX
from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.values.columns import fit, reserved_among
from penstock.spark.tables.values.framing import schema_id_of
from penstock.spark.tables.values.parser import ErrorClass, Parsed, Reject, RowError, short
from penstock.spark.tables.values.registry import RegisteredSchema, UnknownSchemaError
from penstock.spark.tables.values.row_batches import Row, batch_of, in_order, joined, null_rows
from penstock.spark.tables.values.schema_changes import Incompatible, change_of, column_count

COMPILED_MAX: Final = 1_000
"""The same number as in the registry's own cache."""

Numbered: TypeAlias = tuple[int, bytes]
"""A value, with its number in the input."""
Group: TypeAlias = tuple[pa.RecordBatch, list[int], list[Reject]]
"""Rows, their numbers in the input, and rejects."""


@dataclass(frozen=True, slots=True)
class CompiledSchema:
    """One schema, ready to parse framed values."""

    columns: pa.Schema
    read: Callable[[Sequence[Numbered]], Group]


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
        groups, nulls, rejects = _by_schema(values)
        batches: list[pa.RecordBatch] = []
        numbers: list[int] = []
        for schema_id, rows in groups.items():
            try:
                batch, places, bad = self._known(schema_id).read(rows)
            except RowError as error:
                rejects += [
                    Reject(number, error.error, error.message, schema_id) for number, _ in rows
                ]
                continue
            batches.append(batch)
            numbers += places
            rejects += bad
        if nulls:
            batch, places, bad = null_rows(nulls, self.schema)
            batches.append(batch)
            numbers += places
            rejects += bad
        fitted = [fit(batch, self.schema) for batch in batches]
        return in_order(joined(fitted, self.schema), numbers, rejects, len(values))

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
    columns: pa.Schema, read: Callable[[bytes], object], schema_id: int | None
) -> CompiledSchema:
    """Return a schema that parses values one by one; `read` raises `RowError`."""

    def read_all(values: Sequence[Numbered]) -> Group:
        rows: list[Row] = []
        rejects: list[Reject] = []
        for number, value in values:
            try:
                rows.append(Row(number, read(value)))
            except RowError as error:
                rejects.append(Reject(number, error.error, short(error.message), schema_id))
        batch, numbers, refused = batch_of(rows, columns, schema_id)
        return batch, numbers, rejects + refused

    return CompiledSchema(columns, read_all)


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
        given = list(enumerate(values.to_pylist()))
        rows, numbers, rejects = self._compiled.read(
            [(number, value) for number, value in given if value is not None]
        )
        nulls, places, refused = null_rows(
            [number for number, value in given if value is None], self.schema
        )
        return in_order(
            joined([rows, nulls], self.schema), numbers + places, rejects + refused, len(values)
        )


def _by_schema(values: pa.Array) -> tuple[dict[int, list[Numbered]], list[int], list[Reject]]:
    groups: dict[int, list[Numbered]] = {}
    nulls: list[int] = []
    rejects: list[Reject] = []
    for number, value in enumerate(values.to_pylist()):
        if value is None:
            nulls.append(number)
            continue
        try:
            groups.setdefault(schema_id_of(value), []).append((number, value))
        except RowError as error:
            rejects.append(Reject(number, error.error, error.message))
    return groups, nulls, rejects
