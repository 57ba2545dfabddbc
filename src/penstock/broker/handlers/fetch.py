"""Fetch: stored batches as they are, up to the high watermark; waits when there is too little.

Consumers with `read_committed` get batches up to the last stable offset, and a list of the aborted
transactions among them: the client filters out their records.

A fetch that finds fewer bytes than it wants is parked in the same step, so that no append can
happen in between unseen. An event that satisfies it wakes it, and it reads again. Bytes that are
not in the page cache are read on a thread, and only that fetch waits for them. A fetch of very many
partitions is read and answered in slices (`pacing.slices`), so that no other request waits for all
of it.

While clients leave too many answers unread, a fetch gets a single batch. One above a quota gets a
throttle time and no records (KIP-219); the client's view of each partition stays unchanged.

A consumer needs READ on each topic, and the broker asks each time that it reads: a right that was
revoked ends a session's reads, and those of a fetch that waits. A fetch as a replica needs
CLUSTER_ACTION for all of it (CVE-2018-1288), and gets records only through the listener of the
brokers. There it reads up to the end of the log, and its offset is the follower's report.
"""

import logging
from collections.abc import Coroutine
from functools import partial
from typing import Final

from penstock.broker.answers import CLOSE_CONNECTION, DEFECT, Answer, WaitingAnswer
from penstock.broker.context import RequestContext
from penstock.broker.fetch_answers import Outcome, TopicAnswers
from penstock.broker.fetch_partitions import (
    fetcher_of,
    find_partition,
    has_grown,
    has_news,
    is_from_replica,
    read_access,
    read_outcome,
    refused_replica,
)
from penstock.broker.fetch_sessions import FetchPlan, Partitions, SessionPartition, requested
from penstock.broker.pacing.slices import NextTurn, in_slices
from penstock.broker.quotas.meter import metered
from penstock.broker.wide_requests import ForwardingWaiter
from penstock.core.deferred import Deferred
from penstock.core.errors import PenstockError, TooManyWaitersError
from penstock.core.limits import (
    FETCH_BYTES_MAX,
    FETCH_PARTITIONS_AT_ONCE_MAX,
    FETCH_WAIT_MS_MAX,
)
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.replication.admission import Fetcher
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.read_result import PartitionRead
from penstock.replication.waits import FetchWait

logger = logging.getLogger(__name__)

READ_COMMITTED: Final = 1
"""Isolation level of a client that sees no open or aborted transactions."""


def handle(request: FetchRequest, context: RequestContext) -> Answer | Deferred[Answer]:
    """Answer now, or when there are enough bytes or an error."""
    refusal = refused_replica(request, context)
    if refusal != ErrorCode.NONE:
        return FetchResponse(error_code=refusal, responses=())
    if context.permit is not None:
        return _handle_wide(request, context)
    return _start(request, context)


def _start(
    request: FetchRequest, context: RequestContext, named: Partitions | None = None
) -> Answer | Deferred[Answer]:
    services = context.services
    if services.access is not None and is_from_replica(request):
        # Without a session: it gets no records, whatever its permissions are.
        named = requested(request) if named is None else named
        return _Fetch(request, context, FetchPlan(list(named.values()))).start()
    plan = services.fetch_sessions.begin(
        request, services.clock.monotonic(), named, context.peer.principal
    )
    if plan.error != ErrorCode.NONE:
        return FetchResponse(error_code=plan.error, responses=())
    return _Fetch(request, context, plan).start()


def _handle_wide(request: FetchRequest, context: RequestContext) -> Deferred[Answer]:
    """Plan on a thread what a request with very many partitions reads, then read it."""
    answer: WaitingAnswer = WaitingAnswer(waiter := ForwardingWaiter())
    context.services.tasks.start(_plan_wide(request, context, answer, waiter))
    return answer


