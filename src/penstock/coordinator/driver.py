"""`ShardDriver`: one shard over one partition of an internal topic.

It keeps the promises of `coordinator.shard`: events one at a time, records appended then replayed,
replies and effects when everything before them is committed. It also guarantees:

- while the log is read, requests are refused with `CoordinatorLoadingError`;
- a shard whose append or commit failed, or that raised, is discarded; its waiting requests get
  `NotCoordinatorError`, and the log is read again: at once, or after `RETRY_SECONDS` if it
  failed just before, so that a full disk does not make it read without end. If the log cannot be
  read, the shard stays unloaded until a request arrives after `RETRY_SECONDS`;
- a reply waits for followers as long as in Kafka (`Journal.when_late`); then the client must retry,
  and the records may still be committed;
- a record that cannot be decoded or replayed is skipped at a load, counted and logged: one bad
  record must not make the groups of its partition unavailable;
- an append that is refused because of the producer it belongs to, or of an outcome that can be
  taken back, affects no other request: only the replies of that outcome are replaced. One client is
  at fault or must retry.

No locks: all of it runs on one event loop. It does NOT know what a record or a request means.
"""

import logging
import math
from collections.abc import Callable, Collection
from enum import Enum
from functools import partial
from typing import Final

from penstock.coordinator.metadata_view import TopicsView
from penstock.coordinator.ports import Effects, Journal, LoadedBatch, Tasks
from penstock.coordinator.shard import (
    Asked,
    Outcome,
    Producer,
    Reply,
    SetTimer,
    Shard,
    Ticket,
    TimerKey,
)
from penstock.coordinator.timers import Timer, Timers
from penstock.core.clock import Clock
from penstock.core.deferred import Deferred
from penstock.core.errors import (
    BatchTooLargeError,
    CoordinatorError,
    CoordinatorLoadingError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderError,
    PenstockError,
    ProducerError,
    RequestTimedOutError,
    StorageError,
    TooManyWaitersError,
    UnknownTopicOrPartitionError,
)
from penstock.protocol.codec import Message

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0
"""Between two attempts to load a shard whose log could not be read, or that failed twice."""
RETRY: Final = ("driver-retry",)
"""The timer of the next attempt, for a shard that failed twice in a short time."""

_BAD_RECORD: Final = (PenstockError, AssertionError, LookupError, TypeError, ValueError)
"""Exceptions of `Shard.replay` for a record that no shard of ours wrote."""

Answer = Deferred[Message | PenstockError]
"""The deferred answer to a request."""


