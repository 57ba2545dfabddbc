"""`LogCuts`: the cuts of followers' logs that are under way.

A cut ends even if the follower gets another role meanwhile, and the role waits for it: a leader
must not serve a log that loses its end. A failed cut leaves the log as it was or offline. It does
not decide where to cut (`replication.follower`).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine

from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.manager import ReplicaManager

logger = logging.getLogger(__name__)


class LogCuts:
    """The logs that are being cut."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._tasks: dict[TopicPartition, asyncio.Task[None]] = {}
        self.on_done: Callable[[TopicPartition], None] | None = None
        """Called after each cut: a change of the role may have waited for it."""

    def __contains__(self, name: TopicPartition) -> bool:
        return name in self._tasks

    def begin(
        self,
        partition: HostedPartition,
        cut: Coroutine[object, object, None],
        on_end: Callable[[PenstockError | None], None],
    ) -> None:
        """Cut a log in a task; `on_end` gets the error, if there is one."""
        assert partition.name not in self._tasks, "one cut at a time"
        task = asyncio.get_running_loop().create_task(self._cut(partition, cut, on_end))
        self._tasks[partition.name] = task

    async def _cut(
        self,
        partition: HostedPartition,
        cut: Coroutine[object, object, None],
        on_end: Callable[[PenstockError | None], None],
    ) -> None:
        failure: PenstockError | None = None
        try:
            await cut
        except PenstockError as error:
            logger.error("%s could not be cut: %s", partition.name, error)
            failure = error
        del self._tasks[partition.name]
        self._replicas.was_cut(partition)
        on_end(failure)
        if self.on_done is not None:
            self.on_done(partition.name)

    async def finish(self) -> None:
        """Wait for the cuts under way."""
        if self._tasks:
            await asyncio.wait(self._tasks.values())
