"""Parses an option's text from Spark to a number, a size, a time (pure).

Spark passes every option as text. The forms are Spark's own: `true` and `false` in any case, sizes
as `16m` or `1g` in powers of two, times as `500ms`, `15m` or `1h`; a bare number is bytes or
milliseconds. An invalid value is an `OptionError` that shows the forms.
"""

import re
from collections.abc import Mapping
from typing import Final

from penstock.spark.errors import OptionError

LONG_MAX: Final = 2**63 - 1
"""Offsets, counts and times are long values in Java."""
TEXT_CHARACTERS_MAX: Final = 4_194_304
"""JSON with an offset for each of 100,000 partitions needs 2 MiB; more than 4 MiB is a mistake."""

_SIZES: Final[Mapping[str, int]] = {
    "": 1,
    "b": 1,
    "k": 2**10,
    "kb": 2**10,
    "m": 2**20,
    "mb": 2**20,
    "g": 2**30,
    "gb": 2**30,
    "t": 2**40,
    "tb": 2**40,
}
_TIMES_MS: Final[Mapping[str, int]] = {
    "": 1,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_AMOUNT: Final = re.compile(r"([0-9]{1,19})\s*([a-z]*)")


def read_boolean(option: str, text: str) -> bool:
    """Return `true` or `false`, in any case."""
    word = text.strip().lower()
    if word not in {"true", "false"}:
        raise OptionError(option, f"{shown(text)} is neither true nor false.", "Set one of them.")
    return word == "true"


def read_integer(option: str, text: str, *, lowest: int, highest: int = LONG_MAX) -> int:
    """Return a whole number within bounds."""
    word = text.strip()
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", word):
        raise OptionError(
            option, f"{shown(text)} is not a whole number.", f"Set one from {lowest} on."
        )
    value = int(word)
    if not lowest <= value <= highest:
        bounds = f"of at least {lowest}" if highest == LONG_MAX else f"from {lowest} to {highest}"
        raise OptionError(option, f"{value} is out of range.", f"Set a number {bounds}.")
    return value


def read_size(option: str, text: str, *, lowest: int = 1) -> int:
    """Return a number of bytes, as `1048576`, `16m` or `1g`."""
    return _amount(option, text, _SIZES, lowest, "a size in bytes, such as 1048576, 16m or 1g")


def read_time_ms(option: str, text: str, *, lowest: int = 0) -> int:
    """Return a time in milliseconds, as `30000`, `30s` or `15m`."""
    return _amount(option, text, _TIMES_MS, lowest, "a time, such as 30000 (ms), 30s, 15m or 1h")


def read_choice(option: str, text: str, choices: tuple[str, ...]) -> str:
    """Return one of the choices; the case is ignored."""
    word = text.strip().lower()
    if word not in choices:
        raise OptionError(
            option, f"{shown(text)} is not a choice.", f"Set one of {', '.join(choices)}."
        )
    return word


def require_short(option: str, text: str) -> str:
    """Return the text, or raise if it is longer than any sensible text."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise OptionError(
            option,
            f"its value has {len(text)} characters.",
            f"At most {TEXT_CHARACTERS_MAX} are read.",
        )
    return text


def shown(text: str) -> str:
    """Return a value as an error shows it: quoted, and cut if long."""
    return repr(text if len(text) <= 100 else text[:100] + "…")


def _amount(option: str, text: str, units: Mapping[str, int], lowest: int, forms: str) -> int:
    found = _AMOUNT.fullmatch(text.strip().lower())
    if found is None or found.group(2) not in units:
        raise OptionError(option, f"{shown(text)} cannot be read.", f"Set {forms}.")
    value = int(found.group(1)) * units[found.group(2)]
    if not lowest <= value <= LONG_MAX:
        raise OptionError(option, f"{shown(text)} is out of range.", f"Set {forms}.")
    return value
