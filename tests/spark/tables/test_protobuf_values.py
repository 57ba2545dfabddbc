"""Protobuf values: types, presence, framing, and bad records that cost only themselves."""

import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from penstock.spark.tables.definition.ddl import to_ddl
from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.values.framing import message_indexes
from penstock.spark.tables.values.parser import ErrorClass, RowError
from penstock.spark.tables.values.protobuf.compiler import compile_proto
from penstock.spark.tables.values.protobuf.values import (
    protobuf_file_values,
    protobuf_registry_values,
)
from penstock.spark.tables.values.registry import RegisteredSchema

ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "common/money.proto";
message Order {
  enum State { NEW = 0; PAID = 1; }
  message Line { string product = 1; int32 count = 2; }
  int64 id = 1;
  optional int32 discount = 2;
  State state = 3;
  repeated Line lines = 4;
  map<string, int64> labels = 5;
  google.protobuf.Timestamp at = 6;
  uint64 big = 7;
  uint32 medium = 8;
  bytes data = 9;
  oneof pay { string card = 10; bool cash = 11; }
  Money price = 12;
  float rate = 13;
}
message Other { int32 a = 1; }
"""
MONEY = """
syntax = "proto3";
package shop;
message Money { string currency = 1; sint64 cents = 2; }
"""
FILES = {"shop/order.proto": ORDER, "common/money.proto": MONEY}


def message_class(
    name: str, texts: dict[str, str] | None = None, main: str = ""
) -> Callable[..., Any]:
    pool = DescriptorPool()
    for file in compile_proto(texts or FILES, main or "shop/order.proto", "w").file:
        pool.Add(file)
    found: Callable[..., Any] = GetMessageClass(pool.FindMessageTypeByName(name))
    return found


def test_types_and_values() -> None:
    parser = protobuf_file_values(FILES, "shop/order.proto", "shop.Order", "order.proto")
    assert to_ddl(parser.schema) == (
        "id bigint, discount int, state string, lines array<struct<product: string, count: int>>, "
        "labels map<string, bigint>, at timestamp, big decimal(20,0), medium bigint, data binary, "
        "card string, cash boolean, price struct<currency: string, cents: bigint>, rate float"
    )
    kind = message_class("shop.Order")
    message = kind(id=5, state=1, big=2**64 - 1, medium=2**32 - 1, data=b"\xff", cash=False)
    message.lines.add(product="apple", count=2)
    message.labels["a"] = 1
    message.at.FromMicroseconds(1_769_860_800_123_456)
    message.price.cents = -3
    unknown = kind(state=7).SerializeToString()
    values = [message.SerializeToString(), b"", b"\xff\xff", None, unknown]
    parsed = parser.parse(pa.array(values, pa.binary()))
    first, empty, null, other = parsed.rows.to_pylist()
    assert str(first.pop("at")) == "2026-01-31 12:00:00.123456+00:00"
    assert first == {
        "id": 5,
        "discount": None,
        "state": "PAID",
        "lines": [{"product": "apple", "count": 2}],
        "labels": [("a", 1)],
        "big": 2**64 - 1,
        "medium": 2**32 - 1,
        "data": b"\xff",
        "card": None,
        "cash": False,
        "price": {"currency": "", "cents": -3},
        "rate": 0.0,
    }
    assert (empty["id"], empty["state"], empty["lines"], empty["at"]) == (0, "NEW", [], None)
    assert set(null.values()) == {None}
    assert other["state"] == "7"
    assert [(one.row, one.error) for one in parsed.rejects] == [(2, ErrorClass.MALFORMED)]


def test_the_message_is_named_unless_there_is_one() -> None:
    one = {"a.proto": 'syntax = "proto3"; message A { int32 x = 1; message B { int32 y = 1; } }'}
    assert protobuf_file_values(one, "a.proto", None, "w").schema.names == ["x"]
    assert protobuf_file_values(one, "a.proto", "A.B", "w").schema.names == ["y"]
    with pytest.raises(SchemaError, match=r"Set value\.message to one of shop\.Order"):
        protobuf_file_values(FILES, "shop/order.proto", None, "w")
    with pytest.raises(SchemaError, match=r"'shop\.Nothing' is not in it"):
        protobuf_file_values(FILES, "shop/order.proto", "shop.Nothing", "w")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('syntax = "proto3"; message A { int32 x = 1 }', "protoc says"),
        ('syntax = "proto3"; import "no.proto"; message A { int32 x = 1; }', "protoc says"),
        ('syntax = "proto3"; message A { A a = 1; }', "contains itself"),
        ('syntax = "proto3"; message A { }', "without fields"),
        ('syntax = "proto3"; message A { int32 x = 1; int32 X = 2; }', "case"),
    ],
)
def test_what_no_table_can_hold(text: str, problem: str) -> None:
    with pytest.raises(SchemaError, match=problem):
        protobuf_file_values({"a.proto": text}, "a.proto", "A", "a.proto")


@pytest.mark.parametrize("name", ["../a.proto", "/a.proto", " "])
def test_a_file_stays_in_its_folder(name: str) -> None:
    with pytest.raises(SchemaError, match="cannot be a file's name"):
        compile_proto({name: ""}, name, "w")


def test_framed_values_and_schemas_that_grow() -> None:
    texts = {
        1: 'syntax = "proto3"; message A { int32 x = 1; } message B { int32 z = 1; }',
        2: 'syntax = "proto3"; message A { int64 x = 1; optional string y = 2; }',
        3: 'syntax = "proto3"; message A { string x = 1; }',
        4: 'syntax = "proto3"; import "money.proto"; message A { shop.Money m = 1; }',
    }

    class Shelf:
        def by_id(self, schema_id: int) -> RegisteredSchema:
            references = (("money.proto", MONEY),) if schema_id == 4 else ()
            return RegisteredSchema(schema_id, "PROTOBUF", texts[schema_id], references)

    def value(schema_id: int, body: bytes, indexes: bytes = b"\x00") -> bytes:
        return struct.pack(">bI", 0, schema_id) + indexes + body

    first = message_class("A", {"a.proto": texts[1]}, "a.proto")(x=5).SerializeToString()
    second = message_class("A", {"a.proto": texts[2]}, "a.proto")(x=2**40, y="b")
    values = [
        value(1, first),
        value(2, second.SerializeToString()),
        value(3, b""),
        value(4, b""),
        value(1, first, b"\x02\x02"),
        value(1, b"\xff"),
        value(1, b"", b"\xff"),
    ]
    parsed = protobuf_registry_values(Shelf()).parse(pa.array(values, pa.binary()))
    assert to_ddl(parsed.rows.schema) == (
        "x bigint, y string, m struct<currency: string, cents: bigint>"
    )
    assert parsed.rows.to_pylist() == [
        {"x": 5, "y": None, "m": None},
        {"x": 2**40, "y": "b", "m": None},
        {"x": None, "y": None, "m": None},
    ]
    assert [(one.row, one.error) for one in parsed.rejects] == [
        (2, ErrorClass.INCOMPATIBLE_SCHEMA),
        (4, ErrorClass.INCOMPATIBLE_SCHEMA),
        (5, ErrorClass.MALFORMED),
        (6, ErrorClass.MALFORMED),
    ]


def test_message_indexes() -> None:
    head = b"\x00\x00\x00\x00\x01"
    assert message_indexes(head + b"\x00rest") == ((0,), 6)
    assert message_indexes(head + b"\x02\x00rest") == ((0,), 7)
    assert message_indexes(head + b"\x04\x02\x04rest") == ((1, 2), 8)
    for wrong in (b"", b"\x04\x02", b"\xff\xff\xff\xff\xff", b"\xff\x01", b"\x01"):
        with pytest.raises(RowError):
            message_indexes(head + wrong)
