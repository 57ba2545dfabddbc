"""Debezium's events as rows, deletions and rejects: every type, with and without a schema part."""

import base64
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.tables.definition.ddl import parse_ddl
from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.definition.model import ChangeSettings, Decimals, Envelope, TimeUnit
from penstock.spark.tables.values.cdc.carried_columns import CARRIED
from penstock.spark.tables.values.cdc.database_changes import ChangeValues, ReadChanges
from tests.spark.cdc.events import DDL, FIELDS, Record, dumped, event, flat, tombstone

ROW: dict[str, Any] = {
    "id": 1,
    "name": "Ada",
    "amount": Decimal("12.50"),
    "big": 9_007_199_254_740_993,
    "at": datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC).replace(tzinfo=None),
    "seen": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "born": date(1912, 6, 23),
    "doc": '{"a": [1, 2]}',
    "code": "3b241101-e2bb-4255-8caf-4136c566a962",
    "data": b"\x00\xff",
    "tags": [1, None, 3],
    "is_open": True,
}
STORED = {**ROW, "at": ROW["at"].replace(tzinfo=UTC)}
NAIVE = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
DEBEZIUM = ChangeSettings(Envelope.DEBEZIUM)
SEQUENCED = ChangeSettings(Envelope.DEBEZIUM, sequence_by=("source.lsn", "transaction.total_order"))
FLAT = ChangeSettings(Envelope.DEBEZIUM_FLAT, "__deleted", ("__lsn",))


def batch_of(records: Sequence[Record], partition: int = 0) -> pa.RecordBatch:
    """Records as the source gives them."""
    count = len(records)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([one.key for one in records], pa.binary()),
            "value": pa.array([one.value for one in records], pa.binary()),
            "partition": pa.array([partition] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
        }
    )


def read(
    records: Sequence[Record],
    settings: ChangeSettings = DEBEZIUM,
    ddl: str = DDL,
    key: Sequence[str] = ("id",),
) -> ReadChanges:
    return ChangeValues(parse_ddl(ddl), settings, key).read(batch_of(records))


def decimal_of(scale: int) -> dict[str, Any]:
    """A decimal in a schema part."""
    return {
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": str(scale)},
    }


def reasons(found: ReadChanges) -> dict[int, str]:
    return {one.row: one.message for one in found.rows.rejects}


def numbers(found: ReadChanges) -> list[int]:
    assert found.rows.row_numbers is not None
    listed: list[int] = found.rows.row_numbers.to_pylist()
    return listed


def test_every_type_by_the_schema_part() -> None:
    found = read([event("r", ROW), event("u", {**dict.fromkeys(ROW), "id": 2})])
    assert not reasons(found)
    assert found.rows.rows.to_pylist() == [STORED, {**dict.fromkeys(ROW), "id": 2}]


def test_types_by_the_definition_without_a_schema_part() -> None:
    settings = ChangeSettings(
        Envelope.DEBEZIUM, decimals=Decimals.BASE64, time_unit=TimeUnit.MICROSECONDS
    )
    found = read([event("c", ROW, has_schema=False)], settings)
    assert found.rows.rows.to_pylist() == [STORED]


def test_a_decimal_in_base64_is_not_guessed() -> None:
    """`1234` is a number and also base64: without a schema part the definition decides."""
    plain = {"id": 1, "amount": "1234"}
    records = [Record(b'{"id":1}', dumped({"op": "c", "after": plain}))]
    ddl = "id bigint, amount decimal(12,2)"
    assert read(records, ddl=ddl).rows.rows["amount"].to_pylist() == [Decimal("1234.00")]
    settings = ChangeSettings(Envelope.DEBEZIUM, decimals=Decimals.BASE64)
    number = int.from_bytes(base64.b64decode("1234"), "big", signed=True)
    found = read(records, settings, ddl).rows.rows["amount"].to_pylist()
    assert found == [Decimal(number).scaleb(-2)]
    text = [event("c", {"id": 1, "amount": Decimal("-4.20")}, has_schema=False)]
    assert "amount" in reasons(read(text, ddl=ddl))[0]


