"""`penstock table run`: run a pipeline in this process, until it is done or Ctrl-C.

The first Ctrl-C or SIGTERM stops the query; the next run reads uncommitted records again. While
Spark starts, it cancels the start immediately. The second signal ends the process at once, which is
equally safe but leaves unreferenced files. All these ends except the last count as success: a
continuous pipeline ends only this way.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from threading import Event
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

from penstock.cli import exits
from penstock.cli.extras import extras_named
from penstock.cli.options import examples, json_option
from penstock.cli.output import note, print_json
from penstock.cli.table.spark_options import SparkWish, chosen_session, spark_options
from penstock.cli.table.view import shown
from penstock.cli.text.pipeline_words import errors_of_definition
from penstock.core.clock import SystemClock

if TYPE_CHECKING:
    from penstock.spark.pipeline_files import LoadedPipeline
    from penstock.spark.tables.definition.model import PipelineDefinition
    from penstock.spark.tables.inspection.run_view import RunView
    from penstock.spark.tables.rules.planner import Plan


class StopSignals:
    """Sets an event on Ctrl-C and SIGTERM; the second signal ends the process.

    Until `runs` is called, the first signal also interrupts the current work; this is not an error.
    """

    def __init__(self) -> None:
        self.stop = Event()
        self.was_interrupted = False
        """Whether the work was interrupted before the pipeline ran."""
        self._on_stop: Callable[[], None] | None = None
        self._before: dict[int, Any] = {}

    def arm(self) -> None:
        """Install the signal handlers, again after a Spark session has replaced one of them."""
        for number in (signal.SIGINT, signal.SIGTERM):
            before = signal.signal(number, self._on_signal)
            self._before.setdefault(number, before)

    def runs(self, on_stop: Callable[[], None]) -> None:
        """Let later signals wait for the pipeline to stop; the handler calls `on_stop`."""
        self.arm()
        self._on_stop = on_stop

    def __enter__(self) -> Self:
        self.arm()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        # The interrupt may not be ours: a new session has its own handler for Ctrl-C.
        self.was_interrupted = kind is KeyboardInterrupt
        return self.was_interrupted

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 (Python's)
        if self.stop.is_set():
            os._exit(exits.INTERRUPTED)
        self.stop.set()
        if self._on_stop is None:
            raise KeyboardInterrupt
        self._on_stop()


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
    help="Stop at the current end of the topics, or run until Ctrl-C.  [default: continuous]",
)
@spark_options
@json_option("Print the totals as a JSON document at the end.")
def run(
    file: str,
    once: bool,
    master: str | None,
    settings: tuple[str, ...],
    log: str | None,
    as_json: bool,
) -> None:
    """Write the topics of FILE into its table, each record once.

    The table is created if it does not exist. Ctrl-C stops; the next run continues from the offsets
    in the table, whatever became of the checkpoint. A terminal shows a live view, anything else a
    line for each batch, on standard error.

    Exit codes: 0 done or stopped by Ctrl-C, 1 the pipeline failed, 2 wrong usage or wrong settings,
    3 no broker.
    """
    view = None
    with StopSignals() as signals:
        with extras_named():
            from penstock.spark.pipeline_files import load_pipeline
            from penstock.spark.tables.definition.model import WriteMode
            from penstock.spark.tables.inspection.run_view import RunView

        with errors_of_definition(file):
            loaded = load_pipeline(file)
        table = loaded.definition.table
        view = RunView(
            loaded.definition.pipeline.name,
            table.name,
            interval_ms=loaded.definition.trigger.interval_ms,
            row_word="change" if table.mode is WriteMode.UPSERT else "row",
            began_ms=SystemClock().now_ms(),
        )
        with errors_of_definition(file):
            _bring(loaded, SparkWish(master, settings, log), view, signals, once=once)
    if signals.was_interrupted:
        note("stopped while it was starting; nothing was committed")
    if view is None:
        return
    if as_json:
        print_json(_document(loaded.definition, view))
    else:
        click.echo(view.end_line())


def _bring(
    loaded: LoadedPipeline, wish: SparkWish, view: RunView, signals: StopSignals, *, once: bool
) -> None:
    from penstock.spark.pipeline_runs import run_pipeline

    with chosen_session(wish) as session, shown(view, SystemClock()) as drawn:

        def started(plan: Plan) -> None:
            drawn.started(plan.mode.value, plan.reasons)
            signals.runs(drawn.stopping)

        run_pipeline(
            loaded,
            session,
            once=once,
            observer=drawn,
            stop=signals.stop,
            started=started,
            broker=drawn,
        )


def _document(definition: PipelineDefinition, view: RunView) -> dict[str, object]:
    done = view.totals
    return {
        "pipeline": definition.pipeline.name,
        "table": definition.table.name,
        "batches": done.batches,
        "records": done.records,
        "rows": done.rows,
        "rejects": done.rejects,
        "files": done.files,
    }
