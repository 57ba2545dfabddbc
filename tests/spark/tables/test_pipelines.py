"""Decorators give the definition that the same keys in a TOML file give."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any, cast

import pytest

from penstock.spark.pipelines import (
    Pipeline,
    expect,
    expect_or_drop,
    expect_or_fail,
    expect_or_quarantine,
    pipeline,
)
from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.reader import read_definition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILE = """
[pipeline]
name = "orders"
bootstrap_servers = "127.0.0.1:9092"
checkpoint = "/checkpoint"
mode = "dataframe"

[source]
topics = ["orders", "returns"]

[table]
format = "iceberg"
name = "shop.orders"
catalog = { type = "sql", uri = "sqlite:///catalog.db", warehouse = "file:///warehouse" }
partition_by = ["day(_kafka.timestamp)"]

[value]
format = "json"
schema = "id bigint, amount double"

[[expectations]]
name = "one"
sql = "amount > 0"

[[expectations]]
name = "two"
sql = "id > 0"
action = "drop"

[[expectations]]
name = "three"
sql = "id < 9"
action = "quarantine"

[[expectations]]
name = "four"
sql = "id <> 3"
action = "fail"

[trigger]
interval = "5 seconds"

[maintenance]
target_file_mb = 64
"""
LEAST: dict[str, Any] = {
    "name": "orders",
    "bootstrap_servers": "127.0.0.1:9092",
    "checkpoint": "/checkpoint",
    "source": {"topics": ["orders"]},
    "table": {"format": "delta", "name": "shop.orders", "catalog": {"warehouse": "/w"}},
}


def test_both_ways_give_the_same_definition() -> None:
    @pipeline(
        name="orders",
        bootstrap_servers="127.0.0.1:9092",
        checkpoint="/checkpoint",
        source={"topics": ("orders", "returns")},
        table={
            "format": "iceberg",
            "name": "shop.orders",
            "catalog": {
                "type": "sql",
                "uri": "sqlite:///catalog.db",
                "warehouse": "file:///warehouse",
            },
            "partition_by": ["day(_kafka.timestamp)"],
        },
        value={"format": "json", "schema": "id bigint, amount double"},
        trigger={"interval": "5 seconds"},
        maintenance={"target_file_mb": 64},
    )
    @expect("one", "amount > 0")
    @expect_or_drop("two", "id > 0")
    @expect_or_quarantine("three", "id < 9")
    @expect_or_fail("four", "id <> 3")
    def orders(rows: DataFrame) -> DataFrame:
        return rows

    assert isinstance(orders, Pipeline)
    assert orders.definition == read_definition(tomllib.loads(FILE), "orders.toml")
    rows = cast("DataFrame", object())
    assert orders(rows) is rows


def test_what_is_wrong_is_told_with_the_function() -> None:
    with pytest.raises(DefinitionError) as caught:

        @pipeline(**{**LEAST, "source": {"topic": ["orders"]}})
        def orders(rows: DataFrame) -> DataFrame:
            return rows

    assert "orders" in caught.value.where
    assert caught.value.key == "source.topics"


def test_a_function_cannot_run_in_a_task() -> None:
    with pytest.raises(DefinitionError, match="in_task passes by it"):

        @pipeline(**LEAST, mode="in_task")
        def orders(rows: DataFrame) -> DataFrame:
            return rows


def test_an_expectation_above_the_pipeline_is_refused() -> None:
    with pytest.raises(DefinitionError, match="Write it below"):

        @expect("one", "id > 0")
        @pipeline(**LEAST)
        def orders(rows: DataFrame) -> DataFrame:
            return rows
