"""JSON values to columns: DuckDB reads what is beyond doubt, `json_rows` decides about the rest.

Guarantees: those of the port; and the result is the one of `json_rows` for every single row, which
a test checks on generated values. Syntax is DuckDB's everywhere, so that a comma before a closing
bracket is let pass. Reasons of rejects name the column and what was found there.

Speed: a batch in which nothing is in doubt passes through vectorised code only. A row in doubt
costs about as much as twenty others: one percent of them costs a fifth of the speed.
"""

import json
from collections.abc import Sequence
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.tables.database import answer_of, new_database, registered
from penstock.spark.tables.values.json_rows import JsonRows
from penstock.spark.tables.values.json_shape import Check, checks, inner_checks, structure
from penstock.spark.tables.values.json_texts import TextReader
from penstock.spark.tables.values.parser import ErrorClass, Parsed, Reject, RowError, short
from penstock.spark.tables.values.row_batches import Row, batch_of, joined, null_rows

_TEXT: Final = pc.CastOptions(target_type=pa.string(), allow_invalid_utf8=True)
"""Not copied and not checked: DuckDB checks what it reads."""


class JsonValues:
    """Reads JSON values of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows = JsonRows(schema)
        self._database = new_database()
        self._texts = TextReader(self._database)
        self._query = _query(schema, "value")
        self._careful_query = _query(schema, "TRY_CAST(value AS JSON)")

    @property
    def schema(self) -> pa.Schema:
        """The columns that were given."""
        return self._schema

    def parse(self, values: pa.Array) -> Parsed:
        """Read each value."""
        texts = pc.cast(values, options=_TEXT)
        columns, is_sure = self._read(texts)
        if pc.all(is_sure, min_count=0).as_py():
            return Parsed(columns, None)
        doubtful = pc.indices_nonzero(pc.invert(is_sure))
        return self._with_doubtful(values, texts, columns, is_sure, doubtful)

    def _read(self, texts: pa.Array) -> tuple[pa.RecordBatch, pa.Array]:
        """The columns as DuckDB reads them, and which rows are beyond doubt."""
        with registered(self._database, "input", pa.table({"value": texts})):
            answer = self._answer()
        if not answer.num_rows:
            empty = [pa.array([], field.type) for field in self._schema]
            return pa.RecordBatch.from_arrays(empty, schema=self._schema), pa.array([], pa.bool_())
        is_sure = pc.fill_null(answer.column("is_sure").chunk(0), fill_value=False)
        parsed = answer.column("parsed").chunk(0)
        columns, doubts = self._texts.columns(parsed, self._schema)
        for doubt in doubts:
            is_sure = pc.and_not(is_sure, doubt)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema), is_sure

    def _answer(self) -> pa.Table:
        try:
            return answer_of(self._database, self._query)
        except (duckdb.InvalidInputException, UnicodeDecodeError):
            # Something is no JSON at all, perhaps not even text for the error to show. It costs
            # one more reading to find out what.
            return answer_of(self._database, self._careful_query)

    def _with_doubtful(
        self,
        values: pa.Array,
        texts: pa.Array,
        columns: pa.RecordBatch,
        is_sure: pa.Array,
        doubtful: pa.Array,
    ) -> Parsed:
        rows, nulls, rejects = self._one_by_one(values, texts, doubtful)
        batch, numbers, refused = batch_of(rows, self._schema)
        empty, null_numbers, null_rejects = null_rows(nulls, self._schema)
        in_order = tuple(sorted([*rejects, *refused, *null_rejects], key=lambda one: one.row))
        sure, places = columns.filter(is_sure), pc.indices_nonzero(is_sure).cast(pa.int64())
        if numbers or null_numbers:
            sure = joined([sure, batch, empty], self._schema)
            places = pa.concat_arrays([places, pa.array(numbers + null_numbers, pa.int64())])
            order = pc.sort_indices(places)
            sure, places = sure.take(order), places.take(order)
        assert sure.num_rows + len(in_order) == len(values), "a row is read or rejected"
        return Parsed(sure, places if in_order else None, in_order)

    def _one_by_one(
        self, values: pa.Array, texts: pa.Array, doubtful: pa.Array
    ) -> tuple[list[Row], list[int], list[Reject]]:
        plain = self._plain(texts.take(doubtful))
        rows: list[Row] = []
        nulls: list[int] = []
        rejects: list[Reject] = []
        for number, text in zip(doubtful.to_pylist(), plain, strict=True):
            value = values[number].as_py() if text is None else b""
            if value is None:
                nulls.append(number)
                continue
            try:
                if text is None:
                    raise RowError(ErrorClass.MALFORMED, _problem(value))
                rows.append(Row(number, self._rows.read(text)))
            except RowError as error:
                rejects.append(Reject(number, error.error, short(error.message)))
        return rows, nulls, rejects

    def _plain(self, texts: pa.Array) -> list[str | None]:
        """Each value as JSON that every reader reads alike; None if it is none."""
        with registered(self._database, "input", pa.table({"value": texts})):
            answer = answer_of(
                self._database, "SELECT json(TRY_CAST(value AS JSON)) AS plain FROM input"
            )
        found: list[str | None] = answer.column("plain").to_pylist()
        return found


def _problem(value: bytes) -> str:
    """Why a value is not JSON, with the place where that is seen."""
    if not value.strip():
        return "the value is empty."
    try:
        json.loads(value)
    except RecursionError:
        return "the value is nested too deeply."
    except ValueError as error:
        return f"the value is not JSON: {error}."
    return "the value is not JSON: it holds text that is not Unicode."


def _query(schema: pa.Schema, document: str) -> str:
    """What is asked about each value; `document` is the value as JSON, in SQL."""
    outer, inner = checks(schema), inner_checks(schema)
    is_askable = all(one.place for one in inner)
    shape = _quoted(json.dumps({field.name: structure(field.type) for field in schema}))
    places = _list(["$", *(one.place for one in outer)])
    asked = [
        f"from_json(document, {shape}) AS parsed",
        f"json_type(document, [{places}]) AS kinds",
    ]
    asked += [
        f"json_type(document, {_quoted(one.place)}) AS inner_{number}"
        for number, one in enumerate(inner if is_askable else [])
    ]
    sure = ["kinds[1] = 'OBJECT'", *_outer_conditions(outer)]
    sure += _inner_conditions(inner) if is_askable else ["false"]
    return (
        f"WITH given AS (SELECT {document} AS document FROM input), "  # noqa: S608 - names are quoted
        f"answered AS (SELECT {', '.join(asked)} FROM given) "
        f"SELECT parsed, {' AND '.join(sure)} AS is_sure FROM answered"
    )


def _outer_conditions(outer: Sequence[Check]) -> list[str]:
    return [
        f"(kinds[{number}] IS NULL OR kinds[{number}] = 'NULL' OR "
        f"(kinds[{number}] IN ({_list(one.types)}) AND {one.result} IS NOT NULL))"
        for number, one in enumerate(outer, 2)
    ]


def _inner_conditions(inner: Sequence[Check]) -> list[str]:
    # A null inside is in doubt anyway, so that it need not be among the types.
    return [
        f"coalesce(list_has_all([{_list(one.types)}], inner_{number}), true)"
        for number, one in enumerate(inner)
    ]


def _list(words: Sequence[str]) -> str:
    return ", ".join(_quoted(word) for word in words)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
