"""`SessionRefreshes`: refreshes of subscriptions: RESET, the data set, READY. Pure.

A part of `session.PushSession`, over `session_deliveries.SessionDeliveries`.

    client RESET, or `refresh send` ─► RESET {id, V, records} ─ ACK ─► DATA ... ─► READY {id, V}
                                                                                        │ ACK
                                       as before ◄─ rejected, or no ACK in time         └► live

V is the end of each partition when the refresh begins; the data set is the broker's own log below
V: the last record of a key is its value, and a record without a value deletes it. Guarantees:

- between RESET and its ACK, and between READY and its ACK, the subscription gets no DATA; between
  them it gets exactly the records below V, from the start of the log, and nothing else;
- a group's committed position does not change before the ACK of READY; then it is V. A client that
  crashes before READY continues where its old data set ended;
- the ACK of READY acknowledges all deliveries before it;
- a RESET that the client rejects (ACK with 3) or does not answer in time changes nothing, so
  clients that do not know refreshes are not disturbed for longer than that time. A READY without
  an answer ends the session.

Queue subscriptions have no refresh: their records are work, not a data set.
"""

from bisect import bisect_right
from enum import Enum
from typing import Final

from penstock.edge.push.reactions import FindBounds, Reaction, Wanted
from penstock.edge.push.record_runs import Run
from penstock.edge.push.session_core import INVALID_REQUEST, State
from penstock.edge.push.session_deliveries import SessionDeliveries
from penstock.edge.push.session_subscription import Delivered, Subscription
from penstock.protocol.push.frames import Frame, FrameType, PushFrameError, encode_frame
from penstock.protocol.push.payloads import (
    PushPayloadError,
    load_object,
    vector_json,
    write_object,
)

RESET_SECONDS_MAX: Final = 30.0
"""Time for the ACK of RESET; afterwards delivery continues as before."""
READY_SECONDS_MAX: Final = 600.0
"""Time for the ACK of READY: the client replaces its data set meanwhile."""
ACCEPT: Final = 1
_DECLINED: Final = (2, 3)
_FIELDS: Final = frozenset({"topic", "group"})
_COPIED: Final = tuple(one for one in Subscription.__slots__ if one != "positions")

Bounds = dict[int, tuple[int, int]]
"""Partition to its start offset and its end."""


class Phase(Enum):
    """The phase of a refresh."""

    ASKED = "RESET is sent"
    LOADING = "the data set is sent"
    ENDING = "READY is sent"


