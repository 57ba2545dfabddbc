"""Work that comes in steps, done at once."""

from collections.abc import Generator
from typing import TypeVar

Result = TypeVar("Result")


def finished(steps: Generator[None, None, Result]) -> Result:
    """What the steps lead to."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: Result = end.value
        return result
