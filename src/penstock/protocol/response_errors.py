"""`error_codes`: the errors that a response tells, at any depth, without those that say none.

A response has error codes at its top, in its topics, in its partitions. Which fields those are is
read from the message's class once; a function is compiled from it, because every response that
leaves is asked. It does NOT look into bytes that are encoded already, and judges no code.
"""

from collections.abc import Callable, Sequence

from penstock.protocol.codec import Message
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.structure_fields import structure_fields

Finder = Callable[[Message], Sequence[ErrorCode]]

_finders: dict[type[Message], Finder] = {}
"""One for each class of message, which are as many as there are APIs."""


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
    # The source is made of names of our own classes' fields, nothing else.
    exec(compile(source, f"<errors of {message_class.__name__}>", "exec"), namespace)  # noqa: S102
    return namespace["find"]


def _nothing(_: Message) -> Sequence[ErrorCode]:
    return ()


def _lines(owner: type, variable: str, depth: int) -> list[str]:
    """Statements that look at one structure, `depth` deep; none if it cannot have an error."""
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
