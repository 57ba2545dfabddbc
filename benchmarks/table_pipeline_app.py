"""Pipelines of Penstock into Delta and Iceberg: a worker of the comparison.

    python -m benchmarks.table_pipeline_app FOLDER

Each run has a definition file of its own, written like a user's, in a new folder with a new table.
The clock runs from the start of the pipeline to its end, which includes the creation of both
tables. The rows are read back by the format's own library and each offset must be there once.
"""

import json
import shutil
import sys
import time
from pathlib import Path
from threading import Event

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from benchmarks.table_events import COLUMNS
from benchmarks.table_kinds import value_section
from benchmarks.table_workers import Answer, Request, serve
from penstock.spark.session import PLAIN_FILES, WARM_WORKERS
from penstock.spark.tables.definition.file import load_definition
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.run.events import BatchDone, MaintenanceDone
from penstock.spark.tables.run.pipeline import RunningPipeline
from penstock.spark.tables.run.table_pipeline import TablePipeline
from tests.spark.sessions import new_session

SLOTS = 2
JVM = "-XX:+UseG1GC"
RUN_SECONDS_MAX = 900
TABLE = "shop.orders"
BATCH = "batch"
"""The way of a request that is a run with `--once`, Spark jobs without a query.

Otherwise it is a streaming query that runs until it has committed all records, and is stopped."""
DEFINITION = """\
[pipeline]
name = "orders"
bootstrap_servers = "{bootstrap}"
checkpoint = "{folder}/checkpoint"
mode = "{mode}"

[source]
topics = ["{topic}"]

[table]
format = "{sink}"
name = "{table}"
catalog = {catalog}

{value}
[trigger]
interval = "{trigger_ms} ms"

[maintenance]
enabled = false
"""
CATALOGS = {
    "delta": '{{ warehouse = "file://{folder}/warehouse" }}',
    "iceberg": (
        '{{ type = "sql", uri = "sqlite:///{folder}/catalog.db", '
        'warehouse = "file://{folder}/warehouse" }}'
    ),
}


class Totals:
    """The sums of the batch events of one run."""

    def __init__(self, expected: int) -> None:
        self._left = expected
        self.is_complete = Event()
        """Set when all expected records are committed."""
        self.rejects = 0
        self.commits_ms: list[float] = []

    def batch_done(self, event: BatchDone) -> None:
        """Add a batch."""
        self.rejects += event.rejects
        self.commits_ms.append(event.commit_ms)
        self._left -= event.records
        if self._left <= 0:
            self.is_complete.set()

    def maintenance_done(self, event: MaintenanceDone) -> None:
        """Ignore the event: maintenance is off, because Spark's own sinks have none."""


def definition(request: Request, folder: Path) -> PipelineDefinition:
    """Return the definition of a run, loaded from a file."""
    catalog = CATALOGS[request["sink"]].format(folder=folder)
    text = DEFINITION.format(
        bootstrap=request["bootstrap"],
        folder=folder,
        mode=request["mode"],
        topic=request["topic"],
        sink=request["sink"],
        table=TABLE,
        catalog=catalog,
        value=value_section(request.get("kind", "json"), folder, request.get("registry", "")),
        trigger_ms=request.get("trigger_ms") or 100,
    )
    path = folder / "orders.toml"
    path.write_text(text)
    return load_definition(path)


def read_back(sink: str, folder: Path, columns: tuple[str, ...]) -> pa.Table:
    """Read these columns of the table with the format's own library."""
    if sink == "delta":
        from deltalake import DeltaTable

        path = folder / "warehouse" / TABLE.replace(".", "/")
        return DeltaTable(str(path)).to_pyarrow_table(columns=list(columns))
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog(
        "default",
        type="sql",
        uri=f"sqlite:///{folder}/catalog.db",
        warehouse=f"file://{folder}/warehouse",
    )
    try:
        return catalog.load_table(TABLE).scan(selected_fields=columns).to_arrow()
    finally:
        catalog.close()


class Pipelines:
    """The session, and at most one pipeline that runs until it is stopped."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._running: RunningPipeline | None = None
        self._last: tuple[Request, Path, Totals] | None = None
        """The last run, whose rows can be counted."""

    def run(self, request: Request) -> Answer:
        """Write the whole topic, once: by a query, or by Spark jobs without one."""
        place = self._new_folder(request)
        totals = Totals(request["records"])
        pipeline = TablePipeline(definition(request, place), observer=totals)
        is_batch = request.get("way") == BATCH
        begun = time.perf_counter()
        # The end of the query is within the time, as with AvailableNow.
        with pipeline.start(self._spark, once=is_batch) as running:
            wait = running.await_end if is_batch else totals.is_complete.wait
            if not wait(RUN_SECONDS_MAX):
                raise TimeoutError(f"the run took over {RUN_SECONDS_MAX} s: {running.query.status}")
        seconds = time.perf_counter() - begun
        self._last = request, place, totals
        return {"seconds": seconds}

    def count(self, _request: Request) -> Answer:
        """Read the table of the last run back; count its rows, files and bytes."""
        assert self._last is not None, "nothing has run"
        request, place, totals = self._last
        found = read_back(request["sink"], place, ("_kafka", COLUMNS[0]))
        partitions, offsets = (pc.struct_field(found["_kafka"], n) for n in ("partition", "offset"))
        keys = pc.add(pc.shift_left(partitions.cast(pa.int64()), 40), offsets)
        files = list((place / "warehouse" / TABLE.replace(".", "/")).rglob("*.parquet"))
        return {
            "rows": len(pc.unique(keys)),
            "doubles": found.num_rows - len(pc.unique(keys)),
            "parsed": found.num_rows - found[COLUMNS[0]].null_count,
            "rejects": totals.rejects,
            "commit_ms": max(totals.commits_ms, default=0.0),
            "files": len(files),
            "file_bytes": sum(one.stat().st_size for one in files),
        }

    def start(self, request: Request) -> Answer:
        """Start a pipeline that runs until `stop`."""
        place = self._new_folder(request)
        self._running = TablePipeline(definition(request, place)).start(self._spark)
        return {
            "path": str(place / "warehouse" / TABLE.replace(".", "/")),
            "database": str(place / "catalog.db") if request["sink"] == "iceberg" else "",
        }

    def stop(self, _request: Request) -> Answer:
        """Stop the running pipeline; raise its error if it failed."""
        assert self._running is not None, "no pipeline runs"
        running, self._running = self._running, None
        with running:
            if not running.query.isActive:
                running.await_end()
        return {}

    def _new_folder(self, request: Request) -> Path:
        place = self._folder / "queries" / str(request["name"])
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        return place


def main() -> None:
    """Answer requests."""
    folder = Path(sys.argv[1])
    more = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    extra = {"spark.driver.memory": "4g", **PLAIN_FILES, **WARM_WORKERS, **more}
    spark = new_session(folder, slots=SLOTS, java_options=JVM, extra=extra)
    spark.sparkContext.setLogLevel("OFF")
    pipelines = Pipelines(spark, folder)
    try:
        serve(
            {
                "run": pipelines.run,
                "count": pipelines.count,
                "start": pipelines.start,
                "stop": pipelines.stop,
            }
        )
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
