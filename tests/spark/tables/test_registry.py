"""The registry's client: one request per id, cached unknown ids, retries, and clear errors."""

from collections.abc import Iterator

import pytest

from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.values.registry import (
    ANSWER_BYTES_MAX,
    ATTEMPTS,
    REFERENCES_MAX,
    SCHEMAS_MAX,
    UNKNOWN_S,
    RegisteredSchema,
    Registry,
    RegistryError,
    UnknownSchemaError,
)
from tests.spark.tables.registry_stub import RegistryStub, registry_stub


class ManualClock:
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def now_ms(self) -> int:
        return int(self._seconds * 1_000)

    def monotonic(self) -> float:
        return self._seconds

    def advance(self, seconds: float) -> None:
        self._seconds += seconds


@pytest.fixture
def stub() -> Iterator[RegistryStub]:
    with registry_stub() as running:
        yield running


def new_registry(stub: RegistryStub, clock: ManualClock | None = None) -> Registry:
    return Registry(stub.address, clock=clock or ManualClock(), sleep=lambda _: None)


def test_a_schema_is_asked_for_once(stub: RegistryStub) -> None:
    stub.answer("/schemas/ids/7", (200, {"schema": "text"}))
    registry = new_registry(stub)
    assert registry.by_id(7) == registry.by_id(7) == RegisteredSchema(7, "AVRO", "text")
    assert len(stub.calls) == 1


def test_the_newest_of_a_subject_is_asked_for_each_time(stub: RegistryStub) -> None:
    stub.answer(
        "/subjects/a%2Fb/versions/latest",
        (200, {"id": 1, "schema": "one", "schemaType": "JSON"}),
        (200, {"id": 2, "schema": "two", "schemaType": "JSON"}),
    )
    registry = new_registry(stub)
    assert registry.latest("a/b") == RegisteredSchema(1, "JSON", "one")
    assert registry.latest("a/b") == RegisteredSchema(2, "JSON", "two")


def test_an_unknown_id_is_not_asked_for_again_at_once(stub: RegistryStub) -> None:
    clock = ManualClock()
    registry = new_registry(stub, clock)
    for _ in range(3):
        with pytest.raises(UnknownSchemaError, match="no schema of id 9"):
            registry.by_id(9)
    assert len(stub.calls) == 1
    stub.answer("/schemas/ids/9", (200, {"schema": "text"}))
    clock.advance(UNKNOWN_S + 1)
    assert registry.by_id(9).text == "text"


def test_an_error_of_the_server_is_tried_again(stub: RegistryStub) -> None:
    stub.answer("/schemas/ids/7", (503, b""), (429, {}), (200, {"schema": "text"}))
    assert new_registry(stub).by_id(7).text == "text"
    stub.answer("/schemas/ids/8", (500, {"message": "broken"}))
    with pytest.raises(RegistryError, match="500 broken"):
        new_registry(stub).by_id(8)
    assert len(stub.calls) == 2 * ATTEMPTS


def test_a_refusal_is_not_tried_again(stub: RegistryStub) -> None:
    stub.answer("/schemas/ids/7", (401, {"message": "who are you"}))
    with pytest.raises(RegistryError, match="401 who are you"):
        new_registry(stub).by_id(7)
    assert len(stub.calls) == 1


def test_nobody_there_is_told() -> None:
    registry = Registry("http://127.0.0.1:1", clock=ManualClock(), sleep=lambda _: None)
    with pytest.raises(RegistryError, match="does not answer"):
        registry.by_id(1)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"<html>", "no JSON object"),
        ([], "no JSON object"),
        ({}, "without a schema"),
        ({"schema": "x", "references": {}}, None),
        ({"schema": "x", "references": "x"}, "no list"),
    ],
)
def test_nonsense_is_told(stub: RegistryStub, body: object, problem: str | None) -> None:
    stub.answer("/schemas/ids/7", (200, body))
    if problem is None:
        assert new_registry(stub).by_id(7).references == ()
        return
    with pytest.raises(RegistryError, match=problem):
        new_registry(stub).by_id(7)


def test_too_large_an_answer_is_the_fault_of_its_schema(stub: RegistryStub) -> None:
    stub.answer("/schemas/ids/7", (200, b" " * (ANSWER_BYTES_MAX + 1)))
    with pytest.raises(SchemaError, match="more than"):
        new_registry(stub).by_id(7)


@pytest.mark.parametrize("code", [400, 422])
def test_an_id_that_is_none_of_the_registry_is_unknown(stub: RegistryStub, code: int) -> None:
    stub.answer("/schemas/ids/4294967295", (code, {"message": "no id"}))
    with pytest.raises(UnknownSchemaError, match="no schema of id 4294967295"):
        new_registry(stub).by_id(4294967295)


def test_a_name_and_a_password_are_sent_and_never_shown(stub: RegistryStub) -> None:
    address = stub.address.replace("http://", "http://me:s%40crt@")
    registry = Registry(address, clock=ManualClock(), sleep=lambda _: None)
    with pytest.raises(UnknownSchemaError) as caught:
        registry.by_id(7)
    assert stub.calls[0][1] == "Basic bWU6c0BjcnQ="
    assert "crt" not in str(caught.value) + registry.address


def test_references_come_before_what_refers_to_them(stub: RegistryStub) -> None:
    def refer(name: str) -> dict[str, object]:
        return {"name": name, "subject": name, "version": 1}

    stub.answer("/schemas/ids/7", (200, {"schema": "main", "references": [refer("a"), refer("b")]}))
    stub.answer("/subjects/a/versions/1", (200, {"schema": "A", "references": [refer("c")]}))
    stub.answer("/subjects/b/versions/1", (200, {"schema": "B", "references": [refer("c")]}))
    # A circle, which a registry should not have, ends too.
    stub.answer("/subjects/c/versions/1", (200, {"schema": "C", "references": [refer("a")]}))
    found = new_registry(stub).by_id(7)
    assert found.references == (("c", "C"), ("a", "A"), ("b", "B"))


def test_there_are_not_endlessly_many_references(stub: RegistryStub) -> None:
    many = [
        {"name": f"n{number}", "subject": "s", "version": number}
        for number in range(REFERENCES_MAX + 1)
    ]
    stub.answer("/schemas/ids/7", (200, {"schema": "main", "references": many}))
    for number in range(REFERENCES_MAX + 1):
        stub.answer(f"/subjects/s/versions/{number}", (200, {"schema": "x"}))
    with pytest.raises(SchemaError, match="more than"):
        new_registry(stub).by_id(7)


def test_the_cache_is_bounded(stub: RegistryStub) -> None:
    registry = new_registry(stub)
    for number in range(SCHEMAS_MAX + 5):
        stub.answer(f"/schemas/ids/{number}", (200, {"schema": "x"}))
        registry.by_id(number)
    calls = len(stub.calls)
    registry.by_id(SCHEMAS_MAX + 4)
    assert len(stub.calls) == calls
    registry.by_id(0)
    assert len(stub.calls) == calls + 1


@pytest.mark.parametrize("address", ["registry:8081", "file:///etc/passwd", "http://", "ftp://x"])
def test_an_address_is_http(address: str) -> None:
    with pytest.raises(RegistryError, match="http://host:port"):
        Registry(address)
