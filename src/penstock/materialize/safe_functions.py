"""SQL functions whose cost SQLite does not bound, replaced by linear ones (pure).

SQLite looks at the deadline of a query between its steps, and a function call is one step. The
built-in `instr`, `replace` and `trim` compare every position with every other: on two long texts
one call would run for minutes. These versions are linear, or reject the arguments. `printf` and
`format` are denied by `bounded_queries`, because a width in the format costs that many steps.

Differences from the built-in functions: arguments that are numbers are converted as Python does.
"""

from collections.abc import Callable
from typing import Final

TRIM_CHARACTERS_MAX: Final = 256
RESULT_CHARACTERS_MAX: Final = 4_194_304

Value = str | bytes | int | float | None


def instr(text: Value, part: Value) -> int | None:
    """Return the first position of a part, from 1; 0 when it is missing."""
    if text is None or part is None:
        return None
    if isinstance(text, bytes) and isinstance(part, bytes):
        return text.find(part) + 1
    return _text(text).find(_text(part)) + 1


def replace(text: Value, part: Value, other: Value) -> str | None:
    """Return the text with each part replaced."""
    if text is None or part is None or other is None:
        return None
    old, new, whole = _text(part), _text(other), _text(text)
    if not old:
        return whole
    # The size is computed first: the result could be the product of both lengths.
    if len(whole) + whole.count(old) * (len(new) - len(old)) > RESULT_CHARACTERS_MAX:
        raise ValueError("the result is too long")
    return whole.replace(old, new)


def _trimmed(strip: Callable[[str, str], str]) -> Callable[[Value, Value], str | None]:
    def trim(text: Value, characters: Value) -> str | None:
        if text is None or characters is None:
            return None
        chosen = _text(characters)
        if len(chosen) > TRIM_CHARACTERS_MAX:
            raise ValueError("too many characters to trim")
        return strip(_text(text), chosen)

    return trim


def _text(value: str | bytes | float) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


FUNCTIONS: Final[dict[tuple[str, int], Callable[..., str | int | None]]] = {
    ("instr", 2): instr,
    ("replace", 3): replace,
    ("trim", 2): _trimmed(str.strip),
    ("ltrim", 2): _trimmed(str.lstrip),
    ("rtrim", 2): _trimmed(str.rstrip),
}
"""By name and number of arguments."""