class RefreshingSubscription(Subscription):
    """A subscription while it is refreshed; it has the state of the one that it replaces."""

    __slots__ = ("bounds", "control_id", "deadline", "phase", "positions_before", "reset_id")

    def __init__(self, before: Subscription, reset_id: int, bounds: Bounds, now: float) -> None:
        _copy(before, self)
        self.positions = dict(before.positions)
        self.positions_before = before.positions
        self.phase = Phase.ASKED
        self.reset_id = self.control_id = reset_id
        """The message ids of RESET, and of the frame whose ACK is missing."""
        self.bounds = bounds
        self.deadline = now + RESET_SECONDS_MAX

    @property
    def ends(self) -> dict[int, int]:
        """The offset vector V."""
        return {partition: end for partition, (_, end) in self.bounds.items()}

    @property
    def is_waiting(self) -> bool:
        """Whether no partition is known to have records."""
        return self.phase is not Phase.LOADING or not self._ready

    @property
    def is_loaded(self) -> bool:
        """Whether all records below V were delivered."""
        return self.phase is Phase.LOADING and all(
            self.positions[partition] >= end for partition, (_, end) in self.bounds.items()
        )

    def load(self) -> None:
        """The client begins a new data set."""
        self.phase = Phase.LOADING
        self.positions = {partition: start for partition, (start, _) in self.bounds.items()}
        self._ready = {
            partition: None for partition, (start, end) in self.bounds.items() if start < end
        }

    def end(self, ready_id: int, now: float) -> None:
        """READY is sent."""
        self.phase, self.control_id = Phase.ENDING, ready_id
        self.deadline = now + READY_SECONDS_MAX

    def news(self, partition: int) -> None:
        """A partition may have records; only those below V are wanted now."""
        if self.phase is Phase.LOADING and self._is_wanted(partition):
            self._ready[partition] = None

    def _is_wanted(self, partition: int) -> bool:
        return self.positions.get(partition, 0) < self.bounds.get(partition, (0, 0))[1]

    def next_partition(self) -> int | None:
        """Return the partition to read next."""
        return super().next_partition() if self.phase is Phase.LOADING else None

    def deliver(
        self,
        partition: int,
        run: Run,
        message_id: int,
        *,
        bytes_max: int,
        bytes_left: int,
        is_session_idle: bool,
    ) -> Delivered:
        """Return frames with the records of a run that are below V."""
        end = self.bounds[partition][1]
        if run.next_offset > end:
            count = bisect_right(run.nexts, end)
            run = Run(
                run.offset,
                end,
                run.nexts[:count],
                run.counts[:count],
                run.tails[:count],
                run.version,
            )
        found = super().deliver(
            partition,
            run,
            message_id,
            bytes_max=bytes_max,
            bytes_left=bytes_left,
            is_session_idle=is_session_idle,
        )
        if not self._is_wanted(partition):
            self._ready.pop(partition, None)
        return found

    def acknowledge(self, message_id: int) -> int:
        """Acknowledge deliveries; positions of the new data set are not committed."""
        size = super().acknowledge(min(message_id, self.reset_id))
        kept = dict(self.acknowledged)
        if message_id > self.reset_id:
            size += super().acknowledge(message_id)
            self.acknowledged = kept
        return size

    def refreshed(self) -> Subscription:
        """Return the subscription that continues at V, and commits it."""
        self.acknowledge(self.control_id)
        after = Subscription(self.number, self.request)
        _copy(self, after)
        after.positions = self.ends
        after._ready = dict.fromkeys(after.positions)
        if after.has_group:
            after.acknowledged = self.acknowledged | self.ends
        return after

    def declined(self) -> Subscription:
        """Return the subscription that continues with its old data set."""
        while self._unacknowledged and self._unacknowledged[-1].message_id > self.reset_id:
            dropped = self._unacknowledged.pop()
            self.credit_used -= dropped.record_count
            self.unacknowledged_bytes -= dropped.size_bytes
        after = Subscription(self.number, self.request)
        _copy(self, after)
        after.positions = self.positions_before
        after._ready = dict.fromkeys(after.positions)
        return after

    def validate(self) -> None:
        """Assert the invariants; offsets of the new data set are below those of the old one."""
        assert self.credit_used == sum(one.record_count for one in self._unacknowledged)
        assert self.unacknowledged_bytes == sum(one.size_bytes for one in self._unacknowledged)
        assert self._ready.keys() <= self.positions.keys()
        assert self.phase is not Phase.ENDING or self.control_id > self.reset_id
        if self.phase is not Phase.ASKED:
            assert all(self.positions[at] <= end for at, end in self.ends.items())


def _copy(source: Subscription, target: Subscription) -> None:
    for name in _COPIED:
        setattr(target, name, getattr(source, name))


