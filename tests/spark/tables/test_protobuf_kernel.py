"""The Protobuf kernel against Google's library, compiled and uncompiled, on hostile values."""

import random
from collections.abc import Mapping
from unittest.mock import patch

import pyarrow as pa
import pytest
from google.protobuf.descriptor import Descriptor

from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.values.protobuf import program
from penstock.spark.tables.values.protobuf.compiler import compile_proto
from penstock.spark.tables.values.protobuf.program import protobuf_kernel
from penstock.spark.tables.values.protobuf.schema import MessageColumns
from penstock.spark.tables.values.protobuf.values import _descriptor, _reader, compile_protobuf
from penstock.spark.tables.values.registry import RegisteredSchema
from tests.spark.tables.protobuf_kernels import Messages, bytes_of, check, overlong, tag, varint

BOTH = pytest.mark.parametrize("is_compiled", [True, False], ids=["compiled", "uncompiled"])
ORDER = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
enum Kind { NEW = 0; PAID = 1; }
message Line { string sku = 1; repeated string tags = 2; optional int32 count = 3; }
message Order {
  int64 id = 1;
  Kind kind = 2;
  repeated Line lines = 3;
  map<string, double> notes = 4;
  oneof paid_by { string card = 5; int32 voucher = 6; }
  repeated sint32 changes = 7;
  Line main = 8;
  map<int32, Line> by_number = 9;
  google.protobuf.Timestamp at = 10;
}
"""


TIMESTAMP = 'syntax = "proto2"; package google.protobuf; message Timestamp {{ {} }}'
AT = """
syntax = "proto3"; import "google/protobuf/timestamp.proto";
message Order { google.protobuf.Timestamp at = 1; }
"""


def message(
    text: str = ORDER, name: str = "Order", others: Mapping[str, str] | None = None
) -> Descriptor:
    texts = {"o.proto": text, **(others or {})}
    return _descriptor(compile_proto(texts, "o.proto", "o.proto"), name)


def field(number: int, body: bytes) -> bytes:
    return tag(number, 2) + varint(len(body)) + body


def line(sku: bytes = b"x", tags: int = 0) -> bytes:
    return field(1, sku) + field(2, "ä".encode()) * tags


@BOTH
def test_usual_values_are_no_doubts(is_compiled: bool) -> None:
    values = [
        b"",
        tag(1, 0) + varint(-5) + tag(2, 0) + varint(1) + field(5, b"card"),
        field(3, line(tags=2)) + field(3, b"") + field(3, line(b"", 1)) + tag(6, 0) + varint(7),
        field(4, field(1, b"a") + tag(2, 1) + b"\0" * 8) + field(4, b""),
        field(7, varint(1) + varint(2)) + tag(7, 0) + varint(3) + field(8, b"") + field(9, b""),
        # Fields of lists among others, unknown fields, and the last of two numbers counts.
        field(3, line()) + tag(1, 0) + varint(1) + field(3, line()) + tag(1, 0) + varint(2),
        field(99, b"unknown") + tag(98, 5) + b"1234" + tag(97, 1) + b"12345678" + tag(96, 0) + b"1",
    ]
    assert check(message(), values, is_compiled=is_compiled) == 0


@BOTH
@pytest.mark.parametrize("seed", range(30))
def test_random_messages_and_values(seed: int, is_compiled: bool) -> None:
    chance = random.Random(seed)
    found = Messages(chance, chance.choice(("proto2", "proto3"))).descriptor()
    check(found, [bytes_of(found, chance, 0) for _ in range(20)], is_compiled=is_compiled)
    values = [bytes_of(found, chance, 0.1) for _ in range(20)]
    for one in list(values):
        at = chance.randrange(len(one) + 1)
        values += [one[:at], one + one, one[:at] + chance.randbytes(1) + one[at + 1 :]]
    check(found, values, is_compiled=is_compiled)


@BOTH
def test_values_that_are_merged_or_odd_are_doubts(is_compiled: bool) -> None:
    values = [
        field(8, line()) + field(8, line(tags=1)),
        field(5, b"card") + tag(6, 0) + varint(7),
        tag(2, 0) + varint(9),
        tag(1, 5) + b"1234",
        field(4, field(1, b"a")) * 2,
        field(4, field(1, b"a") + field(9, b"unknown")),
        field(5, b"\xff"),
        tag(99, 3) + tag(99, 4),
        tag(0, 0) + b"\x01",
        tag(1, 0) + b"\xff" * 10,
        varint(2**35) + b"\x01",
        field(3, line())[:-1],
    ]
    assert check(message(), values, is_compiled=is_compiled) == len(values)


@BOTH
@pytest.mark.parametrize("size", range(1, 12))
def test_overlong_numbers(size: int, is_compiled: bool) -> None:
    """Google's library accepts ten bytes of a value, and five of a tag or size."""
    numbers = [
        tag(1, 0) + overlong(varint(5), size),
        tag(7, 0) + overlong(varint(3), size),
    ]
    heads = [
        overlong(tag(1, 0), size) + varint(5),
        overlong(tag(99, 0), max(size, 2)) + varint(5),
        tag(5, 2) + overlong(varint(4), size) + b"card",
        tag(7, 2) + overlong(varint(1), size) + varint(3),
        tag(8, 2) + overlong(varint(3), size) + field(1, b"x"),
        tag(99, 2) + overlong(varint(1), size) + b"x",
        field(10, overlong(tag(1, 0), size) + varint(9)),
    ]
    assert check(message(), numbers, is_compiled=is_compiled) == (2 if size > 10 else 0)
    doubts = check(message(), heads, is_compiled=is_compiled)
    assert doubts == (len(heads) if size > 5 else 0)


