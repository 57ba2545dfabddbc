"""Converts JSON values to columns: fast readers for certain rows, `json.rows` for the rest.

Guarantees: those of the port; and every single row has the result of `json.rows`, which a test
checks with generated values. Reasons of rejects name the column and the value.

Speed: `json.kernel` reads all columns but binary ones; `json.database` reads schemas with these,
and the rows that the kernel leaves if there are many. A row in doubt costs as much as
eighty others, a value that its column rejects as much as ten, and a cut value as much as one.
"""

import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.tables.values.json import kernel as json_kernel
from penstock.spark.tables.values.json.buffers import KernelReader, Problem, takes
from penstock.spark.tables.values.json.database import DatabaseReader
from penstock.spark.tables.values.json.rows import JsonRows
from penstock.spark.tables.values.parser import ErrorClass, Parsed, Reject, RowError, short
from penstock.spark.tables.values.row_batches import null_rows, read_each, together

_DOUBTS_MAX: Final = 500
"""Up to this number of rows of a batch are read one by one; above it the database is faster."""

_CUT: Final = "the value is not JSON: it ends too early."


@dataclass(slots=True)
class _Reading:
    """The results for a column of values so far."""

    parts: list[Parsed] = field(default_factory=list)
    doubts: list[int] = field(default_factory=list)
    """The numbers of the rows without a result yet."""


class JsonValues:
    """Reads JSON values of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows = JsonRows(schema)
        # Uncompiled, the database is faster than the kernel.
        is_kernel = json_kernel.COMPILED and takes(schema)
        self._kernel = KernelReader(schema) if is_kernel else None

    @functools.cached_property
    def _database(self) -> DatabaseReader:
        """The database, created on first use: it costs as much as a kernel's batch or two."""
        return DatabaseReader(self._schema)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the schema."""
        return self._schema

    def parse(self, values: pa.Array) -> Parsed:
        """Read each value."""
        reading = _Reading()
        if self._kernel is None:
            self._by_database(values, None, reading)
        else:
            self._by_kernel(self._kernel, values, reading)
            if len(reading.doubts) > _DOUBTS_MAX:
                if 2 * len(reading.doubts) > len(values):
                    # The kernel does not fit these values, and probably not the next ones.
                    self._kernel = None
                numbers = pa.array(reading.doubts, pa.int64())
                self._by_database(values.take(numbers), numbers, reading)
        if reading.doubts:
            self._one_by_one(values, reading)
        return together(reading.parts, self._schema, len(values))

    def _by_kernel(self, kernel: KernelReader, values: pa.Array, reading: _Reading) -> None:
        answer = kernel.read(values)
        rejects: list[Reject] = []
        reading.doubts = answer.doubts
        doubts = self._reject(answer.problems, rejects)
        if doubts:
            reading.doubts = sorted([*answer.doubts, *doubts])
        for number in answer.malformed:
            message = short(_problem(values[number].as_py()))
            rejects.append(Reject(number, ErrorClass.MALFORMED, message))
        rejects += [Reject(number, ErrorClass.MALFORMED, _CUT) for number in answer.cut]
        reading.parts.append(Parsed(answer.rows, answer.row_numbers, tuple(rejects)))

    def _reject(self, problems: Iterable[Problem], rejects: list[Reject]) -> list[int]:
        """Reject the rows that the reference rejects; return the accepted rows."""
        doubts = []
        for row, column, text in problems:
            reason = self._rows.problem(column, text)
            if reason is None:
                doubts.append(row)
            else:
                rejects.append(Reject(row, reason[0], short(reason[1])))
        return doubts

    def _by_database(self, values: pa.Array, numbers: pa.Array | None, reading: _Reading) -> None:
        """Read the values by the database; `numbers` are their row numbers, if they are not all."""
        rows, is_sure = self._database.read(values)
        if numbers is None:
            numbers = pa.arange(0, len(values))
        if not pc.all(is_sure, min_count=0).as_py():
            reading.doubts = numbers.filter(pc.invert(is_sure)).to_pylist()
            rows, numbers = rows.filter(is_sure), numbers.filter(is_sure)
        else:
            reading.doubts = []
        reading.parts.append(Parsed(rows, numbers))

    def _one_by_one(self, values: pa.Array, reading: _Reading) -> None:
        """Read the rows in doubt by the reference."""
        numbers = pa.array(reading.doubts, pa.int64())
        is_null = values.take(numbers).is_null()
        filled = numbers.filter(pc.invert(is_null))
        doubtful = values.take(filled)
        is_json = self._database.are_json(doubtful).to_pylist()
        pairs = zip(doubtful.to_pylist(), is_json, strict=True)
        numbered = zip(filled.to_pylist(), pairs, strict=True)
        reading.parts.append(read_each(numbered, self._read, self._schema))
        reading.parts.append(null_rows(numbers.filter(is_null), self._schema))

    def _read(self, given: tuple[bytes, bool]) -> object:
        value, is_json = given
        if not is_json:
            raise RowError(ErrorClass.MALFORMED, _problem(value))
        # Do not use the database's text: it has lost digits of numbers.
        return self._rows.read(value.decode())


def _problem(value: bytes) -> str:
    """Return the reason why a value is not JSON, with the position."""
    if not value.strip():
        return "the value is empty."
    try:
        json.loads(value)
    except RecursionError:
        return "the value is nested too deeply."
    except ValueError as error:
        return f"the value is not JSON: {error}."
    return "the value is not JSON: it holds text that is not Unicode."