@pytest.mark.parametrize(
    ("field", "value", "ddl", "stored"),
    [
        (
            {"name": "io.debezium.time.Timestamp"},
            -1,
            "timestamp",
            datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC),
        ),
        (
            {"name": "io.debezium.time.NanoTimestamp"},
            -1,
            "timestamp",
            datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        ),
        (
            {"name": "io.debezium.time.MicroTimestamp"},
            5,
            "timestamp_ntz",
            NAIVE + timedelta(microseconds=5),
        ),
        ({"name": "io.debezium.time.MicroTimestamp"}, 5, "bigint", 5),
        (
            {"name": "io.debezium.time.IsoTimestamp"},
            "2026-01-02T03:04:05.123Z",
            "timestamp_ntz",
            datetime(2026, 1, 2, 3, 4, 5, 123_000, UTC).replace(tzinfo=None),
        ),
        ({"name": "io.debezium.time.IsoDate"}, "2026-01-02Z", "date", date(2026, 1, 2)),
        ({"name": "io.debezium.time.Date"}, -1, "date", date(1969, 12, 31)),
        ({"name": "io.debezium.time.Date"}, 1, "timestamp", datetime(1970, 1, 2, tzinfo=UTC)),
        ({"name": "io.debezium.time.MicroTime"}, 10_800_000_000, "bigint", 10_800_000_000),
        (decimal_of(2), "BOI=", "string", "12.50"),
        (decimal_of(2), "BOI=", "double", 12.5),
        (decimal_of(2), "BOI=", "decimal(20,4)", Decimal("12.5000")),
        (
            {"name": "io.debezium.data.VariableScaleDecimal"},
            {"scale": 3, "value": "BOI="},
            "decimal(10,3)",
            Decimal("1.250"),
        ),
        (
            {"type": "array", "items": {"type": "int32", "name": "io.debezium.time.Date"}},
            [0, None],
            "array<date>",
            [date(1970, 1, 1), None],
        ),
        ({"type": "double"}, 12.5, "decimal(10,2)", Decimal("12.50")),
        ({"type": "string"}, "100.00", "decimal(10,2)", Decimal("100.00")),
    ],
)
def test_a_type_in_its_columns(
    field: dict[str, Any], value: object, ddl: str, stored: object
) -> None:
    fields = [FIELDS[0], {"type": "int64", "optional": True, "field": "it", **field}]
    found = read([event("c", {"id": 1, "it": value}, fields=fields)], ddl=f"id bigint, it {ddl}")
    assert not reasons(found)
    assert found.rows.rows["it"].to_pylist() == [stored]


@pytest.mark.parametrize(
    ("field", "value", "ddl", "reason"),
    [
        (
            {"name": "io.debezium.time.Timestamp"},
            2**62,
            "timestamp",
            "4611686018427387904 ms since 1970 is too large",
        ),
        (decimal_of(2), "B=I", "decimal(10,2)", "it is not base64"),
        (decimal_of(2), "BOI=", "decimal(10,1)", None),
        (decimal_of(3), "BOI=", "decimal(10,2)", None),
        (decimal_of(0), "BOIAAAAA", "int", "does not fit into int"),
        ({"name": "io.debezium.time.IsoDate"}, "2026-13-02Z", "date", "is no date"),
        ({"name": "io.debezium.time.Date"}, 9_999_999, "date", "outside of the years 1 to 9999"),
    ],
)
def test_a_value_that_its_column_cannot_hold(
    field: dict[str, Any], value: object, ddl: str, reason: str | None
) -> None:
    """One bad value costs its own record; a decimal that fits without its last zero is one."""
    fields = [FIELDS[0], {"type": "int64", "optional": True, "field": "it", **field}]
    records = [
        event("c", {"id": number, "it": it}, fields=fields)
        for number, it in ((1, None), (2, value))
    ]
    found = read(records, ddl=f"id bigint, it {ddl}")
    if reason is None:
        assert numbers(found) == [0, 1]
        return
    assert numbers(found) == [0]
    assert reason in reasons(found)[1]


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


def test_dates_that_python_does_not_have_beside_a_bad_one() -> None:
    records = [event("c", {"id": 1, "born": "0000-01-01"}), event("c", {"id": 2, "born": "junk"})]
    plain = [Record(one.key, dumped(json.loads(one.value or b"")["payload"])) for one in records]
    found = read(plain, SEQUENCED, "id bigint, born date")
    assert len(found.rows.rejects) == 2  # the year 0 is a time that no reader shows


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


