"""`penstock registry`: run a registry of sites, and administer its nodes.

Without a subcommand it runs the registry, as `penstock registry serve` does. The other commands ask
a registry over HTTP, with the operator's token.
"""

import asyncio
import logging
import signal
import sys

import click

from penstock.cli.numbers import WholeNumber
from penstock.cli.options import WrongUsageError, examples, json_option
from penstock.cli.output import print_json, print_table
from penstock.cli.registry.registry_access import Access, access_options
from penstock.core.quantities import printable
from penstock.edge.registry.documents import (
    LevelDocument,
    NodeDocument,
    TokenDocument,
    TreeDocument,
)
from penstock.edge.registry.node_roles import ROLES

_ROLE = click.Choice([role.value for role in ROLES])
_FILE = click.Path(dir_okay=False, exists=True)
_AUTOMATIC = "auto"
_GROUP_OPTIONS = frozenset({"-h", "--help"})


class ServesByDefault(click.Group):
    """A group whose options, without a subcommand, are those of `serve`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `serve` before options, and into an empty line."""
        if not args or (args[0].startswith("-") and args[0] not in _GROUP_OPTIONS):
            args = ["serve", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=ServesByDefault,
    short_help="Run a registry of sites, administer its nodes.",
    epilog=examples(
        "penstock registry                              run it on localhost:8070",
        "penstock registry token root-1 > root-1.token  create a node",
        "penstock registry assign root-1 --role ROOT",
        "penstock registry topics POS --down 'prices' --up 'sales.{id}'",
        "penstock registry nodes",
    ),
)
def registry() -> None:
    """Run a registry of sites, and administer its nodes.

    Without a command, `penstock registry` runs the registry. It gives each broker its role, its
    parent and its topics.
    """


@registry.command(
    short_help="Run a registry.",
    epilog=examples(
        "penstock registry serve",
        "penstock registry serve --host 0.0.0.0 --certificate cert.pem --key key.pem",
    ),
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=WholeNumber(0, 65_535),
    default=8070,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False),
    default="registry-data",
    show_default=True,
    help="Directory of the registry's file and tokens; created if it does not exist.",
)
@click.option("--certificate", type=_FILE, help="Certificate in PEM; without it, no TLS.")
@click.option("--key", type=_FILE, help="Private key of the certificate, in PEM.")
@click.option("--client-ca", type=_FILE, help="Authorities of the certificates of nodes, in PEM.")
@click.option(
    "--allowed-hosts",
    metavar="NAMES",
    help="Names, with commas, that requests may use for this host, besides addresses.",
)
@click.option(
    "--allow-insecure", is_flag=True, help="Listen on other addresses than loopback without TLS."
)
def serve(
    host: str,
    port: int,
    data_dir: str,
    certificate: str | None,
    key: str | None,
    client_ca: str | None,
    allowed_hosts: str | None,
    allow_insecure: bool,
) -> None:
    """Run a registry until it is stopped by Ctrl-C or SIGTERM.

    It prints one line when it answers. The tokens of the operator and of new nodes are files in the
    data directory. Brokers use their last topology while the registry is down.
    """
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    from penstock.node.registry.registry_process import RegistryOptions  # the other commands do not

    options = RegistryOptions(
        data_dir=data_dir,
        host=host,
        port=port,
        certificate=certificate,
        key=key,
        client_ca=client_ca,
        allowed_hosts=allowed_hosts or ("*" if allow_insecure else None),
        is_insecure_allowed=allow_insecure,
    )
    asyncio.run(_serve(options, data_dir))


async def _serve(options: object, data_dir: str) -> None:
    from penstock.node.registry.registry_process import RegistryOptions, RegistryServer

    assert isinstance(options, RegistryOptions)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with RegistryServer(options) as server:
        click.echo(f"The registry is ready on {server.url} (data in {data_dir})")
        sys.stdout.flush()
        await stop.wait()


@registry.command(
    short_help="List nodes with their state.", epilog=examples("penstock registry nodes")
)
@access_options
@json_option()
def nodes(url: str, token_file: str, ca: str | None, timeout_seconds: float, as_json: bool) -> None:
    """List all nodes with their role, parent and state.

    A node whose disk was copied to a second machine is listed with the second one's address.
    """
    access = Access(url, token_file, ca, timeout_seconds)
    found = access.read(TreeDocument, "GET", "/tree")
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    if not found.nodes:
        click.echo("No nodes. Create one with `penstock registry token ID`.")
        return
    rows = [
        [
            one.id,
            one.role.value,
            one.parent,
            one.children,
            one.state,
            None if one.seen_seconds_ago is None else f"{one.seen_seconds_ago:.0f} s",
            one.instance,
            _remark(one) or None,
        ]
        for one in found.nodes
    ]
    columns = ["node", "role", "parent", "children", "state", "seen", "instance", "reason"]
    print_table(columns, rows, folds="reason")


