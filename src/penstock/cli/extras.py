"""What is not installed, in words: commands that need Spark or a format of tables say what to do.

Those packages are extras, so that a broker stays light. A command imports them inside of
`extras_named`, and a missing one becomes a line with the command that installs it.
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
    """Turn a missing package into what to install; a module of ours that is missing is a defect."""
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
