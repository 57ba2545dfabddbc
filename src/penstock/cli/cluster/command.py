"""`penstock cluster`: imports the module of a subcommand when it is used.

The table below is the only list of its subcommands, with their help lines.
"""

import importlib
from typing import Final

import click

from penstock.cli.options import add_style_options, examples

_COMMANDS: Final[dict[str, tuple[str, str, str]]] = {
    "export": (
        "penstock.cli.cluster.export_command",
        "export",
        "Move the metadata of a cluster back to one broker.",
    ),
    "features": (
        "penstock.cli.cluster.features_command",
        "features",
        "Show and raise the levels of features.",
    ),
    "import": (
        "penstock.cli.cluster.import_command",
        "import_",
        "Move the metadata of a broker alone into etcd.",
    ),
    "restart-next": (
        "penstock.cli.cluster.restart_next",
        "restart_next",
        "Name the broker that may be restarted next.",
    ),
    "status": (
        "penstock.cli.cluster.cluster_status",
        "cluster_status",
        "Show brokers, and partitions with problems.",
    ),
}
"""Name to module, attribute and help line."""


class LazyCommands(click.Group):
    """A group that imports the module of a subcommand when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """Return the names in alphabetical order."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return the subcommand; None for an unknown name."""
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        add_style_options(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the help's list from the table, without importing the subcommands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name][2]) for name in sorted(_COMMANDS)])


@click.group(
    cls=LazyCommands,
    short_help="Look at a cluster of several brokers.",
    epilog=examples("penstock cluster status", "penstock cluster restart-next"),
)
def cluster() -> None:
    """Look at a cluster of several brokers, and change it as a whole."""
