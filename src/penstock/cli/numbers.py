"""Numbers on the command line: what is possible is said when something else is given.

Click's own types answer a word with "not a valid integer range", which names no number that would
do. These are the same ranges, also in the help; only what a person is told differs.
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
        """The number; a usage error that says which ones are possible."""
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
        """The number; a usage error that says which ones are possible."""
        try:
            number = float(value)
        except ValueError:
            number = None
        if number is None or not _is_within(self, number):
            self.fail(f"{value!r} is not a number {_bounds(self)}.", param, ctx)
        return number


def _is_within(bounds: click.IntRange | click.FloatRange, number: float) -> bool:
    # Asked this way round, what is not a number at all is within nothing.
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
