"""`penstock balance`: move a few replicas and leaders, so that brokers have equal loads.

The plan is `client.operation.balancing`. Nothing moves by itself: only this command moves replicas.
"""

from collections.abc import Mapping
from typing import Final

import click

from penstock.cli.cluster.moving import carry_out, move_options, print_moves
from penstock.cli.cluster.state_text import move_document, open_operated
from penstock.cli.confirmation import check_can_ask, confirm, yes_option
from penstock.cli.numbers import WholeNumber
from penstock.cli.options import bootstrap_option, examples, json_option, timeout_option
from penstock.cli.output import print_json, print_table
from penstock.client.operation.balancing import PARTS, BalancePlan, Load, plan_balance
from penstock.client.operation.move_runner import MoveRunner
from penstock.client.operation.state_reading import read_state
from penstock.core.quantities import count_text, size_text

MOVES_DEFAULT: Final = 10
MOVES_MAX: Final = 1_000


@click.command(
    short_help="Balance replicas and leaders among brokers.",
    epilog=examples(
        "penstock balance --dry-run",
        "penstock balance --max-moves 20 --throttle 50000000",
    ),
)
@click.option(
    "--max-moves",
    "moves_max",
    type=WholeNumber(min=1, max=MOVES_MAX),
    default=MOVES_DEFAULT,
    show_default=True,
    help="Partitions that move; run the command again for more.",
)
@move_options
@yes_option
@bootstrap_option
@timeout_option
@json_option()
def balance(
    moves_max: int,
    dry_run: bool,
    at_once: int,
    bytes_per_second: int | None,
    yes: bool,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Move replicas and leaders from brokers with a high load to brokers with a low load.

    The load of a broker is its bytes, its replicas and its leaders. A broker that is at most 10 %
    above the mean stays. Replicas stay in different racks, and only partitions with all replicas in
    sync move. Needs the permissions Describe, Alter and DescribeConfigs on the cluster.
    """
    if not dry_run:
        check_can_ask(yes=yes)
    with open_operated(bootstrap, timeout_seconds) as cluster:
        state = read_state(cluster)
        plan = plan_balance(state, moves_max)
        if not as_json:
            _print(plan)
        if plan.moves and not dry_run:
            confirm(f"Move {count_text(len(plan.moves), 'partition')}?", yes=yes)
            carry_out(
                cluster, state, plan.moves, at_once=at_once, bytes_per_second=bytes_per_second
            )
            led = [move.at for move in plan.moves if move.after[0] != move.before[0]]
            MoveRunner(cluster, at_once=at_once).let_first_lead(led)
            if not as_json:
                click.echo(f"{count_text(len(plan.moves), 'partition')} moved")
    if as_json:
        print_json(_document(plan, is_done=not dry_run))


def _print(plan: BalancePlan) -> None:
    if not plan.moves:
        click.echo("the brokers are balanced, or no move makes them more equal")
        return
    print_moves(plan.moves)
    print_table(
        ["broker", *(f"{part}{word}" for part in PARTS for word in ("", " after"))],
        [_row(one, plan) for one in plan.before],
    )


def _row(broker_id: int, plan: BalancePlan) -> list[object]:
    before, after = plan.before[broker_id], plan.after[broker_id]
    return [
        broker_id,
        size_text(before[0]),
        size_text(after[0]),
        *(count for part in (1, 2) for count in (before[part], after[part])),
    ]


def _document(plan: BalancePlan, *, is_done: bool) -> dict[str, object]:
    return {
        "moves": [move_document(one) for one in plan.moves],
        "moved": is_done and bool(plan.moves),
        "before": _loads(plan.before),
        "after": _loads(plan.after),
    }


def _loads(loads: Mapping[int, Load]) -> list[dict[str, int]]:
    return [
        {"broker": broker_id, **dict(zip(PARTS, load, strict=True))}
        for broker_id, load in loads.items()
    ]
