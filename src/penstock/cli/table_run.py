"""`penstock table run`: a pipeline in this process, until it is done or somebody presses Ctrl-C.

The first Ctrl-C, or a SIGTERM, stops the query: what was not committed is read again by the next
run. The second one ends the process at once, which is as safe and leaves files that nobody refers
to. Both ends count as done: it is how a pipeline that goes on for ever ends.
"""

from __future__ import annotations

import os
import signal
from threading import Event
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

from penstock.cli import exits
from penstock.cli.extras import extras_named
from penstock.cli.options import examples, json_option
from penstock.cli.output import print_json
from penstock.cli.spark_options import SparkWish, chosen_session, spark_options
from penstock.cli.table_view import shown
from penstock.core.clock import SystemClock

if TYPE_CHECKING:
    from penstock.spark.tables.planner import Plan


class StopSignals:
    """Sets an event on Ctrl-C and SIGTERM; the second time the process ends."""

    def __init__(self) -> None:
        self.stop = Event()
        self._before: dict[int, Any] = {}

    def arm(self) -> None:
        """Take the signals, again after a Spark session has taken one of them."""
        for number in (signal.SIGINT, signal.SIGTERM):
            before = signal.signal(number, self._on_signal)
            self._before.setdefault(number, before)

    def __enter__(self) -> Self:
        self.arm()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 (Python's)
        if self.stop.is_set():
            os._exit(exits.INTERRUPTED)
        self.stop.set()


@click.command(
    short_help="Run a pipeline.",
    epilog=examples(
        "penstock table run orders.toml --once",
        "penstock table run orders.toml --master 'local[4]' --conf spark.driver.memory=4g",
    ),
)
@click.argument("file", metavar="FILE")
@click.option(
    "--once/--continuous",
    default=False,
    help="End where the topics end now, or go on until Ctrl-C.  [default: continuous]",
)
@spark_options
@json_option("At the end print what was done as a JSON document.")
def run(
    file: str,
    once: bool,
    master: str | None,
    settings: tuple[str, ...],
    log: str | None,
    as_json: bool,
) -> None:
    """Bring the topics of FILE into its table, each record once.

    The table is made if it is not there. Ctrl-C stops; the next run goes on from what the table
    holds, whatever became of the checkpoint.
    """
    with extras_named():
        from penstock.spark.pipeline_files import load_pipeline
        from penstock.spark.pipeline_runs import run_pipeline
        from penstock.spark.tables.run_view import RunView

    loaded = load_pipeline(file)
    definition = loaded.definition
    view = RunView(
        definition.pipeline.name,
        definition.table.name,
        interval_ms=definition.trigger.interval_ms,
    )
    wish = SparkWish(master, settings, log)
    with (
        chosen_session(wish) as session,
        StopSignals() as signals,
        shown(view, SystemClock()) as drawn,
    ):

        def started(plan: Plan) -> None:
            signals.arm()
            drawn.started(plan.mode.value, plan.reasons)

        run_pipeline(
            loaded,
            session,
            once=once,
            observer=drawn,
            stop=signals.stop,
            started=started,
        )
    done = view.totals
    if as_json:
        print_json(
            {
                "pipeline": definition.pipeline.name,
                "table": definition.table.name,
                "batches": done.batches,
                "records": done.records,
                "rows": done.rows,
                "rejects": done.rejects,
                "files": done.files,
            }
        )
    else:
        click.echo(view.end_line())
