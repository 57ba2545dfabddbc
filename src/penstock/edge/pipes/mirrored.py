"""`Mirrored`: checks and copies of the partitions of one parent's leader.

It carries out the actions of `down_pipe`: it compares histories, fetches, appends, and cuts logs.
Guarantees: one fetch is under way, all partitions of the leader share it, and the first partition
of a request is another one each time, so that a busy partition does not hold up the others.

It does not choose topics or leaders and retries nothing: `edge.pipes.pipe_runner` does.
"""

import logging
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from penstock.client.transport.addresses import Address
from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition
from penstock.edge.pipes.common_end import CommonEnd
from penstock.edge.pipes.down_pipe import (
    Action,
    Append,
    Compare,
    Cut,
    DownPipe,
    LookAgain,
    OwnLog,
    ParentLog,
    Phase,
    Problem,
    Refresh,
    Restart,
    asked_epoch,
)
from penstock.edge.pipes.parent_calls import whole_batches
from penstock.edge.pipes.pipe_meter import PipeMeter
from penstock.edge.pipes.ports import FetchAt, Fetched, FetchLimits, Mirrors, Parent
from penstock.records.batch import LOG_OVERHEAD_BYTES, read_header

logger = logging.getLogger(__name__)

CHECKS_AT_ONCE: Final = 500
"""Partitions in one round of checks: their answers are some tens of kilobytes."""


class MirroredPartition:
    """One partition of a pipe."""

    __slots__ = ("at", "leader", "leader_epoch", "pipe", "topic_id")

    def __init__(self, at: TopicPartition, topic_id: UUID, pipe: DownPipe) -> None:
        self.at = at
        self.topic_id = topic_id
        """The mirror's, which is that of the topic that was copied first."""
        self.pipe = pipe
        self.leader: Address | None = None
        self.leader_epoch = -1


