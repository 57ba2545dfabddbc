"""Debezium's events as rows, deletions and rejects: kinds, keys, orders and schema parts."""

import json
from datetime import date
from decimal import Decimal

import pytest

from penstock.spark.tables.definition.ddl import parse_ddl
from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.definition.model import ChangeSettings, Envelope
from penstock.spark.tables.values.cdc.database_changes import ChangeValues
from tests.spark.cdc.events import DDL, FIELDS, Record, dumped, event, flat, tombstone
from tests.spark.cdc.read_changes import (
    DEBEZIUM,
    FLAT,
    ROW,
    SEQUENCED,
    STORED,
    batch_of,
    numbers,
    read,
    reasons,
)


def test_the_kinds_of_events() -> None:
    gone = event("d", {"id": 4})
    records = [
        event("r", {"id": 1}),
        event("c", {"id": 2}),
        event("u", {"id": 3}),
        gone,
        tombstone(gone),
        event("t", {"id": 5}),
        Record(b'{"id":6}', b'{"id":6}'),
        Record(b'{"id":7}', b'{"op":"u","after":null}'),
        Record(b'{"id":8}', b'{"op":'),
        Record(None, event("c", {"id": 9}).value),
    ]
    found = read(records)
    assert found.rows.rows["id"].to_pylist() == [1, 2, 3]
    assert numbers(found) == [0, 1, 2]
    assert found.deletions.to_pylist() == [{"id": 4}]
    assert found.deletion_numbers.to_pylist() == [3]
    expected = {
        5: "op 't' (TRUNCATE) is not applied",
        6: "no field 'op'",
        7: "op 'u' has no row in 'after'",
        8: "not JSON",
        9: "the record has no key",
    }
    found_reasons = reasons(found)
    assert set(found_reasons) == set(expected)
    assert all(text in found_reasons[row] for row, text in expected.items())


@pytest.mark.parametrize("has_schema", [True, False])
def test_the_key_of_a_deletion_comes_from_the_record(has_schema: bool) -> None:
    """A `before` that is null, as from tables without a replica identity."""
    record = event("d", {"id": 7}, has_schema=has_schema)
    assert record.value is not None
    record = record._replace(value=record.value.replace(b'"before":{"id":7}', b'"before":null'))
    assert b'"before":null' in (record.value or b"")
    assert read([record]).deletions.to_pylist() == [{"id": 7}]


def test_a_key_of_two_columns_and_a_key_of_bytes() -> None:
    ddl = "id bigint, name string"
    record = event("d", {"id": 7}, key={"id": 7, "name": "a"})
    found = read([record], ddl=ddl, key=("name", "id"))
    assert found.deletions.to_pylist() == [{"name": "a", "id": 7}]
    found = read([record], ddl=ddl, key=("_kafka_key",))
    assert found.deletions.to_pylist() == [{"_kafka_key": record.key}]


def test_values_of_several_schemas_keep_their_order() -> None:
    wider = [*FIELDS, {"type": "int32", "optional": True, "field": "more"}]
    records = [
        event(
            "c", {"id": number}, fields=wider if number % 3 else FIELDS, has_schema=number % 4 > 0
        )
        for number in range(24)
    ]
    found = read(records, SEQUENCED)
    assert found.rows.rows["id"].to_pylist() == list(range(24))
    assert numbers(found) == list(range(24))


def test_more_schemas_than_are_searched_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.spark.tables.values.schema_part.SHAPES_MAX", 2)
    records = [
        event("c", ROW | {"id": number}, fields=[*FIELDS, {"type": "int8", "field": f"f{number}"}])
        for number in range(6)
    ]
    found = read(records)
    assert found.rows.rows.to_pylist() == [STORED | {"id": number} for number in range(6)]


def test_a_schema_part_in_another_order_and_with_spaces() -> None:
    value = event("c", ROW).value
    assert value is not None
    document = json.loads(value)
    turned = {"payload": document["payload"], "schema": document["schema"]}
    records = [
        Record(b'{"id":1}', json.dumps(turned, indent=1).encode() + b"\n"),
        Record(b'{"id":1}', value),
    ]
    assert read(records).rows.rows.to_pylist() == [STORED, STORED]


def test_a_row_may_have_a_column_named_schema() -> None:
    settings = ChangeSettings(Envelope.DEBEZIUM_FLAT, "__deleted")
    records = [Record(b"1", b'{"schema":"public","id":1}'), Record(b"1", b'{"payload":"x","id":2}')]
    found = read(records, settings, "id bigint, schema string, payload string")
    assert [tuple(one.values()) for one in found.rows.rows.to_pylist()] == [
        (1, "public", None),
        (2, None, "x"),
    ]


@pytest.mark.parametrize("has_schema", [True, False])
def test_flat_rows(has_schema: bool) -> None:
    settings = FLAT
    ddl = DDL if has_schema else "id bigint, name string"
    rows = [ROW, {"id": 2, "name": "x"}]
    records = [
        flat(rows[0], 10, has_schema=has_schema),
        flat(rows[1], 11, deleted=True, has_schema=has_schema),
        tombstone(flat(rows[1], 11)),
    ]
    found = read(records, settings, ddl)
    expected = STORED if has_schema else {"id": 1, "name": "Ada"}
    assert found.rows.rows.to_pylist() == [{**expected, "_sequence": "b10@a0a0"}]
    assert found.deletions.to_pylist() == [{"id": 2, "_sequence": "b11@a0a1"}]
    assert not reasons(found)


