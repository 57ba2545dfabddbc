"""`TablePipeline`: a definition that can be started, as a query or batch by batch.

    pipeline = TablePipeline(load_definition(Path("orders.toml")))
    with pipeline.start(spark, once=True) as running:
        running.await_end()

Guarantees: the tables are acquired before the first batch, so that an older driver of the same
pipeline cannot commit any more. A start that fails leaves nothing open.
"""

from uuid import uuid4

from pyspark.sql import SparkSession

from penstock.client.cluster import Cluster
from penstock.core.clock import Clock, SystemClock
from penstock.spark.tables.commit.command_breaker import CommandBreaker
from penstock.spark.tables.commit.owned_tables import Owned
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.run.dataframe_stage import Transform
from penstock.spark.tables.run.events import NoObserver, Observer
from penstock.spark.tables.run.pipeline import RunningPipeline
from penstock.spark.tables.run.preparing import Reading, open_reading, prepare


class TablePipeline:
    """A pipeline that can be started."""

    def __init__(
        self,
        definition: PipelineDefinition,
        *,
        transform: Transform | None = None,
        observer: Observer | None = None,
        clock: Clock | None = None,
        owned: Owned | None = None,
        breaker: CommandBreaker | None = None,
    ) -> None:
        """Create the pipeline; `transform` is applied to rows between topic and table.

        `owned` has the name of the driver in the table's notes, and what its earlier starts have
        acquired; starts with the same one are one driver. `breaker` has the counts of bad records
        of its earlier starts.
        """
        self._definition = definition
        self._transform = transform
        self._observer = observer or NoObserver()
        self._clock = clock or SystemClock()
        self._owned = owned or Owned(uuid4().hex)
        self._breaker = breaker

    def start(self, spark: SparkSession, *, once: bool = False) -> RunningPipeline:
        """Acquire the tables and start the query; `once` ends it at the topics' current end."""
        reading = open_reading(self._definition)
        running = self._prepared(spark, reading)
        try:
            running.begin(once=once)
        except BaseException:
            running.close()
            raise
        return running

    def open(self, spark: SparkSession, cluster: Cluster) -> RunningPipeline:
        """Acquire the tables; the caller asks for batches by `commit_available`, without a query.

        The caller closes the cluster, after the pipeline.
        """
        assert self._definition.state is None, "its batches are those of its query"
        running = self._prepared(spark, open_reading(self._definition, cluster))
        try:
            running.begin_available()
        except BaseException:
            running.close()
            raise
        return running

    def _prepared(self, spark: SparkSession, reading: Reading) -> RunningPipeline:
        try:
            prepared = prepare(spark, self._definition, self._transform, reading)
            breaker = self._breaker or breaker_of(self._definition)
            rest = (reading, prepared, self._observer, self._clock, self._owned, breaker)
            if self._definition.state is not None and self._transform is not None:
                # It is imported here because most pipelines have no state.
                from penstock.spark.tables.run.stateful.running import StatefulPipeline

                return StatefulPipeline(spark, self._definition, self._transform, *rest)
            return RunningPipeline(spark, self._definition, self._transform, *rest)
        except BaseException:
            reading.close()
            raise


def breaker_of(definition: PipelineDefinition) -> CommandBreaker:
    """Return the circuit breaker of a command that runs this pipeline."""
    value = definition.value
    return CommandBreaker(value.reject_share_max, value.reject_window_records)
