"""A real registry: schemas registered as producers do it, found by id, and values read by them.

Behind a front with TLS it is asked with each kind of identity, right and wrong.
"""

import io
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from penstock.spark.tables.definition.ddl import to_ddl
from penstock.spark.tables.values.avro.values import avro_registry_values
from penstock.spark.tables.values.json.schema import parse_json_schema
from penstock.spark.tables.values.protobuf.values import protobuf_registry_values
from penstock.spark.tables.values.registry import Registry, RegistryError, UnknownSchemaError
from tests.oracle.certificates import CertificateAuthority
from tests.oracle.schema_registry import SchemaRegistry, schema_registry
from tests.spark.tables.registry_front import registry_front

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistry]:
    with schema_registry(tmp_path_factory.mktemp("registry")) as registry:
        yield registry


def framed(schema_id: int, body: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + body


def order(*fields: tuple[str, object]) -> dict[str, Any]:
    listed = [{"name": name, "type": kind} for name, kind in fields]
    return {"type": "record", "name": "Order", "namespace": "shop", "fields": listed}


def encoded(schema: dict[str, Any], value: object) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def test_avro_by_id_while_the_schema_grows(running: SchemaRegistry) -> None:
    first = order(("id", "int"))
    second = {**order(("id", "int"))}
    second["fields"] = [
        *first["fields"],
        {"name": "n", "type": ["null", "string"], "default": None},
    ]
    one = running.register("orders-value", json.dumps(first))
    two = running.register("orders-value", json.dumps(second))
    assert one != two
    registry = Registry(running.address)
    assert registry.latest("orders-value").schema_id == two
    values = [
        framed(one, encoded(first, {"id": 1})),
        framed(two, encoded(second, {"id": 2, "n": "x"})),
        framed(one + 1_000_000, b"x"),
    ]
    parsed = avro_registry_values(registry, registry.latest("orders-value")).parse(
        pa.array(values, pa.binary())
    )
    assert parsed.rows.to_pylist() == [{"id": 1, "n": None}, {"id": 2, "n": "x"}]
    assert [one.error.value for one in parsed.rejects] == ["unknown_schema"]


def test_avro_with_a_reference(running: SchemaRegistry) -> None:
    inner = {"type": "record", "name": "Money", "namespace": "shop",
             "fields": [{"name": "cents", "type": "long"}]}  # fmt: skip
    running.register("money", json.dumps(inner))
    outer = order(("price", "shop.Money"))
    reference = {"name": "shop.Money", "subject": "money", "version": 1}
    found = running.register("priced-value", json.dumps(outer), references=[reference])
    body = encoded(order(("price", inner)), {"price": {"cents": 5}})
    parsed = avro_registry_values(Registry(running.address)).parse(
        pa.array([framed(found, body)], pa.binary())
    )
    assert parsed.rows.to_pylist() == [{"price": {"cents": 5}}]


def test_protobuf_by_id(running: SchemaRegistry) -> None:
    text = 'syntax = "proto3"; package shop; message Order { int64 id = 1; string name = 2; }'
    found = running.register("proto-value", text, "PROTOBUF")
    registry = Registry(running.address)
    assert registry.by_id(found).kind == "PROTOBUF"
    parsed = protobuf_registry_values(registry).parse(
        pa.array([framed(found, b"\x00\x08\x05\x12\x01x")], pa.binary())
    )
    assert parsed.rows.to_pylist() == [{"id": 5, "name": "x"}]


def test_json_schema_by_subject(running: SchemaRegistry) -> None:
    schema = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
    running.register("json-value", json.dumps(schema), "JSON")
    latest = Registry(running.address).latest("json-value")
    assert latest.kind == "JSON"
    assert to_ddl(parse_json_schema(latest.text, "json-value")) == "id bigint NOT NULL"


def test_a_subject_that_is_not_there(running: SchemaRegistry) -> None:
    with pytest.raises(UnknownSchemaError, match="nowhere-value"):
        Registry(running.address).latest("nowhere-value")


def test_identities_at_a_registry_with_tls(running: SchemaRegistry, tmp_path: Path) -> None:
    found = running.register("secured-value", json.dumps(order(("id", "int"))))
    authority = CertificateAuthority(tmp_path / "authority")
    trust = {"ca": str(authority.certificate)}
    for name, text in (("token", "right-token"), ("word", "right-word"), ("wrong", "wrong-one")):
        (tmp_path / name).write_text(text)
    with registry_front(running.address, authority.server()) as front:

        def asked(**options: str) -> int:
            return Registry(front.address, {**trust, **options}).latest("secured-value").schema_id

        front.authorization = "Bearer right-token"
        assert asked(token=f"${{file:{tmp_path}/token}}") == found
        with pytest.raises(RegistryError, match=r"401.*Check value\.registry\.token"):
            asked(token=f"${{file:{tmp_path}/wrong}}")
        front.authorization = "Basic b3JkZXJzOnJpZ2h0LXdvcmQ="
        assert asked(username="orders", password=f"${{file:{tmp_path}/word}}") == found
        with pytest.raises(RegistryError, match=r"401.*Check value\.registry\.username"):
            asked(username="orders", password=f"${{file:{tmp_path}/wrong}}")
        with pytest.raises(RegistryError, match=r"401.*Set value\.registry\.token"):
            asked()
        with pytest.raises(RegistryError, match=r"Set value\.registry\.ca"):
            Registry(front.address).latest("secured-value")
    client = authority.client()
    with registry_front(running.address, authority.server(), authority) as front:
        pair = {"certificate": str(client.chain), "key": str(client.key)}
        assert asked(**pair) == found
        with pytest.raises(RegistryError, match=r"value\.registry\.certificate"):
            asked()
