"""When a line is shown: each time in a terminal, elsewhere once in an interval, and at the end."""

from penstock.spark.progress.board import QUERIES_MAX, Board
from tests.spark.progress.documents import progress


def test_a_terminal_shows_every_batch() -> None:
    board = Board(0.0)
    board.started("q", "run-1", "daily")
    lines = [board.progressed(progress(batch_id=number), 0.0) for number in range(3)]
    assert [line.text.split("  ")[1] for line in lines if line] == ["batch 0", "batch 1", "batch 2"]
    idle = board.idle("run-1", 0.0)
    assert idle is not None
    assert "idle" in idle.text
    assert board.idle("run-1", 0.0) is None  # it says so already
    again = board.progressed(progress(batch_id=3), 0.0)
    assert again is not None
    assert "idle" not in again.text


def test_a_log_gets_one_line_in_an_interval_for_each_query() -> None:
    board = Board(10.0)
    shown = []
    for second in range(30):
        for run_id in ("run-1", "run-2"):
            batch = progress(batch_id=second, run_id=run_id, name=run_id)
            line = board.progressed(batch, float(second))
            if line is not None:
                shown.append((second, line.run_id))
    assert shown == [(at, run_id) for at in (0, 10, 20) for run_id in ("run-1", "run-2")]


def test_a_log_learns_that_a_query_is_idle_once_and_with_its_last_numbers() -> None:
    board = Board(10.0)
    board.progressed(progress(batch_id=1), 0.0)
    board.progressed(progress(batch_id=2), 3.0)
    assert board.idle("run-1", 4.0) is None
    line = board.idle("run-1", 14.0)
    assert line is not None
    assert "batch 2  idle" in line.text
    assert board.idle("run-1", 60.0) is None


def test_the_end_sums_up() -> None:
    board = Board(10.0)
    board.started("q", "run-1", "daily")
    for number in range(3):
        board.progressed(progress(batch_id=number, row_count=500), 0.0)
    line = board.ended("q", "run-1", None)
    assert line.is_last
    assert line.text == "daily  stopped after 3 batches, 1,500 rows"


def test_the_end_of_a_query_that_nobody_announced() -> None:
    board = Board(10.0)
    assert board.idle("run-9", 0.0) is None
    line = board.ended("6200e2ad-d4ba", "run-9", "gone")
    assert line.text == "6200e2ad  failed after 0 batches, 0 rows: gone"


def test_a_restart_counts_anew() -> None:
    board = Board(0.0)
    board.progressed(progress(row_count=500), 0.0)
    board.progressed(progress(row_count=7, run_id="run-2"), 0.0)
    assert "7 rows" in board.ended("q", "run-2", None).text


def test_queries_whose_end_was_never_told_are_forgotten() -> None:
    board = Board(0.0)
    for number in range(QUERIES_MAX + 1):
        board.started("q", f"run-{number}", f"name-{number}")
    assert board.ended("q", "run-0", None).text.startswith("q ")
    assert board.ended("q", "run-1", None).text.startswith("name-1 ")
