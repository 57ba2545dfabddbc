"""`ShareFetching`: one ShareFetch while it is being answered.

It reads its share-partitions without waiting, and acquires records in the step that builds the
answer. Records that are not in the page cache are read on a thread. A fetch of very many partitions
is read in slices. It does NOT decide which records a member gets: the share-partition does.
"""

import logging
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from penstock.broker.answers import DEFECT, Answer, WaitingAnswer
from penstock.broker.context import RequestContext
from penstock.broker.pacing.slices import NextTurn
from penstock.broker.quotas.meter import metered
from penstock.broker.share_sessions.share_ports import LiveSharePartition, ShareGroups, Wish
from penstock.broker.share_sessions.share_session_table import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SharePartitionId,
    ShareSession,
)
from penstock.broker.shares.share_answers import FetchedRow, refused, share_fetch_answer
from penstock.broker.shares.share_batches import ReadBatches
from penstock.broker.shares.share_reader import ShareReader
from penstock.broker.shares.share_requests import AcknowledgeRound, has_unread
from penstock.coordinator.shares.ports import Refusal
from penstock.core.errors import TooManyWaitersError
from penstock.core.limits import (
    FETCH_BYTES_MAX,
    FETCH_PARTITIONS_AT_ONCE_MAX,
    FETCH_WAIT_MS_MAX,
)
from penstock.protocol.messages.share_fetch import ShareFetchRequest
from penstock.replication.waits import FetchWait

__all__ = ["ShareFetching", "refused"]

logger = logging.getLogger(__name__)

_ROUNDS_MAX: Final = 10
"""Reads that find only aborted records and gaps, before the fetch waits."""
_RECORD_LIMIT: Final = 1
"""`share_acquire_mode` of KIP-1206."""


