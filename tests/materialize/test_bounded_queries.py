"""Hostile queries: they end in time, return bounded results and cannot change or reach anything."""

import os
import sqlite3
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.clock import SystemClock
from penstock.materialize.bounded_queries import (
    BoundedQueries,
    QueryBounds,
    QueryError,
    QueryTimeoutError,
)
from penstock.materialize.row_store import Portion, RowStore
from penstock.records.record import Record

SHORT = QueryBounds(seconds_max=0.15, rows_max=100, bytes_max=1_000_000)
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "x.sqlite"
    store = RowStore.open(path)
    store.begin_topic("price", uuid.UUID(int=1), {0: 0}, ())
    portion = Portion()
    changes = portion.of("price", 1, 0)
    changes.add(Record(b"k%d" % at, b'{"price": %d}' % at, (), 1, at) for at in range(500))
    portion.advance("price", 1, 0, 500)
    store.apply(portion)
    yield path
    store.close()


@pytest.fixture
def queries(path: Path) -> Iterator[BoundedQueries]:
    found = BoundedQueries(path, SystemClock())
    yield found
    found.close()


def test_a_select_returns_rows(queries: BoundedQueries) -> None:
    sql = "SELECT key, json_extract(value, '$.price') FROM price WHERE offset < ? ORDER BY offset"
    result = queries.foreign(sql, [2], SHORT)
    assert result == (["key", "json_extract(value, '$.price')"], [("k0", 0), ("k1", 1)], False)


def test_json_can_be_unfolded_also_after_the_tables_have_changed(
    queries: BoundedQueries, path: Path
) -> None:
    sql = "SELECT one.atom FROM price, {}(price.value) one WHERE one.key = 'price' LIMIT 2"
    for function in ("json_tree", "json_each"):
        assert queries.foreign(sql.format(function), (), SHORT).rows == [(0,), (1,)]
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE another (x)")
        connection.execute("DROP TABLE another")
    connection.close()
    assert len(queries.foreign(sql.format("json_tree"), (), SHORT).rows) == 2
    with pytest.raises(QueryTimeoutError):
        queries.foreign(
            "SELECT count(*) FROM price a, price b, json_tree(a.value), json_tree(b.value)",
            (),
            SHORT,
        )


@pytest.mark.parametrize(
    "sql",
    [
        ENDLESS + "SELECT count(*) FROM n",
        ENDLESS + "SELECT 1 FROM n WHERE i < 0",
        "SELECT count(*) FROM price a, price b, price c, price d",
        "SELECT max(a.value || b.value || c.value) FROM price a, price b, price c",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION SELECT i + 1 FROM n) SELECT max(i) FROM n",
    ],
    ids=["recursion", "recursion without rows", "join", "texts", "recursion with memory"],
)
def test_a_long_query_ends_in_time(queries: BoundedQueries, sql: str) -> None:
    start = time.monotonic()
    with pytest.raises(QueryTimeoutError, match=r"within 0\.15 s"):
        queries.foreign(sql, [], SHORT)
    assert time.monotonic() - start < 5
    assert queries.foreign("SELECT 1", [], SHORT).rows == [(1,)]


def test_a_large_result_is_truncated(queries: BoundedQueries) -> None:
    assert len(queries.foreign("SELECT * FROM price", [], SHORT).rows) == 100
    endless = queries.foreign(ENDLESS + "SELECT i FROM n", [], SHORT)
    assert (len(endless.rows), endless.is_truncated) == (100, True)
    found = queries.foreign("SELECT ? FROM price", ["x" * 300_000], SHORT)
    assert (len(found.rows), found.is_truncated) == (3, True)


