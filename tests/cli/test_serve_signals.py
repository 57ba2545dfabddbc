"""`penstock serve` and signals: a start that takes long is stopped too."""

import os
import signal
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.serve import serve
from penstock.storage.log_manager import LogManager

SECONDS_MAX = 20.0


def test_a_signal_ends_a_start_that_verifies_logs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Guards SIGTERM while logs are verified: it was heard only when the start was complete."""
    is_told = threading.Event()
    start = LogManager.start

    def slow_start(self: LogManager, settings_for: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        # The loop gets the signal while this thread continues to read its log.
        assert is_told.wait(SECONDS_MAX)
        start(self, settings_for)  # type: ignore[arg-type]

    monkeypatch.setattr(LogManager, "start", slow_start)

    class Told(threading.Event):
        """The flag that ends a load; the log that is being read ends when it is set."""

        def set(self) -> None:
            super().set()
            is_told.set()

    monkeypatch.setattr("penstock.node.log_loading.threading.Event", Told)
    result = served(monkeypatch, tmp_path)
    assert result.exit_code == 0, result.output
    assert "is ready" not in result.output


def served(monkeypatch: pytest.MonkeyPatch, data_directory: Path) -> Result:
    """Run `penstock serve` in this process until it returns."""

    def missed(_: int, __: object) -> None:
        raise AssertionError("the signal reached nobody")

    monkeypatch.setattr("penstock.cli.serve._leave", lambda: None)
    before = signal.signal(signal.SIGTERM, missed)
    try:
        return CliRunner().invoke(
            serve, ["--port", "0", "--no-admin", "--data-dir", str(data_directory)]
        )
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_stop_that_waits_for_anything_exits_in_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Guards the last resort: here the start hangs in a log, as it would on a dead disk."""
    exits: list[int] = []
    has_exited = threading.Event()
    start = LogManager.start

    def hanging_start(self: LogManager, settings_for: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        assert has_exited.wait(SECONDS_MAX)
        start(self, settings_for)  # type: ignore[arg-type]

    def exit_process(code: int) -> None:
        exits.append(code)
        has_exited.set()

    monkeypatch.setattr(LogManager, "start", hanging_start)
    monkeypatch.setattr("penstock.cli.serve.STOP_EXIT_SECONDS", 0.01)
    monkeypatch.setattr("penstock.cli.serve.os._exit", exit_process)
    served(monkeypatch, tmp_path)
    assert exits == [0]
    assert "the stop did not end within 0.0 s: exiting now" in caplog.text
