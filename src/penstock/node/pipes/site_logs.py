"""`SiteLogs`: implements `edge.pipes.up_ports.Sites` on this broker; `FileNote` implements `Note`.

Guarantees: only records below the last stable offset are read. Mirrors and internal topics are not
topics of the site. Retention asks `held_from` before it deletes segments of a log; without an up
pipe it asks nothing.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

from penstock.cluster.service import MetadataService
from penstock.core.errors import NotLeaderError
from penstock.core.types import INTERNAL_TOPICS, TopicPartition
from penstock.edge.pipes.common_end import BatchMark
from penstock.edge.pipes.parent_calls import first_mark
from penstock.edge.pipes.ports import DiskRoom
from penstock.edge.pipes.sent_notes import NOTE_BYTES_MAX
from penstock.edge.pipes.site_batches import SiteRead
from penstock.edge.pipes.up_pipe import SiteLog
from penstock.edge.pipes.up_ports import SiteTopic
from penstock.node.pipes.mirror_logs import MirrorLogs
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.manager import ReplicaManager
from penstock.storage.service import StorageService

NOT_HELD: Final = 2**63 - 1
_CLEANUP: Final = "cleanup.policy"
_OWNER_ONLY: Final = 0o600

Holder = Callable[[TopicPartition, SiteTopic], int | None]


class SiteLogs:
    """`edge.pipes.up_ports.Sites`."""

    def __init__(
        self,
        metadata: MetadataService,
        replicas: ReplicaManager,
        storage: StorageService,
        mirrors: MirrorLogs,
    ) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._storage = storage
        self._mirrors = mirrors

    def topics(self) -> Mapping[str, SiteTopic]:
        """Return all topics that clients write: neither mirrors nor internal topics."""
        return {
            name: self._topic(name)
            for name, topic in self._metadata.image.topics.items()
            if topic.mirror is None and name not in INTERNAL_TOPICS
        }

    def _topic(self, name: str) -> SiteTopic:
        topic = self._metadata.image.topics[name]
        policy = topic.settings.get(_CLEANUP, self._metadata.topic_defaults.get(_CLEANUP, ""))
        return SiteTopic(topic.id, len(topic.partitions), "compact" in policy)

    def hold(self, holders: Callable[[], Collection[Holder]]) -> None:
        """Let retention keep what these functions name; None of all of them: as without."""

        def held_from(at: TopicPartition) -> int:
            topic = self._metadata.image.topic(at.topic)
            if topic is None or topic.mirror is not None or at.topic in INTERNAL_TOPICS:
                return NOT_HELD
            site = SiteTopic(topic.id, len(topic.partitions), is_compacted=False)
            held = (holder(at, site) for holder in holders())
            return min((one for one in held if one is not None), default=NOT_HELD)

        for flusher in self._storage.manager.flushers:
            flusher.directory.held_from = held_from

    def release(self) -> None:
        """Let retention delete as without pipes."""
        for flusher in self._storage.manager.flushers:
            flusher.directory.held_from = None

    # --- Logs ---

    def _find(self, at: TopicPartition) -> HostedPartition | None:
        partition = self._replicas.find(*at)
        if partition is None or partition.is_reserved or not partition.state.is_leader:
            return None
        return None if partition.log.problem is not None else partition

    def _served(self, at: TopicPartition) -> HostedPartition:
        partition = self._find(at)
        if partition is None:
            raise NotLeaderError(f"{at} is not served now")
        return partition

    def log(self, at: TopicPartition) -> SiteLog | None:
        """Return the ends of a log; None if it is not served."""
        partition = self._find(at)
        if partition is None:
            return None
        log = partition.log
        return SiteLog(
            partition.topic_id,
            log.log_start_offset,
            partition.last_stable_offset,
            log.end_offset,
            sum(segment.size for segment in log.segments),
        )

    async def read(self, at: TopicPartition, offset: int, bytes_max: int) -> SiteRead:
        """Read stored batches from an offset up to the last stable offset."""
        partition = self._served(at)
        log, limit, storage = partition.log, partition.last_stable_offset, self._storage
        try:
            found = log.read(offset, bytes_max, offset_limit=limit, at_least_one=True, nowait=True)
            aborted = log.aborted_transactions(offset, found.next_offset, nowait=True)
        except BlockingIOError:
            found = await storage.read_cold(
                log, offset, bytes_max, offset_limit=limit, at_least_one=True
            )
            aborted = await storage.aborted_transactions(log, offset, found.next_offset)
        return SiteRead(found.records, aborted)

    async def batch_at(self, at: TopicPartition, offset: int) -> BatchMark | None:
        """Return the first batch that ends at or after the offset."""
        log = self._served(at).log
        limit = log.end_offset
        try:
            found = log.read(offset, 1, offset_limit=limit, at_least_one=True, nowait=True)
        except BlockingIOError:
            found = await self._storage.read_cold(
                log, offset, 1, offset_limit=limit, at_least_one=True
            )
        return first_mark(found.records)

    async def drop_oldest(self, partitions: Collection[TopicPartition]) -> bool:
        """Delete the oldest segment of the largest of these logs; False if there is none."""
        logs = [one.log for at in partitions if (one := self._find(at)) is not None]
        many = [log for log in logs if len(log.segments) > 1]
        if not many:
            return False
        largest = max(many, key=lambda log: sum(one.size for one in log.segments))
        start = largest.segments[1].base_offset
        for error in await self._storage.advance_starts([(largest, start)]):
            if error is not None:
                raise error
        return True

    def room(self) -> DiskRoom:
        """Return the free space of the disk, as it was last measured."""
        return self._mirrors.room()


class FileNote:
    """`edge.pipes.up_ports.Note` in a file that is replaced atomically."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def load(self) -> str:
        """Return the stored text; empty if there is none."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> str:
        try:
            with open(self._path, "rb") as file:
                return file.read(NOTE_BYTES_MAX).decode()
        except (OSError, ValueError):
            return ""

    async def save(self, text: str) -> None:
        """Replace the stored text, durably."""
        await asyncio.to_thread(self._write, text.encode())

    def _write(self, data: bytes) -> None:
        aside = f"{self._path}.new"
        with suppress(FileNotFoundError):
            os.unlink(aside)
        descriptor = os.open(
            aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, _OWNER_ONLY
        )
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, self._path)


class MemoryNote:
    """`edge.pipes.up_ports.Note` of a broker that keeps its data in memory."""

    def __init__(self) -> None:
        self._text = ""

    async def load(self) -> str:
        """Return the stored text."""
        return self._text

    async def save(self, text: str) -> None:
        """Replace the stored text."""
        self._text = text
