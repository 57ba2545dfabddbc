"""Converts JSON texts to Python values and back, with numbers as written (pure).

Guarantees: no digit of a number is lost. For a duplicate key the first value counts; the text of
such an object has both. Beyond JSON it accepts the same as DuckDB: a comma before a closing
bracket, and nan and inf in any case. The text of a value is the same as DuckDB's.

It does not check whether a text is JSON: it accepts some other texts, such as halves of surrogate
pairs. DuckDB checks this.
"""

import decimal
import json
import re
from collections.abc import Callable
from typing import Final

_TOKEN: Final = re.compile(
    r'"(?:[^"\\]+|\\.?)*"?|(?P<comma>,)(?=[ \t\r\n]*[\]}])|(?P<word>-?(?:nan|inf(?:inity)?))',
    re.IGNORECASE | re.DOTALL,
)
"""A text, which is skipped, or syntax that is not JSON. A text need not end, so that the time is
proportional to the input."""
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-f]{4})|.)")
_PLAIN_POWERS: Final = range(-6, 21)
"""Numbers with these powers of ten are written without an exponent."""


class Number(str):
    """A number as it was written, which decides the columns that accept it."""

    __slots__ = ()


class _Repeating(dict[str, object]):
    """An object with a duplicate key."""

    __slots__ = ("pairs",)

    def __init__(self, found: dict[str, object], pairs: list[tuple[str, object]]) -> None:
        super().__init__(found)
        self.pairs = pairs


def decoded(text: str) -> object:
    """Return the value of a text; raise `ValueError` if it has none."""
    try:
        return _DECODER.decode(text)
    except ValueError:
        words: list[str] = []
        tidied = _tidied(text, words)
        if tidied == text:
            raise
    written = iter(words)
    return _decoder(lambda _: Number(next(written))).decode(tidied)


def decoded_beginning(text: str) -> object:
    """Return the value at the beginning of a text that is known to be JSON."""
    return _DECODER.raw_decode(text)[0]


def json_text(value: object) -> str:
    """Return the JSON of a value, without spaces."""
    if isinstance(value, Number):
        return _number_text(value)
    if isinstance(value, dict):
        pairs = value.pairs if isinstance(value, _Repeating) else value.items()
        inner = ",".join(f"{_scalar_text(name)}:{json_text(one)}" for name, one in pairs)
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{','.join(json_text(one) for one in value)}]"
    return _scalar_text(value)


def double_of(number: Number) -> float | None:
    """Return the double of a fraction; None for a whole number, or if it is too large."""
    if not set(number) & set(".eE"):
        return None
    double = float(number)
    return None if abs(double) == float("inf") else double


def _first_of_each(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        found.setdefault(name, value)
    return found if len(found) == len(pairs) else _Repeating(found, pairs)


def _whole(text: str) -> Number:
    # Spark and DuckDB agree that the whole number -0 is 0.
    return Number("0" if text == "-0" else text)


def _decoder(constant: Callable[[str], object]) -> json.JSONDecoder:
    return json.JSONDecoder(
        parse_int=_whole,
        parse_float=Number,
        parse_constant=constant,
        object_pairs_hook=_first_of_each,
    )


_DECODER: Final = _decoder(Number)


def _tidied(text: str, words: list[str]) -> str:
    """Return the text without extensions of JSON; its words become NaN and are kept in `words`."""

    def tidy(found: re.Match[str]) -> str:
        if found["word"] is not None:
            words.append(found["word"])
            return "NaN"
        return "" if found["comma"] is not None else found[0]

    return _TOKEN.sub(tidy, text)


def _number_text(number: Number) -> str:
    """Return the shortest text of the same double; whole and too large numbers are unchanged."""
    double = double_of(number)
    if double is None:
        return str(number)
    text = repr(double)
    exact = decimal.Decimal(text)
    if exact.adjusted() not in _PLAIN_POWERS and exact:
        digits, _, power = text.partition("e")
        return f"{digits}e{int(power)}"
    plain = format(exact, "f")
    return plain if "." in plain else f"{plain}.0"


def _scalar_text(value: object) -> str:
    """Return the text as in DuckDB and Spark: escapes of control characters have capital digits."""
    text = json.dumps(value, ensure_ascii=False)
    return _ESCAPE.sub(lambda found: f"\\u{found[1].upper()}" if found[1] else found[0], text)
