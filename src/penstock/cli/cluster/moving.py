"""Options of commands that move replicas, and their run with a progress line."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from penstock.cli.cluster.state_text import MOVE_COLUMNS, move_row
from penstock.cli.numbers import WholeNumber
from penstock.cli.output import note, print_table
from penstock.cli.progress import progress_line
from penstock.client.cluster import Cluster
from penstock.client.operation.broker_settings import throttle
from penstock.client.operation.cluster_state import BrokerMode, ClusterState
from penstock.client.operation.move_runner import MoveProgress, MoveRunner
from penstock.client.operation.replica_moves import ReplicaMove
from penstock.client.operation.stalled_moves import STALL_SECONDS
from penstock.core.errors import PenstockError
from penstock.core.quantities import count_text, size_text

AT_ONCE_DEFAULT: Final = 10
AT_ONCE_MAX: Final = 1_000
THROTTLE_MIN: Final = 1_024
"""Bytes in a second: below this a move would hardly end."""
MOVES_SHOWN_MAX: Final = 50
THROTTLED_BYTES_MAX: Final = 16 * 1024 * 1024
"""That a throttled broker may copy at once; it then pauses for as long as its rate demands."""

Command = TypeVar("Command", bound=Callable[..., Any])


def move_options(command: Command) -> Command:
    """Add `--dry-run`, `--at-once` and `--throttle`."""
    dry_run = click.option("--dry-run", is_flag=True, help="Show the moves, and change nothing.")
    at_once = click.option(
        "--at-once",
        type=WholeNumber(min=1, max=AT_ONCE_MAX),
        default=AT_ONCE_DEFAULT,
        show_default=True,
        help="Partitions that move at the same time.",
    )
    limit = click.option(
        "--throttle",
        "bytes_per_second",
        type=WholeNumber(min=THROTTLE_MIN),
        metavar="BYTES",
        help="Bytes a second that each broker sends or receives for the moves; no limit without.",
    )
    return dry_run(at_once(limit(command)))


def print_moves(moves: Sequence[ReplicaMove]) -> None:
    """Print the moves, and the bytes that they copy."""
    print_table(list(MOVE_COLUMNS), [move_row(one) for one in moves[:MOVES_SHOWN_MAX]])
    if len(moves) > MOVES_SHOWN_MAX:
        click.echo(f"{count_text(len(moves) - MOVES_SHOWN_MAX, 'more move')}; --json lists all.")
    copied = sum(one.copied_bytes for one in moves)
    click.echo(f"{count_text(len(moves), 'partition')}, {size_text(copied)} to copy")


def carry_out(
    cluster: Cluster,
    state: ClusterState,
    moves: Sequence[ReplicaMove],
    *,
    begun: Sequence[ReplicaMove] = (),
    at_once: int,
    bytes_per_second: int | None,
) -> None:
    """Move the replicas, and wait for the end. After an interruption or an error the moves go on.

    With a limit, the settings of the throttle are set before and deleted afterwards. While moves
    go on they stay, and a note names them.
    """
    every = (*moves, *begun)
    topics = sorted({one.at.topic for one in every})
    brokers = [one.id for one in state.brokers.values() if one.mode is not BrokerMode.DOWN]
    stall_seconds = STALL_SECONDS
    if bytes_per_second is not None:
        throttle(cluster, bytes_per_second, brokers, topics)
        stall_seconds += THROTTLED_BYTES_MAX / bytes_per_second
    with progress_line("moving", sum(one.copied_bytes for one in every)) as advance:
        shown_bytes = 0

        def report(progress: MoveProgress) -> None:
            nonlocal shown_bytes
            # A topic may shrink meanwhile: the line never goes back.
            new = max(0, progress.copied_bytes - shown_bytes)
            shown_bytes += new
            advance(new, f"{progress.moved} of {progress.total} partitions")

        try:
            MoveRunner(cluster, at_once=at_once, report=report, stall_seconds=stall_seconds).run(
                moves, begun
            )
        except (KeyboardInterrupt, PenstockError):
            _note_rest(is_limited=bytes_per_second is not None)
            raise
    if bytes_per_second is not None:
        throttle(cluster, None, brokers, topics)


def _note_rest(*, is_limited: bool) -> None:
    """Print the state that an early end leaves."""
    note("note: moves that began go on. Repeat the command with its options to continue.")
    if is_limited:
        note(
            "note: the limit of --throttle stays: leader.replication.throttled.rate and "
            "follower.replication.throttled.rate of the brokers, and the lists "
            "leader.replication.throttled.replicas and follower.replication.throttled.replicas of "
            "the topics. The repeated command deletes them when all has moved."
        )
