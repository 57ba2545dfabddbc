"""Writers of a topic into a table: Spark's own connector at its best settings, and Penstock.

Guarantees: every contestant reads the same topic of the same broker and writes the same columns; a
run whose rows differ from the topic is an error. The connector's settings are tried before the
counted rounds, on this machine and on a part of the same records, and the fastest are used.
"""

import dataclasses
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from rich.console import Console

from benchmarks.contestants import Contestant
from benchmarks.process_work import CLASSES, work_of
from benchmarks.table_workers import Answer, Request, Worker
from benchmarks.variants import Values, Variant
from tests.oracle.spark_jars import (
    avro_jars,
    connector_jars,
    delta_jars,
    iceberg_jars,
    old_connector_jars,
)
from tests.oracle.table_engines import SPARK_VERSION, engine_python

ROOT = Path(__file__).resolve().parents[1]
OLD = Variant(f"connector {SPARK_VERSION}", durable=False)
NEW = Variant("connector 4.2.0", durable=False)
IN_TASK = Variant("in_task", durable=False)
DATAFRAME = Variant("dataframe", durable=False)
CONNECTORS = {"parquet": (OLD, NEW), "delta": (OLD, NEW), "iceberg": (OLD,)}
"""There is no Iceberg runtime for Spark 4.2."""
MODES = (IN_TASK, DATAFRAME)
SINKS = tuple(CONNECTORS)
OUR_SINKS = ("delta", "iceberg")

_LARGE_FETCHES = {
    "kafka.max.partition.fetch.bytes": str(16 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.receive.buffer.bytes": str(1 << 20),
}
CANDIDATES: dict[str, Request] = {
    "snappy": {},
    "snappy, large fetches": {"source_options": _LARGE_FETCHES},
    "lz4": {
        "sink_options": {"compression": "lz4_raw"},
        "table_properties": {"write.parquet.compression-codec": "lz4_raw"},
    },
    "zstd": {
        "sink_options": {"compression": "zstd"},
        "table_properties": {"write.parquet.compression-codec": "zstd"},
    },
}
"""All with 10,000 records a poll, which is faster than the default, one batch, and no shuffle."""


USUAL: Final = "snappy, large fetches"
"""The most frequent result of tuning; used without tuning."""


class WrongRowsError(RuntimeError):
    """The rows of the table differ from the records of the topic."""


@dataclasses.dataclass(frozen=True)
class Topic:
    """A filled topic, and the number of its records that cannot be parsed."""

    name: str
    records: int
    broken: int = 0


class Contestants:
    """The workers and their requests. Workers start at their first use."""

    def __init__(self, stack: ExitStack, contestant: Contestant, folder: Path) -> None:
        self._stack = stack
        self._broker = contestant.broker
        self._folder = folder
        self._workers: dict[Variant, Worker] = {}
        self.chosen: dict[tuple[Variant, str, str], str] = {}
        """The candidate that each connector uses for each sink and kind of values."""

    def worker(self, variant: Variant) -> Worker:
        """The running process of a contestant; both modes of ours share one."""
        key = IN_TASK if variant in MODES else variant
        if key not in self._workers:
            self._workers[key] = self._stack.enter_context(self._new_worker(key))
        return self._workers[key]

    def _new_worker(self, variant: Variant) -> Worker:
        name = variant.broker.replace(" ", "-")
        environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        place = str(self._folder / name)
        if variant in MODES:
            command = [sys.executable, "-m", "benchmarks.table_pipeline_app", place]
            return Worker(name, command, self._folder, environment)
        if variant == OLD:
            python = engine_python()
            jars = (*old_connector_jars(), *delta_jars("4.1"), *iceberg_jars(), *avro_jars())
        else:
            python = sys.executable
            jars = (*connector_jars(), *delta_jars("4.2"))
        joined = ",".join(str(jar) for jar in jars)
        command = [python, "-m", "benchmarks.table_connector_app", place, joined]
        return Worker(name, command, self._folder, environment)

    def tune(
        self,
        variant: Variant,
        sink: str,
        topic: Topic,
        console: Console,
        more: Request | None = None,
    ) -> None:
        """Warm a connector up, then try each candidate and keep the fastest.

        Forward and backward, so that the last one does not win because Java is warmest then.
        """
        more = more or {}
        self._run(variant, sink, topic, {**CANDIDATES["snappy"], **more})
        rates = dict.fromkeys(CANDIDATES, 0.0)
        for name in (*CANDIDATES, *reversed(CANDIDATES)):
            values = self._run(variant, sink, topic, {**CANDIDATES[name], **more})
            rates[name] = max(rates[name], values["rows_per_s"])
        kind = _kind_of(more)
        self.chosen[variant, sink, kind] = max(rates, key=lambda name: rates[name])
        shown = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
        console.print(f"tried: {variant.broker}, {sink}, {kind}, rows/s: {shown}", style="dim")

    def run(self, variant: Variant, sink: str, topic: Topic, more: Request | None = None) -> Values:
        """One measured run from the topic into a new table; `more` are keys of the request."""
        if variant in MODES:
            return self._run(variant, sink, topic, {"mode": variant.broker, **(more or {})})
        name = self.chosen.get((variant, sink, _kind_of(more or {})), USUAL)
        return self._run(variant, sink, topic, {**CANDIDATES[name], **(more or {})})

    def _run(self, variant: Variant, sink: str, topic: Topic, settings: Request) -> Values:
        worker = self.worker(variant)
        before, work = self._broker.usage().cpu_seconds, work_of(worker.pid)
        answer = worker.ask(
            {
                "do": "run",
                "name": f"{sink}_run",
                "sink": sink,
                "bootstrap": self._broker.bootstrap,
                "topic": topic.name,
                "records": topic.records,
                **settings,
            }
        )
        broker_cpu_s = self._broker.usage().cpu_seconds - before
        spent = work_of(worker.pid).since(work).seconds
        # Counting is no part of the run, and of its CPU time.
        counts = worker.ask({"do": "count"})
        _check(worker.name, topic, counts)
        return {
            "rows_per_s": topic.records / answer["seconds"],
            "seconds": answer["seconds"],
            "broker_cpu_s": broker_cpu_s,
            "cpu_s": broker_cpu_s + sum(spent[name] for name in CLASSES),
            "file_mb": counts["file_bytes"] / 1e6,
            "files": counts["files"],
            **spent,
        }

    def ask(self, variant: Variant, request: Request) -> Answer:
        """Send a request that is not a run, with the broker's address."""
        return self.worker(variant).ask({"bootstrap": self._broker.bootstrap, **request})

    def start_seconds(self) -> str:
        """Return the start times of all processes, until they were ready for requests."""
        return ", ".join(
            f"{worker.name} {worker.start_seconds:.0f} s" for worker in self._workers.values()
        )


def _kind_of(request: Request) -> str:
    return str(request.get("kind", "json"))


def _check(name: str, topic: Topic, answer: Answer) -> None:
    """Check that the table has each row once, and that bad records are rejects or empty rows."""
    good = topic.records - topic.broken
    rows = good if "rejects" in answer else topic.records
    expected = {"rows": rows, "parsed": good}
    if "rejects" in answer:
        expected |= {"rejects": topic.broken, "doubles": 0}
    found = {key: answer[key] for key in expected}
    if found != expected:
        raise WrongRowsError(f"{name}: expected {json.dumps(expected)}, got {json.dumps(answer)}")
