"""Rules asked by Spark SQL: by its defaults and in UTC, whatever the user's session is set to."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.tables.definition.ddl import parse_ddl
from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.model import Action, Expectation, Metadata
from penstock.spark.tables.files.data_files import FileLayout
from penstock.spark.tables.formats.rejects import REJECTS
from penstock.spark.tables.run.dataframe_stage import StageOrder, written_rows
from penstock.spark.tables.run.spark_rules import (
    answer_name,
    asked,
    in_own_session,
    require_rules,
)
from tests.spark.tables.value_world import records

pytestmark = pytest.mark.spark

LAST, FIRST = 2**63 - 1, -(2**63)
ODD = {"spark.sql.ansi.enabled": "false", "spark.sql.session.timeZone": "America/New_York"}


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """One of a user's who has changed what rules depend on."""
    odd = spark.newSession()
    for name, value in ODD.items():
        odd.conf.set(name, value)
    yield odd
    assert {name: odd.conf.get(name) for name in ODD} == ODD


def frame_of(session: SparkSession) -> DataFrame:
    """Rows that Spark compiles its code for, which takes out what expressions have in common."""
    rows = [(LAST, 5, "x", 0), (FIRST, 5, "1", 7_200), (1, 0, "2", -1)]
    spread = session.sparkContext.parallelize(rows, 1)  # else Spark compiles nothing
    frame = session.createDataFrame(spread, "a bigint, b bigint, s string, t bigint")
    return frame.selectExpr("a", "b", "s", "timestamp_seconds(1767225600 + t) AS at")


@pytest.mark.parametrize(
    ("sql", "kept"),
    [
        ("a + b > 0", [True, False, True]),
        ("a + b < 0", [True, True, False]),
        ("abs(a) < 0", [False, True, False]),
        ("-a > 0", [False, True, False]),
        ("CAST(a AS int) = 0", [True, True, False]),
        ("a / b > 1", [True, False, True]),
        ("s = 1", [True, True, False]),
        ("s > 1", [True, False, True]),
        ("b = 5 OR a + b > 0", [True, True, True]),
        ("b = 0 AND a + b > 0", [False, False, True]),
        ("a + b > 0 AND b = 0 -- a comment", [True, False, True]),
        ("NULL", [True, True, True]),
        ("at >= '2026-01-01'", [True, True, False]),
        ("at = timestamp'2026-01-01 00:00:00'", [True, False, False]),
        ("hour(at) = 2", [False, True, False]),
        ("CAST(at AS date) = '2025-12-31'", [False, False, True]),
    ],
)
def test_a_rule_that_cannot_be_evaluated_is_kept_and_zones_do_not_matter(
    session: SparkSession, sql: str, kept: list[bool]
) -> None:
    rules = [Expectation("rule", sql), Expectation("twice", sql)]
    answers = asked(in_own_session(frame_of(session)), [], rules)
    assert [tuple(one) for one in answers.collect()] == [(one, one) for one in kept]


def test_what_two_rules_have_in_common_is_caught_in_each(session: SparkSession) -> None:
    rules = [Expectation("low", "a + b > 0"), Expectation("high", "a + b < 10")]
    answers = asked(in_own_session(frame_of(session)), [], rules)
    found = [tuple(one) for one in answers.collect()]
    assert found == [(True, True), (False, True), (True, True)]


def test_columns_of_the_function_keep_the_meaning_of_its_session(session: SparkSession) -> None:
    frame = frame_of(session).selectExpr("a + b AS sum", "hour(at) AS hour", "at")
    own = in_own_session(frame)
    answers = asked(own, [own["sum"], own["hour"]], [Expectation("rule", "hour = 19")])
    found = [tuple(one) for one in answers.collect()]
    assert found == [(FIRST + 4, 19, True), (FIRST + 5, 21, False), (1, 18, False)]


def test_a_session_of_ours_is_not_theirs(session: SparkSession) -> None:
    own = in_own_session(frame_of(session)).sparkSession
    assert {name: own.conf.get(name) for name in ODD} == ODD
    own.conf.set("spark.sql.ansi.enabled", "true")
    assert session.conf.get("spark.sql.ansi.enabled") == "false"


def test_the_record_is_at_hand_whenever_the_function_keeps_it(
    session: SparkSession, tmp_path: Path
) -> None:
    """So that a time beyond all readers is a reject, without a key and without a rule."""
    source = pa.Table.from_batches([records([{}, {}])])
    names = ["_value" if name == "value" else f"_kafka_{name}" for name in source.column_names]
    renamed = source.rename_columns(names)
    pq.write_table(renamed, tmp_path / "staged.parquet")
    frame = session.read.parquet(str(tmp_path / "staged.parquet"))
    made = frame.selectExpr("*", "timestamp_seconds(_kafka_offset * 300000000000) AS at")
    order = StageOrder(
        FileLayout(str(tmp_path / "rows"), parse_ddl("at timestamp")),
        FileLayout(str(tmp_path / "rejects"), REJECTS),
        (),
        "orders",
        (),
        Metadata.FLAT,
    )
    [report] = written_rows(made, ["at"], order, 100.0)
    assert (report.rows, report.rejects) == (1, 1)


def test_views_and_functions_of_the_session_are_there(session: SparkSession) -> None:
    session.range(3).createOrReplaceTempView("known")
    session.sql("CREATE TEMPORARY FUNCTION twice(n bigint) RETURNS bigint RETURN n * 2")
    rules = [Expectation("rule", "b IN (SELECT id FROM known) AND twice(b) = 0")]
    answers = asked(in_own_session(frame_of(session)), [], rules)
    assert [one[0] for one in answers.collect()] == [False, False, True]


@pytest.mark.parametrize("sql", ["nowhere > 0", "a", "a >", "sum(a) > 0", "none(a)"])
def test_a_rule_that_is_not_understood_is_told_with_the_columns(
    session: SparkSession, sql: str
) -> None:
    with pytest.raises(
        DefinitionError, match=r"expectations\.odd.*columns are a, b, s, at"
    ) as caught:
        require_rules(frame_of(session), [Expectation("odd", sql)], "orders")
    assert sql in str(caught.value)
    require_rules(frame_of(session), [Expectation("fine", "a > 0")], "orders")


def test_a_constraint_is_kept_only_when_it_is_true(session: SparkSession) -> None:
    """An expectation whose answer is NULL is kept; a CHECK of a Delta table is not."""
    frame = in_own_session(session.sql("SELECT * FROM VALUES (1), (-1), (NULL) AS t(a)"))
    check = Expectation("CHECK c", "a > 0", Action.QUARANTINE, is_constraint=True)
    rules = [check, Expectation("rule", "a > 0")]
    answers = asked(frame, [], rules, pa.schema([pa.field("a", pa.int32())]))
    told = answers.select(answer_name(0), answer_name(1)).collect()
    assert [tuple(one) for one in told] == [(True, True), (False, False), (False, True)]


def test_a_constraint_is_asked_about_rows_as_the_table_has_them(session: SparkSession) -> None:
    """As an int the sum overflows; a column that rows do not have is NULL in the table."""
    frame = in_own_session(session.sql("SELECT * FROM VALUES (2000000000) AS t(a)"))
    table = pa.schema([pa.field("a", pa.int64()), pa.field("city", pa.string())])
    rules = [
        Expectation("CHECK a", "a + a > 0", Action.QUARANTINE, is_constraint=True),
        Expectation("CHECK city", "city IS NULL", Action.QUARANTINE, is_constraint=True),
    ]
    (told,) = asked(frame, [], rules, table).collect()
    assert tuple(told) == (True, True)
