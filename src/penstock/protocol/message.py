"""`message`: the decorator of every generated message class.

A message is frozen, slotted and keyword-only, with a hash by value. The type checker enforces that
it is frozen (mypy refuses an assignment to a field), not the interpreter: a dataclass that is
frozen at run time sets each field through `object.__setattr__`, and building one of nine fields
then takes 2.4 us instead of 0.9 us. A produce request builds three of them.

A field with `field(repr=False)` is secret: no log and no error shows its value.

This file is NOT a base class and does not know versions; `schema` and `codec` do.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(
    frozen_default=True, kw_only_default=True, eq_default=True, field_specifiers=(field,)
)
def message() -> Callable[[type[T]], type[T]]:
    """Turn a class into a message."""
    return dataclass(slots=True, kw_only=True, unsafe_hash=True)
