"""How results look: `--plain` and `--color` on every command, and the environment without them."""

from collections.abc import Iterator

import click
import pytest

from penstock.cli.main import penstock as root
from tests.cli.conftest import Penstock

ESCAPE = "\x1b["


@pytest.fixture(autouse=True)
def colourful(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def test_a_pipe_gets_plain_columns(penstock: Penstock) -> None:
    assert ESCAPE not in penstock("doctor", "--bootstrap", "localhost:1").output


def test_color_is_for_pipes_too_even_with_no_color(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert ESCAPE in penstock("doctor", "--bootstrap", "localhost:1", "--color").output
    assert ESCAPE in penstock("--color", "doctor", "--bootstrap", "localhost:1").output


def test_one_run_does_not_choose_for_the_next(penstock: Penstock) -> None:
    penstock("doctor", "--bootstrap", "localhost:1", "--color")
    assert ESCAPE not in penstock("doctor", "--bootstrap", "localhost:1").output


def test_plain_is_for_terminals_too(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    drawn = penstock("doctor", "--bootstrap", "localhost:1").output
    plain = penstock("doctor", "--bootstrap", "localhost:1", "--plain").output
    assert "┃" in drawn
    assert "┃" not in plain


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below, f"{path} {name}")


ALL = dict(commands(root, "penstock"))


@pytest.mark.parametrize("path", ALL)
def test_every_command_can_be_plain_and_has_an_example(path: str) -> None:
    command = ALL[path]
    names = {option for one in command.params for option in one.opts}
    assert {"--plain", "--color"} <= names
    assert "Example" in (command.epilog or ""), f"{path} has no example in its help"
    assert command.help
