"""`LeaseBook`: grants, lists and ends leases of sealed segments.

Guarantees: the files of a granted lease are linked, durably, before it is returned. While they are
linked, neither retention nor compaction nor a cut changes the files of a log: the lock over file
removals is held. A lease ends when it is released, when its time is over, when one of its topics is
deleted, when a log is cut below its end, and, the oldest first, when the disk is low and it has
files that its log has not any more. A lease is on the disk, so it outlives a restart.

`break_for` returns only when no leased directory with changed records has its name, durably: also
of a lease whose time is over, or whose release is under way. If a name cannot be removed, it raises
`StorageBusyError`, and the caller changes nothing. A lease counts against the limits until its
files are gone.

It takes the loop's functions as arguments (`Work`, `Exclusive`), as compaction does. It does NOT
know who may have a lease.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple
from uuid import uuid4

from penstock.core.clock import Clock
from penstock.core.errors import StorageBusyError, StorageError
from penstock.core.lease_limits import LEASE_SEGMENTS_MAX, LEASE_SWAP_SECONDS_MAX
from penstock.core.types import TopicPartition
from penstock.storage.disk.disk_guard import DiskGuard, DiskState
from penstock.storage.exclusive import Exclusive, Rest, Work
from penstock.storage.leases.lease_files import LeaseFiles
from penstock.storage.leases.lease_links import LeasedPartition, Pick, link
from penstock.storage.leases.lease_rules import (
    LeaseCounts,
    LeaseNote,
    LeaseRefusedError,
    LeaseUnavailableError,
    LeaseWish,
    Skipped,
    SkippedCode,
    by_age,
    leased_spans,
    require_possible,
    seconds_left,
    spans_of,
)
from penstock.storage.log_manager import LogManager

logger = logging.getLogger(__name__)

_SWAP_REST_SECONDS = 0.05


class Lease(NamedTuple):
    """A granted lease."""

    note: LeaseNote
    path: str
    """The directory with the files."""
    partitions: tuple[LeasedPartition, ...]
    skipped: tuple[Skipped, ...]
    """Partitions without a leased segment, or with a part of them."""


class _Held(NamedTuple):
    """A lease of the book."""

    note: LeaseNote
    files: LeaseFiles
    deadline_seconds: float
    """Its end, by the monotonic clock."""


class LeaseBook:
    """The leases of a node."""

    def __init__(
        self,
        manager: LogManager,
        clock: Clock,
        guards: Mapping[str, DiskGuard],
        work: Work,
        file_removal: Exclusive,
        rest: Rest,
        new_id: Callable[[], str] = lambda: uuid4().hex,
    ) -> None:
        """`guards` are those of the data directories, by path."""
        self._manager = manager
        self._clock = clock
        self._guards = guards
        self._work = work
        self._file_removal = file_removal
        self._rest = rest
        self._new_id = new_id
        self._files = {
            flusher.directory.path: LeaseFiles(flusher.directory.filesystem, flusher.directory.path)
            for flusher in manager.flushers
        }
        self._leases: dict[str, _Held] = {}
        self._ending: set[str] = set()
        """Leases that end; they are in `_leases` until their names are gone."""
        self._granting: Counter[str] = Counter()
        """Grants under way, by principal."""

    def load(self) -> None:
        """Read the leases that a former process granted."""
        for files in self._files.values():
            try:
                notes = files.load()
            except OSError as error:
                logger.warning("leases in %s cannot be read: %s", files.path, error)
                continue
            now_ms, now_seconds = self._clock.now_ms(), self._clock.monotonic()
            for note in notes:
                deadline_seconds = now_seconds + seconds_left(note, now_ms)
                self._leases[note.lease_id] = _Held(note, files, deadline_seconds)

    def notes(self) -> list[LeaseNote]:
        """Return the leases, the oldest first."""
        return by_age(
            one.note for lease_id, one in self._leases.items() if not self._must_end(lease_id)
        )

    def _must_end(self, lease_id: str) -> bool:
        """Return whether the time of a lease is over, or it is being ended."""
        is_over = self._clock.monotonic() >= self._leases[lease_id].deadline_seconds
        return is_over or lease_id in self._ending

    def _counts(self, principal: str) -> LeaseCounts:
        """Return the numbers of leases; grants that wait for the lock count, too."""
        remains = sum(files.remain_count for files in self._files.values())
        own = sum(one.note.principal == principal for one in self._leases.values())
        return LeaseCounts(
            len(self._leases) + self._granting.total() + remains,
            own + self._granting[principal],
        )

    # --- Grant ---

    async def grant(self, wishes: Sequence[LeaseWish], seconds: int, principal: str) -> Lease:
        """Lease the sealed segments of offsets of one topic; raise `LeaseRefusedError`."""
        assert wishes, "the caller has checked the request"
        assert len({wish.partition.topic for wish in wishes}) == 1
        home = self._home_of(wishes)
        is_low = self._guards[home].state is not DiskState.OPEN
        require_possible(seconds, self._counts(principal), is_disk_low=is_low)
        self._granting[principal] += 1
        try:
            await self._wait_for_swaps(wishes)
            async with self._file_removal:
                return await self._linked(wishes, home, seconds, principal)
        finally:
            self._granting[principal] -= 1
            self._granting += Counter()  # without the zeros

    def _home_of(self, wishes: Sequence[LeaseWish]) -> str:
        """Return the data directory of the first log: links cannot leave their disk."""
        for wish in wishes:
            if wish.partition in self._manager.logs:
                return self._manager.home_of(wish.partition).path
        raise LeaseRefusedError(
            f"no log of topic {wishes[0].partition.topic} is on this broker",
            hint="Ask the broker that leads the partition.",
        )

    async def _wait_for_swaps(self, wishes: Sequence[LeaseWish]) -> None:
        """Wait until compaction exchanges no segments of these logs."""
        logs = [self._manager.logs.get(wish.partition) for wish in wishes]
        waited_seconds = 0.0
        while any(log is not None and log.is_swapping for log in logs):
            if waited_seconds >= LEASE_SWAP_SECONDS_MAX:
                raise LeaseUnavailableError(
                    "compaction exchanges segments of the topic", hint="Retry the request."
                )
            await self._rest(_SWAP_REST_SECONDS)
            waited_seconds += _SWAP_REST_SECONDS

    async def _linked(
        self, wishes: Sequence[LeaseWish], home: str, seconds: int, principal: str
    ) -> Lease:
        """Link the files and return the lease; the lock over file removals is held."""
        picks, skipped = self._picks(wishes, home)
        now_ms = self._clock.now_ms()
        note = LeaseNote(
            lease_id=self._new_id(),
            topic=wishes[0].partition.topic,
            principal=principal,
            created_ms=now_ms,
            expires_ms=now_ms + seconds * 1_000,
            ends=tuple((pick.log.topic_partition.partition, pick.end_offset) for pick in picks),
            segment_count=sum(len(pick.segments) for pick in picks),
            size_bytes=sum(span.size_bytes for pick in picks for span in pick.spans),
        )
        files = self._files[home]
        if not picks:
            return Lease(note, f"{files.path}/{note.lease_id}", (), tuple(skipped))
        try:
            partitions = await self._work(partial(link, files, note, picks))
        except OSError as error:
            raise LeaseUnavailableError(
                f"the segments cannot be linked: {error}", hint="Read through Fetch."
            ) from error
        self._leases[note.lease_id] = _Held(note, files, self._clock.monotonic() + seconds)
        return Lease(note, f"{files.path}/{note.lease_id}", partitions, tuple(skipped))

    def _picks(self, wishes: Sequence[LeaseWish], home: str) -> tuple[list[Pick], list[Skipped]]:
        """Return the segments to link, and the partitions without one; owner's thread."""
        picks: list[Pick] = []
        skipped: list[Skipped] = []
        left = LEASE_SEGMENTS_MAX
        for wish in wishes:
            number, log = wish.partition.partition, self._manager.logs.get(wish.partition)
            code = self._obstacle(wish, home) if left else SkippedCode.TOO_MANY
            if log is None or code is not None:
                skipped.append(Skipped(number, code or SkippedCode.NOT_SERVED))
                continue
            segments = {segment.base_offset: segment for segment in log.segments}
            spans = spans_of(list(segments), [one.size for one in segments.values()])
            chosen = leased_spans(spans, wish, log.log_start_offset)
            if not chosen:
                skipped.append(Skipped(number, SkippedCode.NOTHING_SEALED))
                continue
            if len(chosen) > left:
                chosen = chosen[:left]
                skipped.append(Skipped(number, SkippedCode.TOO_MANY))
            left -= len(chosen)
            found = [segments[span.base_offset] for span in chosen]
            picks.append(Pick(log, found, chosen, wish.stable_offset()))
        return picks, skipped

    def _obstacle(self, wish: LeaseWish, home: str) -> SkippedCode | None:
        """Return the reason why no segment of this log can be linked now."""
        log = self._manager.logs.get(wish.partition)
        if log is None or log.problem is not None:
            return SkippedCode.NOT_SERVED
        if wish.topic_id is not None and log.topic_id not in (None, wish.topic_id):
            return SkippedCode.OTHER_TOPIC
        if log.is_swapping:
            return SkippedCode.COMPACTING
        if self._manager.home_of(wish.partition).path != home:
            return SkippedCode.OTHER_DIRECTORY
        return None

    # --- End ---

    async def release(self, lease_id: str) -> bool:
        """End a lease; return whether there was one; raise `StorageBusyError`."""
        found = self._leases.get(lease_id)
        if found is None:
            return False
        # It stays in the book until its name is gone: a cut meanwhile must wait for that.
        self._ending.add(lease_id)
        try:
            await self._work(partial(found.files.remove, lease_id))
        except OSError as error:
            raise StorageBusyError(
                f"lease {lease_id} cannot be ended: {error}", hint="Retry the request."
            ) from error
        self._leases.pop(lease_id, None)
        self._ending.discard(lease_id)
        return True

    async def break_for(self, cuts: Mapping[TopicPartition, int]) -> None:
        """End the leases with records at or above these offsets, before the records change."""
        for note, _, _ in list(self._leases.values()):
            if any(note.ends_after(partition, offset) for partition, offset in cuts.items()):
                logger.warning("lease %s of %s ends: its log changes", note.lease_id, note.topic)
                await self.release(note.lease_id)

    async def break_all(self, partitions: Iterable[TopicPartition]) -> None:
        """End all leases of these partitions: their logs are deleted or replaced."""
        if self._leases:
            await self.break_for(dict.fromkeys(partitions, -1))

    async def keep(self) -> None:
        """End leases whose time is over, and the oldest one that keeps space of a low disk."""
        for lease_id in list(self._leases):
            if lease_id in self._leases and self._must_end(lease_id):
                await self._try_release(lease_id)
        for path, files in self._files.items():
            if files.has_remains:
                await self._work(files.clean)
            if self._guards[path].state is not DiskState.OPEN:
                await self._break_oldest(files)

    async def _try_release(self, lease_id: str) -> None:
        """End a lease; after a failure the next `keep` repeats it."""
        try:
            await self.release(lease_id)
        except StorageError as error:
            logger.warning("%s", error)

    async def _break_oldest(self, files: LeaseFiles) -> None:
        here = [note for note in self.notes() if self._leases[note.lease_id].files is files]
        for note in here:
            # Names of a file in a lease that is being ended count as those of the log: the next
            # round counts them.
            sharing = [one.lease_id for one in here if one.topic == note.topic]
            held_bytes = await self._work(partial(files.held_bytes, note.lease_id, sharing))
            if held_bytes:
                logger.warning(
                    "lease %s of %s ends because the disk is low: it kept %d bytes of deleted "
                    "segments; its job reads through Fetch",
                    note.lease_id,
                    note.topic,
                    held_bytes,
                )
                await self._try_release(note.lease_id)
                return

    def validate(self) -> None:
        """Assert the invariants; tests call it after every event."""
        assert self._ending <= self._leases.keys()
        for lease_id, (note, files, _) in self._leases.items():
            assert note.lease_id == lease_id
            assert files in self._files.values()
            assert note.created_ms < note.expires_ms
