"""The source on the driver over a cluster in memory: no records, no Spark, no sockets.

Everything that the source asks goes through the real client.
"""

import json
from typing import Any

import pytest

from penstock.core.types import TopicPartition
from penstock.spark.errors import DataLossError
from penstock.spark.loss.channel import LossChannel
from penstock.spark.offsets import read_offset
from penstock.spark.planning import OffsetRange, ReadLimits
from penstock.spark.source.lookups import Lookups
from penstock.spark.source.micro_batches import MicroBatches
from penstock.spark.source.options import Mode, SourceOptions, read_source_options
from tests.client.number_cluster import NumberCluster

ALL = ReadLimits()


def source_options(mode: Mode = Mode.STREAM, /, **given: str) -> SourceOptions:
    """Options of a query that reads `orders`, unless they say what else."""
    what = {"subscribe", "subscribePattern", "assign"}
    default = {} if what & given.keys() else {"subscribe": "orders"}
    return read_source_options({"kafka.bootstrap.servers": "fake:9000", **default, **given}, mode)


def lookups_of(cluster: NumberCluster, options: SourceOptions) -> Lookups:
    """What a driver asks of this cluster."""
    return Lookups(cluster.client(), options, cluster.clock.sleep)


def stream_of(
    cluster: NumberCluster, channel: LossChannel | None = None, /, **given: str
) -> MicroBatches:
    """A run of a stream over this cluster; it starts at the earliest if nothing else is said."""
    given = {"startingOffsets": "earliest", **given} if "startingTimestamp" not in given else given
    options = source_options(Mode.STREAM, **given)
    return MicroBatches(lookups_of(cluster, options), options, cluster.clock, channel)


class Query:
    """A stream that has read everything of `orders`: 100 and 50 records."""

    def __init__(
        self,
        *,
        broker_ids: tuple[int, ...] = (1,),
        channel: LossChannel | None = None,
        **given: str,
    ) -> None:
        self.cluster = NumberCluster(broker_ids)
        self.channel = channel
        self.cluster.set_topic("orders", 100, 50)
        self.given = {"fetchOffset.retryIntervalMs": "700", **given}
        self.stream = stream_of(self.cluster, self.channel, **self.given)
        self.document = self._copy(self.stream.initial_offset())
        self.run()

    def run(self) -> list[OffsetRange]:
        """The next batch; what it reads."""
        end = self._copy(self.stream.latest_offset(self.document, ALL))
        tasks = self.stream.plan(self.document, end)
        self.document = end
        return sorted(task.range for task in tasks)

    def decide(self) -> dict[str, Any]:
        """The end of the next batch, which is not planned yet."""
        return self._copy(self.stream.latest_offset(self.document, ALL))

    def restart(self, **given: str) -> None:
        """Another run of the query."""
        self.given |= given
        self.stream = stream_of(self.cluster, self.channel, **self.given)

    def fails(self) -> str:
        """What the query is told; it is the same again after a restart."""
        with pytest.raises(DataLossError) as caught:
            self.run()
        self.restart()
        with pytest.raises(DataLossError) as again:
            self.run()
        assert str(again.value) == str(caught.value)
        assert "failOnDataLoss" in str(caught.value)
        return str(caught.value)

    def skipped(self) -> dict[str, int]:
        report = self.stream.report()
        assert report is not None
        found: dict[str, int] = report.get("skipped", {})
        return found

    def positions(self) -> dict[TopicPartition, int]:
        return {at: one.offset for at, one in read_offset(self.document).positions.items()}

    @staticmethod
    def _copy(document: dict[str, Any]) -> dict[str, Any]:
        copied: dict[str, Any] = json.loads(json.dumps(document))
        return copied
