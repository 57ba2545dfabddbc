"""Options that several commands share, and the examples under their help."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

from penstock.cli.numbers import Number
from penstock.cli.output import Style, choose_style
from penstock.core.errors import InvalidRequestError

BOOTSTRAP_DEFAULT: Final = "localhost:9092"
BOOTSTRAP_VARIABLE: Final = "PENSTOCK_BOOTSTRAP_SERVER"
COMMAND_CONFIG_VARIABLE: Final = "PENSTOCK_COMMAND_CONFIG"
COMMAND_CONFIG: Final = "penstock.cli.command_config"
"""The key of the file in the context's `meta`; `client_settings` reads it."""
SETTINGS_FILE_VARIABLE: Final = "PENSTOCK_CONFIG"

TIMEOUT_SECONDS: Final = Number(min=0, min_open=True, max=86_400)
"""The range of `--timeout`: at most a day, because the system's timers have a limit."""

Command = TypeVar("Command", bound=Callable[..., Any])


def examples(*lines: str) -> str:
    """Return example lines for the end of a help text; click keeps a block after a backspace."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


class WrongUsageError(click.UsageError):
    """An invalid command line, with a hint."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@contextmanager
def blamed_on(option: str) -> Iterator[None]:
    """Turn a parse error inside the block into a usage error for this option."""
    try:
        yield
    except InvalidRequestError as error:
        if error.hint:
            raise WrongUsageError(f"{option}: {error}", hint=error.hint) from error
        raise click.BadParameter(str(error), param_hint=option) from error


def json_option(help_text: str = "Print a JSON document.") -> Callable[[Command], Command]:
    """Add the option `--json`."""
    return click.option("--json", "as_json", is_flag=True, help=help_text)


def bootstrap_option(command: Command) -> Command:
    """Add the options of a connection to a cluster: its address, and its settings in a file."""
    return address_option(command_config_option(command))


def command_config_option(command: Command) -> Command:
    """Add the option `--command-config`."""

    def keep(context: click.Context, _option: click.Parameter, path: str | None) -> None:
        context.meta[COMMAND_CONFIG] = path

    return click.option(
        "--command-config",
        type=click.Path(dir_okay=False, exists=True),
        envvar=COMMAND_CONFIG_VARIABLE,
        show_envvar=True,
        metavar="FILE",
        expose_value=False,
        callback=keep,
        help="Properties file with Kafka's client settings: TLS, SASL.",
    )(command)


def address_option(command: Command) -> Command:
    """Add the option `--bootstrap-server`."""
    return click.option(
        "--bootstrap-server",
        "bootstrap",
        default=BOOTSTRAP_DEFAULT,
        envvar=BOOTSTRAP_VARIABLE,
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT",
        help="Broker to ask first; several with commas.",
    )(command)


def settings_file_option(command: Command) -> Command:
    """Add the option `--config`: the settings file of `penstock serve`."""
    return click.option(
        "--config",
        "file",
        type=click.Path(dir_okay=False, exists=True),
        envvar=SETTINGS_FILE_VARIABLE,
        show_envvar=True,
        help="Settings file; `penstock config explain` lists what can be set.",
    )(command)


def timeout_option(command: Command) -> Command:
    """Add the option `--timeout`."""
    return click.option(
        "--timeout",
        "timeout_seconds",
        type=TIMEOUT_SECONDS,
        default=30.0,
        show_default=True,
        metavar="SECONDS",
        help="Time for one call, with its repetitions.",
    )(command)


def edits_arguments(command: Command) -> Command:
    """Add `[NAME=VALUE]...` and `--delete NAME`: the changes of settings."""
    delete = click.option(
        "--delete",
        "deleted",
        multiple=True,
        metavar="NAME",
        help="A setting that goes back to its default; may be repeated.",
    )
    return click.argument("settings", nargs=-1, metavar="[NAME=VALUE]...")(delete(command))


def add_style_options(command: click.Command) -> None:
    """Add `--plain` and `--color` to a command and all its subcommands."""
    if isinstance(command, click.Group):
        for below in command.commands.values():
            add_style_options(below)
    if any(one.name == "plain" for one in command.params):
        return
    command.params += [
        _style_option("plain", Style.PLAIN, "Plain text, as for a pipe: no colours, no boxes."),
        _style_option("color", Style.COLOR, "Colours and boxes, even into a pipe."),
    ]


def _style_option(name: str, style: Style, help_text: str) -> click.Option:
    def chosen(_context: click.Context, _option: click.Parameter, is_given: bool) -> None:
        if is_given:
            choose_style(style)

    return click.Option(
        [f"--{name}"], is_flag=True, expose_value=False, callback=chosen, help=help_text
    )
