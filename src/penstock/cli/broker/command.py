"""`penstock broker`: take a broker out of service for a while, or for ever."""

import click

from penstock.cli.broker.draining import drain as drain_broker
from penstock.cli.broker.draining import undrain as undrain_broker
from penstock.cli.broker.removal import Removal
from penstock.cli.cluster.moving import move_options
from penstock.cli.cluster.state_text import open_operated
from penstock.cli.confirmation import check_can_ask, yes_option
from penstock.cli.numbers import WholeNumber
from penstock.cli.options import bootstrap_option, examples, json_option, timeout_option
from penstock.cli.output import print_json
from penstock.core.quantities import count_text

BROKER_ID_MAX = 2_147_483_647

_broker_argument = click.argument(
    "broker_id", metavar="ID", type=WholeNumber(min=0, max=BROKER_ID_MAX)
)


@click.group(
    short_help="Take a broker out of service.",
    epilog=examples(
        "penstock broker drain 3",
        "penstock broker undrain 3",
        "penstock broker remove 3 --dry-run",
    ),
)
def broker() -> None:
    """Take a broker out of service, for a while or for ever.

    `penstock cluster status` lists the brokers.
    """


@broker.command(
    short_help="Let other brokers lead the partitions of a broker.",
    epilog=examples("penstock broker drain 3"),
)
@_broker_argument
@bootstrap_option
@timeout_option
@json_option()
def drain(broker_id: int, bootstrap: str, timeout_seconds: float, as_json: bool) -> None:
    """Let other brokers lead the partitions of the broker ID.

    Its replicas stay in sync, so no partition is less safe. It gets no new replicas while others
    can have them. This holds after a restart too, until `penstock broker undrain`. Needs the
    permission AlterConfigs on the cluster.
    """
    with open_operated(bootstrap, timeout_seconds) as cluster:
        drain_broker(cluster, broker_id)
    if as_json:
        print_json({"broker": broker_id, "drained": True})
    else:
        click.echo(f"broker {broker_id} is drained: it leads no partitions")


@broker.command(
    short_help="Let a drained broker lead again.",
    epilog=examples("penstock broker undrain 3"),
)
@_broker_argument
@bootstrap_option
@timeout_option
@json_option()
def undrain(broker_id: int, bootstrap: str, timeout_seconds: float, as_json: bool) -> None:
    """Let the drained broker ID lead again: the partitions whose first replica it has, at once.

    Needs the permissions AlterConfigs and Alter on the cluster.
    """
    with open_operated(bootstrap, timeout_seconds) as cluster:
        led = undrain_broker(cluster, broker_id)
    if as_json:
        print_json({"broker": broker_id, "drained": False, "led": led})
    else:
        click.echo(
            f"broker {broker_id} may lead again, and leads {count_text(led, 'partition')} more"
        )


@broker.command(
    short_help="Move all replicas off a broker, and forget it.",
    epilog=examples(
        "penstock broker remove 3 --dry-run",
        "penstock broker remove 3 --throttle 50000000",
    ),
)
@_broker_argument
@move_options
@yes_option
@bootstrap_option
@timeout_option
@json_option()
def remove(
    broker_id: int,
    dry_run: bool,
    at_once: int,
    bytes_per_second: int | None,
    yes: bool,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Move all replicas off the broker ID, then let the cluster forget it.

    The broker is drained, and its replicas move to brokers in other racks with free disk space.
    Then stop the broker and run the command again. A broker that is lost for ever is
    forgotten at once. An interrupted command can be run again. Needs the permissions Describe,
    Alter, DescribeConfigs and AlterConfigs on the cluster.
    """
    if not dry_run:
        check_can_ask(yes=yes)
    with open_operated(bootstrap, timeout_seconds) as cluster:
        removal = Removal(
            cluster,
            broker_id,
            at_once=at_once,
            bytes_per_second=bytes_per_second,
            as_json=as_json,
        )
        if dry_run:
            removal.show()
        else:
            removal.run(yes=yes)
