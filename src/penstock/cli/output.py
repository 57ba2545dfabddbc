"""Where results go: a table for a person, plain columns for a pipe, JSON for a program.

Results are on standard output and nothing else is; progress and problems are on standard error.
JSON is one document for a command with one answer and one line for each record otherwise; its
fields are part of the interface and only ever grow. A terminal gets rich's tables (which respect
NO_COLOR and the width); a pipe gets columns without colours or boxes, and rich is not even
imported.
"""

import json
import sys
from collections.abc import Sequence

import click


def print_json(document: object) -> None:
    """One indented document."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def json_line(document: object) -> str:
    """One document on one line."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
    """A table of text; None is shown as a dash."""
    texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich_table(columns, texts, title)
        return
    widths = [max(len(row[i]) for row in [columns, *texts]) for i in range(len(columns))]
    for row in [columns, *texts]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())


def _print_rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        # Text, not markup: a topic setting may hold square brackets.
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def note(message: str) -> None:
    """A line for the person, kept out of the results."""
    click.echo(message, err=True)