@pytest.mark.parametrize(
    "sql",
    [
        "ATTACH DATABASE '/tmp/other.sqlite' AS other",
        "DETACH DATABASE main",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA user_version = 9",
        "PRAGMA query_only = OFF",
        "PRAGMA hard_heap_limit = 1",
        "PRAGMA temp_store_directory = '/tmp'",
        "SELECT load_extension('/tmp/x.so')",
        "VACUUM INTO '/tmp/penstock-stolen.sqlite'",
        "VACUUM",
        "DELETE FROM price",
        "INSERT INTO price (key) VALUES ('x')",
        "UPDATE penstock_positions SET next_offset = 0",
        "DROP TABLE price",
        "CREATE TABLE mine (x)",
        "CREATE TEMP TABLE mine AS SELECT 1",
        "CREATE VIRTUAL TABLE mine USING fts5(x)",
        "BEGIN IMMEDIATE",
        "SAVEPOINT x",
        "REINDEX",
        "ANALYZE",
        "SELECT 1; DELETE FROM price",
        "SELECT zeroblob(1000000000)",
        "SELECT printf('%.*c', 900000000, 'x')",
        "SELECT json_patch(json_group_object(key, 1), json_group_object(value, 1)) FROM price",
        "SELECT format('%.*c', 900000000, 'x')",
        "SELECT replace(group_concat(value), '\"', group_concat(value)) FROM price",
        "SELECT ltrim(value, group_concat(value)) FROM price",
        f"SELECT {'||'.join(['group_concat(value)'] * 40)} FROM price, (SELECT 1 FROM price)",
        "SELECT " + "(" * 500 + "1" + ")" * 500,
        " UNION ALL ".join(["SELECT 1"] * 50),
        "SELECT 1 WHERE 'a' LIKE '" + "%a" * 100 + "'",
        "SELECT \0 1",
        "",
        "-- nothing",
        "not sql",
    ],
)
def test_a_hostile_query_is_rejected(queries: BoundedQueries, path: Path, sql: str) -> None:
    with pytest.raises(QueryError):
        queries.foreign(sql, [], QueryBounds(seconds_max=3))
    assert not os.path.exists("/tmp/penstock-stolen.sqlite")
    check = sqlite3.connect(path)
    assert check.execute("SELECT count(*) FROM price").fetchone() == (500,)
    assert check.execute("PRAGMA user_version").fetchone() == (1,)
    check.close()


@pytest.mark.parametrize("value", [2**70, "\ud800"])
def test_a_parameter_that_does_not_fit_is_rejected(
    queries: BoundedQueries, value: str | int
) -> None:
    with pytest.raises(QueryError):
        queries.foreign("SELECT ?", [value], SHORT)


def test_a_wrong_number_of_parameters_is_rejected(queries: BoundedQueries) -> None:
    with pytest.raises(QueryError):
        queries.foreign("SELECT ?", [], SHORT)


@pytest.mark.parametrize(
    "sql",
    ["SELECT instr(?1, ?2)", "SELECT replace(?1, ?2, 'x')", "SELECT ?1 LIKE '%a%a%a%a%a%ab'"],
)
def test_one_function_call_is_fast_for_any_arguments(queries: BoundedQueries, sql: str) -> None:
    """A function call is one step: SQLite cannot look at the deadline inside of it."""
    start = time.monotonic()
    numbers = ("a" * 4_000_000, "a" * 2_000_000 + "b")
    queries.foreign(sql, numbers[: 2 if "?2" in sql else 1], QueryBounds(seconds_max=3))
    assert time.monotonic() - start < 2


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT instr('abc', 'c'), instr('abc', 'x'), instr(NULL, 'a')", (3, 0, None)),
        ("SELECT instr(x'FF00', x'00'), instr(123, 2)", (2, 2)),
        ("SELECT replace('aXbX', 'X', '--'), replace('a', '', 'b')", ("a--b--", "a")),
        ("SELECT replace(NULL, 'a', 'b'), trim('  a '), trim(NULL, 'x')", (None, "a", None)),
        ("SELECT trim('xxaxx', 'x'), ltrim('xxa', 'x'), rtrim('axx', 'x')", ("a", "a", "a")),
    ],
)
def test_replaced_functions_agree_with_sqlite(
    queries: BoundedQueries, sql: str, expected: tuple[object, ...]
) -> None:
    plain = sqlite3.connect(":memory:")
    assert plain.execute(sql).fetchone() == expected
    plain.close()
    assert queries.foreign(sql, [], SHORT).rows == [expected]


def test_own_queries_end_in_time_too_and_are_read_only(queries: BoundedQueries) -> None:
    with pytest.raises(QueryTimeoutError):
        queries.own(ENDLESS + "SELECT count(*) FROM n", [], SHORT)
    with pytest.raises(QueryError, match="readonly"):
        queries.own("DELETE FROM price", [], SHORT)
