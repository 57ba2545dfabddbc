"""`-m crash` reads only the files that name this marker: the others are not imported.

Guarantees: a file is left out only if neither it nor a `conftest.py` above it names each marker
that the expression requires, as `mark.NAME`. A run without such an expression imports all files and
fails if a test has a marker of `SELECTED` that is not named this way: so no test is overlooked.

It is NOT a selection: pytest still evaluates the expression for each test.
"""

import functools
import re
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).resolve().parent
SELECTED: Final = (
    *("bench", "chaos", "cluster_chaos", "crash", "etcd", "every_spark"),
    *("interop", "model", "orchestrators", "scale", "simulate", "slow", "spark"),
)
"""The markers that select the tests of a run."""
_TERM: Final = re.compile(r"(not )?(\w+)")
_NAMED: Final = re.compile(r"\bmark\.(\w+)")


class MarkedFiles:
    """Plugin: leaves out the files without a required marker."""

    def __init__(self, config: pytest.Config) -> None:
        self._required = required_markers(config.getoption("markexpr") or "")

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave out a file of tests that does not name each required marker."""
        if not self._required or collection_path.suffix != ".py":
            return None
        return True if self._required - named_markers(collection_path) else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Fail if a test has a marker that its file does not name."""
        for item in items:
            hidden = {mark.name for mark in item.iter_markers()} & {*SELECTED}
            if hidden and (hidden := hidden - named_markers(item.path)):
                raise pytest.UsageError(
                    f"{item.nodeid} has the marker {min(hidden)}, which neither its file nor a "
                    f"conftest.py above names: write pytest.mark.{min(hidden)} there."
                )


def required_markers(expression: str) -> frozenset[str]:
    """The markers that each selected test has; none if the expression has `or` or parentheses."""
    terms = [_TERM.fullmatch(term) for term in expression.split(" and ")]
    names = [term for term in terms if term is not None]
    if len(names) < len(terms):
        return frozenset()
    return frozenset(term[2] for term in names if not term[1]) & {*SELECTED}


@functools.cache
def named_markers(path: Path) -> frozenset[str]:
    """The markers that a file and the `conftest.py` files above it name."""
    files = [path, *(folder / "conftest.py" for folder in path.parents)]
    return frozenset().union(
        *(_named_in(file) for file in files if file == path or file.is_relative_to(TESTS))
    )


@functools.cache
def _named_in(file: Path) -> frozenset[str]:
    return frozenset(_NAMED.findall(file.read_text())) if file.is_file() else frozenset()
