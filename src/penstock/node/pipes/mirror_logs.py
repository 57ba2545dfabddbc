"""`MirrorLogs`: implements `edge.pipes.ports.Mirrors` on this broker.

A mirror has one replica, and this broker leads it: clients read it as any partition. Batches are
appended as a follower appends its leader's: offsets, epochs, producers and gaps stay as they are.

Guarantees: records are appended to a mirror only, also if a promotion came between a fetch and its
answer. While a log is cut it has no leader, and clients retry; the cut ends even if its pipe is
stopped meanwhile. A cut raises the leader epoch before other records are copied: children of this
broker that did not fetch meanwhile compare their logs again too. Offsets of groups are committed as
a client that is not a member commits them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.broker.peer import UNKNOWN_PEER, Peer
from penstock.cluster.image import TopicImage
from penstock.core.errors import (
    BrokerAnswerError,
    NotLeaderError,
    PenstockError,
    PolicyViolationError,
)
from penstock.core.types import TopicPartition
from penstock.edge.pipes.common_end import BatchMark
from penstock.edge.pipes.down_pipe import EpochEnd, OwnLog
from penstock.edge.pipes.parent_calls import first_mark
from penstock.edge.pipes.pipe_health import Room
from penstock.edge.pipes.ports import (
    Committed,
    CommittedOffset,
    DiskRoom,
    MirrorTopic,
    ParentTopic,
)
from penstock.node.coordination.coordinators import NodeCoordinators
from penstock.node.pipes.mirror_topics import MirrorTopics
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import offset_commit, offset_fetch
from penstock.records.batch import read_header
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.manager import ReplicaManager
from penstock.replication.partition import PartitionState
from penstock.replication.waits import CommitWait
from penstock.security.acls.values import Operation, ResourceType
from penstock.storage.disk.disk_guard import DiskGuard, DiskState
from penstock.storage.log.log_types import AppendInfo
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.service import StorageService

logger = logging.getLogger(__name__)

SYNC_MS_MAX: Final = 10_000
API_VERSION: Final = 9
"""The version of the requests for groups; version 10 names topics by their ids."""
_CLEANUP: Final = "cleanup.policy"
_ROOM: Final = {
    DiskState.OPEN: Room.ENOUGH,
    DiskState.LOW: Room.LOW,
    DiskState.FULL: Room.FULL,
}
_BUSY: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
"""The answers of a coordinator whose group has members."""


RefreshWith = Callable[[str, TopicPartition, int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Unguarded:
    access: None = None


@dataclass(frozen=True, slots=True)
class PipeAsker:
    """`broker.ports.Asker`: the broker itself, which needs no permission."""

    services: _Unguarded = _Unguarded()
    api_version: int = API_VERSION
    client_id: str | None = "penstock-pipe"
    peer: Peer = UNKNOWN_PEER

    def allows(
        self,
        operation: Operation,  # noqa: ARG002 (the port's signature)
        resource_type: ResourceType,  # noqa: ARG002
        name: str,  # noqa: ARG002
        *,
        is_logged: bool = True,  # noqa: ARG002
    ) -> bool:
        """Allow everything."""
        return True


class MirrorLogs:
    """`edge.pipes.ports.Mirrors`."""

    def __init__(
        self,
        topics: MirrorTopics,
        replicas: ReplicaManager,
        storage: StorageService,
        coordinators: NodeCoordinators,
        disk: DiskGuard,
        defaults: Mapping[str, str],
    ) -> None:
        self._topics = topics
        self._replicas = replicas
        self._storage = storage
        self._coordinators = coordinators
        self._disk = disk
        self._defaults = defaults
        self._cutting: set[TopicPartition] = set()
        self._asker = PipeAsker()
        self.refresh_with: RefreshWith | None = None
        """Replaces a topic by a snapshot; set by the book of pipes."""

    @property
    def storage(self) -> StorageService:
        """The storage of this broker."""
        return self._storage

    # --- Topics ---

    def topic(self, name: str) -> MirrorTopic | None:
        """Return a topic of this broker; None if it does not exist."""
        found = self._topics.find(name)
        if found is None:
            return None
        policy = found.settings.get(_CLEANUP, self._defaults.get(_CLEANUP, ""))
        mirror = found.mirror
        return MirrorTopic(
            found.id,
            len(found.partitions),
            "" if mirror is None else mirror.pipe,
            mirror is not None and mirror.is_restoring,
            "compact" in policy or self._has_gaps(found),
        )

    def _has_gaps(self, topic: TopicImage) -> bool:
        """Whether batches differ from the parent's: compaction, or a snapshot."""
        return any(
            partition.log.settings.is_compacted
            for index in range(len(topic.partitions))
            if (partition := self._replicas.find(topic.name, index)) is not None
        )

    def names(self, pipe: str) -> Collection[str]:
        """Return the mirrors of a pipe."""
        return self._topics.of_pipe(pipe)

    async def create(self, topic: ParentTopic, settings: Mapping[str, str], pipe: str) -> None:
        """Create a mirror with the parent's topic id and settings."""
        await self._topics.create(topic, settings, pipe)

    async def grow(self, name: str, partition_count: int) -> None:
        """Add partitions to a mirror."""
        await self._topics.grow(name, partition_count)

    async def raise_epochs(self, name: str, epochs: Sequence[int]) -> None:
        """Raise the leader epochs of a mirror to at least these, in one write."""
        await self._topics.raise_epochs(name, epochs)

    async def restored(self, name: str) -> None:
        """Note that a restored mirror agrees with its parent."""
        await self._topics.restored(name)

    # --- Logs ---

    def _find(self, at: TopicPartition) -> HostedPartition | None:
        """Return a mirror that is served."""
        partition = self._replicas.find(*at)
        if partition is None or not partition.is_mirror or at in self._cutting:
            return None
        return None if partition.log.problem is not None else partition

    def _mirror(self, at: TopicPartition) -> HostedPartition:
        partition = self._find(at)
        if partition is None:
            hosted = self._replicas.find(*at)
            if hosted is not None and not hosted.is_mirror:
                raise PolicyViolationError(f"{at} is not a mirror any more")
            raise NotLeaderError(f"{at} is not served now")
        return partition

    def log(self, at: TopicPartition) -> OwnLog | None:
        """Return the ends of a log; None if it is not served."""
        partition = self._find(at)
        if partition is None:
            return None
        log = partition.log
        return OwnLog(log.log_start_offset, log.end_offset, log.latest_epoch)

    def served_log(self, at: TopicPartition) -> PartitionLog:
        """Return the log of a mirror that is served."""
        return self._mirror(at).log

    def epoch_end(self, at: TopicPartition, epoch: int) -> EpochEnd:
        """Return where an epoch ends in the own log."""
        return EpochEnd(*self._mirror(at).log.end_offset_for_epoch(epoch))

    async def batch_at(self, at: TopicPartition, offset: int) -> BatchMark | None:
        """Return the first batch that ends at or after the offset."""
        log = self._mirror(at).log
        limit = log.end_offset
        try:
            found = log.read(offset, 1, offset_limit=limit, at_least_one=True, nowait=True)
        except BlockingIOError:
            found = await self._storage.read_cold(
                log, offset, 1, offset_limit=limit, at_least_one=True
            )
        return first_mark(found.records)

    async def append(self, at: TopicPartition, records: memoryview, parent_start: int) -> None:
        """Append whole batches of the parent as they are."""
        partition = self._mirror(at)
        log = partition.log
        base_offset = read_header(records).base_offset
        is_early = base_offset < log.end_offset
        if is_early and log.log_start_offset == log.end_offset:
            # The parent's log begins within a batch, because records were deleted: the batch is
            # copied whole, and its first records are hidden here too.
            await self.cut(at, base_offset, is_restart=True)
            partition = self._mirror(at)
            self._append(partition, records)
            await self._hide(partition, parent_start)
            return
        self._append(partition, records)

    def _append(self, partition: HostedPartition, records: memoryview) -> None:
        log = partition.log
        copied = log.append_replica(
            records, leader_epoch=partition.state.leader_epoch, allow_gaps=True
        )
        info = AppendInfo(
            copied.first_offset, copied.last_offset, -1, log.log_start_offset, is_duplicate=False
        )
        self._replicas.note_append(partition, info, len(records))

    async def _hide(self, partition: HostedPartition, offset: int) -> None:
        if partition.state.high_watermark < offset:
            synced = asyncio.Event()
            wait = CommitWait(synced.set)
            self._replicas.wait_committed(wait, [(partition, offset - 1)], SYNC_MS_MAX)
            await synced.wait()
            for failure in wait.errors.values():
                raise failure
        for error in await self._storage.advance_starts([(partition.log, offset)]):
            if error is not None:
                raise error

    async def cut(self, at: TopicPartition, offset: int, *, is_restart: bool) -> None:
        """Remove all records starting at the offset, or all; durably."""
        partition = self._mirror(at)
        epoch = partition.state.leader_epoch
        had_records = partition.log.end_offset > partition.log.log_start_offset
        storage = self._storage
        work = storage.restart_log(at, offset) if is_restart else storage.truncate_log(at, offset)
        task = asyncio.get_running_loop().create_task(self._cut(partition, epoch, work))
        failure = await asyncio.shield(task)
        if failure is not None:
            raise failure
        if had_records:
            await self._topics.raise_epochs(at.topic, [-1] * at.partition + [epoch + 1])

    async def _cut(
        self, partition: HostedPartition, epoch: int, work: Coroutine[None, None, None]
    ) -> PenstockError | None:
        """Cut a log while it has no leader, then lead it again."""
        at, log = partition.name, partition.log
        self._cutting.add(at)
        idle = PartitionState(
            at, leader_epoch=epoch, is_leader=False, durable_offset=log.durable_offset
        )
        partition = self._replicas.change_role(partition, idle)
        failure: PenstockError | None = None
        try:
            await work
        except PenstockError as error:
            failure = error
        self._cutting.discard(at)
        self._replicas.was_cut(partition)
        if self._replicas.find(*at) is partition:
            self._topics.begin_epoch(partition, epoch)
        return failure

    async def refresh(self, pipe: str, at: TopicPartition, offset: int) -> None:
        """Replace the topic of a partition by a snapshot that ends at the offset or later."""
        assert self.refresh_with is not None
        await self.refresh_with(pipe, at, offset)

    async def replace(
        self, places: Sequence[TopicPartition], work: Coroutine[None, None, None]
    ) -> None:
        """Replace the logs of mirrors by `work` while they have no leader.

        A caller that is cancelled waits for the end of `work`, which uses the caller's files.
        """
        task = asyncio.get_running_loop().create_task(self._replace(places, work))
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                cancelled = error
        failure = task.result()
        if cancelled is not None:
            raise cancelled
        if failure is not None:
            raise failure

    async def _replace(
        self, places: Sequence[TopicPartition], work: Coroutine[None, None, None]
    ) -> PenstockError | None:
        # A promotion meanwhile would let clients write records that the new log does not have.
        async with self._topics.changes:
            try:
                found = [(one, one.state.leader_epoch) for one in map(self._mirror, places)]
            except PenstockError as error:
                work.close()
                return error
            failure = await self._replace_served(found, work)
        if failure is None:
            await self._topics.raise_epochs(places[0].topic, [epoch + 1 for _, epoch in found])
        return failure

    async def _replace_served(
        self, found: Sequence[tuple[HostedPartition, int]], work: Coroutine[None, None, None]
    ) -> PenstockError | None:
        idle = []
        for partition, epoch in found:
            self._cutting.add(partition.name)
            offset = partition.log.durable_offset
            state = PartitionState(
                partition.name, leader_epoch=epoch, is_leader=False, durable_offset=offset
            )
            successor = self._replicas.change_role(partition, state)
            successor.is_refreshing = True
            idle.append((successor, epoch))
        try:
            await work
            for partition, _ in idle:
                partition.refreshes += 1
        except PenstockError as error:
            return error
        finally:
            for partition, epoch in idle:
                self._cutting.discard(partition.name)
                self._replicas.was_cut(partition)
                if self._replicas.find(*partition.name) is partition:
                    self._topics.begin_epoch(partition, epoch)
        return None

    def room(self) -> DiskRoom:
        """Return the free space of the disk, as it was last measured."""
        disk = self._disk
        left_bytes = disk.space.free_bytes - disk.marks.refuse_below_bytes
        return DiskRoom(_ROOM[disk.state], left_bytes)

    # --- Groups ---

    async def committed(self, group: str) -> Committed:
        """Return the committed offsets of a group on this broker."""
        failure = await self._coordinators.ensure_topic("group")
        if failure is not None:
            raise failure
        request = offset_fetch.OffsetFetchRequest(
            groups=(offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=None),)
        )
        answer = await self._coordinators.ask("group", group, request, self._asker)
        if isinstance(answer, PenstockError):
            raise answer
        assert isinstance(answer, offset_fetch.OffsetFetchResponse)
        return {
            TopicPartition(topic.name, one.partition_index): CommittedOffset(
                one.committed_offset, one.committed_leader_epoch, one.metadata or ""
            )
            for found in answer.groups
            for topic in found.topics
            for one in topic.partitions
            if one.committed_offset >= 0
        }

    async def commit(self, group: str, offsets: Committed) -> bool:
        """Commit offsets as a client that is not a member; False if the group has members."""
        by_topic: dict[str, list[TopicPartition]] = {}
        for at in offsets:
            by_topic.setdefault(at.topic, []).append(at)
        request = offset_commit.OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=tuple(
                offset_commit.OffsetCommitRequestTopic(
                    name=topic,
                    partitions=tuple(
                        offset_commit.OffsetCommitRequestPartition(
                            partition_index=at.partition,
                            committed_offset=offsets[at].offset,
                            committed_leader_epoch=offsets[at].leader_epoch,
                            committed_metadata=offsets[at].metadata,
                        )
                        for at in places
                    ),
                )
                for topic, places in by_topic.items()
            ),
        )
        answer = await self._coordinators.ask("group", group, request, self._asker)
        if isinstance(answer, PenstockError):
            raise answer
        assert isinstance(answer, offset_commit.OffsetCommitResponse)
        codes = {one.error_code for topic in answer.topics for one in topic.partitions}
        if codes & _BUSY:
            return False
        for code in codes - {ErrorCode.NONE}:
            raise BrokerAnswerError(code.value, code.name, f"group {group}")
        return True
