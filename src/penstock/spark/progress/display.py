"""The output of progress: a terminal rewrites its lines, other outputs get a line each time.

In a terminal the last lines of the screen are the live ones, one for each query. They are cut to
the screen's width: a line that wraps cannot be rewritten. Permanent lines go above them. A log file
and a notebook have no screen, so there every line is permanent.

Any thread may call it. If the stream is no longer writable, only the display ends: a display must
never stop the work.
"""

import os
from threading import Lock
from typing import Final, TextIO

from penstock.spark.progress.board import Line

SCREEN_SIZE_DEFAULT: Final = os.terminal_size((80, 24))
"""The size of a terminal that does not report its size."""
_UP: Final = "\x1b[{count}F"
"""Moves the cursor up by this number of lines, to the start of the line."""
_CLEAR_BELOW: Final = "\x1b[0J"


class Display:
    """The lines of several queries on one stream."""

    def __init__(self, stream: TextIO, *, is_terminal: bool | None = None) -> None:
        self._stream = stream
        self.is_terminal = _is_terminal(stream) if is_terminal is None else is_terminal
        self._live: dict[str, str] = {}
        self._live_lines_shown = 0
        self._is_open = True
        self._lock = Lock()

    def show(self, line: Line) -> None:
        """Show a query's line in place of its previous one; the final line is permanent."""
        with self._lock:
            if not self.is_terminal:
                self._write(f"{line.text}\n")
            elif line.is_last:
                self._live.pop(line.run_id, None)
                self._write(self._frame(line.text))
            else:
                self._live[line.run_id] = line.text
                self._write(self._frame())

    def say(self, text: str) -> None:
        """Write a permanent line."""
        with self._lock:
            self._write(self._frame(text) if self.is_terminal else f"{text}\n")

    def _frame(self, text: str | None = None) -> str:
        """Return the text that rewrites all live lines; `text` goes above them."""
        columns, rows = _screen_size(self._stream)
        shown = list(self._live.values())[-max(1, rows - 1) :]
        parts = [_UP.format(count=self._live_lines_shown)] if self._live_lines_shown else []
        parts.append(_CLEAR_BELOW)
        if text is not None:
            parts.append(f"{text}\n")
        parts += [f"{cut(line, columns - 1)}\n" for line in shown]
        self._live_lines_shown = len(shown)
        return "".join(parts)

    def _write(self, text: str) -> None:
        if not self._is_open:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # ValueError: the stream is closed
            self._is_open = False


def cut(text: str, width: int) -> str:
    """Return the text, cut to the width with a mark if it is longer."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # a notebook's replacement stream; a closed stream
        return False


def _screen_size(stream: TextIO) -> os.terminal_size:
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return SCREEN_SIZE_DEFAULT
    return size if size.columns and size.lines else SCREEN_SIZE_DEFAULT