PARTIAL = [FIELDS[0], FIELDS[1], FIELDS[9], {"field": "nums", "type": "array"}]
PLACEHOLDER = "__debezium_unavailable_value"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("name", PLACEHOLDER),
        ("data", PLACEHOLDER.encode()),
        ("nums", list(PLACEHOLDER.encode())),
        ("hstore", {PLACEHOLDER: PLACEHOLDER}),
        # Columns of texts have any other value as JSON, and bytes as the connector writes them.
        ("name", [PLACEHOLDER]),
        ("name", {PLACEHOLDER: PLACEHOLDER}),
        ("name", list(PLACEHOLDER.encode())),
        ("name", PLACEHOLDER.encode()),
        ("name", PLACEHOLDER.encode().hex()),
    ],
)
def test_an_unchanged_value_that_was_not_sent_is_never_stored(column: str, value: object) -> None:
    """PostgreSQL leaves TOASTed values out; the row before it has the value, the event has not."""
    rows = [{"id": 1, "name": "a"}, {"id": 2, column: value}, {"id": 3, "nums": [1] * 28}]
    ddl = "id bigint, name string, data binary, nums array<int>, hstore map<string,string>"
    found = read([event("u", row, fields=PARTIAL) for row in rows], ddl=ddl)
    assert numbers(found) == [0, 2]
    assert "REPLICA IDENTITY FULL" in reasons(found)[1]
    assert "table.partial_updates = true" in reasons(found)[1]


@pytest.mark.parametrize("ddl", ["bigint", "double", "decimal(10,2)", "date", "timestamp"])
@pytest.mark.parametrize("is_partial", [False, True])
def test_a_placeholder_in_a_number_or_a_time_is_never_stored(ddl: str, is_partial: bool) -> None:
    settings = ChangeSettings(Envelope.DEBEZIUM, is_partial=is_partial)
    record = event("u", {"id": 1, "it": PLACEHOLDER}, has_schema=False)
    found = read([record], settings, f"id bigint, it {ddl}")
    if found.rows.rows.num_rows:  # read as a text, and kept
        assert is_partial
        assert found.rows.rows["it"].to_pylist() == [None]
        assert found.rows.rows[CARRIED].to_pylist() == [{"it": False}]
    else:
        assert "it" in reasons(found)[0]


@pytest.mark.parametrize("is_partial", [False, True])
@pytest.mark.parametrize("has_schema", [False, True])
@pytest.mark.parametrize("kind", ["int", "bigint", "date", "double", "string"])
def test_the_numbers_of_a_placeholder_in_a_list(
    kind: str, has_schema: bool, is_partial: bool
) -> None:
    """Debezium sends them for `int[]`, `bigint[]` and `date[]`: as dates they are of 1970."""
    settings = ChangeSettings(Envelope.DEBEZIUM, is_partial=is_partial)
    items = {"type": "int32", "optional": True}
    if kind == "date":
        items["name"] = "io.debezium.time.Date"
    fields = [FIELDS[0], {"type": "array", "items": items, "optional": True, "field": "it"}]
    row = {"id": 1, "it": list(PLACEHOLDER.encode())}
    record = event("u", row, fields=fields, has_schema=has_schema)
    found = read([record], settings, f"id bigint, it array<{kind}>")
    if is_partial:
        assert found.rows.rows["it"].to_pylist() == [None]
        assert found.rows.rows[CARRIED].to_pylist() == [{"it": False}]
    else:
        assert PLACEHOLDER in reasons(found)[0]


@pytest.mark.parametrize(
    ("value", "carried"),
    [
        (b'{"id": 1}', (False, False)),
        (b'{"id": 1, "name": null}', (True, False)),
        (b'{"id": 1, "big": 1, "other": null}', (False, True)),
        (b'{"id": 1, "big": null, "name": "a"}', (True, True)),
        (b'{"id": 1, "name": null, "name": "b"}', (True, False)),
        (b'{"id": 1, "Name": "a", "na\\u006de": null}', (True, False)),
        (b'{"id": 1, "other": {"name": null}, "text": "\\"big\\": 1"}', (False, False)),
    ],
)
def test_absent_is_not_null(value: bytes, carried: tuple[bool, bool]) -> None:
    settings = ChangeSettings(is_partial=True)
    found = read([Record(b"1", value)], settings, "id bigint, name string, big bigint")
    assert not reasons(found)
    flags = dict(zip(("name", "big"), carried, strict=True))
    assert found.rows.rows[CARRIED].to_pylist() == [flags]


