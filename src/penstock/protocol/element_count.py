"""`has_more_elements`: whether the arrays of a message hold more elements than a number.

`array_fields` names the arrays of a message that hold structures.

The time to encode a message grows with the number of its elements, so the number decides whether
the event loop may do it. The array fields are read from the class of a message once; a function is
compiled from it, because it is called for every response. It stops as soon as the answer is known.
"""

from collections.abc import Callable

from penstock.protocol.codec import Message
from penstock.protocol.structure_fields import structure_fields

Counter = Callable[[Message, int], bool]

_counters: dict[type[Message], Counter] = {}
"""One for each class of message; there are as many as APIs."""
_array_fields: dict[type, tuple[str, ...]] = {}
"""One for each class of message and of its parts."""


def has_more_elements(message: Message, most: int) -> bool:
    """Whether the arrays of `message`, at all depths, have more than `most` elements in all."""
    counter = _counters.get(type(message))
    if counter is None:
        counter = _counters[type(message)] = _make_counter(type(message))
    return counter(message, most)


def array_fields(structure_class: type) -> tuple[str, ...]:
    """Names of the fields of a message or a part of one that are arrays of structures."""
    names = _array_fields.get(structure_class)
    if names is None:
        found = structure_fields(structure_class)
        names = tuple(field.name for field in found if field.is_array and field.structure)
        _array_fields[structure_class] = names
    return names


def _make_counter(message_class: type[Message]) -> Counter:
    lines = _lines(message_class, "message", 1)
    source = "\n".join(["def count(message, most):", " found = 0", *lines, " return found > most"])
    namespace: dict[str, Counter] = {}
    # The source consists only of names of our own classes' fields.
    name = f"<elements of {message_class.__name__}>"
    exec(compile(source, name, "exec"), namespace)  # noqa: S102
    return namespace["count"]


def _lines(owner: type, variable: str, depth: int) -> list[str]:
    """Statements that count the arrays of one structure, `depth` deep."""
    indent = " " * depth
    lines = []
    for field in structure_fields(owner):
        if field.is_array:
            lines.append(f"{indent}found += len({variable}.{field.name} or ())")
            lines.append(f"{indent}if found > most: return True")
        name = f"part{depth}"
        if field.structure and (inner := _lines(field.structure, name, depth + 1)):
            lines += [f"{indent}for {name} in {field.each(variable)}:", *inner]
    return lines
