"""`Secret`: a password, a key or a token that does not appear in logs, messages or pickles (pure).

Guarantees: `reveal` is the one way to the value, so a search for it finds every use. `repr`, `str`,
every format and JSON with `default=str` return `[hidden]`. Comparing two secrets takes the same
time for every value of the same length.

A pickled `Secret` loses its value: it reveals `[hidden]` after it is loaded, so an accidental
pickle in a checkpoint, a cache or a queue leaks nothing. `for_task` returns a `SecretForTask`,
which keeps its value when it is pickled. Only Spark's executors need that, and only the code that
builds a task may call it. Copies within the process are the object itself, which never changes.

It does NOT protect against code in the same process, nor against a dump of its memory.
"""

import hashlib
import hmac
from typing import Final, NoReturn, Self

HIDDEN: Final = "[hidden]"


class Secret:
    """A text that only `reveal` returns."""

    __slots__ = ("_value",)

    _value: str

    def __init__(self, value: str) -> None:
        object.__setattr__(self, "_value", value)

    def reveal(self) -> str:
        """Return the value. Never log it, and never put it into a message."""
        return self._value

    def for_task(self) -> "SecretForTask":
        """Return a secret that keeps its value when it is pickled, for a task of Spark."""
        return SecretForTask(self._value)

    def __repr__(self) -> str:
        return HIDDEN

    def __format__(self, form: str) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(_bytes(self._value), _bytes(other._value))

    def __hash__(self) -> int:
        return hash(hashlib.sha256(_bytes(self._value)).digest())

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Secret cannot be changed.")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a Secret cannot be changed.")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __getstate__(self) -> None:
        """Return no state, for serializers that do not use `__reduce__`."""

    def __reduce__(self) -> tuple[type["Secret"], tuple[str]]:
        return Secret, (HIDDEN,)


class SecretForTask(Secret):
    """A secret that keeps its value when it is pickled. Create it with `Secret.for_task` only."""

    __slots__ = ()

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return SecretForTask, (self._value,)


def _bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")