def test_a_look_at_partial_values_shows_their_columns_alone() -> None:
    values = pa.array([b'{"id": 1}', b"bad", None, b'{"id": 2, "name": "a"}'], pa.binary())
    settings = ChangeSettings(is_partial=True)
    parsed = ChangeValues(parse_ddl("id bigint, name string"), settings, ("id",)).parse(values)
    rows = [{"id": 1, "name": None}, {"id": 2, "name": "a"}]
    assert [one for one in parsed.rows.to_pylist() if one["id"] is not None] == rows
    assert parsed.rows.schema.names == ["id", "name"]


def test_values_of_events_that_are_absent_or_not_sent_are_not_carried() -> None:
    settings = ChangeSettings(Envelope.DEBEZIUM, is_partial=True)
    rows: list[dict[str, Any]] = [
        {"id": 1, "name": None, "data": PLACEHOLDER.encode(), "nums": [1]},
        {"id": 2, "name": PLACEHOLDER, "nums": list(PLACEHOLDER.encode())},
        {"id": 3, "name": "a"},
    ]
    ddl = "id bigint, name string, data binary, nums array<int>"
    found = read([event("u", row, fields=PARTIAL) for row in rows], settings, ddl)
    assert not reasons(found)
    flags = [tuple(one.values()) for one in found.rows.rows[CARRIED].to_pylist()]
    assert flags == [(True, False, True), (False, False, False), (True, False, False)]
    values = [tuple(one.values())[1:4] for one in found.rows.rows.to_pylist()]
    assert values == [(None, None, [1]), (None, None, None), ("a", None, None)]


@pytest.mark.parametrize(
    ("op", "row", "ddl"),
    [
        ("c", {"id": 1, "name": PLACEHOLDER}, "id bigint, name string"),
        ("r", {"id": 1, "name": PLACEHOLDER}, "id bigint, name string"),
        ("u", {"id": 1, "name": PLACEHOLDER}, "id bigint, name string NOT NULL"),
        ("u", {"id": PLACEHOLDER, "name": "a"}, "id string, name string"),
    ],
)
def test_a_placeholder_without_a_stored_value_is_a_reject(
    op: str, row: dict[str, Any], ddl: str
) -> None:
    settings = ChangeSettings(Envelope.DEBEZIUM, is_partial=True)
    found = read([event(op, row, has_schema=False)], settings, ddl)
    assert "each column of a new row" in reasons(found)[0]


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


@pytest.mark.parametrize(
    ("scale", "size", "ddl"),
    [(2, 3_000_000, "string"), (100_000, 4, "string"), (2, 900, "double"), (2, 900, "bigint")],
)
def test_a_huge_decimal_costs_no_time_and_is_a_reject(scale: int, size: int, ddl: str) -> None:
    text = base64.b64encode(b"\x7f" * size).decode()
    fields = [FIELDS[0], {"type": "bytes", "field": "it", **decimal_of(scale)}]
    found = read([event("c", {"id": 1, "it": text}, fields=fields)], ddl=f"id bigint, it {ddl}")
    assert list(reasons(found)) == [0]


def test_a_decimal_in_a_text_keeps_every_digit() -> None:
    number = 7 * 10**200 + 3
    text = base64.b64encode(number.to_bytes(100, "big")).decode()
    fields = [FIELDS[0], {"type": "bytes", "field": "it", **decimal_of(2)}]
    found = read([event("c", {"id": 1, "it": text}, fields=fields)], ddl="id bigint, it string")
    assert found.rows.rows["it"].to_pylist() == [f"7{'0' * 198}.03"]


def test_a_decimal_without_a_scale_is_not_guessed() -> None:
    field = {"type": "bytes", "field": "it", "name": "org.apache.kafka.connect.data.Decimal"}
    records = [event("c", {"id": 1, "it": "BOI="}, fields=[FIELDS[0], field])]
    assert "no scale" in reasons(read(records, ddl="id bigint, it decimal(10,2)"))[0]


def test_schemas_that_differ_elsewhere_share_a_reader() -> None:
    """Names of types that Debezium does not have, further fields: no new parser of JSON."""
    values = ChangeValues(parse_ddl("id bigint"), DEBEZIUM, ("id",))
    records = [
        event("c", {"id": 1}, fields=[{**FIELDS[0], "name": f"n{one}"}, *FIELDS[1:one]])
        for one in range(2, 8)
    ]
    assert values.read(batch_of(records)).rows.rows.num_rows == 6
    assert len(values._readers._readers) <= 2
