"""`SessionDeliveries`: the deliveries of a push session, and their acknowledgements. Pure.

A part of `session.PushSession`, over `session_requests.SessionRequests`. Guarantees:

- records are delivered only to subscriptions with credit, and while the session has fewer than
  `UNACKNOWLEDGED_BYTES_MAX` unacknowledged bytes;
- message ids of deliveries rise by one, and an ACK finds the subscription of its message id;
- an ACK of fanout includes all earlier deliveries of its subscription; an ACK of a queue is for one
  record, and accepts, releases, rejects or renews it;
- the session ends in order only after the share groups have stored the acknowledgements of queues.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.edge.push import limits
from penstock.edge.push.queue_subscription import (
    ACCEPT,
    QueuedRecord,
    QueueSubscription,
)
from penstock.edge.push.reactions import Reaction, Settle, Settled, Wanted
from penstock.edge.push.record_runs import Run
from penstock.edge.push.session_core import State
from penstock.edge.push.session_requests import SessionRequests
from penstock.edge.push.session_subscription import Delivered
from penstock.protocol.push.frames import Frame, PushFrameError

ACK_KINDS: Final = (1, 2, 3, 4)
_OWNERS_MIN: Final = 1_024
NO_OWNER: Final = 0
"""Of a run whose deliveries are acknowledged; no subscription has this number."""


class SessionDeliveries(SessionRequests):
    """Deliveries of all subscriptions."""

    def __init__(self, now: float, state: State) -> None:
        super().__init__(now, state)
        self._last_id = 0
        self._owners: list[tuple[int, int]] = []
        """(first message id, subscription) of each run of deliveries, in order."""
        self._owners_max = _OWNERS_MIN
        self._turn: list[int] = []
        self._settled: dict[int, list[Settled]] = {}
        """Acknowledgements of queues in the frames that are being handled, by subscription."""
        self._has_queue = False
        self.delivered_records = 0
        self.expired_records = 0
        """Records of queues whose lock expired before they were acknowledged."""

    def next_read(self) -> Wanted | None:
        """Return the next read that credit allows; subscriptions take turns."""
        if self.is_ending or self._is_window_full:
            return None
        for _ in range(len(self.subscriptions)):
            if not self._turn:
                self._turn = list(self.subscriptions)
            subscription = self.subscriptions.get(self._turn.pop())
            if subscription is None:
                continue
            partition = subscription.next_partition()
            if partition is not None:
                return Wanted(
                    subscription.number,
                    subscription.request.topic,
                    partition,
                    subscription.positions[partition],
                    subscription.request.format == "batch",
                )
        return None

    def deliver(
        self, wanted: Wanted, run: Run, bytes_max: int, now: float
    ) -> tuple[list[bytes], int]:
        """Return frames with records of a run, and their bytes."""
        subscription = self.subscriptions.get(wanted.number)
        if subscription is None or self.is_ending:
            return [], 0
        unacknowledged = self.unacknowledged_bytes
        found = subscription.deliver(
            wanted.partition,
            run,
            self._last_id + 1,
            bytes_max=bytes_max,
            bytes_left=limits.UNACKNOWLEDGED_BYTES_MAX - unacknowledged,
            is_session_idle=unacknowledged == 0,
        )
        self._delivered(wanted.number, found, now)
        return found.frames, found.size_bytes

    def _delivered(self, number: int, found: Delivered, now: float) -> None:
        if found.frame_count:
            if not self._owners or self._owners[-1][1] != number:
                self._add_owner(self._last_id + 1, number)
            self._last_id += found.frame_count
            self._last_sent_at = now
            self.delivered_records += found.record_count

    def news(self, number: int, partition: int) -> None:
        """A partition may have records at its position."""
        subscription = self.subscriptions.get(number)
        if subscription is not None:
            subscription.news(partition)

    def sent(self, now: float) -> list[Reaction]:
        """The socket accepted all bytes: subscriptions with `auto_ack` are acknowledged."""
        for subscription in tuple(self.subscriptions.values()):
            if subscription.request.auto_ack and subscription.unacknowledged_count:
                if isinstance(subscription, QueueSubscription):
                    self._settled.setdefault(subscription.number, []).extend(
                        subscription.settle_all()
                    )
                    continue
                subscription.acknowledge(self._last_id)
                self._commit_if_due(subscription, now)
        self._settle_soon()
        return self._take()

    def _add_owner(self, first_id: int, number: int) -> None:
        if len(self._owners) >= self._owners_max:
            self._owners = self._live_owners(first_id)
            self._owners_max = max(_OWNERS_MIN, 2 * len(self._owners))
        self._owners.append((first_id, number))

    def _live_owners(self, next_id: int) -> list[tuple[int, int]]:
        """Return the runs with an owner only where it has unacknowledged deliveries.

        Their number is bounded by credit. An ACK in another run changes nothing.
        """
        lowest = {
            one.number: one.first_unacknowledged(next_id)
            for one in self.subscriptions.values()
            if not isinstance(one, QueueSubscription)
        }
        ends = [first for first, _ in self._owners[1:]] + [next_id]
        live: list[tuple[int, int]] = []
        for (first, number), end in zip(self._owners, ends, strict=True):
            owner = number if lowest.get(number, next_id) < end else NO_OWNER
            if not live or live[-1][1] != owner:
                live.append((first, owner))
        return live

    def _acknowledge(self, frame: Frame, now: float) -> None:
        kind = frame.payload[0] if len(frame.payload) == 1 else ACCEPT
        if len(frame.payload) > 1 or kind not in ACK_KINDS:
            raise PushFrameError("the payload of an ACK is not empty and not one byte from 1 to 4")
        if frame.message_id > self._last_id:
            raise PushFrameError(
                f"an ACK names message {frame.message_id}, the last one sent is {self._last_id}"
            )
        for queue in self._queues:
            settled = queue.settle(frame.message_id, kind)
            if settled is not None:
                self._settled.setdefault(queue.number, []).append(settled)
                return
        index = bisect_right(self._owners, frame.message_id, key=_first_id) - 1
        subscription = self.subscriptions.get(self._owners[index][1]) if index >= 0 else None
        if subscription is None or isinstance(subscription, QueueSubscription):
            return
        if kind != ACCEPT:
            raise PushFrameError(
                f"an ACK with {kind} names a fanout subscription, which only accepts (1)"
            )
        subscription.acknowledge(frame.message_id)
        self._commit_if_due(subscription, now)

    # --- Queues ---

    @property
    def _queues(self) -> list[QueueSubscription]:
        if not self._has_queue:
            return []
        return [one for one in self.subscriptions.values() if isinstance(one, QueueSubscription)]

    def queue_credit(self, number: int) -> tuple[int, int]:
        """Return how many records and bytes a queue subscription may acquire now."""
        subscription = self.subscriptions.get(number)
        if not isinstance(subscription, QueueSubscription) or self.is_ending:
            return 0, 0
        if self._is_window_full:
            return 0, 0
        bytes_left = limits.UNACKNOWLEDGED_BYTES_MAX - self.unacknowledged_bytes
        return subscription.credit_left, min(bytes_left, limits.TURN_BYTES)

    def deliver_queued(
        self, number: int, records: Iterable[QueuedRecord], now: float
    ) -> tuple[list[bytes], int]:
        """Return frames with records that a queue subscription acquired, and their bytes."""
        subscription = self.subscriptions.get(number)
        if not isinstance(subscription, QueueSubscription) or self.is_ending:
            return [], 0
        found = subscription.deliver_queued(records, self._last_id + 1, now)
        self._delivered(number, found, now)
        return found.frames, found.size_bytes

    def _settle_soon(self) -> None:
        """Send the acknowledgements of the frames that were handled to their share groups."""
        settled, self._settled = self._settled, {}
        self._reactions += (Settle(number, found) for number, found in settled.items())

    def queue_settled(
        self, number: int, settled: Sequence[Settled], now: float, *, is_stored: bool
    ) -> list[Reaction]:
        """A share group stored or refused acknowledgements."""
        subscription = self.subscriptions.get(number)
        if isinstance(subscription, QueueSubscription):
            subscription.settled(settled, now, is_stored=is_stored)
            if subscription.ending_id is not None and not subscription.settling_count:
                self._forget(subscription)
                self._unsubscribed(subscription.ending_id, subscription.request.topic)
        self._close_if_drained(now)
        return self._take()

    @property
    def _is_settling(self) -> bool:
        return any(one.settling_count for one in self._queues)

    def _expire(self, now: float) -> None:
        for queue in self._queues:
            self.expired_records += queue.expire(now)

    def check_at(self) -> float:
        """Return when `tick` is needed at the latest."""
        times = [one.next_expiry for one in self._queues]
        return min([super().check_at(), *(time for time in times if time is not None)])


def _first_id(run: tuple[int, int]) -> int:
    return run[0]
