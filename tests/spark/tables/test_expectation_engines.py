"""Whatever a task may evaluate, Spark gives the same for, over the extremes of every type.

Rules are built from pairs of columns and from columns with literals. Rules that `is_in_task`
rejects are skipped, so a test also names rules that must not be rejected. A part of all these rules
is evaluated, which takes seconds; with `STEP` at 1 it is minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.spark.tables.definition.model import Action, Expectation
from penstock.spark.tables.rules.sql import ExpectationEvaluator, is_in_task
from penstock.spark.tables.rules.sql_types import NotTheSameError
from penstock.spark.tables.rules.translation import translated
from penstock.spark.tables.run.spark_rules import asked, in_own_session
from penstock.spark.tables.values.database import new_database

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

STEP = 13
NAN, INFINITY = float("nan"), float("inf")
TEXTS = [
    "",
    "abc",
    "ABC",
    "Äß",
    "ŉ",
    "İI",
    "ΣΑΣ",
    "e\u0301",
    "a\U0001f642c",
    "%_",
    "'",
    "1",
    "2026",
]
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i8": (pa.int8(), [0, 1, -1, 127, -128]),
    "i16": (pa.int16(), [0, 1, -1, 32_767, -32_768]),
    "i32": (pa.int32(), [0, 1, -7, 2**31 - 1, -(2**31), 16_777_217]),
    "i64": (pa.int64(), [0, 1, -7, 2**63 - 1, -(2**63), 2**53 + 1]),
    "f": (pa.float32(), [0.0, -0.0, 0.1, 16_777_216.0, NAN, INFINITY, -INFINITY, 3.4e38, 1e-45]),
    "d": (pa.float64(), [0.0, -0.0, 0.1, 2.0**53, NAN, INFINITY, -INFINITY, 1.7e308, 5e-324]),
    "p": (pa.decimal128(9, 2), [Decimal("0.10"), Decimal("-0.01"), Decimal("9999999.99")]),
    "q": (pa.decimal128(38, 10), [Decimal("0.1"), Decimal(10) ** 27, -(Decimal(10) ** 27)]),
    "s": (pa.string(), TEXTS),
    "b": (pa.bool_(), [True, False]),
    "day": (pa.date32(), [date(2026, 1, 1), date(1, 1, 1), date(9999, 12, 31)]),
    "ts": (
        pa.timestamp("us", "UTC"),
        [
            datetime(2026, 1, 1, tzinfo=UTC),
            datetime(2026, 1, 1, 2, 30, tzinfo=UTC),
            datetime(2025, 12, 31, 22, tzinfo=UTC),
        ],
    ),
    "local": (pa.timestamp("us"), [datetime(2026, 1, 1), datetime(2026, 7, 1, 5)]),  # noqa: DTZ001
    "bytes": (pa.binary(), [b"", b"abc", b"\xff"]),
}
LITERALS = (
    "0", "1", "-1", "0.1", "16777217", "9007199254740993", "1e3", "-2.50", "9999999.99", "NULL",
    "'abc'", "'2026-01-01'", "'2026-01-01 02:30:00'", "'2026-01-01T00:00:00Z'", "'1'", "TRUE",
)  # fmt: skip
PAIRS = (
    "{0} = {1}", "{0} < {1}", "{0} >= {1}", "{0} + {1} > 1", "{0} - {1} <= {0}", "{0} * {1} <> {0}",
    "coalesce({0}, {1}) = {1}", "{0} BETWEEN {1} AND 5", "{0} NOT IN ({1}, 1, NULL)",
    "{0} IN ({1}, 0.1)", "{0} = {1} AND {0} + {1} > 0", "NOT ({0} > {1} OR {1} + {0} > 0)",
)  # fmt: skip
SINGLE = (
    "abs({0}) > 1", "-{0} < 0", "{0} IS NULL", "length({0}) = 3", "lower({0}) = 'äß'",
    "upper({0}) = 'ÄSS'", "lower({0}) < 'b'", "upper({0}) > 'İ'", "{0} LIKE 'a_c'",
    "{0} NOT LIKE '%b%'", "{0}", "NOT {0}", "{0} OR NULL", "{0} = lower({0})", "abs({0} * 2) > 3",
)  # fmt: skip


def columns() -> pa.Schema:
    return pa.schema([pa.field(name, kind) for name, (kind, _) in COLUMNS.items()])


def rows() -> pa.RecordBatch:
    """Values beside others of the same column and of others; the first row is of nulls."""
    count = 40
    found: list[dict[str, Any]] = [dict.fromkeys(COLUMNS)]
    found += [
        {
            # Columns turn at their own speed, so that each meets each.
            name: [*values, None][(number * (1 + place % 3) + place) % (len(values) + 1)]
            for place, (name, (_, values)) in enumerate(COLUMNS.items())
        }
        for number in range(count)
    ]
    return pa.RecordBatch.from_pylist(found, schema=columns())


def rules() -> list[str]:
    names = list(COLUMNS)
    made = [form.format(one, other) for form in PAIRS for one, other in product(names, names)]
    made += [form.format(one, other) for form in PAIRS for one, other in product(names, LITERALS)]
    made += [
        form.format(other, one) for form in PAIRS[:6] for one, other in product(names, LITERALS)
    ]
    return made + [form.format(one) for form in SINGLE for one in names]


def accepted(sqls: Sequence[str]) -> list[str]:
    """Those that `is_in_task` accepts; to open a database for each takes long."""
    found = []
    with new_database() as database:
        for sql in sqls:
            with suppress(NotTheSameError):
                translated(database, sql, columns())
                found.append(sql)
    return found


@pytest.mark.spark
def test_the_answers_of_spark_are_those_of_a_task(spark: SparkSession, tmp_path: Path) -> None:
    """In a session with another zone and without ANSI mode: neither changes an answer."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    session.conf.set("spark.sql.ansi.enabled", "false")
    given, sqls = rows(), accepted(rules()[::STEP])
    pq.write_table(pa.Table.from_batches([given]), tmp_path / "rows.parquet")
    frame = in_own_session(session.read.parquet(str(tmp_path / "rows.parquet")))
    theirs = asked(frame, [], [Expectation("r", sql) for sql in sqls]).collect()
    here = broken_rows(sqls, given)
    for number, sql in enumerate(sqls):
        there = [row for row, answers in enumerate(theirs) if not answers[number]]
        assert here[number] == there, sql


