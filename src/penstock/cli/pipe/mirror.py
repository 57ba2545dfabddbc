"""`penstock mirror`: copy topics, groups and offsets from a Kafka cluster to this broker.

The broker itself copies: the command creates a pipe over the admin port, shows its progress, and
ends it when it is interrupted. The copies stay, and the next run goes on where they end. A broker
that restarts forgets the pipe; the command creates it again.
"""

from time import sleep
from typing import Final
from urllib.parse import quote

import click

from penstock.cli.admin_port import (
    AdminRefusedError,
    AdminResource,
    Document,
    port_options,
)
from penstock.cli.options import examples
from penstock.cli.output import note
from penstock.cli.pipe.pipe_calls import duration, open_pipes, text
from penstock.core.errors import AdminUnreachableError

LOOK_SECONDS: Final = 1.0
"""Between two looks at the progress."""
UNHEALTHY: Final = "UNHEALTHY"


@click.command(
    short_help="Copy topics and groups from a Kafka cluster.",
    epilog=examples(
        "penstock mirror --from kafka1:9092 --topic '*'",
        "penstock mirror --from kafka1:9092 --topic orders --topic 'pay*' --group 'billing*'",
        "penstock mirror --from kafka1:9093 --topic '*' --client-config kafka.properties",
    ),
)
@click.option(
    "--from", "parent", required=True, metavar="HOST:PORT,...", help="Brokers to copy from."
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    required=True,
    metavar="NAME",
    help="Topic to copy; * stands for any characters; may be repeated.",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="NAME",
    help="Group whose committed offsets are copied; * stands for any characters.",
)
@click.option(
    "--name", default="mirror", show_default=True, metavar="PIPE", help="Name of the pipe."
)
@click.option(
    "--client-config",
    metavar="FILE",
    help="File on the broker's machine with client settings for the other cluster.",
)
@click.option(
    "--on-gap",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    show_default=True,
    help="If the other cluster deleted records before they were copied.",
)
@click.option(
    "--bytes-per-second",
    "bytes_per_second_max",
    type=click.IntRange(min=0),
    default=0,
    metavar="BYTES",
    help="Bound of the copied bytes; 0 for none.",
)
@click.option(
    "--until-in-step", is_flag=True, help="Exit when all is copied; the broker copies on."
)
@port_options
def mirror(
    parent: str,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    name: str,
    client_config: str | None,
    on_gap: str,
    bytes_per_second_max: int,
    until_in_step: bool,
    url: str,
    timeout_seconds: float,
) -> None:
    """Copy topics, groups and offsets from a Kafka cluster, until interrupted.

    The copies have the offsets, leader epochs and transactions of the originals, and are read-only
    until `penstock pipe promote`. Needs the permission Alter on the cluster of this broker.
    """
    wanted: Document = {
        "name": name,
        "parent": parent,
        "topics": list(topics),
        "groups": list(groups),
        "client_config": client_config,
        "on_gap": on_gap,
        "bytes_per_second_max": bytes_per_second_max,
    }
    pipes = open_pipes(url, timeout_seconds)
    pipes.ask("POST", "", wanted)
    click.echo(f"mirroring {', '.join(topics)} from {parent} with the pipe {name}")
    run = _Run(pipes, name, wanted)
    try:
        while not (run.look() and until_in_step):
            sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        pipes.ask("DELETE", f"/{quote(name, safe='')}")
        click.echo("stopped. The copies stay read-only; run the same command to go on.")


class _Run:
    """The progress of one mirror."""

    def __init__(self, pipes: AdminResource, name: str, wanted: Document) -> None:
        self._pipes = pipes
        self._name = name
        self._wanted = wanted
        self._shown = ""
        self._was_in_step = False

    def look(self) -> bool:
        """Show the progress; return whether all is copied."""
        try:
            found = self._found()
        except AdminUnreachableError as error:
            self._show(f"the broker does not answer: {error}")
            return False
        is_in_step = bool(found.get("is_in_step")) and bool(found.get("partition_count"))
        if is_in_step and not self._was_in_step:
            click.echo(
                f"in step: move your clients now. Stop the producers, wait until the lag is 0, "
                f"then: penstock pipe promote {self._name}"
            )
        self._was_in_step = is_in_step
        self._show(_progress(found))
        return is_in_step

    def _found(self) -> Document:
        path = f"/{quote(self._name, safe='')}"
        try:
            answer = self._pipes.ask("GET", path)
        except AdminRefusedError:
            # The broker was restarted, and has forgotten the pipe.
            self._pipes.ask("POST", "", self._wanted)
            answer = self._pipes.ask("GET", path)
        found: Document = self._pipes.field(answer, "pipe", dict)
        return found

    def _show(self, line: str) -> None:
        if line != self._shown:
            note(line)
        self._shown = line


def _progress(found: Document) -> str:
    if found.get("health") == UNHEALTHY:
        return f"UNHEALTHY: {text(found, 'reason')}. Remedy: {text(found, 'remedy')}"
    if not found.get("partition_count"):
        return f"no topic to copy yet ({text(found, 'reason') or 'no topic has such a name'})"
    copied = f"{text(found, 'records')} records copied, {text(found, 'lag_records')} to copy"
    if not found.get("lag_records"):
        return copied
    left = duration(found.get("seconds_to_catch_up"))
    return f"{copied}, {text(found, 'records_per_second')} records/s, {left} left"
