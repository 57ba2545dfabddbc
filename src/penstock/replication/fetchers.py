"""`Fetchers`: one `LeaderFetcher` for each leader that this broker follows.

A fetcher lives as long as it has partitions. It decides nothing about roles.
"""

import asyncio
from collections.abc import Callable, Iterable

from penstock.cluster.link.lasting import kept
from penstock.core.errors import QuarantinedLogError
from penstock.core.types import TopicPartition
from penstock.replication.ended_tasks import end_tasks
from penstock.replication.fetcher import Identity, LeaderFetcher
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.log_cuts import LogCuts
from penstock.replication.manager import ReplicaManager
from penstock.replication.ports import CopyThrottle, LeaderConnections, ReplicaStorage
from penstock.replication.replica_session import FETCH_WAIT_MS


class Fetchers:
    """The fetchers of this broker, by leader."""

    def __init__(
        self,
        connections: LeaderConnections,
        replicas: ReplicaManager,
        storage: ReplicaStorage,
        cuts: LogCuts,
        identity: Callable[[], Identity],
        *,
        lag_seconds: float,
        throttle: CopyThrottle | None = None,
    ) -> None:
        """`lag_seconds`: followers that do not report for this long count as behind."""
        self._wait_ms_max = min(FETCH_WAIT_MS, round(lag_seconds * 500))
        self._connections = connections
        self._replicas = replicas
        self._storage = storage
        self._cuts = cuts
        self._identity = identity
        self._throttle = throttle
        self._fetchers: dict[int, tuple[LeaderFetcher, asyncio.Task[None]]] = {}
        self._leader_of: dict[TopicPartition, int] = {}
        self._lagging: set[TopicPartition] = set()
        """Partitions that have never had everything that their leader had."""
        self._caught_up = asyncio.Event()
        self._caught_up.set()
        self._ending: set[asyncio.Task[None]] = set()
        replicas.on_follower_synced = self._synced

    def __len__(self) -> int:
        return len(self._leader_of)

    def add(self, partition: HostedPartition, *, is_recovering: bool) -> None:
        """Begin to copy a partition from the leader of its role.

        A replica on a failed disk, or with a damaged log, is not copied: it would fetch at the end
        of its log, count as in sync, and could be elected.
        """
        self.remove(partition.name)
        log = partition.log
        if log.shared.failure is not None or isinstance(log.problem, QuarantinedLogError):
            return
        leader_id = partition.state.leader_id
        if leader_id not in self._fetchers:
            self._fetchers[leader_id] = self._start(leader_id)
        fetcher, _ = self._fetchers[leader_id]
        self._leader_of[partition.name] = leader_id
        self._lagging.add(partition.name)
        self._caught_up.clear()
        fetcher.add(partition, is_recovering=is_recovering)

    def _start(self, leader_id: int) -> tuple[LeaderFetcher, asyncio.Task[None]]:
        fetcher = LeaderFetcher(
            leader_id,
            self._connections,
            self._replicas,
            self._storage,
            self._identity,
            self._cuts,
            self._has_caught_up,
            wait_ms_max=self._wait_ms_max,
            throttle=self._throttle,
        )
        name = f"fetch-from-{leader_id}"
        task = asyncio.get_running_loop().create_task(kept(fetcher.run, name), name=name)
        return fetcher, task

    def remove(self, name: TopicPartition) -> None:
        """Copy a partition no more."""
        leader_id = self._leader_of.pop(name, None)
        if leader_id is None:
            return
        self._has_caught_up(name)
        fetcher, task = self._fetchers[leader_id]
        fetcher.remove(name)
        if not len(fetcher):
            del self._fetchers[leader_id]
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def abandon(self, names: Iterable[TopicPartition]) -> None:
        """Copy partitions of a failed disk no more; requests under way do not count for them."""
        for name in names:
            leader_id = self._leader_of.get(name)
            self.remove(name)
            if leader_id in self._fetchers:
                self._fetchers[leader_id][0].interrupt_soon()

    def look_again(self) -> None:
        """Partitions that were left out may be copied now."""
        for fetcher, _ in self._fetchers.values():
            fetcher.look_again()

    def _synced(self, partition: HostedPartition) -> None:
        leader_id = self._leader_of.get(partition.name)
        if leader_id is not None:
            self._fetchers[leader_id][0].synced(partition.name)

    def _has_caught_up(self, name: TopicPartition) -> None:
        self._lagging.discard(name)
        if not self._lagging:
            self._caught_up.set()

    async def caught_up(self) -> None:
        """Wait until each partition has had everything that its leader had at a fetch."""
        await self._caught_up.wait()

    async def stop(self) -> None:
        """End all fetchers."""
        tasks = [task for _, task in self._fetchers.values()]
        await end_tasks((*tasks, *self._ending))
