"""Number types of the command line, with error messages that name the valid range.

For a word, click's own types report "not a valid integer range", without the valid numbers. These
types have the same ranges, also in the help; only the error message differs.
"""

from typing import Any

import click


class WholeNumber(click.IntRange):
    """A whole number within bounds."""

    name = "integer"

    def convert(
        self,
        value: Any,  # noqa: ANN401 (click's signature)
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> int:
        """Return the number; raise a usage error with the valid range."""
        try:
            number = int(value)
        except ValueError:
            number = None
        if number is None or not _is_within(self, number):
            self.fail(f"{value!r} is not a whole number {_bounds(self)}.", param, ctx)
        return number


class Number(click.FloatRange):
    """A number within bounds, with or without a fraction."""

    name = "number"

    def convert(
        self,
        value: Any,  # noqa: ANN401 (click's signature)
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        """Return the number; raise a usage error with the valid range."""
        try:
            number = float(value)
        except ValueError:
            number = None
        if number is None or not _is_within(self, number):
            self.fail(f"{value!r} is not a number {_bounds(self)}.", param, ctx)
        return number


def _is_within(bounds: click.IntRange | click.FloatRange, number: float) -> bool:
    # Compared in this direction, NaN is outside every range.
    low, high = bounds.min, bounds.max
    is_above = low is None or (number > low if bounds.min_open else number >= low)
    is_below = high is None or (number < high if bounds.max_open else number <= high)
    return is_above and is_below


def _bounds(bounds: click.IntRange | click.FloatRange) -> str:
    low, high = bounds.min, bounds.max
    if low is not None and high is not None:
        return f"above {low}, at most {high}" if bounds.min_open else f"from {low} to {high}"
    if low is not None:
        return f"above {low}" if bounds.min_open else f"of {low} or more"
    return f"below {high}" if bounds.max_open else f"of {high} or less"
