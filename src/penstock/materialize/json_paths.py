"""JSON paths such as `$.sku` or `$.items[0]."unit price"`, and their SQL (pure).

Guarantees: the SQL of a path contains only checked names, so no text of a user reaches SQL without
quotes. The expression is NULL for values that are not JSON text; it never raises an error at a
write.
"""

import re
from dataclasses import dataclass
from typing import Final

from penstock.core.errors import InvalidRequestError

PATH_CHARACTERS_MAX: Final = 256
STEPS_MAX: Final = 16

_STEP: Final = re.compile(r'\.([A-Za-z_][A-Za-z0-9_-]*)|\."([^"\\\x00-\x1f]+)"|\[(\d{1,9})\]')
_WORDS: Final = re.compile(r"[A-Za-z0-9]+")
_REMEDY: Final = "Write it as $.name, $.name.inner or $.list[0]."


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path in a normal form: equal paths have equal text."""

    text: str
    column: str
    """A name for a column of this path."""

    @property
    def expression(self) -> str:
        """Return the SQL that extracts the path from the column `value`."""
        literal = self.text.replace("'", "''")
        return (
            'CASE WHEN typeof("value") = \'text\' AND json_valid("value") '
            f"THEN json_extract(\"value\", '{literal}') END"
        )


def match_path(text: str, start: int = 0) -> tuple[JsonPath, int] | None:
    """Return the path that begins at `start` and its end; None when there is no path."""
    if text[start : start + 1] != "$":
        return None
    place = start + 1
    steps: list[str] = []
    words: list[str] = []
    while len(steps) <= STEPS_MAX and (found := _STEP.match(text, place)):
        plain, quoted, number = found.groups()
        name = plain or quoted
        steps.append(f"[{int(number)}]" if name is None else f'."{name}"')
        words += _WORDS.findall(number if name is None else name)
        place = found.end()
    if not steps or len(steps) > STEPS_MAX or place - start > PATH_CHARACTERS_MAX:
        return None
    return JsonPath("$" + "".join(steps), "_".join(words) or "column"), place


def parse_path(text: str) -> JsonPath:
    """Return the path of a whole text, or raise `InvalidRequestError`."""
    found = match_path(text)
    if found is None or found[1] != len(text):
        raise InvalidRequestError(
            f"{text[:PATH_CHARACTERS_MAX]!r} is not a JSON path of at most {STEPS_MAX} steps.",
            hint=_REMEDY,
        )
    return found[0]
