"""`BatchedCuts`: the storage of replicas, in which many truncations share a write of checkpoints.

After a failover a thousand logs are cut in one moment. Truncations of one turn of the event loop,
and all that come while others are under way, are the next batch. An error of one log is that of its
caller only. A batch goes on when a caller is cancelled.

It does NOT cut: `storage.cut_runner` does.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from penstock.core.errors import PenstockError, StorageError
from penstock.core.types import TopicPartition
from penstock.storage.log.partition_log import PartitionLog

BATCH_LOGS_MAX: Final = 256
"""Logs of one batch: a caller waits for all of them."""


class _Waiting(NamedTuple):
    partition: TopicPartition
    offset: int
    outcome: "asyncio.Future[PenstockError | None]"


class ManyCuts(Protocol):
    """`StorageService`, as far as it is used here."""

    async def truncate_logs(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, PenstockError]:
        """Truncate logs; return the errors by partition."""
        ...

    async def restart_log(self, topic_partition: TopicPartition, offset: int) -> None:
        """Remove all records of a log, durably; it begins anew at the offset."""
        ...

    async def advance_starts(
        self, starts: Sequence[tuple[PartitionLog, int]]
    ) -> list[PenstockError | None]:
        """Hide the records below the given offsets, durably; one outcome for each log."""
        ...


class BatchedCuts:
    """`replication.ports.ReplicaStorage` with truncations that wait for their batch."""

    def __init__(self, storage: ManyCuts) -> None:
        self._storage = storage
        self.restart_log = storage.restart_log
        self.advance_starts = storage.advance_starts
        self._waiting: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None

    async def truncate_log(self, topic_partition: TopicPartition, offset: int) -> None:
        """Truncate a log with the next batch; raises its error."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[PenstockError | None] = loop.create_future()
        self._waiting.append(_Waiting(topic_partition, offset, outcome))
        if self._task is None:
            self._task = loop.create_task(self._run(), name="truncations")
        error = await outcome
        if error is not None:
            raise error

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._cut(self._next())
        finally:
            self._task = None
            for one in self._waiting:
                # Only after a defect, or at the end of the process.
                _settle(one, StorageError(f"{one.partition} was not truncated"))
            self._waiting.clear()

    def _next(self) -> dict[TopicPartition, _Waiting]:
        batch: dict[TopicPartition, _Waiting] = {}
        while self._waiting and len(batch) < BATCH_LOGS_MAX:
            if self._waiting[0].partition in batch:
                break
            one = self._waiting.popleft()
            batch[one.partition] = one
        return batch

    async def _cut(self, batch: dict[TopicPartition, _Waiting]) -> None:
        errors: dict[TopicPartition, PenstockError] = {}
        try:
            errors = await self._storage.truncate_logs(
                {name: one.offset for name, one in batch.items()}
            )
        except PenstockError as error:
            errors = dict.fromkeys(batch, error)
        except BaseException:
            for name, one in batch.items():
                _settle(one, StorageError(f"the truncation of {name} did not end"))
            raise
        for name, one in batch.items():
            found = errors.get(name)
            _settle(one, None if found is None else found.again())


def _settle(one: _Waiting, error: PenstockError | None) -> None:
    if not one.outcome.done():
        one.outcome.set_result(error)
