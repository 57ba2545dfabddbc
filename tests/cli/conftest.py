"""The command in this process: arguments in; exit code, output and error lines out."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from penstock.cli.main import run
from penstock.cli.output import Style


class Outcome(NamedTuple):
    code: int
    output: str
    errors: str


Penstock = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def automatic_style(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test inherits the style that another one chose with `--color`."""
    monkeypatch.setattr("penstock.cli.output._style", Style.AUTO)


@pytest.fixture
def penstock(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Penstock:
    """Run `penstock` with these words, in an environment without settings."""
    monkeypatch.delenv("PENSTOCK_BOOTSTRAP_SERVER", raising=False)

    def run_command(*words: str) -> Outcome:
        code = run(words)
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run_command
