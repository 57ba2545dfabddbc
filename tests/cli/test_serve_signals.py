"""`penstock serve` and signals: a start that takes long is stopped too."""

import os
import signal
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

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
        # The loop hears of it while this thread goes on reading its log.
        assert is_told.wait(SECONDS_MAX)
        start(self, settings_for)  # type: ignore[arg-type]

    def told(_: int, __: object) -> None:
        raise AssertionError("the signal reached nobody")

    monkeypatch.setattr(LogManager, "start", slow_start)

    class Told(threading.Event):
        """The flag that ends a load; the log that is being read ends when it is set."""

        def set(self) -> None:
            super().set()
            is_told.set()

    monkeypatch.setattr("penstock.node.log_loading.threading.Event", Told)
    before = signal.signal(signal.SIGTERM, told)
    try:
        result = CliRunner().invoke(
            serve, ["--port", "0", "--no-admin", "--data-dir", str(tmp_path)]
        )
    finally:
        signal.signal(signal.SIGTERM, before)
    assert result.exit_code == 0, result.output
    assert "is ready" not in result.output
