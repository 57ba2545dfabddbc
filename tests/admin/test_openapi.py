"""The published description is OpenAPI 3.1, lists the served routes, and bounds their input."""

from openapi_spec_validator import OpenAPIV31SpecValidator

from penstock.admin.app import OPERATIONS
from penstock.admin.openapi import Document, describe
from tests.admin.fakes import ask


def test_it_is_valid_and_published() -> None:
    document = ask("GET", "/api/v1/openapi.json").document
    OpenAPIV31SpecValidator(document).validate()
    assert document == describe(OPERATIONS, version="1.2.3")


def test_every_operation_is_described_once() -> None:
    document = describe(OPERATIONS, version="1")
    described = {
        (method.upper(), path): found["operationId"]
        for path, methods in document["paths"].items()
        for method, found in methods.items()
    }
    for one in OPERATIONS:
        assert described.pop((one.method, f"/api/v1{one.path}")) == one.name
    assert sorted(described.values()) == ["live", "ready", "status"]


def test_every_problem_has_the_same_form() -> None:
    document = describe(OPERATIONS, version="1")
    for methods in document["paths"].values():
        for found in methods.values():
            assert found["responses"]["default"] == {"$ref": "#/components/responses/Problem"}
    problem = document["components"]["responses"]["Problem"]
    assert list(problem["content"]) == ["application/problem+json"]


def test_everything_that_comes_in_has_a_bound() -> None:
    document = describe(OPERATIONS, version="1")
    schemas = document["components"]["schemas"]
    for one in OPERATIONS:
        if one.body_model is not None:
            unbounded(schemas[one.body_model.__name__], schemas, one.name)
    for methods in document["paths"].values():
        for found in methods.values():
            for parameter in found.get("parameters", ()):
                unbounded(parameter["schema"], schemas, parameter["name"])


def unbounded(schema: Document, schemas: Document, where: str) -> None:
    """Fails where something has no largest size."""
    if "$ref" in schema:
        unbounded(schemas[schema["$ref"].rpartition("/")[2]], schemas, where)
        return
    for choice in [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
        unbounded(choice, schemas, where)
    kind = schema.get("type")
    fixed = "const" in schema or "enum" in schema
    if kind == "string" and not fixed:
        assert "maxLength" in schema, where
    if kind == "integer":
        assert {"minimum", "maximum"} <= set(schema), where
    if kind == "array":
        assert "maxItems" in schema, where
        unbounded(schema["items"], schemas, where)
    if kind == "object":
        extra = schema.get("additionalProperties", True)
        if isinstance(extra, dict):
            assert "maxProperties" in schema, where
            unbounded(extra, schemas, where)
        else:
            assert extra is False, where
        for name, field in schema.get("properties", {}).items():
            unbounded(field, schemas, f"{where}.{name}")
