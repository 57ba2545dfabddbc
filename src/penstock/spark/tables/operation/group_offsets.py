"""Publishes the offsets of a table as committed offsets of a consumer group, to show its lag.

Guarantees: an offset is published only after the commit that wrote it into the table, and never
stops or delays a pipeline: `progress.publisher` has its own thread, and retries. The table does not
use these offsets. An idle pipeline repeats them every hour, because brokers forget old groups.
"""

import logging
from dataclasses import replace
from typing import Final

from penstock.client.opening import open_cluster
from penstock.client.transport.options import ClientOptions
from penstock.spark.offsets import StreamOffset
from penstock.spark.progress.committer import GroupCommitter
from penstock.spark.progress.publications import Publications
from penstock.spark.progress.publisher import Publisher
from penstock.spark.progress.reading import QueryProgress, TopicSource
from penstock.spark.tables.run.events import BatchDone, MaintenanceDone

LOGGER: Final = logging.getLogger(__name__)
PUBLISH_SECONDS: Final = 5.0
"""A commit writes a record to a broker's disk; monitoring reads it every 15 to 60 s."""
TIMEOUT_MS: Final = 5_000
"""Of one request; a longer one would only delay the next position."""


class GroupOffsets:
    """The group of one pipeline; an observer of its batches."""

    def __init__(
        self, group_id: str, client: ClientOptions, *, publish_seconds: float = PUBLISH_SECONDS
    ) -> None:
        self._group_id = group_id
        patient = replace(client, request_timeout_ms=TIMEOUT_MS, retry_timeout_ms=TIMEOUT_MS)
        self._publisher = Publisher(
            Publications(publish_seconds),
            lambda: GroupCommitter(open_cluster(patient, repeats_first_contact=False)),
            LOGGER.warning,
        )

    def started(self, held: StreamOffset) -> None:
        """Publish the position in the table at the start."""
        self._note(held)

    def batch_done(self, event: BatchDone) -> None:
        """Publish the position after a commit."""
        self._note(event.position)

    def maintenance_done(self, event: MaintenanceDone) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Publish the last position, within some seconds."""
        self._publisher.ended(self._group_id)
        self._publisher.close()

    def _note(self, held: StreamOffset) -> None:
        positions = {at: one.offset for at, one in held.positions.items()}
        source = TopicSource(positions, {}, held.cluster_id, self._group_id)
        self._publisher.note(
            QueryProgress(
                query_id=self._group_id,
                run_id=self._group_id,
                name=None,
                batch_id=0,
                row_count=0,
                rows_per_second=0.0,
                duration_ms=0,
                sources=(source,) if positions else (),
            )
        )
