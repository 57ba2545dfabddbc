"""`structure_fields`: the fields of a message or of a part of it, and what each of them holds.

For code that walks over messages of any class (`element_count`, `response_errors`). Pure: it reads
the annotations of the generated dataclasses and looks at no message.
"""

import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import NamedTuple


class StructureField(NamedTuple):
    """One field of a structure."""

    name: str
    element: object
    """The type of the field without null, or of the elements of its array."""
    is_array: bool

    @property
    def structure(self) -> type | None:
        """The class of the structure, or of the array's structures, that the field holds."""
        element = self.element
        return element if isinstance(element, type) and is_dataclass(element) else None

    def each(self, variable: str) -> str:
        """Source of an iterable over the structures of the field: none for null, one for one."""
        place = f"{variable}.{self.name}"
        return f"{place} or ()" if self.is_array else f"({place},) if {place} else ()"


def structure_fields(owner: type) -> Iterator[StructureField]:
    """Return the fields of a generated message class or of the class of a part."""
    for field in fields(owner):
        kind = _without_none(field.type)
        is_array = typing.get_origin(kind) is tuple
        element = typing.get_args(kind)[0] if is_array else kind
        yield StructureField(field.name, element, is_array)


def _without_none(annotation: object) -> object:
    inner = [kind for kind in typing.get_args(annotation) if kind is not NoneType]
    return inner[0] if len(inner) == 1 and NoneType in typing.get_args(annotation) else annotation
