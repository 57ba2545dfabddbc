"""Which Penstock this is. Imported late: looking into installed packages takes milliseconds."""

from importlib.metadata import PackageNotFoundError, version


def penstock_version() -> str:
    """The version that pip installed; a source tree that nobody installed has none."""
    try:
        return version("penstock")
    except PackageNotFoundError:
        return "not installed"
