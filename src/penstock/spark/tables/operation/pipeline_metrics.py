"""The metrics of a pipeline, in the project's own registry, from its `RunState`.

Guarantees: names follow Prometheus and are fixed; the classes of failures, the ways of batches and
the reasons of rejects have a series each from the start, so that an increase from 0 is visible. A
pipeline with more than `PARTITION_SERIES_MAX` partitions has no series by partition; those by topic
are complete. Reading costs one pass over the partitions.

Counters start at 0 with the command, and survive the restarts inside it.
"""

from collections.abc import Callable, Iterable
from typing import Final

from penstock.core.metrics import Family, Histogram, Histograms, Registry, Row, Table, TableRow
from penstock.spark.tables.operation.failures import WORDS
from penstock.spark.tables.operation.run_state import Phase, RunState
from penstock.spark.tables.run.events import WAYS
from penstock.spark.tables.values.parser import ErrorClass

PARTITION_SERIES_MAX: Final = 1_000
"""More partitions have no series of their own: four of them each would be a page of a megabyte."""


class PipelineMetrics:
    """The metrics of one pipeline."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self.registry = Registry()
        self.lineage_dropped = 0
        self._add_counters()
        self._add_lags()
        self._add_state()
        self._add_times()
        self._add_tables()
        self._add_driver()

    def _one(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """Add a metric whose only label is the pipeline."""
        label = self._state.pipeline
        family = Family(help_text, ("pipeline",), lambda: (Row((label,), read()),))
        self.registry.family(name, family)

    def _by(
        self, name: str, help_text: str, label: str, read: Callable[[], Iterable[tuple[str, float]]]
    ) -> None:
        """Add a metric with one more label."""
        own = self._state.pipeline
        family = Family(
            help_text,
            ("pipeline", label),
            lambda: [Row((own, value), number) for value, number in read()],
        )
        self.registry.family(name, family)

    def _histogram(self, name: str, help_text: str, histogram: Histogram) -> None:
        label = (self._state.pipeline,)
        self.registry.histograms(
            name, Histograms(help_text, ("pipeline",), lambda: (histogram.read(label),))
        )

    def _add_counters(self) -> None:
        state = self._state
        self._one(
            "pipeline_records_total", "Records that were read and committed.", lambda: state.records
        )
        self._one(
            "pipeline_rows_total", "Rows, or changes of rows, in the table.", lambda: state.rows
        )
        self._by(
            "pipeline_rejects_total",
            "Records in the table of bad records, by class of the reason.",
            "reason",
            lambda: [(one.value, state.reject_classes[one.value]) for one in ErrorClass],
        )
        self._by(
            "pipeline_expectation_broken_total",
            "Rows that broke an expectation.",
            "expectation",
            lambda: sorted(state.broken.items()),
        )
        self._by(
            "pipeline_batches_total",
            "Committed batches, by what wrote the rows: driver (the shortcut for small batches), "
            "tasks or spark_sql.",
            "way",
            lambda: [(way, state.batches[way]) for way in WAYS],
        )
        self._one(
            "pipeline_repeated_batches_total",
            "Batches that were in the table already.",
            lambda: state.repeated_batches,
        )
        self._one(
            "pipeline_lost_offsets_total",
            "Offsets that the table never gets: deleted before they were read, or skipped.",
            lambda: state.lost_offsets,
        )
        self._one("pipeline_files_total", "Data files that were committed.", lambda: state.files)
        self._one(
            "pipeline_file_bytes_total",
            "Size of the data files that were committed.",
            lambda: state.file_bytes,
        )
        self._one(
            "pipeline_lineage_events_dropped_total",
            "OpenLineage events that were not delivered.",
            lambda: self.lineage_dropped,
        )

    def _add_lags(self) -> None:
        state = self._state
        own = state.pipeline

        def by_topic() -> list[TableRow]:
            lags = sorted(state.topic_lags().items())
            return [TableRow((own, topic), (records, age)) for topic, (records, age) in lags]

        def by_partition() -> list[TableRow]:
            if len(state.places) > PARTITION_SERIES_MAX:
                return []
            return [
                TableRow(
                    (own, at.topic, str(at.partition)),
                    (place.lag, state.lag_seconds(at), place.held, place.end),
                )
                for at, place in sorted(state.places.items())
            ]

        columns = (
            ("pipeline_lag_records", "Offsets of a topic that are not in the table."),
            ("pipeline_lag_seconds", "Age of the oldest record that is not in the table."),
        )
        self.registry.table(Table(columns, ("pipeline", "topic"), by_topic))
        partition_columns = (
            ("pipeline_partition_lag_records", "Offsets of a partition not in the table."),
            ("pipeline_partition_lag_seconds", "Age of the oldest record not in the table."),
            ("pipeline_partition_position", "The next offset that is not in the table."),
            ("pipeline_partition_end", "The end of the partition."),
        )
        labels = ("pipeline", "topic", "partition")
        self.registry.table(Table(partition_columns, labels, by_partition))

    def _add_state(self) -> None:
        """Add what only a stateful pipeline has; another one has no series of it."""
        state = self._state
        label = (state.pipeline,)

        def late() -> list[Row]:
            return [] if state.place is None else [Row(label, state.place.late_count)]

        def lag() -> list[Row]:
            seconds = state.watermark_lag_seconds()
            return [] if seconds is None else [Row(label, seconds)]

        self.registry.family(
            "pipeline_watermark_lag_seconds",
            Family("Age of the watermark of a stateful pipeline.", ("pipeline",), lag),
        )
        self.registry.family(
            "pipeline_late_records_total",
            Family(
                "Late records of a stateful pipeline since it began, rejected or dropped.",
                ("pipeline",),
                late,
            ),
        )

    def _add_times(self) -> None:
        state = self._state

        def at(read: Callable[[], int | None]) -> Callable[[], float]:
            return lambda: (read() or 0) / 1000

        self._one(
            "pipeline_freshness_seconds",
            "Age of the newest record of the last batch when it was committed.",
            at(lambda: None if state.last is None else state.last.freshness_ms),
        )
        self._one(
            "pipeline_newest_record_timestamp_seconds",
            "Timestamp of the newest record in the table; 0: none.",
            at(lambda: state.newest_ms),
        )
        self._one(
            "pipeline_last_commit_timestamp_seconds",
            "Time of the last commit of this process; 0: none.",
            at(lambda: None if state.last is None else state.last.committed_at_ms),
        )
        self._histogram(
            "pipeline_commit_duration_seconds",
            "Time of a commit to both tables.",
            state.commit_seconds,
        )
        self._histogram(
            "pipeline_batch_duration_seconds",
            "Time of a whole batch, with its commit.",
            state.batch_seconds,
        )

    def _add_tables(self) -> None:
        state = self._state
        own = state.pipeline

        def rows() -> list[TableRow]:
            return [
                TableRow((own, table), (one.live_files, one.live_bytes, one.snapshots))
                for table, one in sorted(state.maintenance.items())
            ]

        columns = (
            ("pipeline_table_files", "Data files of a table, at its last maintenance."),
            ("pipeline_table_bytes", "Size of a table's data files, at its last maintenance."),
            ("pipeline_table_snapshots", "Readable states of a table, at its last maintenance."),
        )
        self.registry.table(Table(columns, ("pipeline", "table"), rows))
        self._by(
            "pipeline_maintenance_failures_total",
            "Maintenance of a table that failed, and is repeated.",
            "table",
            lambda: [(name, state.maintenance_failures[name]) for name in state.tables],
        )

    def _add_driver(self) -> None:
        state = self._state
        self._by(
            "pipeline_restarts_total",
            "Restarts, by class of the failure before.",
            "reason",
            lambda: [(word, state.restarts[word]) for word in WORDS],
        )
        self._by(
            "pipeline_last_failure",
            "Whether the last failure had this class: 1 is yes.",
            "reason",
            lambda: [
                (word, float(state.failure is not None and state.failure.word == word))
                for word in WORDS
            ],
        )
        self._one(
            "pipeline_last_failure_timestamp_seconds",
            "Time of the last failure; 0: none.",
            lambda: state.failed_ms / 1000,
        )
        self._one(
            "pipeline_running",
            "Whether the query runs: 1 is yes, 0 while it starts or waits for a restart.",
            lambda: float(state.phase is Phase.RUNNING),
        )
        self._one(
            "pipeline_broker_reachable",
            "Whether a broker answered at the last look: 1 is yes.",
            lambda: float(not state.broker_problem),
        )
