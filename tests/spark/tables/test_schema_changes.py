"""Changes of a schema: added, widened, relaxed, or refused; never narrowed, never dropped."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.tables.definition.ddl import parse_ddl, to_ddl
from penstock.spark.tables.values.columns import fit
from penstock.spark.tables.values.schema_changes import (
    Added,
    Change,
    Incompatible,
    Step,
    Widened,
    change_of,
)


def changed(table: str, rows: str) -> tuple[str, tuple[Step, ...]]:
    change = change_of(parse_ddl(table), parse_ddl(rows))
    assert isinstance(change, Change), change
    return to_ddl(change.schema), change.steps


def refused(table: str, rows: str) -> str:
    change = change_of(parse_ddl(table), parse_ddl(rows))
    assert isinstance(change, Incompatible)
    return " ".join(change.reasons)


def test_the_same_is_nothing() -> None:
    text = "id bigint NOT NULL, s struct<a: int>, l array<string>, m map<string, int>"
    assert changed(text, text) == (text, ())


def test_columns_are_added_nullable_at_the_end() -> None:
    assert changed("a int", "b string NOT NULL, a int") == (
        "a int, b string",
        (Added(("b",), pa.string()),),
    )
    schema, steps = changed("s struct<a: int>", "s struct<a: int, b: struct<c: int NOT NULL>>")
    assert schema == "s struct<a: int, b: struct<c: int>>"
    assert steps == (Added(("s", "b"), pa.struct([("c", pa.int32())])),)


def test_a_required_column_is_never_relaxed() -> None:
    """It was made optional without a word, and its owner's readers met NULLs."""
    for rows in ("b int", "b int, A int"):
        found = change_of(parse_ddl("a int NOT NULL, b int"), parse_ddl(rows))
        assert isinstance(found, Incompatible)
        assert "column 'a' is required in the table" in found.reasons[0]
    inner = change_of(parse_ddl("s struct<a: int NOT NULL>"), parse_ddl("s struct<a: int>"))
    assert isinstance(inner, Incompatible)
    assert "column 's.a'" in inner.reasons[0]


def test_a_dropped_column_stays_and_may_be_null() -> None:
    assert changed("a int, b string", "a int") == ("a int, b string", ())
    assert changed("a int NOT NULL", "a int") == ("a int NOT NULL", ())
    assert changed("a int", "a int NOT NULL") == ("a int", ())


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        ("tinyint", "smallint"),
        ("tinyint", "bigint"),
        ("smallint", "int"),
        ("int", "bigint"),
        ("float", "double"),
        ("decimal(4,2)", "decimal(9,2)"),
    ],
)
def test_numbers_are_widened_and_never_narrowed(narrow: str, wide: str) -> None:
    before, after = parse_ddl(f"a {narrow}").field("a").type, parse_ddl(f"a {wide}").field("a").type
    assert changed(f"a {narrow}", f"a {wide}") == (f"a {wide}", (Widened(("a",), before, after),))
    assert changed(f"a {wide}", f"a {narrow}") == (f"a {wide}", ())


def test_what_is_nested_follows_the_same_rules() -> None:
    schema, steps = changed(
        "l array<struct<a: int>>, m map<string, float>",
        "l array<struct<a: bigint, b: date>>, m map<string, double>",
    )
    assert schema == "l array<struct<a: bigint, b: date>>, m map<string, double>"
    assert steps == (
        Widened(("l", "element", "a"), pa.int32(), pa.int64()),
        Added(("l", "element", "b"), pa.date32()),
        Widened(("m", "value"), pa.float32(), pa.float64()),
    )


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("int", "string"),
        ("string", "int"),
        ("bigint", "double"),
        ("int", "decimal(10,0)"),
        ("decimal(4,2)", "decimal(9,3)"),
        ("date", "timestamp"),
        ("timestamp", "timestamp_ntz"),
        ("int", "struct<a: int>"),
        ("array<int>", "int"),
        ("array<int>", "array<string>"),
        ("map<int, int>", "map<bigint, int>"),
        ("struct<a: int>", "struct<a: string>"),
    ],
)
def test_anything_else_is_refused_with_a_reason(table: str, rows: str) -> None:
    reason = refused(f"c {table}", f"c {rows}")
    assert reason.startswith("column 'c")
    assert "neither holds the other" in reason


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("a int", "a bigint"),
        ("l array<float>", "l array<double>"),
        ("m map<string, struct<a: int>>", "m map<string, struct<a: int, b: int>>"),
        ("l array<map<string, struct<a: int>>>", "l array<map<string, struct<b: int>>>"),
    ],
)
def test_delta_only_adds_and_not_in_maps(table: str, rows: str) -> None:
    assert isinstance(change_of(parse_ddl(table), parse_ddl(rows)), Change)
    change = change_of(parse_ddl(table), parse_ddl(rows), may_widen=False)
    assert isinstance(change, Incompatible)
    assert "Delta" in change.reasons[0]


