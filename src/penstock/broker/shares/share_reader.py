"""`ShareReader`: one round of reads of the share-partitions of a fetch.

It reads the log at the offsets where members may acquire records, and acquires nothing. A partition
that may not be read has an error of its own. Bytes and records of a round are bounded.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import code_of, message_of
from penstock.broker.share_sessions.share_ports import LiveSharePartition, ShareGroups
from penstock.broker.share_sessions.share_session_table import SharePartitionId
from penstock.broker.shares.share_batches import count_offsets
from penstock.broker.shares.share_requests import Readable, has_unread
from penstock.coordinator.shares.ports import Refusal
from penstock.core.errors import PenstockError
from penstock.protocol.messages.share_fetch import ShareFetchRequest
from penstock.replication.read_result import PartitionRead

SHARE_READ_BYTES_MAX: Final = 1_048_576
"""Bytes that a fetch reads of one partition at a time, or one batch. A member gets 500 records by
default, whatever the size in bytes that it allows; the rest would be read in vain."""


class PartialRead(NamedTuple):
    """The records of one partition."""

    partition: SharePartitionId
    live: LiveSharePartition
    offset: int
    found: PartitionRead


class ShareReader:
    """One round of reads."""

    def __init__(
        self,
        request: ShareFetchRequest,
        context: RequestContext,
        groups: ShareGroups,
        group: str,
        not_loaded: Mapping[SharePartitionId, Refusal],
        *,
        bytes_max: int,
        reads_committed: bool,
    ) -> None:
        """`not_loaded` has the share-partitions that are not loaded again, with the errors."""
        self._context = context
        self._groups = groups
        self._group = group
        self._reads_committed = reads_committed
        self._not_loaded = not_loaded
        self._readable = Readable(context)
        self._bytes_left = bytes_max
        self._bytes_min = request.min_bytes
        self._records_left = request.max_records
        self._missed: tuple[SharePartitionId, LiveSharePartition, int] | None = None
        self.found_bytes = 0
        self.reads: list[PartialRead] = []
        self.errors: dict[SharePartitionId, Refusal] = {}
        self.lives: list[LiveSharePartition] = []
        """The share-partitions that may have records later."""
        self.ready: list[SharePartitionId] = []
        """The partitions of which records may be acquired now, with or without records."""
        self.loading: list[tuple[SharePartitionId, LiveSharePartition]] = []

    def read(self, partition: SharePartitionId) -> None:
        """Read one partition; raises `BlockingIOError` if it is not in the page cache."""
        if self._records_left <= 0 and self.found_bytes >= self._bytes_min:
            return  # The former partitions have as many records as the member wants.
        hosted = self._readable.find(partition)
        if isinstance(hosted, Refusal):
            self.errors[partition] = hosted
            return
        if partition in self._not_loaded:
            self.errors[partition] = self._not_loaded[partition]
            return
        live = self._groups.open(self._group, partition, hosted)
        if live.is_loading:
            self.loading.append((partition, live))
            return
        offset = live.next_offset()
        if live.problem is not None:
            self.errors[partition] = live.problem
            return
        self.lives.append(live)
        if offset is None:
            return
        self.ready.append(partition)
        if self._bytes_left <= 0:
            return
        self._missed = (partition, live, offset)
        try:
            found = self._context.services.replicas.read(
                hosted,
                offset,
                min(self._bytes_left, SHARE_READ_BYTES_MAX),
                current_leader_epoch=-1,
                last_fetched_epoch=-1,
                at_least_one=not self.reads,
                reads_committed=self._reads_committed,
            )
            self._add(partition, live, offset, found)
        except PenstockError as error:
            self.errors[partition] = Refusal(code_of(error), message_of(error))

    async def read_cold(self) -> None:
        """Read the partition that `read` has missed, on a thread."""
        assert self._missed is not None, "`read` has raised"
        partition, live, offset = self._missed
        try:
            found = await self._context.services.cold_reader.read_cold(
                live.hosted,
                offset,
                min(self._bytes_left, SHARE_READ_BYTES_MAX),
                current_leader_epoch=-1,
                last_fetched_epoch=-1,
                at_least_one=not self.reads,
                reads_committed=self._reads_committed,
                client=self._context.client,
            )
            self._add(partition, live, offset, found)
        except PenstockError as error:
            self.errors[partition] = Refusal(code_of(error), message_of(error))

    def _add(
        self,
        partition: SharePartitionId,
        live: LiveSharePartition,
        offset: int,
        found: PartitionRead,
    ) -> None:
        size_bytes = len(found.records)
        if size_bytes:
            self.reads.append(PartialRead(partition, live, offset, found))
            self.found_bytes += size_bytes
            self._bytes_left -= size_bytes
            self._records_left -= count_offsets(found.records, self._records_left)
            return
        limit = found.last_stable_offset if self._reads_committed else found.high_watermark
        if not self.reads and offset < limit:
            # At least one batch was asked for, and there is none: compaction has removed them.
            live.skip_gap(offset, limit - 1)

    def has_grown(self) -> bool:
        """Whether records have come since a partition was read, which would not wake the fetch."""
        return any(has_unread(live, reads_committed=self._reads_committed) for live in self.lives)