class Mirrored:
    """The partitions of one leader, in one connection."""

    def __init__(
        self,
        name: str,
        parent: Parent,
        leader: Address,
        partitions: Sequence[MirroredPartition],
        mirrors: Mirrors,
        meter: PipeMeter,
    ) -> None:
        self._name = name
        self._parent = parent
        self._leader = leader
        self.partitions = list(partitions)
        self._mirrors = mirrors
        self._meter = meter
        self._turn = 0
        self._refreshed: set[str] = set()

    def in_phase(self, phase: Phase) -> list[MirroredPartition]:
        """Return the partitions in a phase."""
        return [one for one in self.partitions if one.pipe.phase is phase]

    # --- Checks ---

    async def check(self) -> None:
        """Compare all partitions that must be compared before they are copied."""
        while waiting := self.in_phase(Phase.CHECKING)[:CHECKS_AT_ONCE]:
            logs: dict[TopicPartition, OwnLog] = {}
            self._refreshed.clear()
            is_verified = {one.at.topic: self._is_verified(one.at.topic) for one in waiting}
            for one in waiting:
                one.pipe.is_verifying = is_verified[one.at.topic]
                log = self._mirrors.log(one.at)
                if log is None:
                    one.pipe.lost()
                else:
                    logs[one.at] = log
            found = await self._parent.log_ends(
                {
                    one.at: (one.topic_id, one.leader_epoch, asked_epoch(log, one.leader_epoch))
                    for one in waiting
                    if (log := logs.get(one.at)) is not None
                }
            )
            for one in waiting:
                # A snapshot has replaced all logs of its topic: they are compared again.
                if one.at in logs and one.at.topic not in self._refreshed:
                    await self._checked(one, found.get(one.at), logs[one.at])

    def _is_verified(self, name: str) -> bool:
        """Whether batches are compared; batches of compaction or of a snapshot are not."""
        topic = self._mirrors.topic(name)
        return topic is not None and (topic.is_restoring or not topic.is_compacted)

    async def _checked(self, one: MirroredPartition, parent: ParentLog | None, own: OwnLog) -> None:
        if parent is None:
            one.pipe.lost(
                Problem("the parent does not have this topic any more", "delete it, or promote it")
            )
            return
        shared = self._mirrors.epoch_end(one.at, parent.epoch_end.epoch)
        unproven_end = one.pipe.unproven_end
        action = one.pipe.checked(parent, own, shared)
        if one.pipe.unproven_end > unproven_end:
            logger.info(
                "pipe %s: the parent has deleted all records of %s below offset %d; they are kept "
                "here, and cannot be compared",
                self._name,
                one.at,
                one.pipe.unproven_end,
            )
        if isinstance(action, Compare):
            common = await self._common_end(one, parent, own)
            action = one.pipe.compared(common, own)
        await self._cut(one, action, own)

    async def _common_end(self, one: MirroredPartition, parent: ParentLog, own: OwnLog) -> int:
        search = CommonEnd(max(own.start_offset, parent.start_offset), own.end_offset)
        while (probe := search.probe) is not None:
            place = FetchAt(one.topic_id, one.leader_epoch, probe, -1)
            theirs = await self._parent.batch_at(self._leader, one.at, place)
            search.compared(await self._mirrors.batch_at(one.at, probe), theirs)
        return search.result

    async def _cut(self, one: MirroredPartition, action: Action, own: OwnLog) -> None:
        """Carry out a cut; the partition is compared again after it."""
        if isinstance(action, Refresh):
            await self._refresh(one, action.offset)
        if not isinstance(action, Cut | Restart):
            return
        is_restart = isinstance(action, Restart)
        if own.end_offset:
            logger.warning(
                "pipe %s: %s had offsets %d to %d, which the parent has not or has otherwise; it %s"
                " offset %d",
                self._name,
                one.at,
                own.start_offset,
                own.end_offset - 1,
                "begins anew at" if is_restart else "is cut at",
                action.offset,
            )
        try:
            await self._mirrors.cut(one.at, action.offset, is_restart=is_restart)
        except PenstockError as error:
            one.pipe.cut_failed(Problem(f"the log could not be cut: {error}", "see the log"))
            return
        one.pipe.cut()

    async def _refresh(self, one: MirroredPartition, offset: int) -> None:
        """Replace the topic by a snapshot; without one, wait and try again."""
        try:
            await self._mirrors.refresh(self._name, one.at, offset)
        except PenstockError as error:
            one.pipe.cut_failed(
                Problem(
                    f"gap: the parent has deleted records, and no snapshot replaces them: {error}",
                    error.hint or "build a snapshot at the parent: `penstock refresh build`",
                )
            )
            return
        self._refreshed.add(one.at.topic)
        one.pipe.cut()

    # --- Copies ---

    async def copy(self, limits: FetchLimits) -> tuple[int, str]:
        """Fetch and append once; return the bytes, and the reason to look at the parent again."""
        ready = self.in_phase(Phase.COPYING)
        self._turn += 1
        first = self._turn % len(ready)
        places: dict[TopicPartition, FetchAt] = {}
        sent: dict[TopicPartition, tuple[MirroredPartition, int]] = {}
        for one in ready[first:] + ready[:first]:
            log = self._mirrors.log(one.at)
            if log is None:
                one.pipe.lost()
                continue
            places[one.at] = FetchAt(
                one.topic_id, one.leader_epoch, log.end_offset, log.latest_epoch
            )
            sent[one.at] = one, one.pipe.sent()
        if not places:
            return 0, "no log is served"
        answers = await self._parent.fetch(self._leader, places, limits)
        size, look_again = 0, ""
        for at, answer in answers.items():
            if at in sent:
                copied, reason = await self._answered(*sent[at], answer)
                size, look_again = size + copied, look_again or reason
        return size, look_again

    async def _answered(
        self, one: MirroredPartition, generation: int, answer: Fetched
    ) -> tuple[int, str]:
        log = self._mirrors.log(one.at)
        if log is None:
            one.pipe.lost()
            return 0, "a log is not served"
        action = one.pipe.answered(
            generation,
            answer.code,
            log,
            high_watermark=answer.high_watermark,
            start_offset=answer.start_offset,
            has_diverged=answer.has_diverged,
        )
        if isinstance(action, LookAgain):
            return 0, f"{one.at}: {action.reason}"
        records = whole_batches(answer.records) if isinstance(action, Append) else memoryview(b"")
        if not records:
            return 0, ""
        try:
            await self._mirrors.append(one.at, records, answer.start_offset)
        except PenstockError as error:
            one.pipe.lost(Problem(f"records of the parent cannot be appended: {error}", error.hint))
            return 0, f"{one.at}: {error}"
        self._meter.copied(*_figures(records))
        return len(records), ""


def _figures(records: memoryview) -> tuple[int, int, int]:
    """Return the number of records, their bytes, and the newest timestamp, from the headers."""
    count, position, newest_ms = 0, 0, -1
    while position < len(records):
        header = read_header(records, position)
        count += header.record_count
        newest_ms = max(newest_ms, header.max_timestamp_ms)
        position += header.batch_length + LOG_OVERHEAD_BYTES
    return count, len(records), newest_ms
