"""Reports missing extras: commands that need Spark or a table format print how to install it.

These packages are extras, so that a broker stays small. A command imports them inside
`extras_named`, which turns a missing package into a line with the install command.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.core.errors import PenstockError

_OURS: Final = "penstock"


class ExtraMissingError(PenstockError):
    """A package of an extra is not installed."""


@contextmanager
def extras_named() -> Iterator[None]:
    """Turn a missing package into an install hint; a missing module of Penstock is a bug."""
    try:
        yield
    except ImportError as error:
        missing = error.name or ""
        if missing.split(".")[0] == _OURS:
            raise
        what = f"the package '{missing}'" if missing else "packages"
        raise ExtraMissingError(
            f"pipelines into tables need {what}, which the broker does without. Install what works "
            "together with: pip install 'penstock[spark,iceberg]' (or 'penstock[spark,delta]')"
        ) from error
