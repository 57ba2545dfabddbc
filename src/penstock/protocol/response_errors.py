"""`error_codes`: the error codes in a response, at any depth, without `NONE`.

A response has error codes at its top, in its topics, in its partitions. The fields are read from
the message's class once; a function is compiled from it, because it is called for every response.
It does NOT parse bytes that are encoded already, and does not interpret codes.
"""

from collections.abc import Callable, Sequence

from penstock.protocol.codec import Message
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.structure_fields import structure_fields

Finder = Callable[[Message], Sequence[ErrorCode]]

_finders: dict[type[Message], Finder] = {}
"""One for each class of message; there are as many as APIs."""


def error_codes(message: Message) -> Sequence[ErrorCode]:
    """Every error in a response, once for each field that has it."""
    finder = _finders.get(type(message))
    if finder is None:
        finder = _finders[type(message)] = _make_finder(type(message))
    return finder(message)


def _make_finder(message_class: type[Message]) -> Finder:
    lines = _lines(message_class, "message", 1)
    if not lines:
        return _nothing
    source = "\n".join(["def find(message):", " found = []", *lines, " return found"])
    namespace: dict[str, Finder] = {}
    # The source consists only of names of our own classes' fields.
    exec(compile(source, f"<errors of {message_class.__name__}>", "exec"), namespace)  # noqa: S102
    return namespace["find"]


def _nothing(_: Message) -> Sequence[ErrorCode]:
    return ()


def _lines(owner: type, variable: str, depth: int) -> list[str]:
    """Statements that check one structure, `depth` deep; none if it cannot have an error."""
    indent = " " * depth
    lines = []
    for field in structure_fields(owner):
        if field.element is ErrorCode and not field.is_array:
            place = f"{variable}.{field.name}"
            lines.append(f"{indent}if {place}: found.append({place})")
        name = f"part{depth}"
        if field.structure and (inner := _lines(field.structure, name, depth + 1)):
            lines += [f"{indent}for {name} in {field.each(variable)}:", *inner]
    return lines
