"""Line numbers of the keys of a TOML text, for messages; `tomllib` does not keep them.

The lines are only a hint. `tomllib` has parsed the text, so it is valid; this module finds lines,
never values. A key inside an inline table or an array has the line of that table or array.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

_PART: Final = r"(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')"
_NAME: Final = rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*"
_ARRAY_TABLE: Final = re.compile(rf"^\s*\[\[{_NAME}\]\]")
_TABLE: Final = re.compile(rf"^\s*\[{_NAME}\]")
_ASSIGNMENT: Final = re.compile(rf"^{_NAME}=")
_MULTI_LINE: Final = ('"""', "'''")
_TOKENS: Final = re.compile(r"\"\"\"|'''|\"(?:\\.|[^\"\\])*\"|'[^']*'|#|[\[\]{}]")


def key_lines(toml_text: str) -> dict[str, int]:
    """Return the line of each key; a key in the second `[[topics]]` is `topics[1].name`."""
    lines: dict[str, int] = {}
    counts: dict[str, int] = {}
    section, inside = "", _Inside()
    for number, line in enumerate(toml_text.split("\n"), start=1):
        if inside.a_value:
            inside.take(line)
        elif table := _ARRAY_TABLE.match(line):
            name = _plain(table[1])
            counts[name] = counts.get(name, -1) + 1
            section = f"{name}[{counts[name]}]"
            lines[section] = number
        elif table := _TABLE.match(line):
            section = _within_array(_plain(table[1]), counts)
            lines.setdefault(section, number)
        elif assignment := _ASSIGNMENT.match(line):
            key = _plain(assignment[1])
            lines.setdefault(f"{section}.{key}" if section else key, number)
            inside.take(line[assignment.end() :])
    return lines


def leaf_names(name: str, value: object) -> Iterator[str]:
    """Yield the names with dots of a value of TOML, which reads `ssl.client.auth` as tables."""
    if isinstance(value, dict) and value:
        for inner, inner_value in value.items():
            yield from leaf_names(f"{name}.{inner}", inner_value)
    else:
        yield name


def line_of(lines: Mapping[str, int], key: str) -> int | None:
    """Return the line of a key, or of the innermost table or array around it."""
    while key not in lines:
        key, dot, _ = key.rpartition(".")
        if not dot:
            return None
    return lines[key]


def _plain(name: str) -> str:
    return ".".join(part.strip("\"'") for part in re.findall(_PART, name))


def _within_array(name: str, counts: Mapping[str, int]) -> str:
    """Return the name within its array: `[topics.settings]` belongs to the last `[[topics]]`."""
    first, dot, rest = name.partition(".")
    return f"{first}[{counts[first]}]{dot}{rest}" if first in counts else name


class _Inside:
    """Whether the text is inside a value of several lines."""

    def __init__(self) -> None:
        self._depth = 0
        self._delimiter = ""

    @property
    def a_value(self) -> bool:
        return bool(self._depth or self._delimiter)

    def take(self, text: str) -> None:
        """Read a piece of a value, to the end of its line."""
        at = 0
        while at < len(text):
            if self._delimiter:
                end = text.find(self._delimiter, at)
                if end < 0:
                    return
                at, self._delimiter = end + len(self._delimiter), ""
                continue
            token = _TOKENS.search(text, at)
            if token is None or token[0] == "#":
                return
            at = token.end()
            if token[0] in _MULTI_LINE:
                self._delimiter = token[0]
            elif token[0] in "[{":
                self._depth += 1
            elif token[0] in "]}":
                self._depth -= 1
