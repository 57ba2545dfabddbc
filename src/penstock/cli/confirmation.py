"""The confirmation before a command deletes something.

On a terminal the command asks the user. Without a terminal the command fails before it contacts a
broker; a script passes `--yes`. Every destructive command uses this module.
"""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from penstock.cli.options import WrongUsageError

Command = TypeVar("Command", bound=Callable[..., Any])


def yes_option(command: Command) -> Command:
    """Add the option `--yes`."""
    return click.option("--yes", is_flag=True, help="Do not ask; needed without a terminal.")(
        command
    )


def check_can_ask(*, yes: bool) -> None:
    """Raise a usage error if confirmation is needed and there is no terminal."""
    if yes or (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    path = click.get_current_context().command_path
    raise WrongUsageError(
        "nothing was changed: the command cannot ask for confirmation without a terminal.",
        hint=f"Add --yes to run it without a question: `{path} --yes ...`.",
    )


def confirm(question: str, *, yes: bool) -> None:
    """Return if the user agrees or `--yes` is set; otherwise the command ends."""
    check_can_ask(yes=yes)
    if not yes:
        click.confirm(question, abort=True, err=True)