class Phase(Enum):
    """How a driver handles requests."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


class ShardDriver:
    """Runs one shard."""

    def __init__(
        self,
        name: str,
        journal: Journal,
        *,
        make_shard: Callable[[], Shard],
        topics: Callable[[], TopicsView],
        clock: Clock,
        timers: Timers,
        effects: Effects,
        tasks: Tasks,
    ) -> None:
        self.name: Final = name
        self.journal: Final = journal
        self._make_shard = make_shard
        self._topics = topics
        self._clock = clock
        self._all_timers = timers
        self._effects = effects
        self._tasks = tasks
        self._shard = make_shard()
        self._waiting: dict[Ticket, Answer] = {}
        """Requests that the shard has not replied to yet."""
        self._next_ticket: Ticket = 0
        self._timers: dict[TimerKey, Timer] = {}
        self._end_offset = journal.start_offset
        """The offset behind all replayed records: a reply waits until they are committed."""
        self._life = 0
        """Counts shards: work that was begun for an earlier one does not affect a later one."""
        self._failed_at = -math.inf
        self.phase = Phase.LOADING

    @property
    def shard(self) -> Shard:
        """The state machine itself, for read-only use."""
        return self._shard

    # --- Events ---

    def ask(self, asked: Asked) -> Answer:
        """Pass a request to the shard."""
        answer: Answer = Deferred()
        if self.phase is not Phase.ACTIVE:
            answer.set(self._refusal())
            return answer
        ticket = self._next_ticket
        self._next_ticket = ticket + 1
        self._waiting[ticket] = answer
        self._react(partial(self._shard.handle, asked, ticket, self._clock.now_ms()), ticket)
        return answer

    def topics_changed(self, topics: TopicsView, gone: Collection[str]) -> None:
        """Pass changed topics to the shard; `gone` are deleted or created anew."""
        if self.phase is Phase.ACTIVE:
            self._react(partial(self._shard.topics_changed, topics, gone, self._clock.now_ms()))

    def marker_written(self, producer: Producer, *, commits: bool) -> None:
        """A transaction coordinator appended the end of a transaction to the journal, just now."""
        if self.phase is Phase.ACTIVE:
            # A shard that is loading finds the marker in the log.
            self._end_offset = self.journal.end_offset
            try:
                self._shard.replay_marker(producer, commits=commits)
            except Exception:
                logger.exception("%s could not end a transaction", self.name)
                self._fail(_broken(self.name))

    def timer_fired(self, timer: Timer) -> None:
        """A timer is due, unless it was set anew or cancelled meanwhile."""
        if self._timers.get(timer.key) is timer:
            del self._timers[timer.key]
            if timer.key is RETRY:
                self._reload()
                return
            self._react(partial(self._shard.timer_fired, timer.key, self._clock.now_ms()))

    def _react(self, event: Callable[[], Outcome], ticket: Ticket | None = None) -> None:
        """Let the shard react, and carry out its outcome; `ticket` is of the event's request."""
        try:
            outcome = event()
            error = self._append(outcome)
            rest = None if outcome.then is None else outcome.then(error)
            assert rest is None or not rest.records, "the second half of a reaction has no records"
        except Exception:
            logger.exception("%s failed; its log is read again", self.name)
            self._fail(_broken(self.name))
            return
        life = self._life
        if error is None:
            self._carry_out(outcome)
        elif rest is None and not outcome.is_revocable and not isinstance(error, ProducerError):
            self._log_failure("append", error)
            self._fail(as_coordinator_error(error))
            return
        if rest is not None and life == self._life:
            self._carry_out(rest)
        if error is not None:
            self._refuse(outcome, ticket, as_coordinator_error(error))

    def _refuse(self, outcome: Outcome, ticket: Ticket | None, refusal: PenstockError) -> None:
        """Answer the requests of the outcome, and the event's request if it still waits."""
        tickets = [reply.ticket for reply in outcome.replies]
        if ticket is not None and ticket not in tickets:
            tickets.append(ticket)
        answers = [self._waiting.pop(ticket, None) for ticket in tickets]
        for answer in answers:
            if answer is not None:
                answer.set(refusal)

    def _carry_out(self, outcome: Outcome) -> None:
        for change in outcome.timers:
            self._forget_timer(change.key)
            if isinstance(change, SetTimer):
                self._timers[change.key] = self._all_timers.add(self, change.key, change.delay_ms)
        if outcome.replies or outcome.effects:
            self._leave_when_committed(outcome)

    def _append(self, outcome: Outcome) -> PenstockError | None:
        """Append the records and replay them; the error when the log refuses them."""
        if not outcome.records:
            return None
        producer = outcome.producer
        try:
            offset = self.journal.append(outcome.records, producer, self._clock.now_ms())
        except PenstockError as error:
            return error
        self._end_offset = offset + len(outcome.records)
        for index, record in enumerate(outcome.records):
            self._shard.replay(record, producer, offset + index)
        return None

    # --- Replies and effects ---

    def _leave_when_committed(self, outcome: Outcome) -> None:
        answers = [self._answer_to(reply) for reply in outcome.replies]
        if self.journal.committed_offset >= self._end_offset:
            self._leave(answers, outcome, self._life, None)
        else:
            self.journal.when_committed(
                self._end_offset, partial(self._leave, answers, outcome, self._life)
            )
            if answers:
                self.journal.when_late(self._end_offset, partial(self._refuse_late, answers))

    def _answer_to(self, reply: Reply) -> tuple[Answer, Message]:
        return self._waiting.pop(reply.ticket), reply.response

    @staticmethod
    def _refuse_late(answers: list[tuple[Answer, Message]], error: PenstockError) -> None:
        """Answer requests whose records followers do not confirm; the shard and effects wait on."""
        late = answers.copy()
        answers.clear()
        for answer, _ in late:
            answer.set(as_coordinator_error(error))

    def _leave(
        self,
        answers: list[tuple[Answer, Message]],
        outcome: Outcome,
        life: int,
        error: PenstockError | None,
    ) -> None:
        """The records of an outcome are committed, or never will be."""
        if error is not None:
            refusal = as_coordinator_error(error)
            for answer, _ in answers:
                answer.set(refusal)
            answers.clear()
            # Too many requests wait: that is no reason to distrust the written records.
            is_harmless = isinstance(error, TooManyWaitersError) and not outcome.effects
            if life == self._life and not is_harmless:
                self._log_failure("commit", error)
                self._fail(refusal)
            return
        if life == self._life and self.phase is Phase.ACTIVE:
            for effect in outcome.effects:
                self._tasks.start(self._perform(effect, life))
        for answer, response in answers:
            answer.set(response)
        answers.clear()

    async def _perform(self, effect: object, life: int) -> None:
        result: object
        try:
            result = await self._effects.perform(effect)
        except PenstockError as error:
            result = error
        if life == self._life and self.phase is Phase.ACTIVE:
            self._react(partial(self._shard.effect_done, effect, result, self._clock.now_ms()))

    # --- Life ---

    async def load(self) -> None:
        """Read the whole log into a new shard, then serve."""
        if self.phase is Phase.CLOSED:
            return
        life = self._begin_life()
        journal, shard = self.journal, self._make_shard()
        offset = journal.start_offset
        try:
            while offset < journal.end_offset:
                batches, behind = await journal.read(offset)
                if life != self._life:
                    return
                for batch in batches:
                    _replay_batch(shard, batch, journal)
                assert behind > offset, "a read of the log makes progress"
                offset = behind
        except Exception:
            logger.exception("%s cannot be loaded; its keys are not served", self.name)
            if life == self._life:
                self._failed_at = self._clock.monotonic()
                self.phase = Phase.FAILED
            return
        self._serve(shard)

    def serve_if_empty(self) -> bool:
        """Serve at once when the log is empty; then no request has to wait."""
        if self.journal.start_offset < self.journal.end_offset:
            return False
        self._begin_life()
        self._serve(self._make_shard())
        return True

    def _begin_life(self) -> int:
        self._life += 1
        self.phase = Phase.LOADING
        return self._life

    def _serve(self, shard: Shard) -> None:
        self._shard = shard
        self._end_offset = self.journal.end_offset
        self.phase = Phase.ACTIVE
        self._react(partial(shard.loaded, self._topics(), self._clock.now_ms()))

    def close(self, error: PenstockError) -> None:
        """Serve no more; answer the waiting requests with `error`."""
        self._life += 1
        self.phase = Phase.CLOSED
        self._abandon(error)

    def _fail(self, error: PenstockError) -> None:
        """Discard the shard and load it anew."""
        if self.phase is Phase.CLOSED:
            return
        now = self._clock.monotonic()
        is_again = now - self._failed_at < RETRY_SECONDS
        self._failed_at = now
        self._begin_life()
        self._abandon(error)
        if is_again:
            self.phase = Phase.FAILED
            delay_ms = round(RETRY_SECONDS * 1_000)
            self._timers[RETRY] = self._all_timers.add(self, RETRY, delay_ms)
        else:
            self._tasks.start(self.load())

    def _log_failure(self, action: str, error: PenstockError) -> None:
        # In a cluster, brokers lose and get partitions in normal operation.
        level = logging.INFO if isinstance(error, NotLeaderError) else logging.ERROR
        logger.log(level, "%s cannot %s: %s", self.name, action, error)

    def _reload(self) -> None:
        self._forget_timer(RETRY)
        self._begin_life()
        self._tasks.start(self.load())

    def _abandon(self, error: PenstockError) -> None:
        for key in tuple(self._timers):
            self._forget_timer(key)
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            answer.set(error)

    def _refusal(self) -> PenstockError:
        if self.phase is Phase.LOADING:
            return CoordinatorLoadingError(f"{self.name} is being loaded; ask again soon")
        if (
            self.phase is Phase.FAILED
            and self._clock.monotonic() - self._failed_at >= RETRY_SECONDS
        ):
            self._reload()
        return NotCoordinatorError(f"{self.name} is not served here; see the log of the broker")

    def _forget_timer(self, key: TimerKey) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            self._all_timers.discard(timer)

    def validate(self) -> None:
        """Assert the invariants between events."""
        assert self._end_offset <= self.journal.end_offset
        assert self.phase is Phase.ACTIVE or not self._waiting
        assert self.phase is Phase.ACTIVE or self._timers.keys() <= {RETRY}
        self._shard.validate()


def _replay_batch(shard: Shard, batch: LoadedBatch, journal: Journal) -> None:
    if batch.commits is not None:
        assert batch.producer is not None
        shard.replay_marker(batch.producer, commits=batch.commits)
        return
    producer, replay = batch.producer, shard.replay
    for offset, record in batch.records:
        try:
            replay(record, producer, offset)
        except _BAD_RECORD as error:
            journal.note_skipped(offset, error)


def _broken(name: str) -> PenstockError:
    return NotCoordinatorError(f"{name} failed; see the log of the broker")


def as_coordinator_error(error: PenstockError) -> PenstockError:
    """Map a log error to one that makes clients find or await a coordinator, as in Kafka."""
    kinds = (
        RequestTimedOutError,
        TooManyWaitersError,
        UnknownTopicOrPartitionError,
        NotEnoughReplicasError,
    )
    if isinstance(error, kinds):
        return CoordinatorNotAvailableError(str(error))
    if isinstance(error, NotLeaderError | StorageError):
        return NotCoordinatorError(str(error))
    if isinstance(error, BatchTooLargeError):
        # Kafka's coordinators do not name the large record; clients know UNKNOWN_SERVER_ERROR.
        return CoordinatorError(str(error))
    return error