@BOTH
def test_tags_and_sizes_of_more_than_32_bits(is_compiled: bool) -> None:
    values = [
        varint(2**32 + 8) + varint(5),
        tag(5, 2) + varint(2**32 + 4) + b"card",
        b"\xff\xff\xff\xff\x1f" + b"\0",
    ]
    assert check(message(), values, is_compiled=is_compiled) == len(values)


@BOTH
def test_items_and_texts_get_more_room(is_compiled: bool) -> None:
    values = [
        field(3, line(tags=3)) * 3_000,
        b"",
        field(3, line(b"y" * 20_000)),
        field(7, varint(3) * 30_000),
    ]
    assert check(message(), values * 2, is_compiled=is_compiled) == 0


@BOTH
def test_nulls_of_a_row_in_doubt_are_forgotten(is_compiled: bool) -> None:
    # The count of the line is null, and the value ends too early behind it.
    bad = field(3, line()) + tag(1, 0)
    good = field(3, line() + tag(3, 0) + varint(4)) + field(8, line()) + field(5, b"c")
    assert check(message(), [bad, good, bad, good], is_compiled=is_compiled) == 2


def test_values_of_a_registry_have_the_first_message() -> None:
    compiled = compile_protobuf(
        RegisteredSchema(1, "PROTOBUF", ORDER.replace("Kind kind", "Kind k"))
    )
    header, value = b"\x00\x00\x00\x00\x01", tag(3, 0) + varint(4)
    given = [header + b"\x00" + value, header + b"\x02\x00" + value, header, header + b"\x02\x02"]
    parsed = compiled.read(pa.array(given, pa.binary()))
    assert [one["count"] for one in parsed.rows.to_pylist()] == [4, 4]
    assert [one.row for one in parsed.rejects] == [2, 3]
    assert type(compiled.read).__name__ == "KernelReading"


def test_messages_without_a_kernel() -> None:
    for text in (
        'syntax = "proto2"; message Order { required int32 id = 1; }',
        'syntax = "proto2"; message Order { optional int32 id = 1; extensions 100 to 199; }',
        f'syntax = "proto3"; enum E {{ {"A" * 300} = 0; }} message Order {{ E e = 1; }}',
    ):
        found = message(text)
        assert protobuf_kernel(found, MessageColumns(found, "o").schema) is None


@pytest.mark.parametrize(
    ("fields", "is_usual"),
    [
        ("optional int64 seconds = 1; optional int32 nanos = 2;", True),
        ("optional int64 nanos = 1; optional int32 seconds = 2;", False),
        ("optional sint64 seconds = 1; optional int32 nanos = 2;", False),
        ("optional fixed64 seconds = 1; optional int32 nanos = 2;", False),
        ("optional int64 seconds = 3; optional int32 nanos = 4;", False),
        ("optional int64 seconds = 1; optional int32 nanos = 2; optional int32 x = 3;", False),
        ("optional int64 seconds = 1 [default = 7]; optional int32 nanos = 2;", False),
        ("oneof one { int64 seconds = 1; int32 nanos = 2; }", False),
    ],
)
def test_a_timestamp_of_the_schema_itself(fields: str, is_usual: bool) -> None:
    found = message(AT, others={"google/protobuf/timestamp.proto": TIMESTAMP.format(fields)})
    assert (protobuf_kernel(found, MessageColumns(found, "o").schema) is not None) == is_usual
    columns, read = _reader(found, "o")
    assert columns.schema.field("at").type == pa.timestamp("us", tz="UTC")
    assert isinstance(read(field(1, b"")), dict)


@pytest.mark.parametrize(
    "fields",
    [
        "optional int64 seconds = 1;",
        "optional string seconds = 1; optional int32 nanos = 2;",
        "repeated int64 seconds = 1; optional int32 nanos = 2;",
    ],
)
def test_a_timestamp_without_a_time_has_no_column(fields: str) -> None:
    found = message(AT, others={"google/protobuf/timestamp.proto": TIMESTAMP.format(fields)})
    with pytest.raises(SchemaError, match=r"field 'at': a google\.protobuf\.Timestamp without"):
        MessageColumns(found, "o")


def test_fields_of_one_enum_share_its_symbols() -> None:
    symbols = "".join(f"S{number} = {number};" for number in range(100))
    fields = "".join(f"E e{number} = {number};" for number in range(1, 51))
    found = message(f'syntax = "proto3"; enum E {{ {symbols} }} message Order {{ {fields} }}')
    columns = MessageColumns(found, "o")
    kernel = protobuf_kernel(found, columns.schema)
    assert kernel is not None
    assert len(kernel[0].symbol_numbers) == 100
    assert len(columns._enums) == 1
    value = tag(1, 0) + varint(99) + tag(50, 0) + varint(7)
    assert check(found, [value], is_compiled=True) == 0
    with patch.object(program, "SYMBOLS_MAX", 99):
        assert protobuf_kernel(found, columns.schema) is None


def test_each_path_to_a_message_counts_for_the_limit_of_columns() -> None:
    """So a short schema has no program of many entries."""
    chain = "".join(
        f"message M{number} {{ M{number + 1} a = 1; M{number + 1} b = 2; }}" for number in range(14)
    )
    text = f'syntax = "proto3"; {chain} message M14 {{ int32 x = 1; }}'
    with pytest.raises(SchemaError, match="there are more than 2000 columns"):
        MessageColumns(message(text, "M0"), "o")
