"""The current topics of a pipeline: partitions, their first and last offsets, and a sample.

Guarantees: it sends exactly the requests of the pipeline's source, with the same options, so the
brokers reject here the same requests as in the pipeline. A user waits for it: an unresponsive
broker is reported after `TIMEOUT_MS`, and the first request is not retried. The sample is bounded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from penstock.client import calls
from penstock.client.calls import FetchBounds
from penstock.client.cluster import Cluster
from penstock.client.opening import open_cluster
from penstock.client.transport.call import raise_error
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.spark.decode.columns import spark_schema
from penstock.spark.errors import SubscriptionError
from penstock.spark.offsets import NO_EPOCH
from penstock.spark.planning import OffsetRange, ReadTask
from penstock.spark.source.lookups import Lookups
from penstock.spark.source.options import Mode, SourceOptions
from penstock.spark.source.starting import LATEST
from penstock.spark.source.subscription import closest_topics
from penstock.spark.source.task_reader import TaskSettings, read_range
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.definition.source_reading import read_resolved_options

TIMEOUT_MS: Final = 10_000
SAMPLE_RECORDS_MAX: Final = 100
"""The maximum number of sampled records of each partition, from its end."""
SAMPLE_PARTITIONS_MAX: Final = 32
"""Samples of a thousand partitions would not show more."""
SAMPLE_BYTES_MAX: Final = 67_108_864
"""After this number of bytes no further partition is read."""
_PROBE_BYTES: Final = 1_024
_NO_REFUSAL: Final = frozenset({ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE})


@dataclass(frozen=True, slots=True)
class PartitionSeen:
    """One partition, and its offsets for consumers with `read_committed`."""

    at: TopicPartition
    begin_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class TopicsSeen:
    """All current partitions of a pipeline."""

    partitions: tuple[PartitionSeen, ...]
    topic_ids: Mapping[str, str]
    cluster_id: str | None

    @property
    def topics(self) -> list[str]:
        """The names of the topics."""
        return sorted({one.at.topic for one in self.partitions})


class TopicsLook:
    """Reads the topics of a pipeline once; the caller closes it."""

    def __init__(
        self, definition: PipelineDefinition, *, timeout_ms: int = TIMEOUT_MS, attempts: int = 1
    ) -> None:
        """Create the reader; `attempts` is the number of lookups of a missing topic."""
        given = {**definition.source_options(), "includeHeaders": "true"}
        found = read_resolved_options(given, Mode.STREAM)
        client = replace(found.client, request_timeout_ms=timeout_ms, retry_timeout_ms=timeout_ms)
        self._options: SourceOptions = replace(
            found,
            client=client,
            lookups=replace(found.lookups, attempts=attempts),
            # Records that are deleted between two requests are not an error here.
            fail_on_data_loss=False,
        )
        self._cluster: Cluster = open_cluster(client, repeats_first_contact=False)
        self._topic_ids: dict[str, str] = {}

    def close(self) -> None:
        """Close every connection."""
        self._cluster.close()

    def brokers(self) -> tuple[str, int]:
        """Return the cluster's id and its number of brokers; this is the first request."""
        count = len(self._cluster.brokers())
        return self._cluster.cluster_id(), count

    def seen(self) -> TopicsSeen:
        """Return the partitions to read; raise `SubscriptionError` if a named topic is missing."""
        lookups = Lookups(self._cluster, self._options)
        try:
            found = lookups.first_assignment()
        except SubscriptionError as error:
            raise closest_topics(error, list(self._cluster.describe(None))) from None
        self._topic_ids = dict(found.topic_ids)
        begins = lookups.earliest(found.partitions)
        ends = self._cluster.look_up_offsets(
            dict.fromkeys(found.partitions, LATEST),
            is_read_committed=self._options.is_read_committed,
        )
        partitions = tuple(
            PartitionSeen(at, begins[at], ends[at].offset) for at in found.partitions
        )
        return TopicsSeen(partitions, self._topic_ids, self._cluster.cluster_id() or None)

    def offsets_at(
        self, partitions: Sequence[TopicPartition], at_ms: int
    ) -> dict[TopicPartition, int]:
        """Return the first offset at or after a time; a partition without one is left out."""
        found = self._cluster.look_up_offsets(
            dict.fromkeys(partitions, at_ms), is_read_committed=self._options.is_read_committed
        )
        return {at: one.offset for at, one in found.items() if one.offset >= 0}

    def require_readable(self, partitions: tuple[PartitionSeen, ...]) -> None:
        """Fetch a few bytes from each leader: raise if reading is not allowed, also when empty.

        An offset that is deleted in the meantime is not a rejection.
        """
        by_place = {one.at: one for one in partitions}
        bounds = FetchBounds(
            wait_ms_max=0, bytes_max=_PROBE_BYTES, partition_bytes_max=_PROBE_BYTES
        )
        for leader, places in self._cluster.by_leader(by_place).items():
            offsets = {at: by_place[at].end_offset for at in places}
            answers = self._cluster.at(leader, calls.fetch_batches(offsets, bounds))
            for at, answer in answers.items():
                if answer.error_code not in _NO_REFUSAL:
                    raise_error(answer.error_code, None, str(at))

    def sample(self, partitions: tuple[PartitionSeen, ...]) -> pa.Table:
        """Return the last records of each partition, with the columns of the source."""
        batches: list[pa.RecordBatch] = []
        settings = TaskSettings.of(self._options)
        filled = [one for one in partitions if one.end_offset > one.begin_offset]
        for one in filled[:SAMPLE_PARTITIONS_MAX]:
            if sum(batch.nbytes for batch in batches) > SAMPLE_BYTES_MAX:
                break
            start = max(one.begin_offset, one.end_offset - SAMPLE_RECORDS_MAX)
            span = OffsetRange(one.at, start, one.end_offset)
            task = ReadTask(span, self._topic_ids.get(one.at.topic), NO_EPOCH)
            batches += list(read_range(self._cluster, task, settings))
        return pa.Table.from_batches(batches, schema=spark_schema(include_headers=True))
