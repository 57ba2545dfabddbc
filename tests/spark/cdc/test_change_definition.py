"""Definitions of changes: what they set, and combinations that are refused with a remedy."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.tables.definition.change_definition import deletion_field
from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.model import (
    ChangeSettings,
    Envelope,
    Expectation,
    PipelineDefinition,
)
from penstock.spark.tables.rules.planner import choose_mode
from penstock.spark.tables.run.replay import ReplayRefusedError, require_possible
from tests.spark.tables.pipeline_world import World

UPSERT = {"mode": "upsert", "key": ["id"]}
JSON = {"format": "json", "schema": "id bigint, state string"}
PARTIAL = {**UPSERT, "partial_updates": True}
RAW = {**PARTIAL, "key": ["_kafka_key"], "metadata": "flat"}
DEBEZIUM = {**JSON, "envelope": "debezium"}


def read(value: dict[str, Any], table: dict[str, Any] | None = None) -> PipelineDefinition:
    world = World(Path("/tmp"), "delta", "127.0.0.1:1", "orders")
    return world.definition(value=value, table=UPSERT if table is None else table)


FLAT = {**JSON, "envelope": "debezium_flat"}


def test_defaults_are_rows() -> None:
    assert read(JSON).value.changes == ChangeSettings()
    assert read(JSON).value.changes.is_plain


def test_flat_rows_have_a_field_for_deletions() -> None:
    changes = read({**JSON, "envelope": "debezium_flat", "sequence_by": "__lsn"}).value.changes
    assert changes == ChangeSettings(Envelope.DEBEZIUM_FLAT, "__deleted", ("__lsn",))


def test_a_history_is_known_to_the_values() -> None:
    table = {**UPSERT, "history": True}
    found = read({**DEBEZIUM, "sequence_by": ["source.lsn"]}, table)
    assert found.table.history
    assert found.value.changes.has_history
    assert not read(DEBEZIUM).value.changes.has_history


@pytest.mark.parametrize(
    ("value", "fields", "remedy"),
    [
        (DEBEZIUM, ["source.lsn", "transaction.total_order"], '["source.lsn"]'),
        (DEBEZIUM, ["transaction.total_order", "source.lsn"], '["source.lsn"]'),
        (DEBEZIUM, ["source.lsn", "transaction.data_collection_order"], '["source.lsn"]'),
        (DEBEZIUM, ["source.txId", "transaction.total_order"], '["source.lsn"]'),
        (DEBEZIUM, ["source.sequence", "transaction.total_order"], '["source.lsn"]'),
        (DEBEZIUM, ["source.lsn", "ts_ms"], '["source.lsn"]'),
        (DEBEZIUM, ["ts_ns"], '["source.lsn"]'),
        (FLAT, ["__lsn", "__transaction_total_order"], '"__lsn"'),
        (FLAT, ["__source_lsn", "__transaction_data_collection_order"], '"__lsn"'),
        (FLAT, ["__lsn", "__ts_ms"], '"__lsn"'),
        (FLAT, ["lsn", "transaction_total_order"], '"__lsn"'),
        (FLAT, ["__transaction_total_order"], '"__lsn"'),
        (DEBEZIUM, ["transaction.total_order"], '["source.lsn"]'),
        (DEBEZIUM, ["transaction.id", "transaction.total_order"], '["source.lsn"]'),
        (DEBEZIUM, ["source.ts_ms", "transaction.total_order"], '["source.lsn"]'),
        (DEBEZIUM, ["source.commit_lsn", "transaction.total_order"], '["source.lsn"]'),
        (DEBEZIUM, ["source.lsn", "source.txId"], '["source.lsn"]'),
        (FLAT, ["__source_txId"], '"__lsn"'),
    ],
)
def test_fields_that_differ_when_an_event_is_sent_again_order_no_history(
    value: dict[str, Any], fields: list[str], remedy: str
) -> None:
    with pytest.raises(DefinitionError) as caught:
        read({**value, "sequence_by": fields}, {**UPSERT, "history": True})
    assert "value.sequence_by" in str(caught.value)
    assert f"Write sequence_by = {remedy}" in str(caught.value)
    assert read({**value, "sequence_by": fields}).value.changes.sequence_by == tuple(fields)


def test_times_of_the_database_and_columns_order_a_history() -> None:
    table = {**UPSERT, "history": True}
    assert read({**FLAT, "sequence_by": ["__lsn", "__source_ts_ms"]}, table).table.history
    assert read({**DEBEZIUM, "sequence_by": ["source.lsn", "source.ts_ms"]}, table).table.history
    assert read({**JSON, "sequence_by": ["ts_ms"]}, table).table.history
    assert read({**FLAT, "sequence_by": ["ts_ms"]}, table).table.history
    serial = ["source.commit_lsn", "source.change_lsn", "source.event_serial_no"]
    assert read({**DEBEZIUM, "sequence_by": serial}, table).table.history


def test_the_order_in_a_transaction_is_for_rows() -> None:
    both = ["source.lsn", "transaction.total_order"]
    assert read({**DEBEZIUM, "sequence_by": both}).value.changes.sequence_by == tuple(both)


def test_partial_updates_are_known_to_the_values() -> None:
    table = {**UPSERT, "partial_updates": True}
    found = read(JSON, table)
    assert found.table.partial_updates
    assert found.value.changes == ChangeSettings(is_partial=True)
    assert not found.value.changes.is_plain
    assert read(DEBEZIUM, table).value.changes.is_partial


@pytest.mark.parametrize(
    ("sections", "key", "remedy"),
    [
        ({"table": {"partial_updates": True}}, "table.partial_updates", 'mode = "upsert"'),
        (
            {"table": {**PARTIAL, "history": True}, "value": {**JSON, "sequence_by": "id"}},
            "table.partial_updates",
            "history",
        ),
        ({"value": {"format": "raw"}, "table": RAW}, "table.partial_updates", "only in JSON"),
        ({"value": {"format": "json"}}, "table.partial_updates", "schema ="),
        (
            {"value": {"format": "avro", "schema": "a.avsc"}},
            "table.partial_updates",
            'format = "json"',
        ),
        (
            {"value": {**JSON, "schema": "http://registry:8081"}},
            "table.partial_updates",
            "without a registry",
        ),
        ({"value": {**JSON, "unknown_fields": "rescue"}}, "value.unknown_fields", "Remove it"),
        ({"expectations": [{"name": "a", "sql": "id > 0"}]}, "expectations", "whole row"),
        ({"pipeline": {"mode": "dataframe"}}, "pipeline.mode", "Spark SQL"),
    ],
)
def test_partial_updates_that_cannot_be_are_refused(
    sections: dict[str, Any], key: str, remedy: str
) -> None:
    world = World(Path("/tmp"), "delta", "127.0.0.1:1", "orders")
    with pytest.raises(DefinitionError) as caught:
        world.definition(**{"value": JSON, "table": PARTIAL, **sections})
    assert key in str(caught.value)
    assert remedy in str(caught.value)


def test_functions_and_constraints_are_refused_for_partial_updates() -> None:
    found = read(JSON, PARTIAL)
    columns = pa.schema([("id", pa.int64())])
    with pytest.raises(DefinitionError, match="a function gets whole rows"):
        choose_mode(found, has_transform=True, columns=columns)
    rule = Expectation("CHECK big", "id > 0", is_constraint=True)
    with pytest.raises(DefinitionError, match="the constraint 'CHECK big'"):
        choose_mode(found, has_transform=False, columns=columns, constraints=[rule])


def test_a_replay_of_partial_changes_is_refused() -> None:
    with pytest.raises(ReplayRefusedError, match="takes partial updates"):
        require_possible(read({**JSON, "sequence_by": "id"}, PARTIAL))


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("__deleted", "__deleted", "true"),
        ("state = 'it''s gone'", "state", "it's gone"),
        ("a.b=false", "a.b", "false"),
    ],
)
def test_the_field_of_deletions(text: str, field: str, value: str) -> None:
    assert deletion_field(text) == (field, value)


@pytest.mark.parametrize(
    ("value", "table", "key", "remedy"),
    [
        ({**DEBEZIUM, "format": "avro", "schema": "a.avsc"}, UPSERT, "value.envelope", "only JSON"),
        ({**DEBEZIUM, "schema": "http://registry:8081"}, UPSERT, "value.envelope", "registry"),
        ({"format": "json", "envelope": "debezium"}, UPSERT, "value.envelope", "columns"),
        ({**DEBEZIUM, "unknown_fields": "rescue"}, UPSERT, "value.unknown_fields", "together"),
        ({**DEBEZIUM, "deleted_when": "x"}, UPSERT, "value.deleted_when", "its own op"),
        ({**JSON, "deleted_when": "x is null"}, UPSERT, "value.deleted_when", "cannot be read"),
        ({**JSON, "time_unit": "ms"}, UPSERT, "value.time_unit", "only events of Debezium"),
        ({**JSON, "decimals": "base64"}, UPSERT, "value.decimals", "only events of Debezium"),
        ({**JSON, "sequence_by": ["a"] * 4 + ["b"]}, UPSERT, "value.sequence_by", "twice"),
        ({**JSON, "sequence_by": list("abcde")}, UPSERT, "value.sequence_by", "At most 4"),
        ({**JSON, "sequence_by": "a b"}, UPSERT, "value.sequence_by", "cannot be a field"),
        (DEBEZIUM, {}, "value.envelope", 'mode = "upsert"'),
        ({**JSON, "sequence_by": "id"}, {}, "value.sequence_by", 'mode = "upsert"'),
        ({**JSON, "deleted_when": "state"}, {}, "value.deleted_when", 'mode = "upsert"'),
        (DEBEZIUM, {**UPSERT, "history": True}, "table.history", "sequence_by"),
        (JSON, {"history": True}, "table.history", "sequence_by"),
        (FLAT, {**UPSERT, "history": True}, "table.history", 'sequence_by = "__lsn"'),
        (JSON, {**UPSERT, "history": True}, "table.history", "a column of the value"),
    ],
)
def test_what_cannot_be_is_refused(
    value: dict[str, Any], table: dict[str, Any], key: str, remedy: str
) -> None:
    with pytest.raises(DefinitionError) as caught:
        read(value, table)
    assert key in str(caught.value)
    assert remedy in str(caught.value)
