"""Expectations: counted rule by rule, NULL is kept, and DuckDB and Spark give the same answers."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock.spark.tables.definition.ddl import parse_ddl, to_ddl
from penstock.spark.tables.definition.model import Action, Expectation
from penstock.spark.tables.rules.expectations import ExpectationFailedError
from penstock.spark.tables.rules.sql import (
    ExpectationEvaluator,
    ExpectationSqlError,
    is_in_task,
)
from penstock.spark.tables.run.spark_rules import asked, in_own_session
from penstock.spark.tables.values.parser import ErrorClass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = parse_ddl(
    "id bigint, amount double, name string, ok boolean, price decimal(9,2),"
    " s struct<a:int,b:string>"
)
ROWS = pa.RecordBatch.from_pylist(
    [
        {"id": 1, "amount": 2.5, "name": "Äpfel", "ok": True, "price": Decimal("1.50"),
         "s": {"a": 1, "b": "x"}},
        {"id": 2, "amount": -1.0, "name": "b_%", "ok": False, "price": Decimal("-3.00"), "s": None},
        {"id": None, "amount": None, "name": None, "ok": None, "price": None, "s": None},
        {"id": -9, "amount": float("nan"), "name": "", "ok": True, "price": Decimal(0),
         "s": {"a": None, "b": "it's"}},
        {"id": 2**62, "amount": float("inf"), "name": "abc", "ok": False,
         "price": Decimal("9999999.99"), "s": {"a": -5, "b": ""}},
    ],
    schema=SCHEMA,
)  # fmt: skip
IN_TASK = [
    "amount > 0",
    "amount >= 0.5 AND amount < 3",
    "id = 1 OR name = 'abc'",
    "NOT ok",
    "ok",
    "id IS NOT NULL",
    "name IS NULL",
    "id BETWEEN 1 AND 5",
    "id NOT BETWEEN 1 AND 5",
    "id IN (1, 2, 3)",
    "name NOT IN ('abc', 'x')",
    "name LIKE 'a%'",
    "name NOT LIKE '_b_'",
    "length(name) > 0",
    "lower(name) = 'äpfel'",
    "upper(name) <> 'ABC'",
    "abs(s.a) < 3",
    "s.b = 'it''s'",
    "coalesce(s.a, 0) = 0",
    "price * 2 > 1",
    "price + 1.25 >= 0",
    "id - 1 = 0",
    "-id < 0",
    "amount = amount",
    "amount > 1e3",
    "price < amount",
    "TRUE",
    "id > 0 -- a comment",
    "((id)) != 2",
]
NOT_IN_TASK = [
    "id / 0 > 1",
    "id % 2 = 0",
    "id",
    "NULL",
    "missing > 0",
    "name RLIKE 'a'",
    "regexp_matches(name, 'a')",
    'name = "abc"',
    "`id` = 1",
    r"name = '\n'",
    "id IN (SELECT 1)",
    "EXISTS (SELECT 1)",
    "id = (SELECT max(id) FROM rows)",
    "count(*) > 0",
    "sum(id) OVER () > 0",
    "CAST(name AS int) > 0",
    "name::int > 0",
    "current_timestamp > 0",
    "id > 0) FROM rows WHERE (true",
    "id > 0); DROP TABLE rows; SELECT (1",
    "id > 0, id < 5",
    "id > 0 ORDER BY 1",
    "CASE WHEN id > 0 THEN true END",
    "id > ",
    "",
    "read_text('pyproject.toml') IS NULL",
    "getenv('HOME') = 'x'",
    "id = ?",
    "list_contains([1], id)",
    "name ILIKE 'A%'",
    "name = E'abc'",
    "name = $$abc$$",
    "id = 1_000",
    "id = DATE '2026-01-01'",
    "name LIKE 'a' ESCAPE 'x'",
    "id IS DISTINCT FROM 1",
]


def evaluator(*rules: tuple[str, Action]) -> ExpectationEvaluator:
    return ExpectationEvaluator(
        [Expectation(f"r{number}", sql, action) for number, (sql, action) in enumerate(rules)]
    )


@pytest.mark.parametrize("sql", IN_TASK)
def test_what_a_task_can_evaluate(sql: str) -> None:
    assert is_in_task(sql, SCHEMA)


@pytest.mark.parametrize("sql", NOT_IN_TASK)
def test_what_needs_spark(sql: str) -> None:
    assert not is_in_task(sql, SCHEMA)


def test_rules_are_counted_and_null_is_kept() -> None:
    outcome = evaluator(("amount > 0", Action.WARN), ("id > 0", Action.WARN)).evaluate(ROWS)
    assert outcome.broken == {"r0": 1, "r1": 1}
    assert outcome.kept is None
    assert outcome.quarantined == ()
    assert outcome.failed == ()


def test_drop_and_quarantine_take_rows_out() -> None:
    outcome = evaluator(
        ("amount > 0", Action.DROP), ("id > 0", Action.QUARANTINE), ("ok", Action.QUARANTINE)
    ).evaluate(ROWS)
    assert outcome.kept is not None
    assert outcome.kept.to_pylist() == [0, 2]
    assert [(one.row, one.error) for one in outcome.quarantined] == [
        (1, ErrorClass.EXPECTATION),
        (3, ErrorClass.EXPECTATION),
        (4, ErrorClass.EXPECTATION),
    ]
    assert outcome.quarantined[1].message == "r1: id > 0"
    assert outcome.broken == {"r0": 1, "r1": 1, "r2": 2}


def test_fail_stops_the_batch_and_names_the_rule() -> None:
    rules = [Expectation("positive", "id > 0", Action.FAIL), Expectation("fine", "true")]
    outcome = ExpectationEvaluator(rules).evaluate(ROWS)
    with pytest.raises(ExpectationFailedError, match="'positive': 1 rows break"):
        outcome.require(rules)
    ExpectationEvaluator(rules).evaluate(ROWS.slice(0, 2)).require(rules)


def test_no_rows_and_no_rules() -> None:
    outcome = evaluator(("id > 0", Action.DROP)).evaluate(ROWS.slice(0, 0))
    assert outcome.broken == {"r0": 0}
    assert outcome.kept is None
    assert ExpectationEvaluator([]).evaluate(ROWS).kept is None


@pytest.mark.parametrize(
    ("sql", "broken"),
    [
        ("id * id > 0", []),
        ("id + 1 < 0", [2]),
        ("abs(id) < 0", [0, 2]),
        ("-id > 0", [0, 2]),
        ("NOT id - 1 < 0", []),
        ("id + 1 > 5 AND id < 1", [1, 2]),
        ("id < 1 AND id + 1 > 5", [0, 1, 2]),
        ("id < 0 OR id - 1 > 5", [2]),
        ("NOT (id > 0 OR id + 1 > 0)", [0, 2]),
        ("id BETWEEN 2 AND id + 1", [1, 2]),
    ],
)
def test_a_rule_that_overflows_is_kept_for_its_row_alone(sql: str, broken: list[int]) -> None:
    """As Spark does it, also when the left side of AND or OR decides; twice: rules share parts."""
    rows = pa.RecordBatch.from_pydict({"id": pa.array([2**63 - 1, -(2**63), 1], pa.int64())})
    outcome = evaluator((sql, Action.QUARANTINE), (sql, Action.QUARANTINE)).evaluate(rows)
    assert [one.row for one in outcome.quarantined] == broken


def test_what_two_rules_have_in_common_is_caught_in_each() -> None:
    rows = pa.RecordBatch.from_pydict({"id": pa.array([2**63 - 1, 1], pa.int64())})
    rules = (("id + id > 5", Action.WARN), ("id + id < 100", Action.WARN))
    assert evaluator(*rules).evaluate(rows).broken == {"r0": 1, "r1": 0}


def test_columns_that_have_changed_are_told_when_spark_has_to_be_asked() -> None:
    asked = evaluator(("id > 0", Action.WARN))
    assert asked.evaluate(ROWS).broken == {"r0": 1}
    wider = pa.RecordBatch.from_pydict({"id": pa.array([Decimal(-1)], pa.decimal128(20, 0))})
    assert asked.evaluate(wider).broken == {"r0": 1}
    texts = pa.RecordBatch.from_pydict({"id": ["x"]})
    with pytest.raises(ExpectationSqlError, match="r0 cannot be evaluated: only Spark"):
        asked.evaluate(texts)


@pytest.mark.spark
def test_spark_gives_the_same_answers(spark: SparkSession) -> None:
    rules = [Expectation(f"r{number}", sql) for number, sql in enumerate(IN_TASK)]
    table = pa.Table.from_batches([ROWS])
    frame = spark.createDataFrame(
        [tuple(row.values()) for row in table.to_pylist()], schema=to_ddl(SCHEMA)
    )
    answers = asked(in_own_session(frame), [], rules).collect()
    for number, rule in enumerate(rules):
        spark_broken = [row for row, answer in enumerate(answers) if not answer[number]]
        ours = ExpectationEvaluator([Expectation("r", rule.sql, Action.QUARANTINE)]).evaluate(ROWS)
        assert [one.row for one in ours.quarantined] == spark_broken, rule.sql
