"""Output of results: a table for a terminal, plain columns for a pipe, JSON for a program.

Standard output has only results; progress and problems go to standard error. JSON is one document
for a command with one result, otherwise one line for each record. Its fields are part of the
interface: fields are added, never removed. A terminal gets rich's tables, which respect NO_COLOR
and the width. A pipe gets columns without colours or boxes, and rich is not imported. `--plain`
selects the pipe's format on a terminal, `--color` the terminal's format in a pipe; both override
the environment.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from rich.console import Console


class Style(Enum):
    """The choice of the output format."""

    AUTO = "auto"
    PLAIN = "plain"
    COLOR = "color"


_BORDER_WIDTH: Final = 3
"""A line and two spaces, for each column."""
_FOLDED_WIDTH_MIN: Final = 24
_NUMBER: Final = re.compile(r"-|-?[0-9][0-9,]*(\.[0-9]+)?( ?([KMGT]i)?B)?")
_style = Style.AUTO
"""The style of this run of the command. It is a global because all output of a run shares it."""


def choose_style(style: Style) -> None:
    """Set the style, until the next call."""
    global _style
    _style = style


def is_rich() -> bool:
    """Return whether results are drawn as tables with colours."""
    return _style is Style.COLOR or (_style is Style.AUTO and sys.stdout.isatty())


def is_live() -> bool:
    """Return whether progress is shown on standard error, rewritten in place."""
    return _style is not Style.PLAIN and sys.stderr.isatty()


def can_draw() -> bool:
    """Return whether non-ASCII blocks and lines can be printed: tables are on, in UTF."""
    return is_rich() and (sys.stdout.encoding or "").lower().startswith("utf")


def console(*, stderr: bool = False) -> "Console":
    """Return rich's console; it checks the terminal and NO_COLOR unless the style is set."""
    from rich.console import Console

    class PipeConsole(Console):
        """A console that raises on a closed pipe, as plain output does; rich would exit with 1."""

        def on_broken_pipe(self) -> None:
            self.quiet = True
            raise BrokenPipeError

    if _style is Style.COLOR:
        return PipeConsole(stderr=stderr, force_terminal=True, no_color=False)
    return PipeConsole(stderr=stderr)


def print_json(document: object) -> None:
    """Print one indented document."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def json_line(document: object) -> str:
    """Return the document as one line."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    title: str = "",
    styles: Mapping[str, str] | None = None,
    folds: str | None = None,
) -> None:
    """Print a table of text; None is a dash. `styles` maps a cell's text to its colour.

    `folds`: on a narrow terminal only this column is folded within words. Names, times and numbers
    stay whole, even if the table is then too wide.
    """
    texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    if is_rich():
        _print_rich_table(columns, texts, title, styles or {}, folds)
        return
    widths = [max(len(row[i]) for row in [columns, *texts]) for i in range(len(columns))]
    for row in [columns, *texts]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())


def _print_rich_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str,
    styles: Mapping[str, str],
    folds: str | None,
) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", header_style="bold")
    whole_width = 1
    for number, name in enumerate(columns):
        cells = [row[number] for row in rows]
        width = None
        if folds is not None:
            width = _FOLDED_WIDTH_MIN if name == folds else _word_width([name, *cells])
            whole_width += width + _BORDER_WIDTH
        table.add_column(
            name,
            overflow="fold",
            min_width=width,
            justify="right" if folds is not None and _are_numbers(cells) else "left",
        )
    for row in rows:
        # Text, not markup: a topic setting may hold square brackets.
        table.add_row(*(Text(cell, style=styles.get(cell, "")) for cell in row))
    drawn = console()
    if folds is None and _fits_without_lines(columns, rows, drawn.width):
        table.box = None
        table.padding = (0, 2, 0, 0)
        table.pad_edge = False
    # A line that the terminal wraps can still be read and copied; a split word cannot.
    drawn.print(table, width=max(drawn.width, whole_width), crop=False)


def _fits_without_lines(
    columns: Sequence[str], rows: Sequence[Sequence[str]], columns_max: int
) -> bool:
    """Return whether a table fits the terminal as plain columns, but not with lines."""
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    with_lines = 1 + sum(width + _BORDER_WIDTH for width in widths)
    return sum(widths) + 2 * (len(widths) - 1) <= columns_max < with_lines


def _word_width(cells: Sequence[str]) -> int:
    return max(len(word) for cell in cells for word in cell.split() or [""])


def _are_numbers(cells: Sequence[str]) -> bool:
    return all(_NUMBER.fullmatch(cell) for cell in cells)


def print_colored(parts: Sequence[tuple[str, str]]) -> None:
    """Print one line of parts, each a text and its colour; a pipe gets only the texts."""
    if not is_rich():
        click.echo("".join(text for text, _ in parts).rstrip())
        return
    from rich.text import Text

    console().print(Text.assemble(*parts))


def note(message: str) -> None:
    """Print a line for the user to standard error, separate from the results."""
    click.echo(message, err=True)
