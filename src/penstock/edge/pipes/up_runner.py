"""`UpRunner`: one up pipe: sends the records of this broker's topics to a parent until stopped.

A round begins with a connection. It creates missing topics at the parent, becomes the only sender
of the site, reads the positions, compares them with the logs here, and sends one transaction after
another. A round ends when topics have changed here, when a call fails, or when the pipe is paused;
then the next round begins, after a pause if a call failed (`back_off`). So each failure is handled
as a restart is: the position at the parent decides.

Guarantees: every wait has a bound, and no error ends the pipe. A broker that another sender of the
same site has fenced sends nothing until an operator resumes it: two machines do not fence each
other in turns. A partition that the parent refuses does not stop the others.

It knows Kafka's protocol only through `up_ports`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Final, Literal

from penstock.core.clock import Clock
from penstock.core.errors import AuthenticationError, BrokerAnswerError, ClientError, PenstockError
from penstock.core.types import TopicPartition
from penstock.edge.pipes.back_off import BackOff
from penstock.edge.pipes.down_pipe import NO_OFFSET, Phase, Problem
from penstock.edge.pipes.finishing import finished
from penstock.edge.pipes.pipe_health import Room
from penstock.edge.pipes.pipe_meter import Pacer, PipeMeter
from penstock.edge.pipes.pipe_status import PipeOptions, PipeStatus, matcher
from penstock.edge.pipes.ports import CommittedOffset
from penstock.edge.pipes.site_batches import Outgoing
from penstock.edge.pipes.site_memory import SiteMemory
from penstock.edge.pipes.up_outbox import Outbox, SendSize, SentPartition
from penstock.edge.pipes.up_pipe import Compare, SentMark, UpPartition
from penstock.edge.pipes.up_ports import (
    Note,
    PartitionRefusedError,
    SiteFencedError,
    Sites,
    SiteTopic,
    Upstream,
)
from penstock.edge.pipes.up_status import DiskTrend, up_status
from penstock.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 15.0
"""Between two calls to a parent that gets no records, 20 % more or less."""
LOCAL_LOOK_SECONDS: Final = 1.0
"""Between two looks at the topics and the disk of this broker."""
RENEWAL_SECONDS: Final = 21_600.0
"""Positions are committed again after this time: clusters forget old ones."""
REFUSED_SECONDS: Final = 60.0
"""A partition that the parent refuses is tried again after this time."""
PARTITIONS_MAX: Final = 20_000

Start = Literal["earliest", "latest"]


class UpRunner:
    """One up pipe."""

    def __init__(
        self,
        options: PipeOptions,
        open_upstream: Callable[[], Awaitable[Upstream]],
        sites: Sites,
        note: Note,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        self.options = options
        self._open_upstream = open_upstream
        self._sites = sites
        self._memory = SiteMemory(options.name, note)
        self._clock = clock
        self._random = random
        self._back_off = BackOff()
        self._pacer = Pacer(options.bytes_per_second_max)
        self._size = SendSize(self._pacer.request_bytes(options.batch_bytes_max))
        self.meter = PipeMeter(clock.monotonic())
        self.disk = DiskTrend()
        self.is_topic = matcher(options.topics)
        self.partitions: dict[TopicPartition, SentPartition] = {}
        self.problems: dict[str, Problem] = {}
        """By topic: it cannot be sent."""
        self.failure = "not connected yet"
        self.refusal: Problem | None = None
        """Set while the parent refuses the login or the access, or another broker is the sender."""
        self.is_fenced = False
        self.has_looked = False
        self.is_paused = False
        self._resets: dict[TopicPartition, Start] = {}
        self._renew_at = clock.monotonic() + RENEWAL_SECONDS
        self._changed = asyncio.Event()
        """Set by operators: end the round, or the pause before one."""

    # --- Operators ---

    def pause(self) -> None:
        """Send nothing until `resume`."""
        self.is_paused = True
        self._changed.set()

    def resume(self) -> None:
        """Send again; also after another broker has sent as this site."""
        self.is_paused = self.is_fenced = False
        self.refusal = None
        self._changed.set()

    def look_again(self) -> None:
        """Begin another round: topics have changed here."""
        self._changed.set()

    def reset(self, topics: Collection[str], start: Start) -> list[str]:
        """Send these topics, or all, from the start or from the end of their logs."""
        chosen = [at for at in self.partitions if not topics or at.topic in topics]
        self._resets.update(dict.fromkeys(chosen, start))
        self.resume()
        return sorted({at.topic for at in chosen})

    def held_from(self, at: TopicPartition, topic: SiteTopic) -> int | None:
        """Return the offset from which retention must keep a log; None: it may delete all."""
        if not self.is_topic(at.topic):
            return None
        if self.options.is_dropping and self._sites.room().room is not Room.ENOUGH:
            return None
        one = self.partitions.get(at)
        return 0 if one is None or one.topic_id != topic.topic_id else one.pipe.held_from

    def status(self) -> PipeStatus:
        """Return the state of this moment."""
        return up_status(self, self._sites, self._clock)

    # --- The task ---

    async def run(self) -> None:
        """Send until cancelled."""
        await self._memory.load()
        while True:
            self._changed.clear()
            if self.is_paused or self.is_fenced:
                await self._changed.wait()
                continue
            parent: Upstream | None = None
            self._list()
            try:
                parent = await self._open_upstream()
                failure = await self._round(parent)
            except SiteFencedError as error:
                failure = self._fenced(error)
            except PenstockError as error:
                failure = self._refused(error)
            except Exception as error:
                # A defect, or an answer that no broker sends: the pipe must not end with it.
                logger.exception("pipe %s failed", self.options.name)
                failure = f"defect: {error}"
            finally:
                if parent is not None:
                    await parent.close()
                await self._memory.save(self.partitions.values())
            if failure:
                await self._rest(failure)

    async def _rest(self, failure: str) -> None:
        """Wait after a failed round."""
        if failure != self.failure:
            logger.info("pipe %s: %s", self.options.name, failure)
        self.failure = failure
        self.meter.lost(self._clock.monotonic())
        for one in self.partitions.values():
            one.pipe.lost(one.pipe.problem)
        await self._pause(self._back_off.next_pause(self._random()))

    async def _pause(self, seconds: float) -> bool:
        """Wait; return whether an operator has changed the pipe meanwhile."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        return self._changed.is_set()

    def _fenced(self, error: SiteFencedError) -> str:
        self.is_fenced = True
        self.refusal = Problem(
            f"{error}; nothing is sent from here",
            "give each broker a site of its own; if the other one does not return: "
            f"`penstock pipe resume {self.options.name}`",
        )
        return str(error)

    def _refused(self, error: PenstockError) -> str:
        """Return the text of an error; note whether the parent refuses the pipe."""
        is_refused = isinstance(error, AuthenticationError) or (
            isinstance(error, BrokerAnswerError) and "AUTHORIZATION_FAILED" in error.name
        )
        self.refusal = (
            Problem(
                f"the parent refuses: {error}",
                "allow WRITE on the topics, WRITE on the transactional id "
                f"pipe.{self.options.site}.* and READ on the group pipe.{self.options.site} to the "
                "pipe's user at the parent",
            )
            if is_refused
            else None
        )
        return str(error) or type(error).__name__

    # --- A round ---

    async def _round(self, parent: Upstream) -> str:
        """Send until something changes; return the failure, or an empty text."""
        topics = self._topics()
        await self._settle(parent, topics)
        await parent.begin()
        positions = await parent.positions()
        for one in self.partitions.values():
            if one.at.topic not in self.problems:
                await self._resume(one, positions.get(one.at))
        applied = self._apply_resets()
        await self._commit_positions(parent)
        self._resets = {at: to for at, to in self._resets.items() if applied.get(at) != to}
        self._contacted()
        self.has_looked = True
        outbox = Outbox(list(self.partitions.values()), self._sites, self._size)
        look_at, local_look_at = self._next_look(), 0.0
        while not self._changed.is_set():
            now = self._clock.monotonic()
            if now >= local_look_at:
                local_look_at = now + LOCAL_LOOK_SECONDS
                if self._topics() != topics:
                    return ""
                await self._watch_disk(now)
            if now >= self._renew_at:
                await self._commit_positions(parent)
            if now >= look_at:
                look_at = self._next_look()
                if (failure := await self._look(parent, topics)) is not None:
                    return failure
            parts = await outbox.next_parts(now)
            if parts:
                await self._send(parent, parts, outbox)
                look_at = look_at if self.problems else self._next_look()
                continue
            self.meter.answered(self.meter.contact_at, self._lag_records())
            await self._memory.save(self.partitions.values())
            pause = min(self.options.poll_interval_ms / 1000, LOCAL_LOOK_SECONDS)
            await self._pause(pause)
        return ""

    async def _look(self, parent: Upstream, topics: Mapping[str, SiteTopic]) -> str | None:
        """Return the failure, or an empty text, if topics have changed at the parent."""
        names = {at.topic for at in self.partitions}
        counts = await parent.partition_counts(names)
        self._contacted()
        for name in names:
            count = counts.get(name, 0)
            if name not in self.problems and not count:
                return "a topic was deleted at the parent"
            if name in self.problems and not 0 < count < topics[name].partition_count:
                return ""  # usable now, or another attempt to create it
        return None

    def _next_look(self) -> float:
        return self._clock.monotonic() + LOOK_SECONDS * (0.8 + 0.4 * self._random())

    def _contacted(self) -> None:
        self.failure, self.refusal = "", None
        self._back_off.reset()
        self.meter.answered(self._clock.monotonic(), self._lag_records())

    def _topics(self) -> dict[str, SiteTopic]:
        return {name: one for name, one in self._sites.topics().items() if self.is_topic(name)}

    def _list(self) -> None:
        """List the partitions to send, also while the parent does not answer."""
        self.problems = {}
        before, self.partitions = self.partitions, {}
        for name, topic in self._topics().items():
            if len(self.partitions) + topic.partition_count > PARTITIONS_MAX:
                self.problems[name] = Problem(
                    f"the pipe has more than {PARTITIONS_MAX} partitions",
                    "name fewer topics, or use several pipes",
                )
                continue
            for index in range(topic.partition_count):
                at = TopicPartition(name, index)
                known = before.get(at)
                if known is None or known.topic_id != topic.topic_id:
                    known = self._new(at, topic)
                self.partitions[at] = known

    def _new(self, at: TopicPartition, topic: SiteTopic) -> SentPartition:
        noted = self._memory.at(at, topic.topic_id)
        pipe = UpPartition(
            self.options.on_gap,
            is_dropping=self.options.is_dropping,
            is_verifying=not topic.is_compacted,
            noted=noted.offset if noted is not None else NO_OFFSET,
        )
        return SentPartition(at, topic.topic_id, pipe)

    async def _settle(self, parent: Upstream, topics: Mapping[str, SiteTopic]) -> None:
        """Create missing topics at the parent, and check the others."""
        counts = await parent.partition_counts(topics)
        self.meter.contact_at = self._clock.monotonic()
        for name, topic in topics.items():
            problem = await self._unusable(parent, name, topic, counts.get(name, 0))
            if problem is not None:
                self.problems[name] = problem
        for one in self.partitions.values():
            if one.at.topic in self.problems:
                one.pipe.lost(self.problems[one.at.topic])

    async def _unusable(
        self, parent: Upstream, name: str, topic: SiteTopic, count: int
    ) -> Problem | None:
        """Return why a topic of the parent cannot get the records; create it if it is missing."""
        if count and count < topic.partition_count:
            return Problem(
                f"the topic {name} has {topic.partition_count} partitions here and {count} at the "
                "parent",
                f"add partitions at the parent: `penstock topic alter {name}`",
            )
        if not count:
            try:
                await parent.create(name, topic.partition_count)
            except PenstockError as error:
                return Problem(
                    f"the parent has no topic {name}, and it could not be created: {error}",
                    "create the topic at the parent, or allow CREATE to the pipe's user",
                )
            logger.info("pipe %s: created %s at the parent", self.options.name, name)
        return None

    async def _resume(self, one: SentPartition, committed: CommittedOffset | None) -> None:
        """Compare the position of one partition with its log."""
        own = self._sites.log(one.at)
        if own is None:
            one.pipe.lost()
            return
        found = self._memory.position(one, committed)
        action = one.pipe.resumed(found, own)
        if one.pipe.is_renewed:
            logger.warning(
                "pipe %s: the parent has the position of another topic %s, which was deleted here "
                "or is of another broker; the topic is sent from its start",
                self.options.name,
                one.at,
            )
        if isinstance(action, Compare):
            one.pipe.compared(await self._sites.batch_at(one.at, action.offset))
        one.mark = None if found is None or one.pipe.is_renewed else found.mark
        if found is not None and one.pipe.position != found.offset:
            one.mark, one.is_uncommitted = SentMark.without_batch(one.topic_id), True

    def _apply_resets(self) -> Mapping[TopicPartition, Start]:
        """Use the positions that an operator has chosen; return them."""
        for at, start in list(self._resets.items()):
            one, own = self.partitions.get(at), self._sites.log(at)
            if one is not None and own is not None:
                is_first = start == "earliest"
                one.pipe.choose(own.start_offset if is_first else own.stable_offset)
                one.mark, one.is_uncommitted = SentMark.without_batch(one.topic_id), True
        return dict(self._resets)

    async def _commit_positions(self, parent: Upstream) -> None:
        """Commit positions that the parent does not have, or may forget."""
        now = self._clock.monotonic()
        is_renewing = now >= self._renew_at
        known = {
            at: Outgoing((), 0, one.pipe.position, one.mark)
            for at, one in self.partitions.items()
            if one.pipe.phase is Phase.COPYING
            and one.mark is not None
            and (one.is_uncommitted or is_renewing)
        }
        if known:
            await parent.transact(known)
        for at in known:
            self.partitions[at].is_uncommitted = False
        if is_renewing:
            self._renew_at = now + RENEWAL_SECONDS

    # --- Transactions ---

    async def _send(
        self, parent: Upstream, parts: Mapping[TopicPartition, Outgoing], outbox: Outbox
    ) -> None:
        try:
            await finished(parent.transact(parts))
        except PartitionRefusedError as error:
            self._partition_refused(error)
            raise
        except ClientError:
            self._size.failed()
            raise
        self._size.sent()
        size = 0
        for at, part in parts.items():
            one = self.partitions[at]
            one.pipe.committed(part.next_offset)
            one.mark = part.mark
            size += part.size_bytes
            self.meter.copied(part.record_count, part.size_bytes, part.newest_timestamp_ms)
        outbox.turn()
        self._contacted()
        now = self._clock.monotonic()
        await self._memory.sent(self.partitions.values(), now)
        pause = self._pacer.pause_seconds(now, size)
        if pause > 0:
            await self._pause(pause)

    def _partition_refused(self, error: PartitionRefusedError) -> None:
        one = self.partitions.get(error.at)
        if one is None:
            return
        is_too_large = error.code == ErrorCode.MESSAGE_TOO_LARGE.name
        if is_too_large and one.is_joining:
            one.is_joining = False  # the batches of this broker may be small enough
            return
        one.refused_until = self._clock.monotonic() + REFUSED_SECONDS
        one.refusal = Problem(
            f"the parent refuses records: {error}",
            "change the topic at the parent so that it accepts them (max.message.bytes, "
            "message.timestamp.*, access rules)",
        )

    async def _watch_disk(self, now: float) -> None:
        """Measure the disk; remove the oldest records of a full one, if the pipe may."""
        disk = self._sites.room()
        self.disk.sample(now, disk.left_bytes)
        if self.options.is_dropping and disk.room is Room.FULL and self.disk.may_drop(now):
            await self._sites.drop_oldest(self.partitions)

    def _lag_records(self) -> int:
        total = 0
        for one in self.partitions.values():
            log = self._sites.log(one.at)
            if log is not None and one.pipe.position >= 0:
                total += max(0, log.end_offset - one.pipe.position)
        return total
