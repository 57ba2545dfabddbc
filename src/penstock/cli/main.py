"""The `penstock` command: imports the module of a command, runs it, and reports failures.

A command's module is imported only when the command runs. So `penstock serve` does not import
tables, and `penstock topic list` does not import a broker. The table below is therefore the only
list of commands, with their help lines.

Every error that Penstock raises on purpose is printed here as `error:` and `hint:` on standard
error, with an exit code of `cli.exits` and no traceback. A traceback means a bug in Penstock.
"""

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final

import click
from click.shell_completion import CompletionItem

from penstock.cli import exits
from penstock.cli.options import WrongUsageError, add_style_options, examples
from penstock.cli.output import Style, choose_style
from penstock.cli.streams import open_missing_streams, silence
from penstock.core.errors import PenstockError

_COMMANDS: Final[dict[str, tuple[str, str, str]]] = {
    "acl": ("penstock.cli.acl.command", "acl", "Create, list, delete and check access rules."),
    "balance": (
        "penstock.cli.cluster.balance",
        "balance",
        "Balance replicas and leaders among brokers.",
    ),
    "bench": ("penstock.cli.bench.command", "bench", "Measure a broker, or compare two."),
    "broker": ("penstock.cli.broker.command", "broker", "Take a broker out of service."),
    "cluster": ("penstock.cli.cluster.command", "cluster", "Show the state of a cluster."),
    "completion": (
        "penstock.cli.completion",
        "completion",
        "Print the completion script of a shell.",
    ),
    "config": (
        "penstock.cli.config.command",
        "config",
        "Check a settings file, explain a setting.",
    ),
    "consume": ("penstock.cli.consume", "consume", "Write a topic's records to standard output."),
    "consumers": (
        "penstock.cli.consumers.run_consumers",
        "consumers",
        "Run handlers of records.",
    ),
    "dlq": (
        "penstock.cli.consumers.dlq_commands",
        "dlq",
        "Look at dead letters of consumers, replay them.",
    ),
    "doctor": ("penstock.cli.doctor.command", "doctor", "Find problems, with remedies."),
    "edge": ("penstock.cli.edge.command", "edge", "Look at a tree of brokers."),
    "group": (
        "penstock.cli.group.command",
        "group",
        "Look at consumer groups, their lag and offsets.",
    ),
    "log": ("penstock.cli.log.command", "log", "Look into log files on disk."),
    "materialize": (
        "penstock.cli.materialize.command",
        "materialize",
        "Keep topics as tables of a SQLite file, with REST.",
    ),
    "mirror": (
        "penstock.cli.pipe.mirror",
        "mirror",
        "Copy topics and groups from a Kafka cluster.",
    ),
    "pipe": (
        "penstock.cli.pipe.command",
        "pipe",
        "Show pipes, pause, resume, promote and restore them.",
    ),
    "produce": ("penstock.cli.produce", "produce", "Send lines of standard input to a topic."),
    "quota": ("penstock.cli.quota", "quota", "Set, list and delete quotas."),
    "refresh": (
        "penstock.cli.refresh.command",
        "refresh",
        "Build snapshots of topics, install and send them.",
    ),
    "registry": (
        "penstock.cli.registry.command",
        "registry",
        "Run a registry of sites, administer its nodes.",
    ),
    "serve": ("penstock.cli.serve", "serve", "Run a broker."),
    "session": (
        "penstock.cli.session_commands",
        "session",
        "List connected clients, disconnect some.",
    ),
    "status": ("penstock.cli.status", "status", "Show a broker's health and limits."),
    "table": ("penstock.cli.table.command", "table", "Write topics to Iceberg and Delta tables."),
    "topic": ("penstock.cli.topic", "topic", "Create, list, describe, change and delete topics."),
    "txn": ("penstock.cli.txn", "txn", "Look at transactions, abort one that hangs."),
    "user": ("penstock.cli.user.command", "user", "Add, list and delete users."),
    "version": ("penstock.cli.version", "version", "Show the version of Penstock."),
}
"""Name to module, attribute and help line."""

_COMMANDS_HINT: Final = "`penstock --help` lists the commands."


class ReaderGoneError(Exception):
    """The reader of standard output has closed it."""


class LazyGroup(click.Group):
    """A group that imports the module of a command when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """Return the names in alphabetical order."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return the command; None for an unknown name."""
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        if cmd_name == "serve":
            # Before its first model, pydantic reads the metadata of every installed package to find
            # plugins. A broker runs no plugins, and this would delay its start.
            os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
        # An import creates no garbage, and collections take a tenth of its time.
        gc.disable()
        try:
            command = getattr(importlib.import_module(module), attribute)
        finally:
            gc.enable()
        assert isinstance(command, click.Command)
        add_style_options(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; raise a usage error with the nearest name for an unknown one."""
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            import difflib

            close = difflib.get_close_matches(name, _COMMANDS, n=1)
            hint = f"Did you mean `penstock {close[0]}`?" if close else _COMMANDS_HINT
            raise WrongUsageError(f"No such command '{name}'.", hint=hint)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; raise a broken pipe past click, which would report a failure."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderGoneError from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return names for a shell from the table: click's own method imports every command."""
        names = [
            CompletionItem(name, help=_COMMANDS[name][2])
            for name in sorted(_COMMANDS)
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the help's list from the table: importing every command would take too long."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name][2]) for name in sorted(_COMMANDS)])


def _show_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    """Print the version for `--version`, as `penstock version` does."""
    if not asked:
        return
    command = penstock.get_command(context, "version")
    assert command is not None
    context.invoke(command, as_json=False)
    context.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "penstock serve                          a broker on localhost:9092",
        "penstock topic create orders            in another terminal",
        "echo hello | penstock produce orders",
        "penstock consume orders",
    )
    + "\n\nExit codes: 0 done, 1 failed, 2 wrong usage, 3 no broker, 4 outcome unknown, "
    "5 degraded and 6 critical (status), 7 too many bad records (table run), 130 interrupted.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def penstock() -> None:
    """A Kafka-compatible streaming broker, and the tools to work with one."""


add_style_options(penstock)


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    choose_style(Style.AUTO)
    try:
        result = penstock.main(list(arguments), prog_name="penstock", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        return _failed(exits.explanation_of_wrong_usage(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return exits.INTERRUPTED
    except PenstockError as error:
        return _failed(exits.explanation(error), exits.code_of(error))
    except (ReaderGoneError, BrokenPipeError):
        silence(sys.stdout)  # `| head` closed the pipe
        return exits.DONE
    except OSError as error:
        silence(sys.stdout)  # it may have failed, and Python flushes it again at exit
        return _failed(exits.explanation_of_system_error(error), exits.FAILED)
    return result if isinstance(result, int) else exits.DONE


def _failed(message: str, code: int) -> int:
    try:
        click.echo(message, err=True)
    except OSError:
        silence(sys.stderr)  # it is closed; the exit code still reports the failure
    return code


def main() -> None:
    """The entry point of the `penstock` command."""
    open_missing_streams()
    sys.exit(run(sys.argv[1:]))