class SessionRefreshes(SessionDeliveries):
    """Refreshes of all subscriptions."""

    def __init__(self, now: float, state: State) -> None:
        super().__init__(now, state)
        self._refreshing: dict[int, RefreshingSubscription] = {}
        """By number of the subscription."""

    # --- Begin ---

    def _ask_refresh(self, frame: Frame) -> None:
        """A client asks for a refresh."""
        try:
            found = load_object(frame.payload, "RESET")
            topic, group = found.get("topic"), found.get("group")
            if found.keys() - _FIELDS or not isinstance(topic, str):
                raise PushPayloadError("RESET has the fields 'topic' and, optionally, 'group'")
        except PushPayloadError as error:
            self._refuse(frame.message_id, str(error))
            return
        number = next(iter(self.refreshable(topic, group if isinstance(group, str) else None)), 0)
        if not number:
            self._refuse(
                frame.message_id,
                f"this session has no fanout subscription of {topic[:255]!r} that can be refreshed",
            )
            return
        self._reactions.append(FindBounds(number, topic, frame.message_id))

    def refreshable(self, topic: str, group: str | None) -> list[int]:
        """Return the subscriptions of a topic, and of a group, that can be refreshed now."""
        if self.is_ending:
            return []
        return [
            one.number
            for one in self.subscriptions.values()
            if one.request.topic == topic
            and (group is None or one.request.group == group)
            and one.is_open
            and one.ending_id is None
            and one.positions
            and not one.request.publish
            # Neither a queue nor one that is refreshed already.
            and type(one) is Subscription
        ]

    def begin_refresh(
        self, number: int, bounds: Bounds, now: float, message_id: int | None = None
    ) -> list[Reaction]:
        """Send RESET, and answer the client's request for it."""
        before = self.subscriptions.get(number)
        if before is None or number not in self.refreshable(before.request.topic, None):
            if message_id is not None:
                self._refuse(message_id, "the subscription has ended, or is refreshed already")
            return self._take()
        self._last_id += 1
        reset_id = self._last_id
        refreshing = RefreshingSubscription(before, reset_id, bounds, now)
        self.subscriptions[number] = self._refreshing[number] = refreshing
        if message_id is not None:
            self._answer(message_id, {"id": str(reset_id)})
        document = {
            "id": str(reset_id),
            "subscription": number,
            "topic": before.request.topic,
            "V": vector_json(refreshing.ends),
            "records": sum(end - start for start, end in bounds.values()),
        }
        self._send(FrameType.RESET, reset_id, write_object(document), now)
        return self._take()

    def refresh_refused(self, message_id: int | None, error: str) -> list[Reaction]:
        """The bounds of a topic are not known here."""
        if message_id is not None:
            self._refuse(message_id, error, "NOT_LEADER_OR_FOLLOWER")
        return self._take()

    # --- Answers ---

    def _acknowledge(self, frame: Frame, now: float) -> None:
        for one in self._refreshing.values() if self._refreshing else ():
            if one.control_id == frame.message_id and one.phase is not Phase.LOADING:
                self._answered(one, frame, now)
                return
        super()._acknowledge(frame, now)

    def _answered(self, one: RefreshingSubscription, frame: Frame, now: float) -> None:
        kind = frame.payload[0] if len(frame.payload) == 1 else ACCEPT
        if len(frame.payload) > 1 or kind not in (ACCEPT, *_DECLINED):
            raise PushFrameError("the payload of an ACK of RESET or READY is empty, 1, 2 or 3")
        if kind in _DECLINED:
            self._replace(one, one.declined())
        elif one.phase is Phase.ENDING:
            self._replace(one, one.refreshed())
            self._commit_if_due(self.subscriptions[one.number], now, is_forced=True)
        else:
            one.load()
            if one.is_loaded:
                self._send(*self._ready_frame(one, now), now)

    def _replace(self, one: RefreshingSubscription, after: Subscription) -> None:
        del self._refreshing[one.number]
        if self.subscriptions.get(one.number) is one:
            self.subscriptions[one.number] = after

    def _ready_frame(self, one: RefreshingSubscription, now: float) -> tuple[FrameType, int, bytes]:
        self._last_id += 1
        one.end(self._last_id, now)
        document = {
            "id": str(one.reset_id),
            "subscription": one.number,
            "topic": one.request.topic,
            "V": vector_json(one.ends),
        }
        return FrameType.READY, self._last_id, write_object(document)

    # --- Deliveries and time ---

    def deliver(
        self, wanted: Wanted, run: Run, bytes_max: int, now: float
    ) -> tuple[list[bytes], int]:
        """Return frames with records of a run, and their bytes; READY follows the last of them."""
        frames, size = super().deliver(wanted, run, bytes_max, now)
        one = self._refreshing.get(wanted.number) if self._refreshing else None
        if one is not None and one.is_loaded:
            frames = [*frames, encode_frame(*self._ready_frame(one, now))]
        return frames, size

    def _forget(self, subscription: Subscription) -> None:
        self._refreshing.pop(subscription.number, None)
        super()._forget(subscription)

    def _expire(self, now: float) -> None:
        super()._expire(now)
        for one in tuple(self._refreshing.values()):
            if one.phase is Phase.LOADING or now < one.deadline:
                continue
            if one.phase is Phase.ASKED:
                self._replace(one, one.declined())
            else:
                self._end(
                    f"READY was not acknowledged within {READY_SECONDS_MAX:.0f} s",
                    INVALID_REQUEST,
                    now,
                )

    def check_at(self) -> float:
        """Return when `tick` is needed at the latest."""
        times = [
            one.deadline for one in self._refreshing.values() if one.phase is not Phase.LOADING
        ]
        return min([super().check_at(), *times])