def test_deleted_when_a_column_has_a_value() -> None:
    settings = ChangeSettings(deleted_when="state = 'it''s gone'")
    ddl = "id bigint, state string"
    records = [
        Record(b"1", b'{"id":1,"state":"it\'s gone"}'),
        Record(b"2", b'{"id":2,"state":"new"}'),
        Record(b"3", None),
    ]
    found = read(records, settings, ddl)
    assert found.rows.rows.to_pylist() == [{"id": 2, "state": "new"}]
    assert found.deletions.to_pylist() == [{"id": 1}, {"id": 3}]
    booleans = ChangeSettings(deleted_when="gone = true", sequence_by=("at",))
    records = [
        Record(b"1", b'{"id":1,"gone":true,"at":5}'),
        Record(b"2", b'{"id":2,"gone":false,"at":6}'),
        Record(b"3", None),
        Record(b"4", b'{"id":4}'),
    ]
    found = read(records, booleans, "id bigint, gone boolean, at bigint")
    assert found.rows.rows["id"].to_pylist() == [2]
    assert found.deletions["id"].to_pylist() == [1]
    assert "has no order" in reasons(found)[2]
    assert "has no order" in reasons(found)[3]


@pytest.mark.parametrize("name", ["version", "after.version", "before.version"])
def test_a_column_of_the_row_orders_no_events(name: str) -> None:
    """Its `before` may hold empty values, and then a deletion would be older than its row."""
    settings = ChangeSettings(Envelope.DEBEZIUM, sequence_by=("source.lsn", name))
    with pytest.raises(SchemaError, match="REPLICA IDENTITY FULL"):
        ChangeValues(parse_ddl("id bigint, version int"), settings, ("id",))


def test_a_decimal_with_a_scale_is_a_key() -> None:
    """Arrow compares no structs: one such event stopped every batch."""
    scaled = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "field": "id"}
    fields = [
        {
            **scaled,
            "fields": [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}],
        }
    ]
    one = event("c", {"id": {"scale": 0, "value": "BQ=="}}, fields=fields)
    found = read([one], SEQUENCED, "id decimal(10,0)")
    assert [int(value) for value in found.rows.rows["id"].to_pylist()] == [5]


def test_a_sequence_of_a_field_that_is_not_there() -> None:
    settings = ChangeSettings(Envelope.DEBEZIUM, sequence_by=("lsn",))
    with pytest.raises(SchemaError, match="neither the event nor the row has it"):
        ChangeValues(parse_ddl("id bigint"), settings, ("id",))


def test_a_required_column_without_a_value() -> None:
    found = read([event("c", {"id": 1}), event("c", ROW)], ddl="id bigint, name string NOT NULL")
    assert numbers(found) == [1]
    assert "'after.name' is required" in reasons(found)[0]


def test_a_look_at_values_without_records() -> None:
    """`check` shows the rows of a sample; a deletion is shown by its key."""
    records = [event("c", {"id": 1}), event("x", {"id": 2}), event("d", {"id": 3})]
    values = batch_of(records).column("value")
    parsed = ChangeValues(parse_ddl("id bigint, name string"), SEQUENCED, ("id",)).parse(values)
    assert parsed.rows["id"].to_pylist() == [1, 3]
    assert [one.row for one in parsed.rejects] == [1]


def test_the_key_of_a_deletion_is_not_from_before() -> None:
    """Without REPLICA IDENTITY FULL `before` has empty texts in columns that are not the key."""
    record = event("d", {"id": 7}, before={"id": 7, "name": ""})
    found = read([record], ddl="id bigint, name string", key=("id", "name"))
    assert not found.deletions.num_rows
    assert "'name', a column of the table's key" in reasons(found)[0]


def test_a_key_of_a_date_and_a_decimal_is_read_by_its_schema_part() -> None:
    fields = [FIELDS[6], FIELDS[2]]
    key = {"schema": {"type": "struct", "fields": fields}, "payload": {"born": 1, "amount": "BOI="}}
    record = event("d", {"id": 7})._replace(key=dumped(key))
    ddl = "born date, amount decimal(10,2)"
    found = read([record], ddl=ddl, key=("born", "amount"))
    assert found.deletions.to_pylist() == [{"born": date(1970, 1, 2), "amount": Decimal("12.50")}]


def test_an_update_that_changes_the_key_is_a_reject() -> None:
    """The row of the old key would stay."""
    record = event("u", {"id": 1, "name": "b"}, before={"id": 1, "name": "a"}, fields=FIELDS[:2])
    found = read([record], ddl="id bigint, name string", key=("id", "name"))
    assert "changes a column of the table's key" in reasons(found)[0]


def test_keys_that_are_not_objects() -> None:
    gone = event("d", {"id": 7})
    records = [gone._replace(key=b"7"), gone, gone._replace(key=b"8"), gone._replace(key=b"x")]
    found = read(records)
    assert [one["id"] for one in found.deletions.to_pylist()] == [7, 7, 8]
    assert list(reasons(found)) == [3]


def test_schemas_that_differ_elsewhere_share_a_reader() -> None:
    """Names of types that Debezium does not have, further fields: no new parser of JSON."""
    values = ChangeValues(parse_ddl("id bigint"), DEBEZIUM, ("id",))
    records = [
        event("c", {"id": 1}, fields=[{**FIELDS[0], "name": f"n{one}"}, *FIELDS[1:one]])
        for one in range(2, 8)
    ]
    assert values.read(batch_of(records)).rows.rows.num_rows == 6
    assert len(values._readers._readers) <= 2
