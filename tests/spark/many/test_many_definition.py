"""A definition with a table for each topic: names, placeholders, and problems of single topics."""

from pathlib import Path

import pytest

from penstock.spark.pipeline_files import load_pipeline, load_pipelines
from penstock.spark.pipelines import pipeline
from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.many_tables import (
    PIPELINE_CHARACTERS_MAX,
    TopicUnfitError,
    has_many_tables,
    table_of_topic,
)
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.definition.reader import read_definition

PATTERN = r"^shop\.(?P<area>[a-z]+)\.(?P<entity>.+)$"
FILE = """
[pipeline]
name = "shop"
bootstrap_servers = "127.0.0.1:9092"
checkpoint = "/tmp/shop"

[source]
pattern = '^shop\\.(?P<entity>.+)$'

[table]
format = "delta"
name = "shop.{entity}"
catalog = { warehouse = "/tmp/warehouse" }
"""


def definition(
    name: str = "{area}.{entity}", pattern: str = PATTERN, **table: object
) -> PipelineDefinition:
    return read_definition(
        {
            "pipeline": {
                "name": "shop",
                "bootstrap_servers": "127.0.0.1:9092",
                "checkpoint": "/tmp/shop",
            },
            "source": {"pattern": pattern},
            "table": {
                "format": "delta",
                "name": name,
                "catalog": {"warehouse": "/tmp/warehouse"},
                **table,
            },
        },
        "shop.toml",
    )


@pytest.mark.parametrize(
    ("topic", "table"),
    [
        ("shop.eu.orders", "eu.orders"),
        ("shop.eu.orders-2026.v1", "eu.orders_2026_v1"),
        ("shop.eu._x", "eu._x"),
    ],
)
def test_a_topic_has_its_own_pipeline_and_table(topic: str, table: str) -> None:
    found = table_of_topic(definition(), topic)
    assert found.table.name == table
    assert found.table.dlq_name == f"{table}__dlq"
    assert found.pipeline.name == f"shop.{topic}"
    assert found.source.topics == (topic,)
    assert found.source.pattern is None
    assert not has_many_tables(found)


def test_the_whole_topic_is_a_placeholder() -> None:
    found = table_of_topic(definition("lake.{topic}", "^shop"), "shop.eu-1.orders")
    assert found.table.name == "lake.shop_eu_1_orders"


def test_long_topics_have_different_pipelines() -> None:
    topics = [f"shop.eu.{'a' * 200}{end}" for end in "xy"]
    names = [table_of_topic(definition(), one).pipeline.name for one in topics]
    assert len(set(names)) == 2
    assert max(map(len, names)) <= PIPELINE_CHARACTERS_MAX


@pytest.mark.parametrize("topic", ["shop.eu.1st", "other", "shop.eu." + "a" * 249])
def test_a_topic_without_a_good_name_is_a_problem_of_its_own(topic: str) -> None:
    with pytest.raises(TopicUnfitError) as caught:
        table_of_topic(definition(), topic)
    assert topic[:20] in str(caught.value)


@pytest.mark.parametrize(
    ("name", "pattern", "part"),
    [
        ("shop.{entty}", PATTERN, "{entty} is not a named group of the pattern"),
        ("shop.{entity", PATTERN, "cannot be the name of a table"),
        ("shop.x}", PATTERN, "cannot be the name of a table"),
        ("{entity}", PATTERN, "cannot be the name of a table"),
        ("1.{entity}", PATTERN, "cannot be the name of a table"),
        ("shop.{}", PATTERN, "{} is not a named group"),
    ],
)
def test_a_wrong_template_is_refused_by_the_definition(name: str, pattern: str, part: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        definition(name, pattern)
    assert part in str(caught.value)
    assert "table.name" in str(caught.value)


def test_placeholders_need_a_pattern() -> None:
    with pytest.raises(DefinitionError, match="only a pattern of topics"):
        read_definition(
            {
                "pipeline": {
                    "name": "shop",
                    "bootstrap_servers": "127.0.0.1:9092",
                    "checkpoint": "/tmp/shop",
                },
                "source": {"topics": ["orders"]},
                "table": {
                    "format": "delta",
                    "name": "shop.{topic}",
                    "catalog": {"warehouse": "/tmp/warehouse"},
                },
            },
            "shop.toml",
        )


def test_a_path_has_placeholders_too() -> None:
    found = table_of_topic(
        definition(path="/tmp/lake/{area}/{entity}", catalog={}), "shop.eu.orders"
    )
    assert found.table.path == "/tmp/lake/eu/orders"
    with pytest.raises(DefinitionError, match="all tables would be at this place"):
        definition(path="/tmp/lake/orders", catalog={})


def test_metrics_and_lineage_are_for_one_table(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    for line in ("metrics_port = 9400", 'publish_group = "shop"', 'lineage = "file:///tmp/x"'):
        file.write_text(FILE.replace("[source]", f"{line}\n\n[source]"))
        with pytest.raises(DefinitionError, match="for a pipeline with one table"):
            load_pipelines(str(file))


def test_a_file_names_all_tables_or_the_table_of_one_topic(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(FILE)
    assert has_many_tables(load_pipelines(str(file)).definition)
    one = load_pipeline(f"{file}:shop.orders").definition
    assert (one.table.name, one.source.topics) == ("shop.orders", ("shop.orders",))
    with pytest.raises(DefinitionError, match=r"Name the topic: .*shop.toml:TOPIC"):
        load_pipeline(str(file))
    with pytest.raises(TopicUnfitError, match=r"^topic orders, key .* does not match"):
        load_pipeline(f"{file}:orders")
    file.write_text(FILE.replace("shop.{entity}", "shop.orders"))
    with pytest.raises(DefinitionError, match="it has one table"):
        load_pipeline(f"{file}:shop.orders")


def test_a_function_writes_one_table() -> None:
    with pytest.raises(DefinitionError, match="a function writes one table"):
        pipeline(
            name="shop",
            bootstrap_servers="127.0.0.1:9092",
            checkpoint="/tmp/shop",
            source={"pattern": PATTERN},
            table={
                "format": "delta",
                "name": "shop.{entity}",
                "catalog": {"warehouse": "/tmp/warehouse"},
            },
        )(lambda rows: rows)
