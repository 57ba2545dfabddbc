"""`meaning_of`: a fingerprint of what decides the rows, rejects and state of a batch (pure).

Guarantees: it is equal for equal inputs, in every process with the same versions of Python and
Penstock. It differs if the topics, the section `state`, the schema of values or the code of the
function differ. Limits of the circuit breaker and expectations are not a part: they decide whether
a batch is committed, and which of its results.

It does not see functions and global values that the function uses by their name, nor the
attributes of objects that it uses or is: a change there passes as no change.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from types import CodeType
from typing import Any, Final

from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.values.value_parsers import ParserPlan

HEX_DIGITS: Final = 16
_PLAIN: Final = (str, bytes, int, float, complex, bool, type(None), type(...))
_DEPTH_MAX: Final = 10
"""The depth of functions in closures of functions; a function may be in its own closure."""


def meaning_of(
    definition: PipelineDefinition, parser: ParserPlan, function: Callable[..., Any]
) -> str:
    """Return the fingerprint; `parser` has the schema's text, which may be in a file."""
    assert definition.state is not None, "the caller has a stateful definition"
    source = definition.source
    parts = [
        sorted(source.topics),
        source.pattern,
        asdict(definition.state),
        asdict(parser),
        _of_function(function),
    ]
    text = json.dumps(parts, sort_keys=True, default=str)
    return sha256(text.encode()).hexdigest()[:HEX_DIGITS]


def _of_function(function: object, depth: int = 0) -> object:
    """Return a document of the code of a function, a `partial`, or an object that is called."""
    if depth > _DEPTH_MAX:
        return "deep"
    if isinstance(function, partial):
        given = (function.args, tuple(sorted(function.keywords.items())))
        return ["partial", _of_function(function.func, depth + 1), _of_value(given, depth + 1)]
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        called = vars(type(function)).get("__call__")
        if isinstance(getattr(called, "__code__", None), CodeType):
            return [type(function).__qualname__, _of_function(called, depth + 1)]
        return getattr(function, "__qualname__", type(function).__qualname__)
    cells = [_cell(one) for one in getattr(function, "__closure__", None) or ()]
    defaults = (
        getattr(function, "__defaults__", None),
        tuple(sorted((getattr(function, "__kwdefaults__", None) or {}).items())),
    )
    return [_of_value(one, depth + 1) for one in (code, tuple(cells), defaults)]


def _cell(cell: Any) -> object:  # noqa: ANN401 - Python's own cells
    try:
        return cell.cell_contents
    except ValueError:  # it has no value yet
        return None


def _of_value(value: object, depth: int) -> object:
    """Return a document of a constant; other objects count by their type only."""
    if isinstance(value, CodeType):
        # Neither file nor line: a function that was moved is the same function.
        constants = [_of_value(one, depth) for one in value.co_consts]
        return ["code", value.co_code.hex(), list(value.co_names), constants]
    if isinstance(value, frozenset | set):
        return ["set", sorted(json.dumps(_of_value(one, depth)) for one in value)]
    if isinstance(value, tuple | list):
        return ["list", [_of_value(one, depth) for one in value]]
    if isinstance(value, dict):
        items = [json.dumps([_of_value(one, depth) for one in pair]) for pair in value.items()]
        return ["dict", sorted(items)]
    if isinstance(value, _PLAIN):
        return [type(value).__name__, repr(value)]
    if callable(value):
        return _of_function(value, depth + 1)
    return type(value).__qualname__
