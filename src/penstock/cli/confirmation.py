"""The question before a command deletes something.

A terminal is asked. Without one nobody can answer, so the command refuses before it contacts a
broker; a script says `--yes`. Every destructive command goes through here.
"""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from penstock.cli.options import WrongUsageError

Command = TypeVar("Command", bound=Callable[..., Any])


def yes_option(command: Command) -> Command:
    """`--yes`."""
    return click.option("--yes", is_flag=True, help="Do not ask; needed without a terminal.")(
        command
    )


def check_can_ask(*, yes: bool) -> None:
    """Raise wrong usage when a question is needed and there is no terminal to ask."""
    if yes or (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    path = click.get_current_context().command_path
    raise WrongUsageError(
        "nothing was changed: the command cannot ask for confirmation without a terminal.",
        hint=f"Add --yes to run it without a question: `{path} --yes ...`.",
    )


def confirm(question: str, *, yes: bool) -> None:
    """Return when the person agrees, or with `--yes`; otherwise the command ends."""
    check_can_ask(yes=yes)
    if not yes:
        click.confirm(question, abort=True, err=True)
