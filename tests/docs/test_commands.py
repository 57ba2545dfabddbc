"""Commands that documents name exist, and can be pasted as they stand."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from penstock.cli.main import penstock
from tests.deploy.monitoring import alerts

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
READMES = [path for folder in ("examples", "pipelines") for path in (ROOT / folder).rglob("*.md")]
DEPLOYED = sorted(path for path in (ROOT / "deploy").rglob("*") if path.is_file())
COMMAND = re.compile(r"(?:^|`|\$ |\| |&& |; |bin/)penstock((?: [a-z][a-z-]*)+)", re.MULTILINE)
BLOCK = re.compile(r"```(?:console|bash)\n(.*?)```", re.DOTALL)
SERVE = re.compile(r"^(?:\$ )?penstock serve\b.*", re.MULTILINE)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def unknown_commands(text: str) -> Iterator[str]:
    """What is written as a command and is none; words behind a command are its arguments."""
    context = click.Context(penstock)
    for words in COMMAND.findall(text):
        command: click.Command | None = penstock
        for word in words.split():
            if isinstance(command, click.Group):
                command = command.get_command(context, word)
        if command is None:
            yield f"penstock{words}"


@pytest.mark.parametrize("path", [*PAGES, *READMES, *DEPLOYED], ids=name_of)
def test_every_command_exists(path: Path) -> None:
    assert list(unknown_commands(path.read_text())) == []


def test_every_command_of_an_alert_exists() -> None:
    for alert in alerts():
        for text in alert["annotations"].values():
            assert list(unknown_commands(text)) == [], alert["alert"]


def test_a_command_that_is_none_is_found() -> None:
    text = "`penstock log verify` and `penstock log dump`, `penstock group lag billing`"
    assert list(unknown_commands(text)) == ["penstock log verify"]
    assert list(unknown_commands("$ penstock serv --port 1")) == ["penstock serv"]


@pytest.mark.parametrize("path", [*PAGES, *READMES], ids=name_of)
def test_a_broker_has_a_terminal_of_its_own(path: Path) -> None:
    """It needs a moment to start: a command behind it in the same block would find nobody."""
    for block in BLOCK.findall(path.read_text()):
        if found := SERVE.search(block):
            assert not found.group().endswith("&")
            assert "penstock " not in block[found.end() :]


@pytest.mark.parametrize("path", [*PAGES, *READMES], ids=name_of)
def test_nothing_is_installed_that_is_not_released(path: Path) -> None:
    if path.name != "deploying.md":  # there a wheel of one's own is installed by name
        assert not re.search(r"pip install[^`\n]*\bpenstock\b", path.read_text())
