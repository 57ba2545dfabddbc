"""`PipeRunner`: one down pipe: connects to the parent, finds topics, and copies them until stopped.

A round begins with a connection. It lists the parent's topics, creates missing mirrors, compares
each partition, and copies, with one task for each leader of the parent. A round ends when the
parent's topics or leaders have changed, when a call fails, or when the pipe is paused; then the
next round begins, after a pause if a call failed (`back_off`).

Guarantees: every wait has a bound, and no error ends the pipe: it is reported in `status`, and the
next round begins. Nothing is copied while the disk has no room (`pipe_health.is_held`).

It does not compare or append: `mirrored` does. It knows Kafka's protocol only through `ports`.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Final
from uuid import UUID

from penstock.client.transport.addresses import Address
from penstock.core.clock import Clock
from penstock.core.errors import AuthenticationError, BrokerAnswerError, PenstockError
from penstock.core.types import TopicPartition
from penstock.edge.pipes.back_off import BackOff
from penstock.edge.pipes.down_pipe import DownPipe, Phase, Problem, refused
from penstock.edge.pipes.group_copies import copy_group
from penstock.edge.pipes.mirrored import Mirrored, MirroredPartition
from penstock.edge.pipes.pipe_health import (
    Facts,
    is_held,
    judge,
    seconds_to_catch_up,
    seconds_until_full,
)
from penstock.edge.pipes.pipe_meter import Pacer, PipeMeter
from penstock.edge.pipes.pipe_status import PartitionStatus, PipeOptions, PipeStatus, matcher
from penstock.edge.pipes.ports import FetchLimits, Mirrors, MirrorTopic, Parent, ParentTopic

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 30.0
"""Between two looks for new topics, partitions and leaders of the parent, 20 % more or less."""
LOCAL_LOOK_SECONDS: Final = 1.0
"""Between two looks at the mirrors of this broker."""
GROUP_SECONDS: Final = 5.0
"""Between two copies of committed offsets."""
WAITING_SECONDS_MAX: Final = 2.0
"""A partition that waits is compared again after this time, although others are copied."""
HELD_SECONDS: Final = 1.0
"""Between two looks at the disk while it has no room."""
PARTITIONS_MAX: Final = 20_000
"""Partitions of one pipe: some tens of megabytes of memory."""

View = Mapping[str, ParentTopic]


class PipeRunner:
    """One down pipe."""

    def __init__(
        self,
        options: PipeOptions,
        open_parent: Callable[[], Awaitable[Parent]],
        mirrors: Mirrors,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        self.options = options
        self._open_parent = open_parent
        self._mirrors = mirrors
        self._clock = clock
        self._random = random
        self._back_off = BackOff()
        self._pacer = Pacer(options.bytes_per_second_max)
        self._meter = PipeMeter(clock.monotonic())
        self._is_topic = matcher(options.topics)
        self._is_group = matcher(options.groups)
        self._partitions: dict[TopicPartition, MirroredPartition] = {}
        self._problems: dict[str, Problem] = {}
        """By topic: it cannot be mirrored."""
        self._promoted: tuple[str, ...] = ()
        self._busy_groups: set[str] = set()
        self._failure = "not connected yet"
        self._refusal: Problem | None = None
        """Set while the parent refuses the login, or the access."""
        self._has_looked = False
        self._is_paused = False
        self._changed = asyncio.Event()
        """Set by `pause`, `resume` and `look_again`: end the round, or the pause before one."""
        self._ended: tuple[int, int, int] = (0, 0, 0)
        """Gaps, skipped offsets and removed offsets of partitions that are not mirrored now."""

    # --- Operators ---

    def pause(self) -> None:
        """Copy nothing until `resume`."""
        self._is_paused = True
        self._changed.set()

    def resume(self) -> None:
        """Copy again."""
        self._is_paused = False
        self._changed.set()

    def look_again(self) -> None:
        """Begin another round: topics have changed here."""
        self._changed.set()

    # --- The task ---

    async def run(self) -> None:
        """Copy until cancelled."""
        while True:
            self._changed.clear()
            if self._is_paused:
                await self._changed.wait()
                continue
            parent: Parent | None = None
            try:
                parent = await self._open_parent()
                failure = await self._round(parent)
            except PenstockError as error:
                failure = self._noted(error)
            except Exception as error:
                # A defect, or an answer that no broker sends: the pipe must not end with it.
                logger.exception("pipe %s failed", self.options.name)
                failure = f"defect: {error}"
            finally:
                if parent is not None:
                    await parent.close()
            if failure:
                await self._rest(failure)

    async def _rest(self, failure: str) -> None:
        """Wait after a failed round."""
        if failure != self._failure:
            logger.info("pipe %s: %s", self.options.name, failure)
        self._failure = failure
        self._meter.lost(self._clock.monotonic())
        for one in self._partitions.values():
            one.pipe.lost(one.pipe.problem)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._back_off.next_pause(self._random())):
                await self._changed.wait()

    async def _round(self, parent: Parent) -> str:
        """Copy until something changes; return the failure, or an empty text."""
        view = await self._wanted(parent)
        await self._settle(parent, view)
        self._has_looked = True
        by_leader: dict[Address, list[MirroredPartition]] = {}
        for one in self._partitions.values():
            one.pipe.connected()
            if one.leader is None:
                one.pipe.lost()
            else:
                by_leader.setdefault(one.leader, []).append(one)
        works: list[Coroutine[None, None, str]] = [
            self._changed_here(),
            self._changed_there(parent, view),
        ]
        works += [
            self._copy(Mirrored(self.options.name, parent, to, some, self._mirrors, self._meter))
            for to, some in by_leader.items()
        ]
        if self.options.groups:
            works.append(self._copy_groups(parent))
        if not by_leader:
            self._failure = ""
            self._back_off.reset()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._guarded(work)) for work in works]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
        return next((found for task in done if (found := task.result())), "")

    async def _guarded(self, work: Coroutine[None, None, str]) -> str:
        """Return the failure of work instead of raising it: the round ends in order."""
        try:
            return await work
        except PenstockError as error:
            return self._noted(error)

    def _noted(self, error: PenstockError) -> str:
        """Return the text of an error; note whether the parent refuses the pipe."""
        is_refused = isinstance(error, AuthenticationError) or (
            isinstance(error, BrokerAnswerError) and "AUTHORIZATION_FAILED" in error.name
        )
        self._refusal = refused(str(error)) if is_refused else None
        return str(error) or type(error).__name__

    async def _changed_here(self) -> str:
        """Return when an operator has changed the pipe, or deleted or changed a mirror."""
        topics = {at.topic: one.topic_id for at, one in self._partitions.items()}
        while all(self._is_ours(name, topic_id) for name, topic_id in topics.items()):
            with suppress(TimeoutError):
                async with asyncio.timeout(LOCAL_LOOK_SECONDS):
                    await self._changed.wait()
                    return ""
        return ""

    def _is_ours(self, name: str, topic_id: UUID) -> bool:
        own = self._mirrors.topic(name)
        return own is not None and own.pipe == self.options.name and own.topic_id == topic_id

    async def _changed_there(self, parent: Parent, view: View) -> str:
        """Return when the parent's topics, partitions or leaders have changed."""
        while True:
            await asyncio.sleep(LOOK_SECONDS * (0.8 + 0.4 * self._random()))
            if await self._wanted(parent) != view:
                return ""

    async def _wanted(self, parent: Parent) -> View:
        names = self.options.topics
        # A cluster may have thousands of topics: a list of all is needed only for a pattern.
        found = await parent.topics(None if any("*" in one for one in names) else names)
        self._meter.contact_at = self._clock.monotonic()
        return {name: topic for name, topic in found.items() if self._is_topic(name)}

    # --- Topics ---

    async def _settle(self, parent: Parent, view: View) -> None:
        """Create and extend mirrors, and list the partitions to copy."""
        self._problems = {}
        promoted: list[str] = []
        before, self._partitions = self._partitions, {}
        for name, topic in view.items():
            own = self._mirrors.topic(name)
            if own is not None and own.pipe != self.options.name:
                if own.topic_id == topic.topic_id and not own.pipe:
                    promoted.append(name)
                else:
                    self._problems[name] = _not_ours(name, own)
                continue
            try:
                own = await self._mirror(parent, topic)
            except PenstockError as error:
                self._problems[name] = Problem(f"{name} cannot be mirrored: {error}", error.hint)
                continue
            self._list(topic, own, before)
        for name in self._mirrors.names(self.options.name):
            if name not in view and self._is_topic(name):
                self._problems[name] = Problem(
                    f"the parent does not have the topic {name} any more",
                    f"promote it (`penstock pipe promote`) or delete it: {name}",
                )
        self._promoted = tuple(promoted)
        gone = [one.pipe for at, one in before.items() if at not in self._partitions]
        gaps, skipped, removed = self._ended
        self._ended = (
            gaps + sum(one.gaps for one in gone),
            skipped + sum(one.gap_records for one in gone),
            removed + sum(one.cut_records for one in gone),
        )

    async def _mirror(self, parent: Parent, topic: ParentTopic) -> MirrorTopic:
        """Create the mirror of a topic, or extend it."""
        name = topic.name
        if topic.topic_id is None:
            raise PenstockError("the parent has no topic ids", hint="it needs Apache Kafka 3.1")
        if len(self._partitions) + len(topic.partitions) > PARTITIONS_MAX:
            # Before it is created: the parent has any number of topics.
            raise PenstockError(
                f"the pipe has more than {PARTITIONS_MAX} partitions",
                hint="name fewer topics, or use several pipes",
            )
        own = self._mirrors.topic(name)
        if own is None:
            settings = (await parent.settings([name]))[name]
            await self._mirrors.create(topic, settings, self.options.name)
            logger.info("pipe %s: %s is a mirror now", self.options.name, name)
        elif own.topic_id == topic.topic_id:
            if own.partition_count < len(topic.partitions):
                await self._mirrors.grow(name, len(topic.partitions))
            await self._mirrors.raise_epochs(name, [one.leader_epoch for one in topic.partitions])
        found = self._mirrors.topic(name)
        assert found is not None, name
        return found

    def _list(
        self,
        topic: ParentTopic,
        own: MirrorTopic,
        before: Mapping[TopicPartition, MirroredPartition],
    ) -> None:
        for index, partition in enumerate(topic.partitions):
            at = TopicPartition(topic.name, index)
            one = before.get(at)
            if one is None or one.topic_id != own.topic_id or one.pipe.phase is Phase.STOPPED:
                one = self._new(at, own.topic_id, own)
            one.leader, one.leader_epoch = partition
            self._partitions[at] = one

    def _new(self, at: TopicPartition, topic_id: UUID, own: MirrorTopic) -> MirroredPartition:
        pipe = DownPipe(topic_id, self.options.on_gap, is_verifying=own.is_restoring)
        return MirroredPartition(at, topic_id, pipe)

    # --- Copies ---

    async def _copy(self, copies: Mirrored) -> str:
        """Copy from one leader; return the reason for another look at the parent."""
        options = self.options
        size_max = self._pacer.request_bytes(options.batch_bytes_max)
        limits = FetchLimits(options.poll_interval_ms, size_max)
        ends_at = math.inf
        while True:
            if is_held(self._mirrors.room().room, options.priority):
                await asyncio.sleep(HELD_SECONDS)
                continue
            await copies.check()
            await self._note_restored()
            is_copying = bool(copies.in_phase(Phase.COPYING))
            if waiting := copies.in_phase(Phase.WAITING):
                ends_at = min(ends_at, self._clock.monotonic() + WAITING_SECONDS_MAX)
                if not is_copying or self._clock.monotonic() >= ends_at:
                    problem = waiting[0].pipe.problem
                    return problem.reason if problem else f"{waiting[0].at} waits for its leader"
            if not is_copying:
                await asyncio.sleep(options.poll_interval_ms / 1000)
                continue
            size, look_again = await copies.copy(limits)
            if look_again:
                return look_again
            self._failure, self._refusal = "", None
            self._back_off.reset()
            now = self._clock.monotonic()
            self._meter.answered(now, self._lag_records())
            pause = self._pacer.pause_seconds(now, size)
            if pause > 0:
                await asyncio.sleep(pause)

    async def _note_restored(self) -> None:
        """End the restoring of topics whose partitions all agree with the parent."""
        waiting = {one.at.topic for one in self._partitions.values() if not _agrees(one)}
        for name in {at.topic for at in self._partitions} - waiting:
            own = self._mirrors.topic(name)
            if own is not None and own.is_restoring:
                await self._mirrors.restored(name)

    def _lag_records(self) -> int:
        return sum(_lag(one, self._mirrors) for one in self._partitions.values())

    async def _copy_groups(self, parent: Parent) -> str:
        """Copy the committed offsets of groups that are empty here."""
        while True:
            for group in sorted(filter(self._is_group, await parent.groups())):
                is_refused = await copy_group(group, parent, self._mirrors, self._end_of)
                if is_refused:
                    self._busy_groups.add(group)
                elif is_refused is not None:
                    self._busy_groups.discard(group)
            await asyncio.sleep(GROUP_SECONDS)

    def _end_of(self, at: TopicPartition) -> int | None:
        log = self._mirrors.log(at) if at in self._partitions else None
        return None if log is None else log.end_offset

    # --- Status ---

    def status(self) -> PipeStatus:
        """Return the state of this moment."""
        now, meter = self._clock.monotonic(), self._meter
        partitions = tuple(self._shown(one) for one in self._partitions.values())
        lag_records = sum(one.lag_records for one in partitions)
        pipes = [one.pipe for one in self._partitions.values()]
        gaps, skipped, removed = self._ended
        disk = self._mirrors.room()
        bytes_per_second = meter.bytes_per_second(now)
        is_in_step = (
            self._has_looked
            and not self._failure
            and lag_records == 0
            and not self._problems
            and all(one.phase is Phase.COPYING for one in pipes)
        )
        return PipeStatus(
            options=self.options,
            health=judge(self._facts(now, lag_records)),
            is_paused=self._is_paused,
            is_in_step=is_in_step and not self._is_paused,
            partitions=partitions,
            promoted=self._promoted,
            busy_groups=tuple(sorted(self._busy_groups)),
            lag_records=lag_records,
            records=meter.records,
            size_bytes=meter.size_bytes,
            records_per_second=meter.records_per_second(now),
            bytes_per_second=bytes_per_second,
            seconds_to_catch_up=seconds_to_catch_up(lag_records, meter.records_per_second(now)),
            seconds_until_full=seconds_until_full(disk.left_bytes, bytes_per_second),
            silent_seconds=max(0.0, now - meter.contact_at),
            gaps=gaps + sum(one.gaps for one in pipes),
            gap_records=skipped + sum(one.gap_records for one in pipes),
            cut_records=removed + sum(one.cut_records for one in pipes),
        )

    def _facts(self, now: float, lag_records: int) -> Facts:
        meter = self._meter
        skew_ms = meter.newest_timestamp_ms - self._clock.now_ms()
        of_partitions = (one.pipe.problem for one in self._partitions.values())
        return Facts(
            now=now,
            silent_since=meter.contact_at,
            poll_seconds=self.options.poll_interval_ms / 1000,
            is_retrying=bool(self._failure),
            problems=list(filter(None, (self._refusal, *self._problems.values(), *of_partitions))),
            failure=self._failure,
            behind_since=meter.behind_since if lag_records else None,
            is_catching_up=meter.is_catching_up,
            lag_records=lag_records,
            records_per_second=meter.records_per_second(now),
            room=self._mirrors.room().room,
            is_paused=self._is_paused,
            clock_skew_seconds=skew_ms / 1000,
        )

    def _shown(self, one: MirroredPartition) -> PartitionStatus:
        log, problem = self._mirrors.log(one.at), one.pipe.problem
        return PartitionStatus(
            one.at.topic,
            one.at.partition,
            one.pipe.phase,
            log.end_offset if log is not None else -1,
            _lag(one, self._mirrors),
            problem.reason if problem else "",
            problem.remedy if problem else "",
        )


def _agrees(one: MirroredPartition) -> bool:
    return one.pipe.phase is Phase.COPYING


def _lag(one: MirroredPartition, mirrors: Mirrors) -> int:
    log = mirrors.log(one.at)
    return 0 if log is None else max(0, one.pipe.high_watermark - log.end_offset)


def _not_ours(name: str, own: MirrorTopic) -> Problem:
    writer = f"the pipe {own.pipe} writes it" if own.pipe else "clients write it"
    return Problem(
        f"the topic {name} exists on this broker, and {writer}",
        "delete it here, or leave it out of the topics of the pipe",
    )
