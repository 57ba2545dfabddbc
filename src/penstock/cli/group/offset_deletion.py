"""`penstock group delete-offsets`: delete the deliveries of a share group in topics.

The group must have no members: otherwise the coordinator rejects it. The group begins anew with the
topic when a member subscribes to it, where its `share.auto.offset.reset` says. Consumer groups are
NOT meant: `penstock group reset-offsets` moves their offsets.
"""

import click

from penstock.cli.brokers import open_cluster
from penstock.cli.completing import complete_groups
from penstock.cli.confirmation import confirm, yes_option
from penstock.cli.options import bootstrap_option, examples, json_option, timeout_option
from penstock.cli.output import print_json
from penstock.client.groups.groups import SHARE, Groups
from penstock.core.errors import InvalidRequestError


@click.command(
    name="delete-offsets",
    short_help="Delete the deliveries of a share group in topics.",
    epilog=examples("penstock group delete-offsets work --topic jobs"),
)
@click.argument("name", metavar="GROUP", shell_complete=complete_groups)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    required=True,
    metavar="NAME",
    help="Delete the deliveries of this topic; may be repeated.",
)
@yes_option
@bootstrap_option
@timeout_option
@json_option()
def delete_offsets(
    name: str,
    topics: tuple[str, ...],
    yes: bool,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Delete the deliveries of the share group GROUP: which records were accepted, and the start.

    Asks first on a terminal; without one it refuses unless --yes is given. The group must have no
    members.
    """
    confirm(f"Delete the deliveries of {', '.join(topics)} to {name}?", yes=yes)
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        groups = Groups(cluster)
        found = groups.find(name, SHARE)
        if found is not None and found.group_type != SHARE:
            raise InvalidRequestError(
                f"{name} is a {found.group_type} group, and only share groups have deliveries. "
                "Use `penstock group reset-offsets` for its offsets."
            )
        groups.delete_share_offsets(name, topics)
    if as_json:
        print_json({"group": name, "topics": list(topics), "deleted": True})
    else:
        click.echo(f"{name}: deliveries of {', '.join(topics)} deleted")
