"""The location of a warehouse, as the library of its format reads it (pure).

A location is a path or a URI. `pyiceberg` uses the path of a URI literally, with `%20` as three
characters. `deltalake` reads `%20` in a URI as a space. Our data files must be in the folder that
the library reads, so after this module a location is exact: `of_delta` has decoded it, and `%20` is
not decoded again.

Guarantees of `problem_of`: with an accepted location, both libraries find the files that they
wrote. Rejected characters were tried: the libraries silently cut at `#` and `?` of a URI, and
`deltalake` fails at some other characters.
"""

import re
from typing import Final
from urllib.parse import unquote

from penstock.spark.tables.definition.model import TableFormat

_URI: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)
_LOCAL: Final = "file"
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f]")
_CUT: Final = re.compile(r"[#?]")
_NOT_IN_DELTA: Final = re.compile(r"[\[\]\\^|]|%[0-9A-Fa-f]{2}")


def split(location: str) -> tuple[str, str]:
    """Return the scheme and the rest, including the host; for a local path `file` and the path."""
    if location.startswith(f"{_LOCAL}:/") and not location.startswith(f"{_LOCAL}://"):
        return _LOCAL, location.removeprefix(f"{_LOCAL}:")
    found = _URI.fullmatch(location)
    return (found["scheme"].lower(), found["rest"]) if found else (_LOCAL, location)


def local_path(location: str) -> str | None:
    """Return the path of an exact location on this machine; None for a remote location."""
    scheme, rest = split(location)
    return rest if scheme == _LOCAL else None


def of_delta(warehouse: str) -> str:
    """Return a Delta warehouse as an exact location, which `deltalake` accepts as well."""
    scheme, rest = split(warehouse)
    if scheme != _LOCAL:
        return warehouse
    return rest if rest == warehouse else unquote(rest.removeprefix("localhost"))


def problem_of(warehouse: str, format_: TableFormat) -> tuple[str, str] | None:
    """Return the reason why no table can be there, and the remedy; None if one can."""
    if _CONTROLS.search(warehouse):
        return "it has a line break or another control character.", "Remove it."
    is_uri = split(warehouse)[1] != warehouse
    cut = _CUT.search(warehouse)
    if is_uri and cut:
        return (
            f"it is a URI, and whatever follows {cut.group()!r} would be left out.",
            "Name a folder without # and ?.",
        )
    if format_ is not TableFormat.DELTA:
        return None
    found = _NOT_IN_DELTA.search(of_delta(warehouse))
    if found is None:
        return None
    return (
        f"it has {found.group()!r}, which the deltalake package does not find again.",
        "Name a folder without [, ], ^, | and \\, and write its name without escapes like %20.",
    )
