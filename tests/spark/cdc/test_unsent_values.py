"""Values that a change does not have: absent columns, and Debezium's placeholder in its forms."""

from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.tables.definition.ddl import parse_ddl
from penstock.spark.tables.definition.model import ChangeSettings, Envelope
from penstock.spark.tables.values.cdc.carried_columns import CARRIED
from penstock.spark.tables.values.cdc.database_changes import ChangeValues
from tests.spark.cdc.events import FIELDS, GEOMETRY, Record, event, geometry
from tests.spark.cdc.read_changes import numbers, read, reasons

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


WKB = PLACEHOLDER.encode()
SHAPE = "struct<wkb: binary, srid: int>"


@pytest.mark.parametrize("is_partial", [False, True])
@pytest.mark.parametrize("has_schema", [False, True])
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (SHAPE, geometry(WKB)),
        (SHAPE, geometry(WKB, None)),
        ("struct<wkb: string, srid: int>", geometry(WKB)),
        ("struct<wkb: string>", {"wkb": PLACEHOLDER}),
        ("string", geometry(WKB)),
        ("map<string,string>", geometry(WKB)),
        (f"struct<center: {SHAPE}, radius: double>", {"center": geometry(WKB), "radius": 1.5}),
        ("struct<tags: array<string>>", {"tags": [PLACEHOLDER]}),
        (f"array<{SHAPE}>", [geometry(WKB)]),
        (f"array<array<{SHAPE}>>", [[geometry(WKB)]]),
        ("array<string>", [geometry(WKB)]),
        ("string", [geometry(WKB)]),
        ("array<binary>", [geometry(WKB)["wkb"]]),
        ("array<string>", [geometry(WKB)["wkb"]]),
        ("string", [geometry(WKB)["wkb"]]),
    ],
)
def test_a_placeholder_inside_a_value(
    kind: str, value: object, has_schema: bool, is_partial: bool
) -> None:
    """Debezium sends the field `wkb` of a geometry as a placeholder, and its other fields."""
    settings = ChangeSettings(Envelope.DEBEZIUM, is_partial=is_partial)
    rows: list[dict[str, Any]] = [{"id": 1, "shape": None}, {"id": 2, "shape": value}]
    records = [event("u", row, fields=[FIELDS[0], GEOMETRY], has_schema=has_schema) for row in rows]
    found = read(records, settings, f"id bigint, shape {kind}")
    if is_partial:
        assert found.rows.rows["shape"].to_pylist() == [None, None]
        assert found.rows.rows[CARRIED].to_pylist() == [{"shape": True}, {"shape": False}]
    else:
        assert numbers(found) == [0]
        assert "REPLICA IDENTITY FULL" in reasons(found)[1]


@pytest.mark.parametrize("is_partial", [False, True])
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (SHAPE, geometry(WKB[:-1])),
        (SHAPE, geometry(WKB + b"x")),
        (SHAPE, {"wkb": None, "srid": 4326}),
        (f"array<{SHAPE}>", [geometry(WKB), geometry(b"x")]),
        ("array<string>", [PLACEHOLDER, "x"]),
        ("string", {"event": {"after": {"shape": geometry(WKB)}}}),
        ("string", f'{{"wkb":"{geometry(WKB)["wkb"]}"'),
        ("map<string,string>", {"note": PLACEHOLDER}),
        ("map<string,string>", {PLACEHOLDER: PLACEHOLDER, "note": "x"}),
    ],
)
def test_a_value_with_a_part_of_a_placeholder_is_stored(
    kind: str, value: object, is_partial: bool
) -> None:
    settings = ChangeSettings(Envelope.DEBEZIUM, is_partial=is_partial)
    record = event("u", {"id": 1, "shape": value}, has_schema=False)
    found = read([record], settings, f"id bigint, shape {kind}")
    assert not reasons(found)
    [stored] = found.rows.rows["shape"].to_pylist()
    assert stored is not None
    if is_partial:
        assert found.rows.rows[CARRIED].to_pylist() == [{"shape": True}]


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
        ("c", {"id": 1, "it": geometry(WKB)}, f"id bigint, it {SHAPE}"),
        ("u", {"id": 1, "it": geometry(WKB)}, f"id bigint, it {SHAPE} NOT NULL"),
    ],
)
def test_a_placeholder_without_a_stored_value_is_a_reject(
    op: str, row: dict[str, Any], ddl: str
) -> None:
    settings = ChangeSettings(Envelope.DEBEZIUM, is_partial=True)
    found = read([event(op, row, has_schema=False)], settings, ddl)
    assert "each column of a new row" in reasons(found)[0]
