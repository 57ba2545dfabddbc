"""Formats counts, sizes and times for people: one unit, few digits. Programs get numbers."""

import math
from typing import Final

_DIGITS_MAX: Final = 10**18
"""A larger number is printed with an exponent: its digits fill the line."""


def number_text(number: float) -> str:
    """Return a number with separators and without an exponent: `1,000,000`, `0.001`."""
    if math.isnan(number) or abs(number) >= _DIGITS_MAX:
        return f"{number:g}"
    return f"{int(number):,}" if number == int(number) else f"{number:,}"


def size_text(size_bytes: int) -> str:
    """Return a readable size."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def duration_text(duration_ms: float) -> str:
    """Return a readable duration, in its largest unit."""
    seconds = duration_ms / 1000
    if seconds < 1:
        return f"{max(0.0, duration_ms):.0f} ms"
    for unit, size in (("days", 86_400), ("hours", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"


def count_text(count: int, word: str) -> str:
    """Return a count with its noun: `1 row`, `2,000 rows`."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def printable(text: str) -> str:
    """Return a text of another program for a message: control characters are spaces."""
    return "".join(one if one.isprintable() else " " for one in text)
