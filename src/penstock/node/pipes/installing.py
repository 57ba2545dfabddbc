"""`SnapshotInstaller`: replaces the logs of a mirror by a snapshot, and the pipe goes on behind it.

Guarantees:

- Before anything is replaced, the snapshot is read completely and verified: manifest, topic id,
  partitions, checksums, offsets, leader epochs. Any difference raises `SnapshotError`, and the
  mirror is served as before.
- All partitions are replaced by one decision (`storage.log_installation`): after a crash the mirror
  has the old data set or the new one.
- The end of a log does not move back: batches of the mirror behind the snapshot stay. A mirror that
  does not continue the snapshot is refused, unless `is_forced`.
- While the snapshot is copied the mirror is served; it is not served for the moment of the switch.

One installation runs at a time.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from threading import Event
from typing import Final, NamedTuple
from uuid import uuid4

from penstock.cluster.image import TopicImage
from penstock.core.errors import (
    DiskFullError,
    PenstockError,
    PolicyViolationError,
    StorageError,
    UnknownTopicOrPartitionError,
    WorkCancelledError,
)
from penstock.core.types import TopicPartition
from penstock.edge.refresh.manifest import Manifest, SnapshotPartition
from penstock.edge.refresh.snapshot_errors import SnapshotError
from penstock.edge.refresh.snapshot_files import verified_batches
from penstock.edge.refresh.snapshot_stores import SnapshotStore, load_manifest, open_store
from penstock.node.pipes.log_preparing import LogCopy
from penstock.node.pipes.mirror_logs import MirrorLogs
from penstock.node.pipes.mirror_topics import MirrorTopics
from penstock.storage.disk.filesystem import RETRIABLE_ERRNOS
from penstock.storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

ROUNDS_MAX: Final = 5
"""Copies of the tail before the switch: each is shorter than the one before."""
ROUND_BYTES_ENOUGH: Final = 1_000
"""Offsets that are left for the switch itself."""
STOP_SECONDS_MAX: Final = 5.0
"""Time for a thread to end its batch, or its read of a bucket."""


class Installed(NamedTuple):
    """A finished installation."""

    snapshot_id: str
    partitions: int
    records: int
    size_bytes: int


class SnapshotInstaller:
    """Installs snapshots in mirrors of this broker."""

    def __init__(self, topics: MirrorTopics, logs: MirrorLogs) -> None:
        self._topics = topics
        self._logs = logs
        self._storage = logs.storage
        self._one_at_a_time = asyncio.Lock()

    async def install(self, name: str, place: str, *, is_forced: bool = False) -> Installed:
        """Replace the logs of a mirror by the snapshot at a place."""
        async with self._one_at_a_time:
            store, manifest = await asyncio.to_thread(_opened, place)
            topic = self._checked(name, manifest, is_forced=is_forced)
            stop = Event()
            copies: list[LogCopy] = []
            try:
                if len(topic.partitions) < len(manifest.partitions):
                    # They cannot be removed again, so all of the snapshot is verified before.
                    await _on_thread(partial(_verify, store, manifest, stop), stop)
                    await self._topics.grow(name, len(manifest.partitions))
                await self._copy(manifest, store, copies, stop)
                await self._switch(name, manifest, copies, stop, is_forced=is_forced)
            except OSError as error:
                raise _disk_error(error) from error
            finally:
                stop.set()
                await asyncio.shield(asyncio.to_thread(_discard, copies))
        logger.warning(
            "%s is refreshed: snapshot %s, %d records", name, manifest.id, manifest.records
        )
        return Installed(
            manifest.id, len(manifest.partitions), manifest.records, manifest.size_bytes
        )

    async def install_newer(self, at: TopicPartition, place: str, offset: int) -> None:
        """Install a snapshot whose partition ends at the offset or later, unless it is installed.

        Partitions of a topic ask one after the other: the first one replaces all of them.
        """
        _, manifest = await asyncio.to_thread(_opened, place)
        end = manifest.ends.get(at.partition, -1)
        if end < offset:
            raise SnapshotError(
                f"the snapshot in {place} is too old: it ends at offset {end} of {at}, and the "
                f"parent's log begins at {offset}"
            )
        if self._log(*at).end_offset < end:
            await self.install(at.topic, place)

    # --- Checks ---

    def _checked(self, name: str, manifest: Manifest, *, is_forced: bool) -> TopicImage:
        topic = self._topics.find(name)
        if topic is None:
            raise UnknownTopicOrPartitionError(
                f"topic {name!r} not found.", hint="List topics with `penstock topic list`."
            )
        if topic.mirror is None or topic.mirror.is_restoring:
            raise PolicyViolationError(
                f"{name!r} is not a mirror; a snapshot replaces mirrors only",
                hint="Copy the topic with a pipe first: `penstock pipe list`.",
            )
        if manifest.topic != name:
            raise SnapshotError(f"the snapshot is of the topic {manifest.topic!r}, not of {name!r}")
        if manifest.topic_id != topic.id:
            raise SnapshotError(
                f"the snapshot is of another topic {name!r}: its id is {manifest.topic_id}, the "
                f"mirror has {topic.id}",
                hint="Build a snapshot of the parent's topic, or delete the mirror.",
            )
        for partition in manifest.partitions[: len(topic.partitions)]:
            log = self._log(name, partition.partition)
            problem = _contradiction(log, partition)
            if problem and not is_forced:
                raise SnapshotError(
                    f"partition {partition.partition}: {problem}",
                    hint="Build a newer snapshot, or use --force: the pipe copies from its end.",
                )
        room, needed = self._logs.room().left_bytes, manifest.size_bytes
        if room < needed:
            raise DiskFullError(f"the snapshot needs {needed} bytes, and {room} are free")
        return topic

    def _log(self, name: str, partition: int) -> PartitionLog:
        return self._logs.served_log(TopicPartition(name, partition))

    # --- Copies ---

    async def _copy(
        self, manifest: Manifest, store: SnapshotStore, copies: list[LogCopy], stop: Event
    ) -> None:
        """Write all logs aside, while the mirror is served."""
        assert manifest.topic_id is not None
        unique = uuid4().hex
        for partition in manifest.partitions:
            log = self._log(manifest.topic, partition.partition)
            home = self._storage.manager.home_of(log.topic_partition)
            copy = await asyncio.to_thread(
                partial(LogCopy, log, home, partition, unique, manifest.topic_id)
            )
            copies.append(copy)
            await _on_thread(partial(copy.copy_snapshot, store, stop.is_set), stop)
            if _has_tail(log, partition):
                for _ in range(ROUNDS_MAX):
                    await _on_thread(partial(copy.copy_tail, stop.is_set), stop)
                    if log.end_offset - copy.end_offset < ROUND_BYTES_ENOUGH:
                        break

    async def _switch(
        self,
        name: str,
        manifest: Manifest,
        copies: Sequence[LogCopy],
        stop: Event,
        *,
        is_forced: bool,
    ) -> None:
        """Take the mirror out of service, copy the last batches, and replace its logs."""
        self._checked(name, manifest, is_forced=is_forced)
        await self._topics.raise_epochs(
            name, [one.epochs[-1][0] if one.epochs else -1 for one in manifest.partitions]
        )

        async def work() -> None:
            new = []
            for copy, partition in zip(copies, manifest.partitions, strict=True):
                copy.check_unchanged(self._storage.manager.logs.get(copy.log.topic_partition))
                if _has_tail(copy.log, partition):
                    await asyncio.to_thread(copy.copy_tail, stop.is_set)
                new.append(await asyncio.to_thread(copy.finish))
            await self._storage.install_logs(new)

        ats = [TopicPartition(name, one.partition) for one in manifest.partitions]
        await self._logs.replace(ats, work())


def _opened(place: str) -> tuple[SnapshotStore, Manifest]:
    store = open_store(place)
    return store, load_manifest(store)


async def _on_thread(call: Callable[[], None], stop: Event) -> None:
    """Run work on a thread; a caller that is cancelled waits a moment for its end.

    Otherwise it would write into a copy that is being removed.
    """
    task = asyncio.get_running_loop().create_task(asyncio.to_thread(call))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait((task,), timeout=STOP_SECONDS_MAX)
        raise


def _verify(store: SnapshotStore, manifest: Manifest, stop: Event) -> None:
    """Read a whole snapshot; `SnapshotError` if it is not the one of its manifest."""
    for partition in manifest.partitions:
        for _ in verified_batches(store, partition):
            if stop.is_set():
                raise WorkCancelledError("the installation was ended")


def _disk_error(error: OSError) -> PenstockError:
    """Return the error of a copy that could not be written; the mirror is as before."""
    if error.errno in RETRIABLE_ERRNOS:
        return DiskFullError(
            f"no room for a copy of the snapshot: {error}", hint="Free space, and try again."
        )
    return StorageError(
        f"a copy of the snapshot cannot be written: {error}",
        hint="Look at the disk of the data directory, and try again.",
    )


def _discard(copies: Sequence[LogCopy]) -> None:
    """Remove copies; an installed copy has another name by now."""
    for copy in copies:
        copy.discard()


def _has_tail(log: PartitionLog, snapshot: SnapshotPartition) -> bool:
    """Whether the mirror has batches behind the snapshot that continue it."""
    return log.end_offset > snapshot.end_offset and not _contradiction(log, snapshot)


def _contradiction(log: PartitionLog, snapshot: SnapshotPartition) -> str:
    """Return why the records of a mirror do not continue the snapshot; empty if they do."""
    end = snapshot.end_offset
    if log.end_offset <= end:
        return ""
    if log.log_start_offset > end:
        return (
            f"the mirror begins at offset {log.log_start_offset}, behind the end {end} of the "
            "snapshot"
        )
    if log.log_start_offset < end and end > snapshot.start_offset:
        mine, theirs = log.epochs.epoch_at(end - 1), snapshot.epoch_at(end - 1)
        if mine != theirs:
            return f"offset {end - 1} has leader epoch {mine}, and {theirs} in the snapshot"
    return ""