async def _plan_wide(
    request: FetchRequest, context: RequestContext, answer: WaitingAnswer, waiter: ForwardingWaiter
) -> None:
    services = context.services
    outcome: Answer | Deferred[Answer]
    try:
        named = await services.heavy_work.run(partial(requested, request), 0, context.client)
        outcome = _start(request, context, named)
    except PenstockError as error:
        logger.info("a wide fetch was not planned; its connection is closed: %s", error)
        outcome = CLOSE_CONNECTION
    except Exception:
        # Caught here, because a task that ends with an exception ends the broker.
        logger.exception("a wide fetch failed; its connection is closed")
        outcome = DEFECT
    waiter.follow(answer, outcome)


class _Fetch:
    """One fetch request while it is being answered."""

    __slots__ = (
        "_access",
        "_bytes_left",
        "_bytes_limit",
        "_bytes_min",
        "_context",
        "_deadline",
        "_fetcher",
        "_found",
        "_found_bytes",
        "_hosted",
        "_outcomes",
        "_plan",
        "_reads_committed",
        "_request",
        "_response",
        "_wait",
    )

    def __init__(self, request: FetchRequest, context: RequestContext, plan: FetchPlan) -> None:
        self._request = request
        self._context = context
        self._plan = plan
        self._reads_committed = request.isolation_level == READ_COMMITTED
        self._bytes_limit = min(max(request.max_bytes, 0), FETCH_BYTES_MAX)
        self._bytes_min = request.min_bytes
        if context.meter is not None:
            bytes_allowed = context.meter.fetch_bytes_max()
            if bytes_allowed < self._bytes_limit:
                self._bytes_limit = bytes_allowed
                # Half: a batch that does not fit any more is not worth waiting for. But not 0: a
                # client that gets an empty answer at once asks again at once.
                self._bytes_min = min(self._bytes_min, max(1, bytes_allowed // 2))
        self._deadline = 0.0
        self._fetcher: Fetcher | None = None
        self._response: WaitingAnswer | None = None
        """Until the answer is set or abandoned: they refer to each other."""
        self._wait: FetchWait | None = None
        """While it is parked."""
        self._outcomes: list[Outcome] = []
        self._hosted: list[HostedPartition] = []
        self._found: list[tuple[HostedPartition, int]] = []
        """Partitions whose records were read, and how many bytes."""
        self._found_bytes = 0
        self._bytes_left = 0
        """Bytes that the answer may still hold."""
        self._access = read_access(request, context)

    def start(self) -> Answer | Deferred[Answer]:
        """The answer, or a deferred one."""
        wait_ms = min(max(self._request.max_wait_ms, 0), FETCH_WAIT_MS_MAX)
        if self._is_wide:
            self._deadline = self._context.services.clock.monotonic() + wait_ms / 1000
            return self._promise(self._read_wide())
        try:
            found_bytes = self._read_cached()
        except BlockingIOError:
            return self._promise(self._read_cold())
        if wait_ms == 0 or self._is_satisfied(found_bytes):
            return self._answer()
        self._deadline = self._context.services.clock.monotonic() + wait_ms / 1000
        if not self._park(found_bytes, wait_ms):
            return self._answer()
        self._response = WaitingAnswer(self)
        return self._response

    @property
    def _is_wide(self) -> bool:
        return len(self._plan.partitions) > FETCH_PARTITIONS_AT_ONCE_MAX

    def _promise(self, work: Coroutine[object, object, None]) -> WaitingAnswer:
        """An answer that comes from a task."""
        promised = WaitingAnswer(self)
        self._response = promised
        self._start(work)
        return promised

    def _park(self, found_bytes: int, wait_ms: int) -> bool:
        wait = FetchWait(
            self._bytes_min - found_bytes,
            self._look_again,
            reads_committed=self._reads_committed,
            is_from_replica=self._fetcher is not None,
        )
        try:
            is_parked = self._context.services.replicas.wait_bytes(wait, self._hosted, wait_ms)
        except TooManyWaitersError:
            return False
        if is_parked:
            self._wait = wait
            if self._context.permit is not None:
                self._context.permit.release()
        return is_parked

    def abandon(self) -> None:
        """The client has disconnected. A cold read is cancelled with the connection."""
        if self._wait is not None:
            self._context.services.replicas.waits.cancel(self._wait)
            self._wait = None
        # A task that reads in slices checks this between two of them.
        self._response = None

    def hurry(self) -> None:
        """Answer with the records available."""
        self._deadline = 0.0
        if self._wait is not None:
            self._context.services.replicas.waits.cancel(self._wait)
            self._look_again()

    def _respond(self, answer: Answer) -> None:
        response, self._response = self._response, None
        if response is not None:
            response.set(answer)

    def _look_again(self) -> None:
        """Woken by bytes, a change or the deadline."""
        self._wait = None
        if self._context.meter is not None:
            self._context.meter.begin()
        if self._is_wide:
            self._start(self._read_wide())
            return
        try:
            found_bytes = self._read_cached()
        except BlockingIOError:
            self._start(self._read_cold())
            return
        except Exception:
            # Not raised: the caller is the request of another client.
            logger.exception("a fetch failed when it was woken; its connection is closed")
            self._respond(DEFECT)
            return
        if not self._waits_on(found_bytes):
            self._respond(self._answer())

    def _waits_on(self, found_bytes: int) -> bool:
        """Park again if there is time left and too little was found."""
        left_ms = round((self._deadline - self._context.services.clock.monotonic()) * 1000)
        if left_ms > 0 and not self._is_satisfied(found_bytes) and self._park(found_bytes, left_ms):
            if self._context.meter is not None:
                self._context.meter.end()
            return True
        return False

    def _is_satisfied(self, found_bytes: int) -> bool:
        return (
            found_bytes >= self._bytes_min
            or not self._hosted
            or any(
                not isinstance(outcome, PartitionRead) or outcome.diverging_epoch is not None
                for outcome in self._outcomes
            )
            or (self._fetcher is not None and has_news(self._plan, self._hosted, self._context))
        )

    def _bytes_limit_now(self) -> int:
        """The size limit of this answer, given the unread ones; at least one batch."""
        left_bytes = self._context.services.unsent_answers.left_bytes
        return min(self._bytes_limit, max(1, left_bytes))

    def _begin_reading(self) -> None:
        self._outcomes.clear()
        self._found.clear()
        self._hosted.clear()
        if self._access is not None:
            self._access.begin_round()
        if self._context.peer.is_broker:  # which may have registered again since the last round
            self._fetcher = fetcher_of(self._request, self._context)
        self._found_bytes = 0
        self._bytes_left = self._bytes_limit_now()

    def _read_cached(self) -> int:
        """Read every partition without waiting; returns the bytes found."""
        self._begin_reading()
        for asked in self._plan.partitions:
            self._read_one(asked)
        return self._found_bytes

    def _read_one(self, asked: SessionPartition) -> None:
        """Read from the page cache; raises `BlockingIOError` on a miss."""
        found_bytes = self._found_bytes
        try:
            partition = find_partition(asked, self._context, self._access)
            self._hosted.append(partition)
            found = self._context.services.replicas.read(
                partition,
                asked.fetch_offset,
                min(asked.bytes_max, self._bytes_left),
                current_leader_epoch=asked.current_leader_epoch,
                last_fetched_epoch=asked.last_fetched_epoch,
                at_least_one=found_bytes == 0,
                reads_committed=self._reads_committed,
                fetcher=self._fetcher,
            )
            self._add(partition, found)
        except PenstockError as error:
            self._outcomes.append(read_outcome(error))

    def _add(self, partition: HostedPartition, found: PartitionRead) -> None:
        self._outcomes.append(found)
        if found.records:
            size_bytes = len(found.records)
            self._found_bytes += size_bytes
            self._bytes_left -= size_bytes
            self._found.append((partition, size_bytes))

    def _start(self, work: Coroutine[object, object, None]) -> None:
        """Continue in a task; waiting for the disk or for a turn costs the client no quota."""
        meter = self._context.meter
        if meter is not None:
            meter.end()
            work = metered(work, meter)
        self._context.services.tasks.start(work)

    async def _read_wide(self) -> None:
        """Read and answer in slices; park if too little was found and none came meanwhile."""
        answer: Answer
        services = self._context.services
        try:
            self._begin_reading()
            is_cold = False
            async for few in in_slices(self._plan.partitions, services.turns, services.clock):
                try:
                    for asked in few:
                        self._read_one(asked)
                except BlockingIOError:
                    is_cold = True
                    break
                if self._response is None:
                    return
            if is_cold:
                await self._read_each_cold()
            elif not self._has_moved() and self._waits_on(self._found_bytes):
                return
            answer = await self._answer_in_slices()
        except Exception:
            # Caught here, because a task that ends with an exception ends the broker.
            logger.exception("a wide fetch failed; its connection is closed")
            answer = DEFECT
        self._respond(answer)

    def _has_moved(self) -> bool:
        """Whether records came between two slices, which would not wake this fetch."""
        if self._fetcher is not None:
            is_same = self._fetcher == fetcher_of(self._request, self._context)
            return not is_same or has_grown(self._hosted, self._plan.partitions)
        # An error is answered at once, so the fetch need not be woken for it either.
        return len(self._hosted) != len(self._outcomes) or any(
            not isinstance(outcome, PartitionRead)
            or partition.state.high_watermark != outcome.high_watermark
            for partition, outcome in zip(self._hosted, self._outcomes, strict=True)
        )

    async def _read_cold(self) -> None:
        """Read uncached records on a thread, and answer with the records found."""
        answer: Answer
        try:
            await self._read_each_cold()
            answer = await self._answer_in_slices()
        except Exception:
            # Caught here, because a task that ends with an exception ends the broker.
            logger.exception("a fetch from the disk failed; its connection is closed")
            answer = DEFECT
        self._respond(answer)

    async def _read_each_cold(self) -> None:
        self._begin_reading()
        turn = NextTurn(self._context.services.turns, self._context.services.clock)
        for asked in self._plan.partitions:
            await turn.wait_if_due()
            try:
                partition = find_partition(asked, self._context, self._access)
                found = await self._context.services.cold_reader.read_cold(
                    partition,
                    asked.fetch_offset,
                    min(asked.bytes_max, self._bytes_left),
                    current_leader_epoch=asked.current_leader_epoch,
                    last_fetched_epoch=asked.last_fetched_epoch,
                    at_least_one=self._found_bytes == 0,
                    reads_committed=self._reads_committed,
                    fetcher=self._fetcher,
                    client=self._context.client,
                )
                self._add(partition, found)
            except PenstockError as error:
                self._outcomes.append(read_outcome(error))

    def _throttled(self) -> FetchResponse | None:
        """The answer without records if a quota is exceeded, else None."""
        meter = self._context.meter
        if meter is None:
            return None
        throttle_ms = meter.settle_fetch(self._found_bytes)
        if not throttle_ms:
            return None
        session_id = self._context.services.fetch_sessions.answer_nothing(self._plan)
        return FetchResponse(
            throttle_time_ms=throttle_ms,
            error_code=ErrorCode.NONE,
            session_id=session_id,
            responses=(),
        )

    def _answer(self) -> FetchResponse:
        nothing = self._throttled()
        if nothing is not None:
            return nothing
        topics = TopicAnswers(self._plan, reads_committed=self._reads_committed)
        for asked, outcome in zip(self._plan.partitions, self._outcomes, strict=True):
            topics.add(asked, outcome)
        return self._finished(topics)

    async def _answer_in_slices(self) -> FetchResponse:
        nothing = self._throttled()
        if nothing is not None:
            return nothing
        services = self._context.services
        topics = TopicAnswers(self._plan, reads_committed=self._reads_committed)
        outcomes = iter(self._outcomes)
        async for few in in_slices(self._plan.partitions, services.turns, services.clock):
            for asked in few:
                topics.add(asked, next(outcomes))
        return self._finished(topics)

    def _finished(self, topics: TopicAnswers) -> FetchResponse:
        for partition, size in self._found:
            self._context.services.replicas.fetched(partition, size, self._fetcher)
        return FetchResponse(
            error_code=ErrorCode.NONE,
            session_id=self._plan.session_id,
            responses=topics.responses(),
        )
