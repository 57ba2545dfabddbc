"""A pipeline on a terminal and off it, and the signals that stop it."""

import io
import os
import signal
import time

import pytest
from rich.console import Console

from penstock.cli.table.run import StopSignals
from penstock.cli.table.view import LineView, ScreenView
from penstock.core.clock import SystemClock
from penstock.spark.tables.inspection.run_view import RunView
from penstock.spark.tables.run.events import MaintenanceDone

IDLE = MaintenanceDone(0, 0, 0, 0, 4, 1024, None, 1.0)


def new_view() -> RunView:
    return RunView("orders", "shop.live", interval_ms=1_000)


def test_the_title_is_as_wide_as_the_terminal() -> None:
    output = io.StringIO()
    Console(file=output, width=100).print(ScreenView(new_view(), SystemClock()))
    first, *_, last = output.getvalue().splitlines()
    assert first == "orders → shop.live"
    assert last == "Ctrl-C stops"


def test_lines_say_when_the_broker_goes_and_comes_and_nothing_of_idle_care(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = LineView(new_view(), SystemClock())
    lines.maintenance_done(IDLE)
    lines.broker_seen({})
    for _ in range(3):
        lines.broker_away("refused")
    lines.broker_seen({})
    lines.broker_seen({})
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in told] == [
        "orders  no broker answers: refused; tries again",
        "orders  the broker answers again",
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_gives_up_a_start(number: int) -> None:
    with StopSignals() as signals:
        os.kill(os.getpid(), number)
        time.sleep(10)
        raise AssertionError("it was not interrupted")
    assert signals.was_interrupted
    assert signals.stop.is_set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_a_pipeline_that_runs_stop(
    number: int, capfd: pytest.CaptureFixture[str]
) -> None:
    view = new_view()
    with StopSignals() as signals:
        signals.runs(LineView(view, SystemClock()).stopping)
        os.kill(os.getpid(), number)
        assert signals.stop.wait(10)
    assert not signals.was_interrupted
    assert view.is_stopping
    assert capfd.readouterr().err == "stopping\n"
