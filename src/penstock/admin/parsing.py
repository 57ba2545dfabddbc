"""Converts texts and bytes of a request to checked models (pure).

Numbers and truth values in a URL are written as in JSON: `7`, `true`. A repeated, an unknown and a
missing parameter are each rejected. All errors of a request are reported together.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar, get_args
from urllib.parse import unquote_to_bytes

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from penstock.admin.model import Input
from penstock.admin.problems import FieldProblem, RefusedError, refused

_PLAIN: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,30})|true|false")
_PROBLEMS_MAX: Final = 20
"""Invalid fields that an answer lists; a request can have thousands of them."""
_WHERE_CHARACTERS_MAX: Final = 200

Known = TypeVar("Known", bound=Input)


def decoded(text: str) -> str:
    """Return a decoded part of a URL; raise when it is not UTF-8."""
    try:
        return unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError as error:
        raise refused(
            400, "Malformed request", "The URL has bytes that are not UTF-8.", "Encode it in UTF-8."
        ) from error


def query_texts(query: bytes) -> dict[str, str]:
    """Return the query parameters; raise when one is repeated."""
    texts: dict[str, str] = {}
    for part in query.decode("latin-1").split("&"):
        if not part:
            continue
        name, _, value = part.replace("+", " ").partition("=")
        if decoded(name) in texts:
            raise _wrong([FieldProblem(where=f"query: {decoded(name)}", message="is given twice")])
        texts[decoded(name)] = decoded(value)
    return texts


def read_parameters(model: type[Known], texts: Mapping[str, str], where: str) -> Known:
    """Return the checked parameters of a path or query."""
    values = {name: _value(model.model_fields.get(name), text) for name, text in texts.items()}
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise _wrong(_field_problems(error, where)) from error


def read_body(model: type[Known], data: bytes) -> Known:
    """Return the checked body of a request."""
    try:
        document = json.loads(data, parse_float=_number)
    except (ValueError, RecursionError) as error:
        raise _wrong([FieldProblem(where="body", message=f"is not JSON: {error}")]) from error
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise _wrong(_field_problems(error, "body")) from error


def _number(text: str) -> float:
    """Parse a number; 3.0 is an integer, because some clients always write the decimal point."""
    value = float(text)
    return int(value) if value.is_integer() else value


def _value(field: FieldInfo | None, text: str) -> object:
    if field is None or _has_text(field.annotation):
        return text
    return json.loads(text) if _PLAIN.fullmatch(text) else text


def _has_text(annotation: object) -> bool:
    """Whether a text fits, also as one of several types, or with bounds."""
    return annotation is str or any(_has_text(one) for one in get_args(annotation))


def _field_problems(error: ValidationError, where: str) -> Iterable[FieldProblem]:
    for one in error.errors(include_url=False, include_input=False, include_context=False):
        name = ".".join(str(part) for part in one["loc"])
        yield FieldProblem(
            where=f"{where}: {name}"[:_WHERE_CHARACTERS_MAX] if name else where,
            message=one["msg"],
        )


def _wrong(problems: Iterable[FieldProblem]) -> RefusedError:
    found = list(problems)
    first = found[0]
    return refused(
        400,
        "Malformed request",
        f"{first.where}: {first.message}",
        "GET /api/v1/openapi.json describes every request.",
        fields=found[:_PROBLEMS_MAX],
    )
