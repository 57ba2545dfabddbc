"""The examples run as printed, and their output is the documented one.

Only the address of the broker is replaced. They find the session of the tests, and write below the
folder of the test.
"""

from __future__ import annotations

import runpy
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.oracle.running_broker import RunningBroker
from tests.spark.conftest import BrokerNamed
from tests.spark.topics import create_topic

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "spark"
ADDRESS = "localhost:9092"
PARTITIONS = 2

Example = Callable[..., dict[str, Any]]


@pytest.fixture
def penstock(broker_named: BrokerNamed) -> RunningBroker:
    return broker_named("penstock")


@pytest.fixture
def example(
    spark: SparkSession,
    penstock: RunningBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Example]:
    """Run an example; its names and values come back."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = "spark.sql.streaming.stateStore.providerClass"

    def run(name: str, *topics: str) -> dict[str, Any]:
        for topic in topics:
            create_topic(penstock.bootstrap, topic, partitions=PARTITIONS)
        text = (EXAMPLES / f"{name}.py").read_text()
        assert ADDRESS in text
        program = tmp_path / f"{name}.py"
        program.write_text(text.replace(ADDRESS, penstock.bootstrap))
        # As the main program: classes of that are sent to the workers by value.
        return runpy.run_path(str(program), run_name="__main__")

    yield run
    spark.conf.unset(store)


def clock(column: str) -> Column:
    """Hours and minutes of a time, in the session's zone."""
    from pyspark.sql import functions as f

    return f.date_format(column, "HH:mm").alias(column)


def test_every_example_is_tested() -> None:
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {path.stem for path in EXAMPLES.glob("*.py")} <= tested


def test_read_topic(example: Example) -> None:
    shown = example("read_topic", "orders")
    frame = shown["frame"].sort_values("customer")
    assert list(frame["customer"]) == [f"customer-{number}" for number in range(7)]
    assert frame["orders"].sum() == 1_000
    assert frame["amount"].sum() == sum(number % 90 + 10 for number in range(1_000))
    assert shown["recent"].count() == 1_000


def test_stream_to_parquet(
    example: Example, penstock: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = example("stream_to_parquet", "events")
    ids = sorted(row.id for row in shown["table"].collect())
    assert ids == list(range(1_500))  # each once, over two runs of the query
    lines = capsys.readouterr().err
    assert "events-to-parquet  batch 0" in lines
    assert "events-to-parquet  stopped after" in lines
    from tests.spark.progress.test_listener import group_lag

    (group,) = group_lag(penstock.bootstrap, "spark-events-to-parquet")["groups"]
    assert group["lag"] == 0
    assert sum(one["committed"] for one in group["offsets"]) == 1_500


def test_sessionize_clicks(example: Example) -> None:
    shown = example("sessionize_clicks", "clicks")
    rows = shown["table"].select("user", "clicks", clock("begin"), clock("end")).collect()
    visits = sorted((row.user, row.begin, row.end, row.clicks) for row in rows)
    assert visits == [
        ("ada", "09:00", "09:25", 3),
        ("ada", "10:30", "10:30", 1),
        ("bob", "09:12", "09:12", 1),
        ("bob", "10:35", "10:35", 1),
    ]


@pytest.mark.every_spark
def test_windowed_totals(example: Example) -> None:
    shown = example("windowed_totals", "sales", "sales-by-minute")
    rows = shown["table"].select("shop", "amount", "sales", clock("start")).collect()
    totals = sorted((row.start, row.shop, row.amount, row.sales) for row in rows)
    # The last sale is at 9:09:59, so the watermark is at 9:07:59: minutes 0 to 6 are final.
    assert totals == [
        (f"09:0{minute}", shop, 150, 30) for minute in range(7) for shop in ("shop-0", "shop-1")
    ]


@pytest.mark.timeout(600)  # two queries with state
def test_totals_into_table(example: Example, spark: SparkSession) -> None:
    from penstock.spark.tables.run.table_pipeline import TablePipeline

    shown = example("totals_into_table", "minute-sales")
    rows = DeltaTable(f"{shown['folder']}/warehouse/shop/sales_by_minute").to_pyarrow_table()
    found = sorted((row["minute"].minute, row["shop"], row["sales"]) for row in rows.to_pylist())
    assert found == [(minute, shop, 30) for minute in range(7) for shop in ("shop-0", "shop-1")]
    pipeline = TablePipeline(shown["totals"].definition, transform=shown["totals"].transform)
    with pipeline.start(spark, once=True) as running:  # nothing new: nothing is doubled
        running.await_end()
    table = DeltaTable(f"{shown['folder']}/warehouse/shop/sales_by_minute")
    assert table.to_pyarrow_table().num_rows == len(found)


def test_join_streams(example: Example) -> None:
    shown = example("join_streams", "ad-views", "ad-clicks")
    rows = sorted((row.ad, row.clicked is not None) for row in shown["table"].collect())
    assert rows == [(1, True), (2, False), (3, False)]


def test_latest_state(example: Example, spark: SparkSession) -> None:
    shown = example("latest_state", "customer-changes")
    assert shown["customers"] == [(1, "Ada", "Turin"), (3, "Eve", "Bergen")]
    # A change that is older than the row does nothing, as its words say.
    old = spark.createDataFrame(
        [(1, 0, ("c", ("Ada", "London")))],
        "id LONG, offset LONG, change STRUCT<op STRING, after STRUCT<name STRING, city STRING>>",
    )
    shown["upsert"](old, 0)
    with closing(sqlite3.connect(shown["database"])) as connection:
        (city,) = connection.execute("SELECT city FROM customers WHERE id = 1").fetchone()
    assert city == "Turin"
