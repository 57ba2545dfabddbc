"""What the location of a warehouse means to the library of its format (pure).

A location is a path or a URI. `pyiceberg` takes the path of a URI as it is written, with `%20` as
three characters. `deltalake` reads `%20` in a URI as a space. Our data files have to lie where the
library looks for them, so from here on a location is exact: `of_delta` has read what is to be read,
and nobody reads `%20` again.

Guarantees of `problem_of`: with a location that it lets pass, both libraries find again what they
wrote. What it refuses was tried: they cut at `#` and `?` of a URI without a word, and `deltalake`
fails at some other characters.
"""

import re
from typing import Final
from urllib.parse import unquote

from penstock.spark.tables.definition import TableFormat

_URI: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)
_LOCAL: Final = "file"
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f]")
_CUT: Final = re.compile(r"[#?]")
_NOT_IN_DELTA: Final = re.compile(r"[\[\]\\^|]|%[0-9A-Fa-f]{2}")


def split(location: str) -> tuple[str, str]:
    """The scheme and what follows it, host included; of a local path `file` and the path."""
    if location.startswith(f"{_LOCAL}:/") and not location.startswith(f"{_LOCAL}://"):
        return _LOCAL, location.removeprefix(f"{_LOCAL}:")
    found = _URI.fullmatch(location)
    return (found["scheme"].lower(), found["rest"]) if found else (_LOCAL, location)


def local_path(location: str) -> str | None:
    """The path of an exact location on this machine; None of one that is elsewhere."""
    scheme, rest = split(location)
    return rest if scheme == _LOCAL else None


def of_delta(warehouse: str) -> str:
    """A Delta warehouse as an exact location, which `deltalake` takes as well."""
    scheme, rest = split(warehouse)
    if scheme != _LOCAL:
        return warehouse
    return rest if rest == warehouse else unquote(rest.removeprefix("localhost"))


def problem_of(warehouse: str, format_: TableFormat) -> tuple[str, str] | None:
    """Why no table can lie there, and what to do; None if one can."""
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
