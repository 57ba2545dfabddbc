"""The version of Penstock. Imported late: reading the installed packages takes milliseconds."""

from importlib.metadata import PackageNotFoundError, version


def penstock_version() -> str:
    """Return the version that pip installed; a source tree that is not installed has none."""
    try:
        return version("penstock")
    except PackageNotFoundError:
        return "not installed"