def _remark(one: NodeDocument) -> str:
    conflict = one.conflict
    if conflict is None:
        return printable(one.reason)
    refused = f"refused {conflict.times} calls from {conflict.address}: {conflict.reason}"
    return printable(one.reason if one.reason.endswith(conflict.reason) else refused)


@registry.command(
    short_help="Assign a role or a parent.",
    epilog=examples(
        "penstock registry assign root-1 --role ROOT",
        "penstock registry assign store-17 --parent north-1",
        "penstock registry assign store-17 --parent auto",
        "penstock registry assign store-17 --new-instance",
    ),
)
@click.argument("node")
@click.option(
    "--role",
    type=click.Choice([*(role.value for role in ROLES), _AUTOMATIC]),
    help="The role; `auto`: the one that the node asks for.",
)
@click.option(
    "--parent", metavar="NODE", help="The parent, kept permanently; `auto`: the registry chooses."
)
@click.option(
    "--new-instance",
    is_flag=True,
    help="Accept the disk of the node that registers next, after a disk was copied or restored.",
)
@access_options
@json_option()
def assign(
    node: str,
    role: str | None,
    parent: str | None,
    new_instance: bool,
    url: str,
    token_file: str,
    ca: str | None,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Assign a role or a parent to NODE. The node follows with its next poll."""
    body: dict[str, object] = {}
    if role is not None:
        body["role"] = None if role == _AUTOMATIC else role
    if parent is not None:
        body["parent"] = None if parent == _AUTOMATIC else parent
    if new_instance:
        body["new_instance"] = True
    if not body:
        raise WrongUsageError("Nothing to assign.", hint="Give --role, --parent or --new-instance.")
    access = Access(url, token_file, ca, timeout_seconds)
    found = access.read(NodeDocument, "PATCH", f"/nodes/{_part(node)}", body)
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        parent_text = "no parent" if found.parent is None else f"parent {found.parent}"
        click.echo(f"{found.id}: role {found.role}, {parent_text}")


@registry.command(
    short_help="Create a node, or replace its key.",
    epilog=examples("penstock registry token store-17 > registry.token"),
)
@click.argument("node")
@access_options
@json_option()
def token(
    node: str, url: str, token_file: str, ca: str | None, timeout_seconds: float, as_json: bool
) -> None:
    """Create NODE, or replace its key, and print its new token.

    The registry stores only a digest: the token cannot be shown again. Write it to the file of
    `registry.token_file`.
    """
    access = Access(url, token_file, ca, timeout_seconds)
    found = access.read(TokenDocument, "POST", f"/nodes/{_part(node)}/token", {})
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        click.echo(found.token)


@registry.command(short_help="Remove a node.", epilog=examples("penstock registry remove store-17"))
@click.argument("node")
@access_options
def remove(node: str, url: str, token_file: str, ca: str | None, timeout_seconds: float) -> None:
    """Remove NODE. Its children get another parent; its own broker goes on as before."""
    Access(url, token_file, ca, timeout_seconds).ask("DELETE", f"/nodes/{_part(node)}")
    click.echo(f"{node}: removed")


@registry.command(
    short_help="Set the topics of a level.",
    epilog=examples(
        "penstock registry topics POS --down prices --down 'promo.*' --up 'sales.{id}'",
        "penstock registry topics POS --no-up",
    ),
)
@click.argument("role", type=_ROLE)
@click.option("--down", multiple=True, metavar="PATTERN", help="Copied from the parent.")
@click.option("--up", multiple=True, metavar="PATTERN", help="Sent to the parent.")
@click.option("--no-down", is_flag=True, help="Copy no topics from the parent.")
@click.option("--no-up", is_flag=True, help="Send no topics to the parent.")
@access_options
@json_option()
def topics(
    role: str,
    down: tuple[str, ...],
    up: tuple[str, ...],
    no_down: bool,
    no_up: bool,
    url: str,
    token_file: str,
    ca: str | None,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Set the topics of the nodes with this ROLE; they follow with their next poll.

    PATTERN is a topic's name; * is any text, {id} the node's id and {region} a label of the node.
    """
    if (down and no_down) or (up and no_up):
        raise WrongUsageError("A direction is both set and emptied.", hint="Leave one out.")
    body: dict[str, object] = {}
    if down or no_down:
        body["down"] = list(down)
    if up or no_up:
        body["up"] = list(up)
    if not body:
        raise WrongUsageError("Nothing to set.", hint="Give --down or --up.")
    access = Access(url, token_file, ca, timeout_seconds)
    found = access.read(LevelDocument, "PATCH", f"/levels/{role}", body)
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        for direction, patterns in (("down", found.down), ("up", found.up)):
            click.echo(f"{found.role} {direction}: {', '.join(patterns) or 'none'}")


def _part(node: str) -> str:
    """Return an id as a part of a path."""
    from urllib.parse import quote

    return quote(node, safe="")
