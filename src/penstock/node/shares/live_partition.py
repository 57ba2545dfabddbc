"""`LivePartition`: drives the delivery of one share-partition that this broker leads.

It joins the pure state (`coordinator.shares.delivery`) with the share coordinator, the clock and
the parked fetches. Guarantees:

- an acknowledgement is answered when the share coordinator has stored it, or refused it;
- one write is on its way at a time; acknowledgements that arrive meanwhile share the next one;
- a write that FENCED_LEADER_EPOCH or FENCED_STATE_EPOCH answers, or that finds no state, ends this
  object: the next request loads the state anew;
- one timer for all locks: it is set for the earliest, and looks at all of them;
- parked fetches are woken in their order, only as long as there are records for them; by an
  acknowledgement too, before it is stored. One that keeps all others waiting is answered early.

It lives while a member of the group has a session, and as long as this broker leads the partition
in this epoch. It does NOT read the log: the handler does.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from penstock.broker.share_sessions.share_ports import ParkedFetch, Wish
from penstock.cluster.configs.group_configs import DeliverySettings
from penstock.coordinator.shares.delivery.acknowledgement import Acknowledged
from penstock.coordinator.shares.delivery.acquisition import Acquired, FetchedBatch
from penstock.coordinator.shares.delivery.runs import Change
from penstock.coordinator.shares.delivery.share_delivery import Held, ShareDelivery, Write
from penstock.coordinator.shares.ports import Refusal, ShareChange, ShareKey, ShareState
from penstock.core.deferred import Deferred
from penstock.core.errors import TooManyWaitersError
from penstock.core.limits import FETCH_WAIT_MS_MAX
from penstock.node.shares.letter_desk import NO_LETTERS, LetterDesk, LetterSender
from penstock.node.shares.parked_fetches import HolderPrompt, ParkedFetches
from penstock.node.shares.state_calls import FENCED, StateCalls, StateMark, client_refusal
from penstock.protocol.error_codes import ErrorCode
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.manager import ReplicaManager
from penstock.replication.waits import FetchWait

logger = logging.getLogger(__name__)

CONFIRM_SECONDS: Final = 30.0
"""A share-partition in use, without a write for this time, looks at the durable state: the default
duration of a lock, so one call for each partition that waits for records."""
_GONE: Final = Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition")
_RESET: Final = Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the state of the group was reset")
_RETIRED: Final = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the share session is over")


class LivePartition:
    """One share-partition in one leader epoch."""

    __slots__ = (
        "_alarm",
        "_answers",
        "_calls",
        "_confirmed_at",
        "_delivery",
        "_desk",
        "_is_retired",
        "_is_waking",
        "_letters",
        "_listeners",
        "_loop",
        "_mark",
        "_on_end",
        "_parked",
        "_prompt",
        "_replicas",
        "_settings",
        "_wait",
        "_wakes_again",
        "hosted",
        "key",
        "problem",
    )

    def __init__(
        self,
        key: ShareKey,
        hosted: HostedPartition,
        calls: StateCalls,
        replicas: ReplicaManager,
        settings: Callable[[], DeliverySettings],
        on_end: Callable[["LivePartition"], None],
        desk: LetterDesk = NO_LETTERS,
    ) -> None:
        """`on_end` is called once, when this object is of no use any more."""
        self.key = key
        self.hosted = hosted
        self.problem: Refusal | None = None
        self._calls = calls
        self._replicas = replicas
        self._settings = settings
        self._on_end = on_end
        self._desk = desk
        self._letters: LetterSender | None = None
        self._loop = asyncio.get_running_loop()
        self._delivery: ShareDelivery | None = None
        self._mark = StateMark(0, -1)
        self._confirmed_at = 0.0
        """When the durable state was seen or written last."""
        self._listeners: list[Callable[[], None]] = []
        self._answers: dict[Change, Deferred[Refusal | None]] = {}
        """Acknowledgements that wait for their write."""
        self._parked = ParkedFetches()
        self._prompt = HolderPrompt(self._parked, self._held, self._loop)
        self._wait: FetchWait | None = None
        """For new records, while fetches are parked."""
        self._alarm: asyncio.TimerHandle | None = None
        self._is_waking = self._wakes_again = False
        self._is_retired = False

    # --- Life ---

    @property
    def is_loading(self) -> bool:
        """Whether the durable state is not here yet."""
        return self._delivery is None and self.problem is None

    @property
    def delivery(self) -> ShareDelivery | None:
        """The state of the records; None while it is loading."""
        return self._delivery

    def retire(self) -> None:
        """End when the writes are done: no member of the group is here any more."""
        self._is_retired = True
        self._end_if_done()

    def revive(self) -> None:
        """Go on: a member of the group is here again."""
        self._is_retired = False

    def _end_if_done(self, *, has_failed: bool = False) -> None:
        if self._is_retired and not self._answers:
            delivery = self._delivery
            is_sending = self._letters is not None and self._letters.is_sending
            if has_failed or delivery is None or not (delivery.is_busy or is_sending):
                self._end(_RETIRED)

    def when_loaded(self, listener: Callable[[], None]) -> None:
        """Call the listener once when it is not loading any more; now if it is not."""
        if self.is_loading:
            self._listeners.append(listener)
        else:
            listener()

    def load(self) -> None:
        """Begin to load the durable state."""
        self._calls.load(self.key, self.hosted, self._settings, self._loaded)

    def _loaded(self, found: "Refusal | tuple[ShareDelivery, StateMark]") -> None:
        if self.problem is None:
            if isinstance(found, Refusal):
                self._end(client_refusal(found))
            elif not self.hosted.state.is_leader:
                self._end(_GONE)
            else:
                self._delivery, self._mark = found
                self._confirmed_at = self._loop.time()
                self._flush()
                self._end_if_done()
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()

    def confirm(self) -> None:
        """Compare the state with the durable one if neither was read or written for long.

        A group may be deleted, created again or reset while a member keeps its session. A write
        would be fenced; a share-partition that writes nothing would deliver from its old state.
        """
        now, delivery = self._loop.time(), self._delivery
        if delivery is None or delivery.is_busy or now < self._confirmed_at + CONFIRM_SECONDS:
            return
        self._confirmed_at = now
        self._calls.check(self.key, self.hosted.state.leader_epoch, partial(self._seen, self._mark))

    def _seen(self, mark: StateMark, found: ShareState | Refusal) -> None:
        """End if the durable state is not the one that this object knows."""
        delivery = self._delivery
        if delivery is None or delivery.is_busy or mark is not self._mark:
            return  # A write is newer, or will be fenced.
        if isinstance(found, Refusal):
            if found.error_code in FENCED:
                self._end(client_refusal(found))
        elif mark != (found.state_epoch, found.start_offset):
            logger.info("the state of %s was reset, and is loaded anew", self.key)
            self._end(_RESET)

    def _end(self, problem: Refusal) -> None:
        """Deliver no more; requests that wait are answered, and the next one begins anew."""
        if self.problem is not None:
            return
        self.problem = problem
        self.stop()
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            answer.set(problem)
        self._on_end(self)
        self._parked.wake_all()

    def stop(self) -> None:
        """Cancel the timers and the wait for records."""
        if self._letters is not None:
            self._letters.stop()
        self._prompt.stop()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._wait is not None:
            self._replicas.waits.cancel(self._wait)
            self._wait = None

    def leave(self) -> None:
        """Wake the parked fetches: another object serves them. A write under way still ends."""
        self.stop()
        self._parked.wake_all()

    def _ready(self) -> ShareDelivery | None:
        """Return the state if this broker still leads; follows the settings of the group."""
        if self.problem is not None or self._delivery is None:
            return None
        if not self.hosted.state.is_leader:
            self._end(_GONE)
            return None
        settings, delivery = self._settings(), self._delivery
        delivery.rules = self._calls.rules(settings)
        if self.hosted.log.log_start_offset > delivery.start_offset:
            delivery.move_log_start(self.hosted.log.log_start_offset)
        return delivery

    # --- Records ---

    def next_offset(self) -> int | None:
        """Return where to read next; None while no record can be acquired."""
        delivery = self._ready()
        if delivery is None or not (delivery.has_available or delivery.has_room):
            return None
        return delivery.next_offset()

    def acquire(
        self, wish: Wish, fetch_offset: int, batches: Iterable[FetchedBatch]
    ) -> Sequence[Acquired]:
        """Give records to a member. The batches were read at `fetch_offset`."""
        delivery = self._ready()
        if delivery is None:
            return ()
        now = self._loop.time()
        acquired = delivery.acquire(
            wish.member,
            fetch_offset,
            batches,
            now,
            records_max=wish.records_max,
            batch_size=wish.batch_size,
            is_exact=wish.is_exact or self._settings().is_buffer_bound,
        )
        self._desk.count(acquired)
        if acquired:
            self._set_alarm(now + delivery.rules.lock_seconds)
        self._flush()
        return acquired

    def skip_gap(self, first: int, last: int) -> None:
        """Note that the log has no records at these offsets."""
        delivery = self._ready()
        if delivery is not None:
            delivery.skip_gap(first, last)
            self._flush()

    def acknowledge(self, member: str, batches: Sequence[Acknowledged]) -> Deferred[Refusal | None]:
        """Acknowledge records; the result is set when it is durable, or refused."""
        answer: Deferred[Refusal | None] = Deferred()
        delivery = self._ready()
        if delivery is None:
            answer.set(self.problem or Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            return answer
        outcome = delivery.acknowledge(member, batches, self._loop.time())
        if isinstance(outcome, Change):
            self._answers[outcome] = answer
            self._flush()
            self._wake()
        else:
            answer.set(outcome)
        return answer

    def release(self, member: str) -> None:
        """Release all records of a member that has left."""
        delivery = self._ready()
        if delivery is not None:
            delivery.release_member(member)
            self._flush()
            self._wake()

    # --- Locks ---

    def _set_alarm(self, moment: float) -> None:
        if self._alarm is not None:
            if self._alarm.when() <= moment:
                return
            self._alarm.cancel()
        self._alarm = self._loop.call_at(moment, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        delivery = self._ready()
        if delivery is None:
            return
        delivery.expire(self._loop.time())
        deadline = delivery.next_deadline()
        if deadline is not None:
            self._set_alarm(deadline)
        self._flush()
        self._wake()

    # --- Writes ---

    def _flush(self) -> None:
        delivery = self._delivery
        if delivery is None or self.problem is not None:
            return
        if delivery.has_letters:
            self._send_letters(delivery)
        if not delivery.needs_write:
            return
        write = delivery.take_write()
        change = ShareChange(
            self._mark.state_epoch,
            self.hosted.state.leader_epoch,
            write.start_offset,
            write.batches,
            write.complete_count,
        )
        self._calls.write(self.key, change, lambda refusal: self._written(write, refusal))

    def _written(self, write: Write, refusal: Refusal | None) -> None:
        delivery = self._delivery
        if delivery is None or self.problem is not None:
            return
        if refusal is None:
            delivery.written(write)
            self._mark = self._mark._replace(start_offset=write.start_offset)
            self._confirmed_at = self._loop.time()
        elif refusal.error_code in FENCED:
            logger.info("%s is fenced, and loaded anew: %s", self.key, refusal.message)
            self._end(client_refusal(refusal))
            return
        else:
            logger.warning("the state of %s was not stored: %s", self.key, refusal)
            delivery.failed(write, self._loop.time())
            deadline = delivery.next_deadline()
            if deadline is not None:
                self._set_alarm(deadline)
        outcome = None if refusal is None else client_refusal(refusal)
        for change in write.changes:
            answer = self._answers.pop(change, None)
            if answer is not None:
                answer.set(outcome)
        if refusal is None or write.changes:
            self._flush()
        self._wake()
        self._end_if_done(has_failed=refusal is not None)

    # --- Dead letters ---

    def _send_letters(self, delivery: ShareDelivery) -> None:
        if self._letters is None:
            self._letters = self._desk.sender(
                self.key.group_id, self.hosted, delivery, self._settings, self._letters_changed
            )
        self._letters.send()

    def _letters_changed(self) -> None:
        if self._ready() is not None and self._letters is not None:
            self._flush()
            self._wake()
            self._end_if_done(has_failed=self._letters.is_waiting)

    # --- Parked fetches ---

    def park(self, fetch: ParkedFetch) -> None:
        """Wake the fetch once, when records may be there for it, unless `unpark` is first."""
        self._parked.add(fetch)
        self._watch()

    def unpark(self, fetch: ParkedFetch) -> None:
        """Forget a fetch; does nothing if it is not parked."""
        if self._parked.discard(fetch) and not self._is_waking:
            self._watch()

    def _held(self) -> Held | None:
        return None if self._delivery is None else self._delivery.held()

    def _watch(self) -> None:
        """Wait for new records while fetches are parked and more may be acquired."""
        self._prompt.look()
        delivery = self._delivery
        if self._wait is not None and not self._parked:
            self._replicas.waits.cancel(self._wait)
            self._wait = None
        if self._wait is not None or not self._parked or delivery is None:
            return
        if not delivery.has_room or self.problem is not None:
            return
        wait = FetchWait(1, self._came, reads_committed=self._settings().is_committed_only)
        try:
            if self._replicas.wait_bytes(wait, [self.hosted], FETCH_WAIT_MS_MAX):
                self._wait = wait
        except TooManyWaitersError:
            # The parked fetches end at their own deadlines.
            logger.debug("%s waits for no records: too many requests are parked", self.key)

    def _came(self) -> None:
        self._wait = None
        self._wake()

    def _wake(self) -> None:
        """Let parked fetches read, longest first, as long as there are records for them."""
        if self._is_waking:
            self._wakes_again = True
            return
        self._is_waking = True
        try:
            for fetch in self._parked:
                if not self._has_records():
                    break
                if self._parked.discard(fetch):
                    fetch.wake()
        finally:
            self._is_waking = False
        if self._wakes_again:
            # Records came after a fetch of this round had read.
            self._wakes_again = False
            self._loop.call_soon(self._wake)
        self._watch()

    def _has_records(self) -> bool:
        """Whether a parked fetch could get records, or must learn that there will be none."""
        offset = self.next_offset()
        if offset is None:
            return self.problem is not None
        hosted = self.hosted
        limit = hosted.state.high_watermark
        if self._settings().is_committed_only:
            limit = hosted.last_stable_offset
        return offset < limit