@pytest.mark.parametrize(
    ("rows", "path"),
    [
        ("a int, `b c` int", "b c"),
        ("a int, s struct<`b=c`: int>", "s.b=c"),
        ("a int, l array<map<string, struct<b: struct<`c;`: int>>>>", "l.b.c;"),
    ],
)
def test_names_that_spark_does_not_take_are_not_added_to_delta(rows: str, path: str) -> None:
    """With such a column Spark refused every ALTER TABLE of the table's owner."""
    change = change_of(parse_ddl("a int"), parse_ddl(rows), may_widen=False)
    assert isinstance(change, Incompatible)
    (reason,) = change.reasons
    assert reason.startswith(f"column '{path}' is not in the table")
    assert "no Spark could change" in reason
    assert change_of(parse_ddl(rows), parse_ddl(rows), may_widen=False) == Change(parse_ddl(rows))
    assert isinstance(change_of(parse_ddl("a int"), parse_ddl(rows)), Change)


def test_a_required_column_of_delta_stays_required() -> None:
    """Rows may lack the value: each that does is a reject."""
    table, rows = parse_ddl("a int NOT NULL, b int NOT NULL"), parse_ddl("a int, b int NOT NULL")
    assert change_of(table, rows, may_widen=False) == Change(table)


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("a int", "a int, b map<string, struct<a: int>>"),
        ("l array<struct<a: int>>", "l array<struct<a: int, value: struct<b: int>>>"),
        ("a bigint", "a int"),
    ],
)
def test_delta_adds_what_is_not_in_maps(table: str, rows: str) -> None:
    change = change_of(parse_ddl(table), parse_ddl(rows), may_widen=False)
    assert change == change_of(parse_ddl(table), parse_ddl(rows))


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("a struct<b: int>", "`a.b` int"),
        ("`a.b` int", "a struct<b: int>"),
        ("l array<int>", "`l.element` int"),
        ("m map<string, int>", "`m.key` int"),
    ],
)
def test_a_name_that_is_the_path_of_another_is_refused_by_iceberg(table: str, rows: str) -> None:
    assert "two columns have the path" in refused(table, rows)
    assert isinstance(change_of(parse_ddl(table), parse_ddl(rows), may_widen=False), Change)


def test_names_that_differ_in_case_are_refused() -> None:
    assert "only in its case" in refused("id int", "ID int")
    assert "only in its case" in refused("a int", "b int, B int".replace("B int", "A int"))


def test_every_reason_is_told() -> None:
    reasons = change_of(parse_ddl("a int, b int"), parse_ddl("a string, b date"))
    assert isinstance(reasons, Incompatible)
    assert len(reasons.reasons) == 2


NAMES = st.sampled_from("abcd")
TYPES = st.recursive(
    st.sampled_from([pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()]),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(
            lambda fields: pa.struct(list(fields.items()))
        ),
    ),
    max_leaves=6,
)
SCHEMAS = st.dictionaries(NAMES, st.tuples(TYPES, st.booleans()), min_size=1, max_size=4).map(
    lambda columns: pa.schema([pa.field(n, k, nullable=o) for n, (k, o) in columns.items()])
)


@given(SCHEMAS, SCHEMAS)
def test_after_a_change_both_fit(table: pa.Schema, rows: pa.Schema) -> None:
    change = change_of(table, rows)
    if isinstance(change, Incompatible):
        return
    again = change_of(change.schema, rows)
    assert isinstance(again, Change)
    assert again.steps == ()
    assert change.schema.names[: len(table)] == table.names
    for schema in (table, rows):
        nothing = pa.RecordBatch.from_arrays(
            [pa.nulls(2, field.type) for field in schema], names=schema.names
        )
        assert fit(nothing, change.schema).schema == change.schema
