"""A progress line on standard error for long work; nothing without a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.cli.output import console, is_live

Advance = Callable[[int, str], None]
"""Called with the bytes done since the last call, and a few words."""


@contextmanager
def progress_line(description: str, total_bytes: int | None) -> Iterator[Advance]:
    """Show the progress of the work, if standard error is a terminal."""
    if not is_live():
        yield lambda _done, _words: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[words]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=total_bytes, words="")
        yield lambda done, words: progress.update(task, advance=done, words=words)
