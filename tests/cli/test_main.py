"""Help, exit codes, messages of failures, and modules that are not imported."""

import subprocess
import sys

import click
import pytest

from penstock.cli import exits
from penstock.cli import main as main_module
from penstock.cli.main import penstock as command
from penstock.core.errors import (
    AnswerLostError,
    BrokerUnreachableError,
    ConfigError,
    CorruptBatchError,
    PenstockError,
    TopicExistsError,
)
from tests.cli.conftest import Penstock


def test_help_names_every_command_and_imports_none(penstock: Penstock) -> None:
    outcome = penstock("--help")
    assert outcome.code == 0
    for name in ("config", "consume", "log", "produce", "serve", "topic", "version"):
        assert f"\n  {name} " in outcome.output
    assert "penstock topic create orders" in outcome.output


def test_the_option_and_the_command_tell_the_same_version(penstock: Penstock) -> None:
    told = penstock("--version")
    assert told == penstock("version")
    assert told.code == 0
    assert told.output.startswith("penstock ")


def test_every_command_has_help_with_an_example() -> None:
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        leaves = found.commands.values() if isinstance(found, click.Group) else [found]
        for leaf in leaves:
            text = leaf.get_help(click.Context(leaf, info_name=f"penstock {name}"))
            assert "Example:\n    " in text, f"{name} {leaf.name}"
            assert leaf.get_short_help_str(limit=80), f"{name} {leaf.name}"


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        (["--help"], ["rich", "pydantic", "asyncio", "penstock.protocol", "penstock.client"]),
        (["version"], ["rich", "pydantic", "asyncio", "penstock.protocol"]),
        (["topic", "--help"], ["rich", "pydantic", "asyncio", "kio.schema"]),
        (["config", "explain"], ["rich", "asyncio", "penstock.protocol", "penstock.client"]),
    ],
)
def test_what_a_command_does_not_need_is_not_imported(words: list[str], absent: list[str]) -> None:
    code = (
        "import sys\nfrom penstock.cli.main import run\nrun(sys.argv[1:])\n"
        "print('MODULES', *sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )
    modules = done.stdout.rpartition("MODULES ")[2].split()
    assert "penstock.cli.main" in modules
    assert [name for name in absent if name in modules] == []


@pytest.mark.parametrize("words", [(), ("topic",)])
def test_without_a_command_the_help_is_shown(penstock: Penstock, words: tuple[str, ...]) -> None:
    outcome = penstock(*words)
    assert outcome.code == 2
    assert outcome.errors.startswith(f"Usage: {' '.join(('penstock', *words))} [OPTIONS] COMMAND")
    assert "hint:" not in outcome.errors


def test_wrong_usage_is_2_with_a_hint(penstock: Penstock) -> None:
    outcome = penstock("topci")
    assert outcome.code == 2
    assert outcome.errors.splitlines() == [
        "error: No such command 'topci'.",
        "hint: Did you mean `penstock topic`?",
    ]
    assert "`penstock --help` lists the commands" in penstock("xyzzy").errors
    missing = penstock("topic", "create")
    assert missing.code == 2
    assert missing.errors.splitlines() == [
        "error: Missing argument 'NAME'.",
        "hint: `penstock topic create --help` shows the options and an example.",
    ]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BrokerUnreachableError("x"), 3),
        (AnswerLostError("x"), 4),
        (ConfigError("x"), 2),
        (CorruptBatchError("x"), 1),
        (TopicExistsError("x"), 1),
    ],
)
def test_each_failure_has_its_code_and_at_most_two_lines(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch, error: PenstockError, code: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(main_module.penstock, "main", fail)
    outcome = penstock("version")
    assert outcome.code == code
    assert outcome.errors.startswith("error: x")
    assert len(outcome.errors.splitlines()) <= 2
    assert outcome.output == ""


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), click.Abort()])
def test_an_interruption_is_130(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch, stop: BaseException
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise stop

    monkeypatch.setattr(main_module.penstock, "main", interrupt)
    assert penstock("version") == (exits.INTERRUPTED, "", "")


def test_a_file_that_cannot_be_read_is_named(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "secret.toml")

    monkeypatch.setattr(main_module.penstock, "main", refuse)
    outcome = penstock("version")
    assert outcome == (1, "", "error: secret.toml: Permission denied\n")


def test_a_reader_that_has_enough_is_no_failure() -> None:
    """`| head` closes the pipe: no traceback, no message, exit 0."""
    code = (
        "import sys\nfrom penstock.cli.main import run\n"
        "import click\nfrom penstock.cli.version import version\n"
        "def endless() -> None:\n    while True:\n        click.echo('x' * 1000)\n"
        "version.callback = lambda as_json: endless()\n"
        "sys.exit(run(['version']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(10) == 0


def test_version_is_text_and_json(penstock: Penstock) -> None:
    assert penstock("version").output.startswith("penstock ")
    assert '"python": "3.' in penstock("version", "--json").output
