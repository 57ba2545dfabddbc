"""Generates the OpenAPI 3.1 description from the table of operations and its models. Pure.

The description matches the checks: parameters and bodies use the models that parse requests,
answers use the models that build them.
"""

from collections.abc import Sequence
from typing import Any, Final

from pydantic.json_schema import JsonSchemaMode, models_json_schema

from penstock.admin.model import Answer, Input
from penstock.admin.operation import API_PREFIX, Operation
from penstock.admin.problems import CONTENT_TYPE, Problem
from penstock.admin.status import Alive, Readiness, Status

Document = dict[str, Any]

VERSION: Final = "3.1.0"
_REFERENCE: Final = "#/components/schemas/{model}"
_JSON: Final = "application/json"


def describe(operations: Sequence[Operation], *, version: str) -> Document:
    """Return the whole document."""
    paths: Document = {
        "/health/live": {"get": _view("live", "Whether the process is alive", Alive)},
        "/health/ready": {
            "get": _view("ready", "Whether new clients can be sent here", Readiness, 503)
        },
        f"{API_PREFIX}/status": {
            "get": _view("status", "The health and the identity of the broker", Status)
        },
    }
    for one in operations:
        paths.setdefault(f"{API_PREFIX}{one.path}", {})[one.method.lower()] = _operation(one)
    return {
        "openapi": VERSION,
        "info": {
            "title": "Penstock",
            "version": version,
            "summary": "Health and administration of a Penstock broker.",
            "description": "Callers prove their identity as `admin.auth` says, and access rules "
            "judge each request by it. Without `admin.auth` the port is for a loopback address.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": _schemas(operations),
            "responses": {
                "Problem": {
                    "description": "It was not done; with 504, the outcome is unknown. The body "
                    "has the reason and the remedy.",
                    "content": {CONTENT_TYPE: {"schema": _reference(Problem.__name__)}},
                }
            },
        },
    }


def _view(name: str, summary: str, answer: type[Answer], *more: int) -> Document:
    content = {_JSON: {"schema": _reference(answer.__name__)}}
    responses: Document = {
        str(status): {"description": summary, "content": content} for status in (200, *more)
    }
    responses["default"] = {"$ref": "#/components/responses/Problem"}
    return {"operationId": name, "summary": summary, "tags": ["health"], "responses": responses}


def _operation(one: Operation) -> Document:
    document: Document = {
        "operationId": one.name,
        "summary": one.summary,
        "tags": [one.tag],
        "responses": {
            str(one.status): _answer(one),
            "default": {"$ref": "#/components/responses/Problem"},
        },
    }
    if one.description:
        document["description"] = one.description
    parameters = [*_parameters(one.path_model, "path"), *_parameters(one.query_model, "query")]
    if parameters:
        document["parameters"] = parameters
    if one.body_model is not None:
        content = {_JSON: {"schema": _reference(one.body_model.__name__)}}
        document["requestBody"] = {"required": True, "content": content}
    return document


def _answer(one: Operation) -> Document:
    if one.answer is None:
        return {"description": "Done."}
    document: Document = {
        "description": one.answer.__doc__ or "",
        "content": {_JSON: {"schema": _reference(one.answer.__name__)}},
    }
    if one.location is not None:
        document["headers"] = {
            "Location": {"description": "Where it is.", "schema": {"type": "string"}}
        }
    return document


def _parameters(model: type[Input], place: str) -> list[Document]:
    schema = model.model_json_schema(mode="validation")
    found = []
    for name, field in schema.get("properties", {}).items():
        document = {"name": name, "in": place, "schema": _without_null(field)}
        if name in schema.get("required", ()):
            document["required"] = True
        found.append(document)
    return found


def _without_null(field: Document) -> Document:
    """Remove null from a parameter's schema: an omitted parameter is absent, a URL has no null."""
    choices = [one for one in field.get("anyOf", ()) if one != {"type": "null"}]
    if len(choices) != 1:
        return field
    kept = {key: value for key, value in field.items() if key not in ("anyOf", "default")}
    return {**kept, **choices[0]}


def _schemas(operations: Sequence[Operation]) -> Document:
    wanted: dict[type[Any], JsonSchemaMode] = {
        Problem: "serialization",
        Alive: "serialization",
        Readiness: "serialization",
        Status: "serialization",
    }
    for one in operations:
        if one.answer is not None:
            wanted[one.answer] = "serialization"
        if one.body_model is not None:
            wanted[one.body_model] = "validation"
    _, document = models_json_schema(list(wanted.items()), ref_template=_REFERENCE)
    schemas = document["$defs"]
    assert isinstance(schemas, dict)
    return schemas


def _reference(name: str) -> Document:
    return {"$ref": _REFERENCE.format(model=name)}
