"""Notes the private names of other packages whose contract is a test.

Guarantees: each name has one contract. `names_with_contract` returns those of the imported modules.
"""

from collections.abc import Callable
from typing import TypeVar

_Test = TypeVar("_Test", bound=Callable[..., None])
_tested: set[str] = set()


def contract(*names: str) -> Callable[[_Test], _Test]:
    """Note the names whose contract a test is."""

    def noted(test: _Test) -> _Test:
        assert not _tested & set(names), "one test for each name"
        _tested.update(names)
        return test

    return noted


def names_with_contract() -> frozenset[str]:
    """Return the names with a contract."""
    return frozenset(_tested)
