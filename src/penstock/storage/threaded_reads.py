"""`ThreadedReads`: reads and searches that wait for the disk or decode records, on worker threads.

A read is repeated if the log changes meanwhile: retention and compaction remove files, a truncation
removes records. Damage quarantines the log. Each call may name the client it is for; the work is
dropped when that client is gone (`worker_pool`).
"""

import logging
from collections.abc import Callable
from typing import TypeVar

from penstock.core.cancellation import Cancellation
from penstock.core.errors import (
    CorruptBatchError,
    CorruptIndexError,
    QuarantinedLogError,
    StorageError,
)
from penstock.storage.log.log_reader import rebuild_active, verify_checksums
from penstock.storage.log.log_types import LogRead, TimestampAndOffset
from penstock.storage.log.open_transactions import AbortedTransaction
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.worker_pool import Turns, WorkClass, WorkerPool

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class ThreadedReads:
    """The reading half of the storage service."""

    def __init__(self) -> None:
        self._pool: WorkerPool | None = None
        self.on_damage: Callable[[PartitionLog, StorageError], None] | None = None
        """Called on the loop with a log that was found damaged: it is served no more."""

    def _note_damage(self, log: PartitionLog, problem: StorageError) -> None:
        if self.on_damage is not None:
            self.on_damage(log, problem)

    @property
    def pool(self) -> WorkerPool:
        """The worker threads, while the service runs."""
        assert self._pool is not None, "the service is not started"
        return self._pool

    async def read_cold(
        self,
        log: PartitionLog,
        offset: int,
        bytes_max: int,
        *,
        offset_limit: int,
        at_least_one: bool,
        client: Cancellation | None = None,
    ) -> LogRead:
        """Repeat a read that raised `BlockingIOError`, on a thread; verify every checksum."""

        def read() -> LogRead:
            answer = log.read(
                offset,
                bytes_max,
                offset_limit=offset_limit,
                at_least_one=at_least_one,
                nowait=False,
            )
            verify_checksums(answer.records)
            return answer

        is_rebuilt = False
        while True:
            truncations, segments = log.truncations, log.segments
            try:
                answer = await self.pool.run(WorkClass.READS, read, client)
            except FileNotFoundError as missing:
                if log.segments is segments:
                    raise StorageError(f"the disk could not be read: {missing}") from missing
                # Retention or compaction was faster than the read; the repeated read finds out.
                continue
            except CorruptIndexError:
                if is_rebuilt:
                    raise
                is_rebuilt = True
                _rebuild(log, truncations)
                continue
            except CorruptBatchError as error:
                if log.truncations != truncations:
                    continue
                log.problem = QuarantinedLogError(f"{log.topic_partition}: {error}")
                logger.error("a damaged log is not served any more: %s", log.problem)
                self._note_damage(log, log.problem)
                raise log.problem.again() from error
            if log.truncations == truncations:
                return answer

    async def aborted_transactions(
        self, log: PartitionLog, offset: int, limit: int, client: Cancellation | None = None
    ) -> list[AbortedTransaction]:
        """Aborted transactions with records in [offset, limit), for a read that was cold."""
        return await self._search(
            log,
            lambda: log.aborted_transactions(offset, limit, nowait=False),
            WorkClass.READS,
            client,
        )

    async def offset_for_timestamp(
        self, log: PartitionLog, timestamp_ms: int, client: Cancellation | None = None
    ) -> TimestampAndOffset | None:
        """The first record at or after a time."""
        turns = self._turns(client)
        return await self._search(
            log, lambda: log.offset_for_timestamp(timestamp_ms, turns), WorkClass.LOOKUPS, client
        )

    async def max_timestamp(
        self, log: PartitionLog, client: Cancellation | None = None
    ) -> TimestampAndOffset | None:
        """The first record with the highest timestamp."""
        turns = self._turns(client)
        return await self._search(log, lambda: log.max_timestamp(turns), WorkClass.LOOKUPS, client)

    def _turns(self, client: Cancellation | None) -> Turns:
        stopping = self.pool.stopping
        return Turns(stopping) if client is None else Turns(stopping, client)

    async def _search(
        self,
        log: PartitionLog,
        find: Callable[[], Result],
        kind: WorkClass,
        client: Cancellation | None,
    ) -> Result:
        while True:
            segments = log.segments
            try:
                return await self.pool.run(kind, find, client)
            except OSError as error:
                if isinstance(error, FileNotFoundError) and log.segments is not segments:
                    # Retention or compaction was faster than the search.
                    continue
                raise StorageError(f"the disk could not be read: {error}") from error


def _rebuild(log: PartitionLog, truncations: int) -> None:
    """Rebuild the index that misled a read, unless a truncation changes it on another thread."""
    if log.truncations == truncations:
        rebuild_active(log)
