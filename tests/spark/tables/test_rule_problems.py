"""Rules that even Spark cannot evaluate are reported; rules for Spark alone are left to Spark."""

import pyarrow as pa
import pytest

from penstock.spark.tables.rules.rule_problems import rule_problem

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("amount", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("ok", pa.bool_()),
        ("s", pa.struct([("a", pa.int64()), ("at", pa.int64())])),
    ]
)


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("amount >", "it ends after '>'"),
        ("amount between 1 and", "it ends after 'and'"),
        ("id in (1, 2", "a '(' is not closed"),
        ("amount > 0)", "a ')' has no '('"),
        ("amunt > 0", "no column 'amunt'; did you mean 'amount'"),
        ("lower(nowhere) = 'x'", "no column 'nowhere'"),
        ("x.amount > 1", "no column 'x'"),
        ("amount + 1", "not true or false"),
        ("id", "not true or false"),
        ("'x'", "not true or false"),
        ("id id id", "cannot be read"),
        ("tags is nt null", "cannot be read"),
        ("amount > 0; drop table x", "cannot be read"),
    ],
)
def test_what_nobody_can_evaluate(sql: str, problem: str) -> None:
    assert problem in str(rule_problem(sql, COLUMNS))


@pytest.mark.parametrize(
    "sql",
    [
        "amount > 0",
        "AMOUNT > .5 and not ok",
        "ok",
        "s.at = 1",
        "at >= '2026-01-01'",  # a word of DuckDB's grammar, and a column here
        "at > current_timestamp",
        "to_date(at) > date'2026-01-01'",
        "at < timestamp '2026-01-01 00:00:00'",
        "at + interval '1' day > now()",
        "year(at) = 2026",
        "extract(year from at) = 2026",
        "timestampdiff(HOUR, at, current_date) > 0",
        "amount rlike 'x'",
        "amount <=> 1",
        "id div 2 = 1",
        "amount = 1L",
        "`amount` > 0",
        'id = "x"',
        "exists(tags, x -> x = 'a')",
        "tags[0] = 'a'",
        "size(tags) between 1 and 3",
        "case when id > 0 then true else false end",
        "cast(id as string) = '1'",
        "id = 1 and 'it''s (' = 'x'",
        "amount > 0 -- not closed: (",
    ],
)
def test_what_spark_may_evaluate_is_left_to_it(sql: str) -> None:
    assert rule_problem(sql, COLUMNS) is None


def test_columns_that_a_function_makes_are_not_missed() -> None:
    assert rule_problem("cents > 0", None) is None
    assert rule_problem("cents >", None) is not None
