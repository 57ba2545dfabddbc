"""`penstock cluster restart-next`: the broker that may go down next in a rolling restart.

The decision is `client.operation.restart_order`. Exit codes: 0 with a broker, and when all brokers
are restarted; 1 while none may go down.
"""

import click

from penstock.cli import exits
from penstock.cli.cluster.state_text import ids_text, open_operated
from penstock.cli.options import bootstrap_option, examples, json_option, timeout_option
from penstock.cli.output import note, print_json
from penstock.client.operation.cluster_state import ClusterState
from penstock.client.operation.restart_order import NextRestart, Obstacle, next_restart
from penstock.client.operation.state_reading import read_state
from penstock.core.quantities import count_text


def _parse_ids(_context: click.Context, _option: click.Parameter, text: str) -> tuple[int, ...]:
    """Return broker ids from words with commas; raise a usage error for other words."""
    try:
        return tuple(int(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of broker ids such as 1,2.") from None


@click.command(
    short_help="Name the broker that may be restarted next.",
    epilog=examples(
        "penstock cluster restart-next",
        "penstock cluster restart-next --restarted 2,3",
    )
    + "\n\nExit codes: 0 a broker, or all are restarted; 1 no broker may go down now.",
)
@click.option(
    "--restarted",
    callback=_parse_ids,
    default="",
    metavar="ID,ID",
    help="Brokers that are restarted already.",
)
@click.option(
    "--accept-single",
    is_flag=True,
    help="Partitions with one replica may be unavailable during the restart.",
)
@bootstrap_option
@timeout_option
@json_option()
def restart_next(
    restarted: tuple[int, ...],
    accept_single: bool,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> int:
    """Name the broker that may be restarted next, without an effect on clients.

    No partition stays without a leader or falls below min.insync.replicas while the broker is
    down. The controller is last. Wait until the broker is back before you ask again.
    """
    with open_operated(bootstrap, timeout_seconds) as cluster:
        state = read_state(cluster)
    found = next_restart(state, restarted, accepts_single=accept_single)
    if as_json:
        print_json(_document(found))
    else:
        _print(found, state, restarted)
    return exits.FAILED if found.broker_id is None and found.waiting else exits.DONE


def _document(found: NextRestart) -> dict[str, object]:
    return {
        "next": found.broker_id,
        "waiting": list(found.waiting),
        "down": list(found.down),
        "obstacles": [
            {
                "broker": one.broker_id,
                "topic": one.partition.at.topic,
                "partition": one.partition.at.partition,
                "in_sync_left": one.left,
                "min_insync_replicas": one.partition.min_in_sync,
                "other_partitions": one.others,
            }
            for one in found.obstacles
        ],
    }


def _print(found: NextRestart, state: ClusterState, restarted: tuple[int, ...]) -> None:
    if found.broker_id is not None:
        address = state.brokers[found.broker_id].address
        click.echo(f"restart broker {found.broker_id} ({address})")
        if found.waiting:
            done = ",".join(map(str, (*restarted, found.broker_id)))
            note(f"then: penstock cluster restart-next --restarted {done}")
        return
    if not found.waiting:
        click.echo("all brokers are restarted")
        return
    click.echo("no broker may go down now")
    if found.down:
        click.echo(f"broker {ids_text(found.down)} is down: wait until it is back")
    for one in found.obstacles:
        click.echo(_obstacle_text(one))


def _obstacle_text(obstacle: Obstacle) -> str:
    facts = obstacle.partition
    others = f" (and {count_text(obstacle.others, 'more partition')})" if obstacle.others else ""
    if len(facts.replicas) == 1:
        return (
            f"broker {obstacle.broker_id} has the only replica of {facts.at}{others}: add replicas "
            f"with `penstock topic replicas {facts.at.topic} 3`, or accept it with --accept-single"
        )
    return (
        f"broker {obstacle.broker_id} is needed: {facts.at} would have "
        f"{count_text(obstacle.left, 'in-sync replica')}, and needs "
        f"{max(1, facts.min_in_sync)}{others}"
    )
