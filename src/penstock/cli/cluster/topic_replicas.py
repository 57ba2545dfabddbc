"""`penstock topic replicas`: give a topic more or fewer replicas, or move them to other brokers.

The plan is `client.operation.resizing`; the brokers copy. An interrupted command leaves the moves
that began: they go on, and the next run begins the rest.
"""

from collections.abc import Sequence
from typing import Final

import click

from penstock.cli.cluster.moving import carry_out, move_options, print_moves
from penstock.cli.cluster.state_text import move_document, open_operated
from penstock.cli.completing import complete_topics
from penstock.cli.numbers import WholeNumber
from penstock.cli.options import (
    WrongUsageError,
    bootstrap_option,
    examples,
    json_option,
    timeout_option,
)
from penstock.cli.output import print_json
from penstock.client.cluster import Cluster
from penstock.client.operation.cluster_state import ClusterState, PartitionFacts
from penstock.client.operation.replica_moves import ReplicaMove
from penstock.client.operation.resizing import (
    chosen_partitions,
    plan_factor,
    plan_replicas,
    under_way,
)
from penstock.client.operation.state_reading import read_state
from penstock.client.reassignment_calls import alter_reassignments
from penstock.client.transport.call import raise_error
from penstock.core.quantities import count_text
from penstock.protocol.error_codes import ErrorCode

_REPLICAS_MAX: Final = 100
"""As many brokers a cluster may have."""
_PARTITIONS_MAX: Final = 100_000
_HINT: Final = "Give one of them, such as `penstock topic replicas orders 3`."


class Numbers(click.ParamType[tuple[int, ...]]):
    """Whole numbers with commas; ranges, such as 4-6, if they are allowed."""

    name = "numbers"

    def __init__(self, *, has_ranges: bool) -> None:
        self._has_ranges = has_ranges

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the numbers in order; raise a usage error for any other text."""
        if isinstance(value, tuple):
            return value
        found: list[int] = []
        for part in str(value).split(","):
            first, dash, last = part.strip().partition("-")
            if not first.isdecimal() or (dash and not (self._has_ranges and last.isdecimal())):
                self.fail(f"{part.strip()!r} is not a number.", param, ctx)
            end = int(last) if dash else int(first)
            if not int(first) <= end < int(first) + _PARTITIONS_MAX:
                self.fail(f"{part.strip()!r} is not a range of numbers.", param, ctx)
            found.extend(range(int(first), end + 1))
        if len(set(found)) < len(found):
            self.fail(f"{value} has a number twice.", param, ctx)
        return tuple(found)


@click.command(
    short_help="Change the number of replicas, or move them.",
    epilog=examples(
        "penstock topic replicas orders 3",
        "penstock topic replicas orders --to 2,3,4 --partitions 0-2 --throttle 50000000",
        "penstock topic replicas orders --cancel",
    ),
)
@click.argument("name", shell_complete=complete_topics)
@click.argument("count", type=WholeNumber(min=1, max=_REPLICAS_MAX), required=False)
@click.option(
    "--to",
    type=Numbers(has_ranges=False),
    metavar="IDS",
    help="Ids of the brokers that get the replicas, with commas; the first one leads.",
)
@click.option("--cancel", is_flag=True, help="Move replicas that are on their way back.")
@click.option(
    "--partitions",
    "numbers",
    type=Numbers(has_ranges=True),
    metavar="NUMBERS",
    help="Partitions, such as 0,2,4-6; all without it.",
)
@move_options
@bootstrap_option
@timeout_option
@json_option()
def replicas(
    name: str,
    count: int | None,
    to: tuple[int, ...] | None,
    cancel: bool,
    numbers: tuple[int, ...] | None,
    dry_run: bool,
    at_once: int,
    bytes_per_second: int | None,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Give the partitions of the topic NAME exactly COUNT replicas, and wait until they have them.

    The brokers copy the records to new replicas, and then delete the old ones. Clients may go on
    meanwhile. With --to, the replicas move to these brokers. Needs the permissions Describe and
    Alter on the cluster.
    """
    given = [one for one in (count, to, cancel or None) if one is not None]
    if len(given) != 1:
        raise WrongUsageError("COUNT, --to and --cancel exclude each other.", hint=_HINT)
    with open_operated(bootstrap, timeout_seconds) as cluster:
        state = read_state(cluster, wants_minimums=False)
        partitions = chosen_partitions(state, name, numbers)
        if cancel:
            moves = [_back(one) for one in under_way(partitions)]
        elif count is not None:
            moves = plan_factor(state, partitions, count)
        else:
            assert to is not None
            moves = plan_replicas(partitions, to)
        if not as_json:
            _print(name, moves, dry_run=dry_run)
        begun = [] if cancel else _begun(partitions, moves)
        if cancel and not dry_run:
            _cancel(cluster, moves)
        elif (moves or begun) and not dry_run:
            _move(cluster, state, moves, begun, at_once, bytes_per_second)
    if as_json:
        _print_document(name, moves, "planned" if dry_run else "cancelled" if cancel else "moved")
    elif moves and not dry_run:
        done = "moved back" if cancel else "moved"
        click.echo(f"{count_text(len(moves), 'partition')} of {name} {done}")


def _begun(partitions: Sequence[PartitionFacts], moves: Sequence[ReplicaMove]) -> list[ReplicaMove]:
    """Return moves of an earlier run that go on."""
    planned = {one.at for one in moves}
    return [one for one in under_way(partitions) if one.at not in planned]


def _move(
    cluster: Cluster,
    state: ClusterState,
    moves: Sequence[ReplicaMove],
    begun: Sequence[ReplicaMove],
    at_once: int,
    bytes_per_second: int | None,
) -> None:
    carry_out(
        cluster, state, moves, begun=begun, at_once=at_once, bytes_per_second=bytes_per_second
    )


def _back(move: ReplicaMove) -> ReplicaMove:
    return ReplicaMove(move.at, move.after, move.before, 0)


def _cancel(cluster: Cluster, moves: Sequence[ReplicaMove]) -> None:
    if not moves:
        return
    call = alter_reassignments({one.at: None for one in moves}, cluster.timeout_ms)
    outcomes = cluster.repeat(lambda: cluster.anywhere(call), repeatable=True)
    for at, (code, message) in outcomes.items():
        # It has ended meanwhile.
        if code != ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
            raise_error(code, message, str(at))


def _print(name: str, moves: Sequence[ReplicaMove], *, dry_run: bool) -> None:
    if moves:
        print_moves(moves)
    elif dry_run:
        click.echo(f"{name} has these replicas already: nothing would move")
    else:
        click.echo(f"{name} has these replicas already")


def _print_document(name: str, moves: Sequence[ReplicaMove], result: str) -> None:
    print_json(
        {
            "name": name,
            "result": result,
            "moves": [move_document(one) for one in moves],
            "copied_bytes": sum(one.copied_bytes for one in moves),
        }
    )
