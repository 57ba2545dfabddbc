"""Filters become SQL with parameters, agree with a plain evaluation, and are bounded."""

import json
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidRequestError
from penstock.materialize import table_schema
from penstock.materialize.index_columns import columns_of, parse_index
from penstock.materialize.json_paths import parse_path
from penstock.materialize.row_filters import COMPARISONS_MAX, FilterError, parse_filter

VALUES = {
    "a": '{"price": 5, "name": "tea"}',
    "b": '{"price": 12, "name": "coffee", "tags": ["x", "y"]}',
    "c": '{"price": "12"}',
    "d": "not json",
    "e": '{"price": null, "is_new": true}',
    "f": b"\xff\xfe",
    "tea-1": "1",
}


@pytest.fixture(scope="module", params=["plain", "indexed"])
def table(request: pytest.FixtureRequest) -> tuple[sqlite3.Connection, dict[str, str]]:
    connection = sqlite3.connect(":memory:")
    connection.execute(table_schema.create_table('"t"'))
    columns: dict[str, str] = {}
    if request.param == "indexed":
        for column in columns_of("t", [parse_index("$.price"), parse_index("n=$.name")]):
            columns[column.path.text] = column.name
            for statement in table_schema.add_column("t", '"t"', 1, column):
                connection.execute(statement)
    for number, (key, value) in enumerate(VALUES.items()):
        connection.execute(table_schema.upsert('"t"'), (key, 0, value, number, 100 + number, None))
    return connection, columns


def matching(table: tuple[sqlite3.Connection, dict[str, str]], text: str) -> str:
    connection, columns = table
    condition = parse_filter(text, columns)
    rows = connection.execute(
        f'SELECT "key" FROM "t" WHERE {condition.sql} ORDER BY "key"', condition.parameters
    )
    return " ".join(key for (key,) in rows)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", "a b c d e f tea-1"),
        ("$.price > 10", "b"),
        ("$.price = '12'", "c"),
        ("$.price = null", "d e f tea-1"),
        ("not $.price >= 0", "c d e f tea-1"),
        ("$.price != 5", "b c d e f tea-1"),
        ("$.is_new = true", "e"),
        ("$.tags[1] = 'y'", "b"),
        ('key ^= "tea" or key in ("a", \'d\')', "a d tea-1"),
        ("(offset >= 2 and offset < 4) or timestamp = 105", "c d f"),
        ("$.name ^= 'te' and partition = 0", "a"),
        ("$.price > -1e3 and $.price < 1.5e1", "a b"),
    ],
)
def test_rows_that_match(
    table: tuple[sqlite3.Connection, dict[str, str]], text: str, keys: str
) -> None:
    expected = keys.split()
    assert matching(table, text).split() == sorted(expected)


@pytest.mark.parametrize(
    "text",
    [
        "$.price >",
        "price > 1",
        "$.price 5",
        "key = 'a'; DROP TABLE t",
        "key = 'a",
        "(" * 40 + "key = 'a'" + ")" * 40,
        "not " * 40 + "key = 'a'",
        " or ".join(["key = 'a'"] * (COMPARISONS_MAX + 1)),
        "key = 'a' key = 'b'",
        "$.price < null",
        "key ^= ''",
        'key = "\\ud800"',
        "$ = 1",
        "x" * 5_000,
        "key in ()",
        "5 = key",
    ],
)
def test_other_texts_are_rejected(text: str) -> None:
    with pytest.raises(FilterError):
        parse_filter(text, {})


@given(st.text(alphabet="$.keyandornotin =!<>^()'\",0123456789 \\[]", max_size=80))
def test_any_text_is_a_condition_or_an_error(text: str) -> None:
    try:
        condition = parse_filter(text, {})
    except InvalidRequestError:
        return
    connection = sqlite3.connect(":memory:")
    connection.execute(table_schema.create_table('"t"'))
    connection.execute(f'SELECT 1 FROM "t" WHERE {condition.sql}', condition.parameters)
    connection.close()


@given(st.text(min_size=1, max_size=4), st.text(max_size=6))
def test_prefix_agrees_with_startswith(prefix: str, key: str) -> None:
    try:
        (prefix + key).encode()
    except UnicodeEncodeError:
        return
    condition = parse_filter(f"key ^= {json.dumps(prefix)}", {})
    connection = sqlite3.connect(":memory:")
    connection.execute(table_schema.create_table('"t"'))
    for text in {key, prefix + key}:
        connection.execute(table_schema.upsert('"t"'), (text, 0, "v", 0, 0, None))
    found = connection.execute(
        f'SELECT "key" FROM "t" WHERE {condition.sql}', condition.parameters
    ).fetchall()
    connection.close()
    assert {one for (one,) in found} == {
        one for one in {key, prefix + key} if one.startswith(prefix)
    }


def test_paths_have_a_normal_form_and_quotes_do_no_harm() -> None:
    assert parse_path("$.a").text == parse_path('$."a"').text
    assert parse_path("$.items[01].sku").text == '$."items"[1]."sku"'
    assert parse_path("$.a.b-c").column == "a_b_c"
    assert "'$.\"it''s\"'" in parse_path('$."it\'s"').expression
    for text in ("$", "a", "$.", "$.a b", '$."\\"', "$.a" * 200, "$[-1]"):
        with pytest.raises(InvalidRequestError):
            parse_path(text)


def test_indexes_are_parsed_for_their_topic() -> None:
    options = [parse_index("$.sku"), parse_index("price:code=$.key")]
    assert [one.name for one in columns_of("price", options)] == ["sku", "code"]
    assert [one.name for one in columns_of("stock", options)] == ["sku"]
    for text in ("sku", "a b=$.x", "=$.x"):
        with pytest.raises(InvalidRequestError):
            parse_index(text)
    with pytest.raises(InvalidRequestError, match="two columns 'key'"):
        columns_of("t", [parse_index("$.key")])
    with pytest.raises(InvalidRequestError, match="at most 16"):
        columns_of("t", [parse_index(f"$.c{number}") for number in range(17)])
