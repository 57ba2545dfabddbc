"""Passwords for `penstock user`: from a prompt, standard input or a file, and never an argument.

Every user of a machine can list the arguments of processes, and a shell keeps them in its history.
"""

import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from penstock.cli.options import WrongUsageError
from penstock.cli.output import note
from penstock.core.errors import ConfigError
from penstock.security.secret import Secret

PASSWORD_BYTES_MAX: Final = 255
"""As for the mechanism PLAIN, which may check the same password."""

Command = TypeVar("Command", bound=Callable[..., Any])


def password_options(command: Command) -> Command:
    """Add `--password-stdin` and `--password-file`."""
    command = click.option(
        "--password-file",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Read the password from the first line of a file.",
    )(command)
    return click.option(
        "--password-stdin", is_flag=True, help="Read the password from standard input."
    )(command)


def read_password(user: str, *, from_stdin: bool, file: str | None) -> Secret:
    """Return the password; without an option the command asks for it."""
    if from_stdin and file is not None:
        raise click.UsageError("Either --password-stdin or --password-file, not both.")
    if file is not None:
        return _checked(_file_line(file), file)
    if from_stdin:
        return _checked(sys.stdin.buffer.read(PASSWORD_BYTES_MAX + 3), "standard input")
    if not _is_terminal():
        raise WrongUsageError(
            "nothing was changed: the command cannot ask for a password without a terminal.",
            hint="Add --password-stdin or --password-file FILE.",
        )
    text = click.prompt(
        f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True, type=str
    )
    return _checked(text.encode(), "the prompt")


def _file_line(file: str) -> bytes:
    try:
        with Path(file).open("rb") as opened:
            if stat.S_IMODE(Path(file).stat().st_mode) & 0o077:
                note(f"note: other users of this machine can read {file}: chmod 600 {file}")
            return opened.read(PASSWORD_BYTES_MAX + 3)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}.") from error


def _checked(data: bytes, source: str) -> Secret:
    """Return the password of the first line, without the end of the line."""
    line, _, rest = data.partition(b"\n")
    line = line.removesuffix(b"\r")
    if rest:
        raise ConfigError(f"the password from {source} has more than one line.")
    if not line:
        raise ConfigError(f"the password from {source} is empty.")
    if len(line) > PASSWORD_BYTES_MAX:
        raise ConfigError(f"the password from {source} has more than {PASSWORD_BYTES_MAX} bytes.")
    try:
        return Secret(line.decode())
    except UnicodeDecodeError:
        raise ConfigError(f"the password from {source} is not UTF-8.") from None


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
