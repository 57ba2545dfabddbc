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
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import click

from penstock.cli import exits
from penstock.cli.extras import extras_named
from penstock.cli.numbers import WholeNumber
from penstock.cli.options import examples, json_option
from penstock.cli.output import note, print_json
from penstock.cli.table.many_run import many_shown
from penstock.cli.table.spark_options import SparkWish, chosen_session, spark_options
from penstock.cli.table.view import LineView, ScreenView, shown
from penstock.cli.text.pipeline_words import errors_of_definition
from penstock.core.clock import SystemClock

if TYPE_CHECKING:
    from penstock.spark.pipeline_files import LoadedPipeline
    from penstock.spark.tables.definition.model import PipelineDefinition
    from penstock.spark.tables.inspection.many_view import ManyView
    from penstock.spark.tables.inspection.run_view import RunView
    from penstock.spark.tables.rules.planner import Plan


RESTARTS_DEFAULT: Final = 10
"""With the pauses between them, some ten minutes."""
FOREVER: Final = -1
NOTHING: Final = "nothing was committed"


class RunWish(NamedTuple):
    """The user's options for the run itself."""

    once: bool
    restarts: int | None
    metrics_port: int | None
    metrics_host: str | None


RESTARTS_MAX: Final = 1_000_000


class RestartCount(click.ParamType[int]):
    """A number of restarts, or `forever`."""

    name = "count"

    def convert(
        self,
        value: Any,  # noqa: ANN401 (click's signature)
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> int:
        """Return the number, `FOREVER` without a limit; raise a usage error otherwise."""
        if value == "forever":
            return FOREVER
        try:
            return int(WholeNumber(min=0, max=RESTARTS_MAX).convert(value, param, ctx))
        except click.BadParameter as error:
            self.fail(f"{error.message.rstrip('.')}, and not `forever`.", param, ctx)


class StopSignals:
    """Sets an event on Ctrl-C and SIGTERM; the second signal ends the process.

    Before `runs` and after `starts`, the first signal also interrupts the current work; this is not
    an error.
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

    def starts(self) -> None:
        """Let the next signal interrupt the start that begins now."""
        self.arm()
        self._on_stop = None

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
        "penstock table run orders.toml --restarts forever --metrics-port 9464",
    ),
)
@click.argument("file", metavar="FILE")
@click.option(
    "--once/--continuous",
    default=False,
    help="Stop at the current end of the topics, or run until Ctrl-C.  [default: continuous]",
)
@click.option(
    "--restarts",
    type=RestartCount(),
    default=None,
    metavar="N|forever",
    help="Restarts in a row after failures that may pass.  [default: 10; 0 with --once]",
)
@click.option(
    "--metrics-port",
    type=WholeNumber(min=0, max=65_535),
    default=None,
    help="Serve metrics and health on this port.  [default: pipeline.metrics_port, or none]",
)
@click.option(
    "--metrics-host",
    default=None,
    help="The address of that port.  [default: pipeline.metrics_host, or 127.0.0.1]",
)
@spark_options
@json_option("Print the totals as a JSON document at the end.")
def run(
    file: str,
    once: bool,
    restarts: int | None,
    metrics_port: int | None,
    metrics_host: str | None,
    master: str | None,
    settings: tuple[str, ...],
    log: str | None,
    as_json: bool,
) -> None:
    """Write the topics of FILE into its table, each record once.

    The table is created if it does not exist. Ctrl-C stops; the next run continues from the offsets
    in the table, whatever became of the checkpoint. A terminal shows a live view, anything else a
    line for each batch, on standard error.

    Unreachable brokers, stores, conflicts and failures of Spark restart the pipeline, after a
    growing pause. Errors that a person must correct end it at once; so does a first start that
    fails, unless --restarts is given. --metrics-port serves /metrics, /health/live and
    /health/ready.

    Exit codes: 0 done or stopped by Ctrl-C, 1 the pipeline failed, 2 wrong usage or wrong settings,
    3 no broker, 7 too many bad records.
    """
    view: RunView | ManyView | None = None
    with StopSignals() as signals:
        with extras_named():
            from penstock.spark.pipeline_files import load_pipelines
            from penstock.spark.tables.definition.many_tables import has_many_tables
            from penstock.spark.tables.definition.model import WriteMode
            from penstock.spark.tables.inspection.run_view import RunView

        with errors_of_definition(file):
            loaded = load_pipelines(file)
        table = loaded.definition.table
        spark = SparkWish(master, settings, log)
        wish = RunWish(once, restarts, metrics_port, metrics_host)
        if has_many_tables(loaded.definition):
            _require_plain(wish)
            view = _new_many_view(loaded.definition)
            with errors_of_definition(file):
                _run_many(loaded.definition, spark, view, signals, once=once)
        else:
            view = RunView(
                loaded.definition.pipeline.name,
                table.name,
                interval_ms=loaded.definition.trigger.interval_ms,
                row_word="change" if table.mode is WriteMode.UPSERT else "row",
                began_ms=SystemClock().now_ms(),
            )
            with errors_of_definition(file):
                _run_one(loaded, spark, wish, view, signals)
    if signals.was_interrupted:
        text = "uncommitted records are read again" if view and view.totals.batches else NOTHING
        note(f"stopped while it was starting; {text}")
    if view is None:
        return
    if as_json:
        print_json(_document(loaded.definition, view))
    else:
        click.echo(view.end_line())


def _run_one(
    loaded: LoadedPipeline, spark: SparkWish, wish: RunWish, view: RunView, signals: StopSignals
) -> None:
    from penstock.spark.pipeline_runs import RunChoice, run_pipeline
    from penstock.spark.tables.operation.pipeline_restarts import RestartPolicy

    count = wish.restarts
    if count is None:
        policy = RestartPolicy(0 if wish.once else RESTARTS_DEFAULT)
    else:
        policy = RestartPolicy(None if count == FOREVER else count, is_explicit=True)
    with chosen_session(spark) as session, shown(view, SystemClock()) as drawn:
        choice = RunChoice(wish.once, policy, _metrics_address(loaded.definition, wish))
        listener = _Listener(drawn, signals)
        run_pipeline(loaded, session, choice, listener=listener, stop=signals.stop)


def _metrics_address(definition: PipelineDefinition, wish: RunWish) -> tuple[str, int] | None:
    """Return the address of the options; None if the definition's applies."""
    settings = definition.pipeline.operation
    if wish.metrics_port is None and wish.metrics_host is None:
        return None
    port = settings.metrics_port if wish.metrics_port is None else wish.metrics_port
    if wish.metrics_port is None and not port:
        raise click.UsageError("--metrics-host needs --metrics-port.")
    return wish.metrics_host or settings.metrics_host, port


class _Listener:
    """Draws the events, and sets the meaning of the signals."""

    def __init__(self, drawn: LineView | ScreenView, signals: StopSignals) -> None:
        self._drawn = drawn
        self._signals = signals
        self.batch_done = drawn.batch_done
        self.maintenance_done = drawn.maintenance_done
        self.broker_seen = drawn.broker_seen
        self.broker_away = drawn.broker_away

    def starting(self) -> None:
        self._signals.starts()

    def started(self, mode: Plan) -> None:
        self._drawn.started(mode.mode.value, mode.reasons)
        self._signals.runs(self._drawn.stopping)

    def restarts(self, line: str) -> None:
        self._signals.runs(self._drawn.stopping)
        self._drawn.restarts(line)


def _require_plain(wish: RunWish) -> None:
    """Reject options that only a pipeline with one table has."""
    for option, value in (
        ("--restarts", wish.restarts),
        ("--metrics-port", wish.metrics_port),
        ("--metrics-host", wish.metrics_host),
    ):
        if value is not None:
            raise click.UsageError(
                f"{option} is for a pipeline with one table, and FILE has one for each topic. "
                "Remove it: a failed topic is tried again anyway."
            )


def _new_many_view(definition: PipelineDefinition) -> ManyView:
    from penstock.spark.tables.inspection.many_view import ManyView

    return ManyView(
        definition.pipeline.name, definition.table.name, began_ms=SystemClock().now_ms()
    )


def _run_many(
    definition: PipelineDefinition,
    wish: SparkWish,
    view: ManyView,
    signals: StopSignals,
    *,
    once: bool,
) -> None:
    from penstock.spark.pipeline_runs import run_many_tables

    with chosen_session(wish) as session, many_shown(view, SystemClock()) as drawn:
        run_many_tables(
            definition,
            session,
            once=once,
            listener=drawn,
            stop=signals.stop,
            started=lambda: signals.runs(drawn.stopping),
        )


def _document(definition: PipelineDefinition, view: RunView | ManyView) -> dict[str, object]:
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
