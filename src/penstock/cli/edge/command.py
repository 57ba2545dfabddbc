"""`penstock edge`: look at a tree of brokers, and at the push clients of a broker."""

import os
import sys
from typing import Final

import click

from penstock.cli.edge.session_table import sessions
from penstock.cli.edge.tree_text import tree_lines
from penstock.cli.options import examples, json_option
from penstock.cli.output import print_json
from penstock.cli.registry.registry_access import Access, access_options
from penstock.core.errors import ConfigError
from penstock.edge.registry.documents import TreeDocument
from penstock.edge.registry.registry_errors import RegistryUnreachableError

NO_REGISTRY: Final = (
    "Start one with `penstock registry`, or name its URL and the operator's token with --registry "
    "and --token-file."
)


@click.group(
    short_help="Look at a tree of brokers, and at push clients.",
    epilog=examples("penstock edge tree", "penstock edge tree --depth 2", "penstock edge sessions"),
)
def edge() -> None:
    """Look at a tree of brokers, and at the push clients of a broker."""


edge.add_command(sessions)


@edge.command(
    short_help="Draw the tree with health and lag.",
    epilog=examples(
        "penstock edge tree",
        "penstock edge tree --registry https://registry.example.com:8070 --token-file ops.token",
    ),
)
@click.option("--depth", type=click.IntRange(1, 5), help="Levels to draw; all by default.")
@access_options
@json_option()
def tree(
    depth: int | None,
    url: str,
    token_file: str,
    ca: str | None,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Draw the tree of brokers, each with its role, health and lag."""
    access = Access(url, token_file, ca, timeout_seconds)
    try:
        found = access.read(TreeDocument, "GET", "/tree")
    except (ConfigError, RegistryUnreachableError) as error:
        if isinstance(error, ConfigError) and os.path.exists(token_file):
            raise
        raise type(error)(f"no registry of sites is in use: {error}", hint=NO_REGISTRY) from error
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    if not found.nodes:
        click.echo("No nodes. Create one with `penstock registry token ID`.")
    is_ascii = not (sys.stdout.encoding or "").lower().startswith("utf")
    for line in tree_lines(found.nodes, depth_max=depth, is_ascii=is_ascii):
        click.echo(line)
