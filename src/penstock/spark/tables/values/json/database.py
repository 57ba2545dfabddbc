"""Converts JSON values to columns by DuckDB, with a flag for each certain row.

Guarantees: a certain row is the result of `json.rows`. The syntax is DuckDB's, so a comma before a
closing bracket is accepted.

It reads any schema, at less than half of the speed of the kernel, and rejects nothing: `json.rows`
reads a row in doubt.
"""

import json
from collections.abc import Sequence
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.tables.values.database import answer_of, new_database, registered
from penstock.spark.tables.values.json.shape import (
    Check,
    checks,
    inner_checks,
    rounded_numbers,
    structure,
)
from penstock.spark.tables.values.json.texts import TextReader

_TEXT: Final = pc.CastOptions(target_type=pa.string(), allow_invalid_utf8=True)
"""The bytes are neither copied nor checked: DuckDB checks its input."""


class DatabaseReader:
    """Reads JSON values of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._database = new_database()
        self._texts = TextReader(self._database)
        self._counted = {
            _count_name(number): one.place for number, one in _counted(inner_checks(schema))
        }
        self._query = _query(schema, "value")
        self._rounded = rounded_numbers(schema)
        self._careful_query = _query(schema, "TRY_CAST(value AS JSON)")

    def read(self, values: pa.Array) -> tuple[pa.RecordBatch, pa.Array]:
        """Return the columns, and the flags of certain rows."""
        texts = pc.cast(values, options=_TEXT)
        with registered(self._database, "input", pa.table({"value": texts})):
            answer = self._answer()
        if not answer.num_rows:
            empty = [pa.array([], field.type) for field in self._schema]
            return pa.RecordBatch.from_arrays(empty, schema=self._schema), pa.array([], pa.bool_())
        is_sure = pc.fill_null(answer.column("is_sure").chunk(0), fill_value=False)
        if self._rounded is not None:
            is_rounded = pc.match_substring_regex(values, self._rounded)
            is_sure = pc.and_not(is_sure, pc.fill_null(is_rounded, fill_value=False))
        parsed = answer.column("parsed").chunk(0)
        counts = {
            place: pc.fill_null(answer.column(name).chunk(0), 0)
            for name, place in self._counted.items()
        }
        columns, doubts = self._texts.columns(parsed, self._schema, counts)
        for doubt in doubts:
            is_sure = pc.and_not(is_sure, doubt)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema), is_sure

    def are_json(self, values: pa.Array) -> pa.Array:
        """Return which values are JSON."""
        texts = pc.cast(values, options=_TEXT)
        with registered(self._database, "input", pa.table({"value": texts})):
            answer = answer_of(
                self._database, "SELECT TRY_CAST(value AS JSON) IS NOT NULL AS found FROM input"
            )
        return answer.column("found").combine_chunks()

    def _answer(self) -> pa.Table:
        try:
            return answer_of(self._database, self._query)
        except (duckdb.InvalidInputException, UnicodeDecodeError):
            # A value is not JSON, and possibly not even text for the error message. A second pass
            # finds it.
            return answer_of(self._database, self._careful_query)


def _query(schema: pa.Schema, document: str) -> str:
    """Return the query for each value; `document` is the value as JSON, in SQL."""
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
    counts = [f", len(inner_{number}) AS {_count_name(number)}" for number, _ in _counted(inner)]
    sure = ["kinds[1] = 'OBJECT'", *_outer_conditions(outer)]
    sure += _inner_conditions(inner) if is_askable else ["false"]
    return (
        f"WITH given AS (SELECT {document} AS document FROM input), "  # noqa: S608 - names are quoted
        f"answered AS (SELECT {', '.join(asked)} FROM given) "
        f"SELECT parsed, {' AND '.join(sure)} AS is_sure{''.join(counts)} FROM answered"
    )


def _counted(inner: Sequence[Check]) -> list[tuple[int, Check]]:
    """Return the counted places, if all of them have a path."""
    is_askable = all(one.place for one in inner)
    return [(number, one) for number, one in enumerate(inner) if one.is_counted and is_askable]


def _count_name(number: int) -> str:
    return f"count_{number}"


def _outer_conditions(outer: Sequence[Check]) -> list[str]:
    return [
        f"(kinds[{number}] IS NULL OR kinds[{number}] = 'NULL' OR "
        f"(kinds[{number}] IN ({_list(one.types)}) AND {one.result} IS NOT NULL))"
        for number, one in enumerate(outer, 2)
    ]


def _inner_conditions(inner: Sequence[Check]) -> list[str]:
    # A null inside is a doubt anyway, so it need not be among the types.
    return [
        f"coalesce(list_has_all([{_list(one.types)}], inner_{number}), true)"
        for number, one in enumerate(inner)
    ]


def _list(words: Sequence[str]) -> str:
    return ", ".join(_quoted(word) for word in words)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
