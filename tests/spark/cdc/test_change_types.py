"""The types of Debezium's fields in their columns, with and without a schema part."""

import base64
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from penstock.spark.tables.definition.model import ChangeSettings, Decimals, Envelope, TimeUnit
from tests.spark.cdc.events import FIELDS, Record, dumped, event
from tests.spark.cdc.read_changes import (
    ROW,
    SEQUENCED,
    STORED,
    decimal_of,
    numbers,
    read,
    reasons,
)

NAIVE = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)


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


def test_dates_that_python_does_not_have_beside_a_bad_one() -> None:
    records = [event("c", {"id": 1, "born": "0000-01-01"}), event("c", {"id": 2, "born": "junk"})]
    plain = [Record(one.key, dumped(json.loads(one.value or b"")["payload"])) for one in records]
    found = read(plain, SEQUENCED, "id bigint, born date")
    assert len(found.rows.rejects) == 2  # the year 0 is a time that no reader shows


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
