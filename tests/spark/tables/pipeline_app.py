"""A pipeline in a process of its own, to be killed: from a topic to a table, until it ends.

    python -m tests.spark.tables.pipeline_app SETTINGS

SETTINGS is a JSON object with the fields of `AppSettings`. It prints a line for each batch and each
maintenance of the table. Its end is printed as `stopped REASON`, when the tables stop it, or as
`failed ERROR`, and it ends with 1. With `is_care` it maintains the tables once, as `penstock table
maintain` does. `without` names a guard that is removed (`GUARDS`).
"""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from pyiceberg.table import Transaction

from penstock.spark.tables.commit import decisions as commit
from penstock.spark.tables.commit import rejects as commit_rejects
from penstock.spark.tables.commit.decisions import Commit, Decision, Offer, TableState, note_after
from penstock.spark.tables.commit.note import BatchRanges
from penstock.spark.tables.commit.stops import CommitStoppedError
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.files.maintenance import MaintenancePolicy
from penstock.spark.tables.formats.iceberg import table as iceberg
from penstock.spark.tables.run import pipeline
from penstock.spark.tables.run.batches import BatchDriver
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.run.events import BatchDone, MaintenanceDone
from penstock.spark.tables.run.maintenance import TableMaintenance
from penstock.spark.tables.run.maintenance_now import maintain_now
from penstock.spark.tables.run.pipeline import NOTHING_HELD, RunningPipeline
from penstock.spark.tables.run.plan_file import BatchPlan, PlanFile
from penstock.spark.tables.run.table_pipeline import TablePipeline
from penstock.spark.tables.tasks.report import BatchReport
from tests.spark.sessions import new_session
from tests.spark.tables.pipeline_world import World

QUICK_CARE = MaintenancePolicy(compaction_interval_ms=3_000, retry_interval_ms=1_000)
"""So that a driver that lives for seconds looks after its table."""
TRIGGER = "200 milliseconds"
OFFSETS_OF_A_BATCH_MAX = "2000"
TASKS_MIN = "2"


@dataclass(frozen=True)
class AppSettings:
    """The settings of a process."""

    folder: str
    format: str
    bootstrap: str
    topic: str
    checkpoint: str
    spark_folder: str
    mode: str = "in_task"
    master: str = "local[2]"
    columns: int = 0
    """How many columns the schema has more than at first: it grows."""
    has_rule: bool = False
    """Whether negative amounts are bad."""
    has_quick_care: bool = False
    """Whether it looks after its table all the time; otherwise that is left to others."""
    always_tasks: bool = False
    """Whether Spark's tasks read small batches too, which else the driver does."""
    is_care: bool = False
    without: str = ""
    remote: dict[str, str] | None = None
    """The catalog of tables in a store; None: they are in the folder."""

    def definition(self) -> PipelineDefinition:
        world = World(Path(self.folder), self.format, self.bootstrap, self.topic, self.remote)
        more = "".join(f", more{number} string" for number in range(self.columns))
        options = {"maxOffsetsPerTrigger": OFFSETS_OF_A_BATCH_MAX}
        if self.always_tasks:
            options["minPartitions"] = TASKS_MIN
        rule = {"name": "positive", "sql": "amount >= 0", "action": "quarantine"}
        return world.definition(
            pipeline={"mode": self.mode, "checkpoint": self.checkpoint},
            source={"options": options},
            value={
                "format": "json",
                "schema": f"id bigint, amount double, name string{more}",
                "reject_share_max": 0.9,
            },
            expectations=[rule] if self.has_rule else [],
            trigger={"interval": TRIGGER},
            maintenance={"expire_snapshots": "1 minute"},
        )

    def text(self) -> str:
        return json.dumps(asdict(self))


class Printer:
    """Prints the events, for the test that watches the output."""

    def batch_done(self, event: BatchDone) -> None:
        skipped = " skipped" if event.was_skipped else ""
        print(
            f"batch {event.batch_id}: {event.rows} rows, {event.rejects} rejects{skipped}",
            flush=True,
        )

    def maintenance_done(self, event: MaintenanceDone) -> None:
        print(
            f"care: {event.compacted_files} files into {event.written_files}, "
            f"{event.expired_snapshots} snapshots expired {event.problem or ''}",
            flush=True,
        )


# --- Guards that can be taken out ---


def forget_the_notes() -> None:
    """What a table holds is not looked at before a batch is committed, nor by the source."""

    def always(state: TableState, offer: Offer) -> Decision:
        note = state.notes[offer.driver.pipeline]
        return Commit(note_after(note, offer.ranges, offer.counts), after=state)

    def everything(_driver: BatchDriver, report: BatchReport) -> BatchRanges:
        return report.ranges

    real = PlanFile.write

    def holds_nothing(file: PlanFile, plan: BatchPlan) -> None:
        real(file, replace(plan, held=NOTHING_HELD))

    kept = TableCommitter.commit.__kwdefaults__
    assert kept is not None
    kept["rule"] = always
    vars_of(BatchDriver, _open_part=everything)
    vars_of(PlanFile, write=holds_nothing)


def commit_whatever_came_between() -> None:
    """Commits are not conditional: pyiceberg repeats what was refused."""

    def commit_with_retries(_table: iceberg.IcebergTable, change: Transaction) -> None:
        change.commit_transaction()

    vars_of(iceberg.IcebergTable, _commit=commit_with_retries)


def let_everybody_commit() -> None:
    """The number of the driver is not compared."""
    for module in (commit, commit_rejects):
        vars(module)["not_owner"] = lambda _note, _driver: None


def vars_of(owner: type, **changed: object) -> None:
    for name, value in changed.items():
        setattr(owner, name, value)


GUARDS: dict[str, Callable[[], None]] = {
    "notes": forget_the_notes,
    "condition": commit_whatever_came_between,
    "epoch": let_everybody_commit,
}


def run(settings: AppSettings) -> int:
    """Run the pipeline until it ends."""
    if settings.without:
        GUARDS[settings.without]()
    if settings.has_quick_care:
        vars(pipeline)["TableMaintenance"] = partial(TableMaintenance, policy=QUICK_CARE)
    folder = Path(settings.spark_folder)
    os.environ["SPARK_WORKER_DIR"] = str(folder / "workers")
    quick = {"spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    spark = new_session(folder, slots=2, master=settings.master, extra=quick)
    try:
        running: RunningPipeline
        with TablePipeline(settings.definition(), observer=Printer()).start(spark) as running:
            running.await_end()
    except CommitStoppedError as error:
        print(f"stopped {error.reason.name}: {error}", flush=True)
    except Exception as error:  # noqa: BLE001 - the watching test decides whether it was expected
        print(f"failed {type(error).__name__}: {error}", flush=True)
    return 1


def main() -> int:
    """Do what the settings say."""
    settings = AppSettings(**json.loads(sys.argv[1]))
    if not settings.is_care:
        return run(settings)
    for name, done in maintain_now(settings.definition()):
        print(f"care of {name}: {done.compacted_files} files, {done.problem or 'done'}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
