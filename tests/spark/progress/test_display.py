"""A terminal rewrites its lines, a log keeps every one; a broken stream ends the display only."""

import io

from penstock.spark.progress.board import Line
from penstock.spark.progress.display import SCREEN_SIZE_DEFAULT, Display, cut


class Screen:
    """A terminal's screen: supports the few codes that the display uses."""

    def __init__(self, written: str) -> None:
        self.lines: list[str] = []
        row = 0
        while written:
            if written.startswith("\x1b[0J"):
                del self.lines[row:]
                written = written[4:]
            elif written.startswith("\x1b["):
                count, _, written = written[2:].partition("F")
                row -= int(count)
                assert row >= 0
            else:
                end = written.index("\n")
                assert len(written[:end]) < SCREEN_SIZE_DEFAULT.columns
                self.lines[row:] = [*self.lines[row:row], written[:end]]
                row += 1
                written = written[end + 1 :]


def test_a_terminal_rewrites_the_line_of_each_query() -> None:
    stream = io.StringIO()
    display = Display(stream, is_terminal=True)
    for number in range(3):
        display.show(Line("run-1", f"orders {number}"))
        display.show(Line("run-2", f"clicks {number}"))
    assert Screen(stream.getvalue()).lines == ["orders 2", "clicks 2"]
    display.say("a remark")
    assert Screen(stream.getvalue()).lines == ["a remark", "orders 2", "clicks 2"]
    display.show(Line("run-1", "orders stopped", is_last=True))
    display.show(Line("run-2", "clicks 3"))
    assert Screen(stream.getvalue()).lines == ["a remark", "orders stopped", "clicks 3"]


def test_a_terminal_cuts_live_lines_and_shows_as_many_as_fit() -> None:
    stream = io.StringIO()
    display = Display(stream, is_terminal=True)
    for number in range(40):
        display.show(Line(f"run-{number}", f"{number} " + "x" * 200))
    lines = Screen(stream.getvalue()).lines
    assert len(lines) == SCREEN_SIZE_DEFAULT.lines - 1
    assert lines[-1].startswith("39 ")
    assert lines[-1].endswith("…")


def test_a_log_keeps_every_line() -> None:
    stream = io.StringIO()
    display = Display(stream)
    display.show(Line("run-1", "orders " + "x" * 200))
    display.say("a remark")
    display.show(Line("run-1", "orders stopped", is_last=True))
    assert stream.getvalue() == f"orders {'x' * 200}\na remark\norders stopped\n"


def test_a_closed_stream_ends_the_display_only() -> None:
    stream = io.StringIO()
    display = Display(stream)
    stream.close()
    display.show(Line("run-1", "orders"))
    display.say("a remark")


def test_a_stand_in_that_is_no_file_is_no_terminal() -> None:
    class Notebook:
        def __init__(self) -> None:
            self.written = ""

        def write(self, text: str) -> None:
            self.written += text

        def flush(self) -> None: ...

    stream = Notebook()
    display = Display(stream)  # type: ignore[arg-type]
    display.show(Line("run-1", "orders"))
    assert stream.written == "orders\n"


def test_cut() -> None:
    assert cut("orders", 6) == "orders"
    assert cut("orders", 5) == "orde…"
    assert cut("orders", 0) == "…"