class ShareFetching:
    """Answers one ShareFetch; the `Waiter` of its answer."""

    def __init__(
        self,
        request: ShareFetchRequest,
        context: RequestContext,
        groups: ShareGroups,
        session: ShareSession,
    ) -> None:
        # A parked fetch does not keep the partitions and acknowledgements of its request.
        self._request = replace(request, topics=(), forgotten_topics_data=())
        self._context = context
        self._groups = groups
        self._session = session
        self._response: WaitingAnswer | None = None
        """Until the answer is set or abandoned."""
        self._round: AcknowledgeRound | None = None
        """The settled acknowledgements."""
        self._is_fetched = False
        self._rows: dict[SharePartitionId, FetchedRow] = {}
        self._ready: Sequence[SharePartitionId] = ()
        """Partitions of the answer without records."""
        self._errors: dict[SharePartitionId, Refusal] = {}
        self._parked: list[LiveSharePartition] = []
        self._wait: FetchWait | None = None
        """Ends the wait at its deadline."""
        self._rounds = 0
        self._early_looks = 0
        self._not_loaded: dict[SharePartitionId, Refusal] = {}
        """Share-partitions whose load was refused; this fetch does not load them again."""
        self._throttle_ms = 0
        self._reads_committed = groups.settings_of(session.group).is_committed_only
        wait_ms = min(max(request.max_wait_ms, 0), FETCH_WAIT_MS_MAX)
        self._deadline = context.services.clock.monotonic() + wait_ms / 1000

    @property
    def member(self) -> str:
        """The member that fetches."""
        return self._session.member

    def start(self) -> WaitingAnswer:
        """Return the answer; it waits for `acknowledged` and for `fetch`."""
        self._response = WaitingAnswer(self)
        return self._response

    def fetch(self) -> None:
        """Begin to read."""
        request = self._request
        is_final = request.share_session_epoch == FINAL_EPOCH
        if is_final or request.is_renew_ack or request.max_records <= 0:
            self._finish()
        else:
            self._look()

    def acknowledged(self, work: AcknowledgeRound) -> None:
        """All acknowledgements of the request are durable or refused."""
        self._round = work
        if self._request.share_session_epoch == FINAL_EPOCH:
            self._groups.close(self._session)
        self._settle()

    def abandon(self) -> None:
        """The client has disconnected; no record was acquired for this answer."""
        self._unpark()
        self._response = None

    def hurry(self) -> None:
        """Answer with the records available."""
        self._deadline = 0.0
        if self._wait is not None:
            self.wake()

    # --- Read ---

    @property
    def _is_wide(self) -> bool:
        return len(self._session.partitions) > FETCH_PARTITIONS_AT_ONCE_MAX

    def _look(self) -> None:
        """Read, and answer or wait."""
        if self._response is None or self._is_fetched:
            return
        if self._is_session_over():
            self._finish()
            return
        if self._is_wide:
            self._start(self._look_slowly())
            return
        try:
            reader = self._reader()
            for partition in tuple(self._session.partitions):
                reader.read(partition)
            self._conclude(reader)
        except BlockingIOError:
            self._start(self._look_slowly())
        except Exception:
            # Not raised: the caller may be the request of another client.
            logger.exception("a share fetch failed; its connection is closed")
            self._respond(DEFECT)

    def _reader(self) -> ShareReader:
        return ShareReader(
            self._request,
            self._context,
            self._groups,
            self._session.group,
            self._not_loaded,
            bytes_max=self._bytes_max,
            reads_committed=self._reads_committed,
        )

    def _is_session_over(self) -> bool:
        """Whether the member has closed or replaced its session: records for it would be lost."""
        return not self._groups.sessions.is_open(self._session)

    def _start(self, work: Coroutine[object, object, None]) -> None:
        meter = self._context.meter
        if meter is not None:
            meter.end()
            work = metered(work, meter)
        self._context.services.tasks.start(work)

    async def _look_slowly(self) -> None:
        """Read in slices, and records that are not in the page cache on a thread."""
        try:
            reader = self._reader()
            turn = NextTurn(self._context.services.turns, self._context.services.clock)
            for partition in tuple(self._session.partitions):
                await turn.wait_if_due()
                if self._is_session_over():
                    self._finish()
                    return
                try:
                    reader.read(partition)
                except BlockingIOError:
                    await reader.read_cold()
                if self._response is None:
                    return
            self._conclude(reader, is_late=True)
        except Exception:
            # Caught here, because a task that ends with an exception ends the broker.
            logger.exception("a share fetch failed; its connection is closed")
            self._respond(DEFECT)

    # --- Acquire ---

    def _conclude(self, reader: ShareReader, *, is_late: bool = False) -> None:
        """Acquire records and answer, or wait for more."""
        if is_late and self._is_session_over():
            self._finish()
            return
        self._errors = reader.errors
        left_seconds = self._deadline - self._context.services.clock.monotonic()
        is_enough = reader.found_bytes >= self._request.min_bytes
        if reader.reads and (is_enough or self._errors or left_seconds <= 0):
            self._acquire(reader)
        is_over = left_seconds <= 0 or (self._request.min_bytes <= 0 and bool(reader.ready))
        if self._rows or self._errors or self._throttle_ms or is_over:
            self._finish(reader.ready)
            return
        self._rounds += 1
        has_skipped = reader.reads and is_enough
        if self._rounds < _ROUNDS_MAX and (has_skipped or (is_late and reader.has_grown())):
            self._look()
        elif not self._park(reader, left_seconds):
            self._finish(reader.ready)

    def _acquire(self, reader: ShareReader) -> None:
        meter = self._context.meter
        if meter is not None:
            self._throttle_ms = meter.settle_fetch(reader.found_bytes)
            if self._throttle_ms:
                return
        request = self._request
        records_left = request.max_records
        is_exact = request.share_acquire_mode == _RECORD_LIMIT
        for read in reader.reads:
            if records_left <= 0:
                break
            batches = ReadBatches(read.found.records, read.found.aborted)
            wish = Wish(self._session.member, records_left, request.batch_size, is_exact)
            acquired = read.live.acquire(wish, read.offset, batches)
            if acquired:
                records = batches.slice(acquired)
                records_left -= sum(one.last - one.first + 1 for one in acquired)
                self._rows[read.partition] = FetchedRow(records, acquired)
                self._session.served(read.partition)
                replicas = self._context.services.replicas
                replicas.fetched(read.live.hosted, len(records), None)

    # --- Wait ---

    def _park(self, reader: ShareReader, left_seconds: float) -> bool:
        missing = self._request.min_bytes - reader.found_bytes
        lives, counted = reader.lives, []
        wait = FetchWait(1, self._timed_out)
        if reader.reads and missing > 0:
            # The bytes are counted: each new record would otherwise read all of them again.
            wait = FetchWait(missing, self._counted, reads_committed=self._reads_committed)
            lives, counted = [], [live.hosted for live in lives]
        try:
            replicas = self._context.services.replicas
            if not replicas.wait_bytes(wait, counted, max(1, round(left_seconds * 1000))):
                return False
        except TooManyWaitersError:
            return False
        self._wait = wait
        self._parked = lives
        for live in lives:
            live.park(self)
        context = self._context
        if context.permit is not None:
            context.permit.release()
        if context.meter is not None:
            context.meter.end()
        self._wake_when_loaded(reader.loading)
        return True

    def _wake_when_loaded(self, loading: list[tuple[SharePartitionId, LiveSharePartition]]) -> None:
        """Look again when all of them are loaded; sooner for the first that have records.

        A load may last longer than the fetch: it delays neither the answer nor other partitions.
        """
        left, wait = len(loading), self._wait

        def loaded(partition: SharePartitionId, live: LiveSharePartition) -> None:
            nonlocal left
            left -= 1
            if live.problem is not None:
                self._not_loaded[partition] = live.problem
            if self._wait is not wait:
                return
            if left == 0:
                self.wake()
            elif self._early_looks < _ROUNDS_MAX and has_unread(
                live, reads_committed=self._reads_committed
            ):
                self._early_looks += 1
                self.wake()
            elif live.problem is None:
                self._parked.append(live)
                live.park(self)

        for partition, live in loading:
            live.when_loaded(partial(loaded, partition, live))

    def _unpark(self) -> None:
        wait, self._wait = self._wait, None
        if wait is not None:
            self._context.services.replicas.waits.cancel(wait)
        parked, self._parked = self._parked, []
        for live in parked:
            live.unpark(self)

    def _counted(self) -> None:
        self._wait = None
        self.wake()

    def _timed_out(self) -> None:
        self._wait = None
        self._deadline = 0.0
        self.wake()

    def wake(self) -> None:
        """Read again: records may be there, a share-partition has changed, or the time is up."""
        if self._response is None or self._is_fetched:
            return
        self._unpark()
        if self._context.meter is not None:
            self._context.meter.begin()
        self._rounds = 0
        self._look()

    # --- Answer ---

    def _finish(self, ready: Sequence[SharePartitionId] = ()) -> None:
        """Answer; the first answer of a session names partitions without records too.

        That of a very wide session does not: it is built in one step.
        """
        if self._request.share_session_epoch == INITIAL_EPOCH and not self._is_wide:
            self._ready = ready
        self._is_fetched = True
        self._settle()

    def _settle(self) -> None:
        if not self._is_fetched or self._round is None or self._response is None:
            return
        lock_ms = self._groups.settings_of(self._session.group).lock_duration_ms
        self._respond(
            share_fetch_answer(
                self._rows,
                self._errors,
                self._round.results,
                self._context,
                ready=self._ready,
                lock_ms=lock_ms,
                throttle_ms=self._throttle_ms,
            )
        )

    def _respond(self, answer: Answer) -> None:
        self._is_fetched = True
        response, self._response = self._response, None
        if response is not None:
            response.set(answer)

    @property
    def _bytes_max(self) -> int:
        """The size limit of this answer, given the unread ones; at least one batch."""
        limit = min(max(self._request.max_bytes, 0), FETCH_BYTES_MAX)
        if self._context.meter is not None:
            limit = min(limit, self._context.meter.fetch_bytes_max())
        return min(limit, max(1, self._context.services.unsent_answers.left_bytes))