def broken_rows(sqls: Sequence[str], given: pa.RecordBatch) -> list[list[int]]:
    """By each rule the rows that break it, all asked at once."""
    found: dict[str, list[int]] = {f"r{number}": [] for number in range(len(sqls))}
    asking = ExpectationEvaluator(
        [Expectation(f"r{number}", sql, Action.QUARANTINE) for number, sql in enumerate(sqls)]
    )
    for reject in asking.evaluate(given).quarantined:
        for reason in reject.message.split("; "):
            found[reason.partition(":")[0]].append(reject.row)
    return list(found.values())


def test_no_value_is_the_end_of_a_task() -> None:
    sqls = accepted(rules()[3::STEP])
    assert len(sqls) > 100
    assert any(broken_rows(sqls, rows()))


@pytest.mark.parametrize(
    ("sql", "broken"),
    [
        ("f <= 0.1", [0]),
        ("f = 0.1", [0, 1]),
        ("f >= 16777217", [0, 1]),
        ("p * i32 <= 0", [0]),
        ("upper(s) = 'STRASSE'", [1]),
        ("ts >= '2026-01-01'", [1]),
        ("ts < '2026-01-01 00:00:00'", [0]),
        ("day = '2026-01-01'", [1]),
    ],
)
def test_answers_are_those_of_spark(sql: str, broken: list[int]) -> None:
    given = pa.RecordBatch.from_pylist(
        [
            {"f": 0.1, "p": Decimal("9999999.99"), "i32": 2**31 - 1, "s": "Straße",
             "ts": datetime(2026, 1, 1, 2, tzinfo=UTC), "day": date(2026, 1, 1)},
            {"f": 0.0, "p": Decimal(0), "i32": 1, "s": "x",
             "ts": datetime(2025, 12, 31, 23, tzinfo=UTC), "day": date(2025, 12, 31)},
        ],
        schema=columns(),
    )  # fmt: skip
    assert is_in_task(sql, columns())
    assert broken_rows([sql], given) == [broken]


@pytest.mark.parametrize(
    "sql",
    [
        "s = 1",
        "s IN (1, 2)",
        "s > i64",
        "i64 > 'abc'",
        "b = 'yes'",
        "b = 1",
        "coalesce(i64, s) = 'x'",
        "bytes = 'k'",
        "length(bytes) = 2",
        "abs(s) > 1",
        "ts > 'yesterday'",
        "ts > '2026'",
        "ts > '2026-02-30'",
        "day > '2026-01-01 00:00:00'",
        "local > '2026-01-01'",
        "ts > day",
        "f + f > 0",
        "d < q",
        "q * q > 0",
        "d < 1e400",
        "i64 = 1.0000000000000000000000000000000000000001",
        "i64 < 9223372036854775808",
        "s LIKE s",
        "i64 IN (i32)",
        "i64 AND b",
        "rows.i64 > 0",
    ],
)
def test_what_both_may_read_differently_is_left_to_spark(sql: str) -> None:
    assert not is_in_task(sql, columns())


def test_the_zone_of_the_machine_does_not_matter() -> None:
    """Neither for a database of ours nor for a text that is written in a rule."""
    asking = (
        "from penstock.spark.tables.values.database import new_database;"
        "print(new_database().sql(\"SELECT current_setting('TimeZone'),"
        " epoch(CAST('2026-01-01' AS TIMESTAMPTZ))\").fetchall())"
    )
    given = {**os.environ, "TZ": "America/New_York"}
    answer = subprocess.run(
        [sys.executable, "-c", asking], env=given, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[('UTC', 1767225600.0)]"
