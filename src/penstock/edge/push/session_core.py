"""`SessionCore`: the commits, the time limits and the end of a push session. Pure.

The base of `session.PushSession`, which has the frames, the subscriptions and the deliveries.
"""

from enum import Enum
from typing import Final

from penstock.edge.push import limits
from penstock.edge.push.publishes import PublishesInFlight
from penstock.edge.push.reactions import Close, Commit, Ended, Reaction, Send
from penstock.edge.push.session_subscription import Subscription
from penstock.protocol.push.frames import FrameType, encode_frame
from penstock.protocol.push.payloads import Refusal, write_object, write_refusal

INVALID_REQUEST: Final = "INVALID_REQUEST"


class State(Enum):
    """Where a session is."""

    OPEN = "open"
    AUTHENTICATED = "authenticated"
    SUBSCRIBED = "subscribed"
    DRAINING = "draining"
    CLOSED = "closed"


class SessionCore:
    """State that every event of a session uses."""

    def __init__(self, now: float, state: State) -> None:
        self.state = state
        self._opened_at = self._last_received_at = self._last_sent_at = now
        self._has_frame = False
        self._expires_at: float | None = None
        self._frame_began_at: float | None = None
        """When the first byte of an incomplete frame came."""
        self._drained_by = 0.0
        self._answers_disconnect = False
        self.subscriptions: dict[int, Subscription] = {}
        self.publishes = PublishesInFlight()
        self._commits: dict[int, tuple[int, Refusal | None]] = {}
        """COMMIT_OFFSET frames by message id: topics that are not committed yet, and a refusal."""
        self._reactions: list[Reaction] = []

    @property
    def opened_at(self) -> float:
        """When the client connected."""
        return self._opened_at

    @property
    def is_ending(self) -> bool:
        """Whether nothing is delivered any more."""
        return self.state is State.DRAINING or self.state is State.CLOSED

    @property
    def unacknowledged_bytes(self) -> int:
        """Delivered bytes that the client has not acknowledged."""
        return sum(one.unacknowledged_bytes for one in self.subscriptions.values())

    @property
    def _is_window_full(self) -> bool:
        """Whether the session must acknowledge before it gets more."""
        frames = sum(one.unacknowledged_count for one in self.subscriptions.values())
        return (
            self.unacknowledged_bytes >= limits.UNACKNOWLEDGED_BYTES_MAX
            or frames >= limits.UNACKNOWLEDGED_FRAMES_MAX
        )

    @property
    def _is_full(self) -> bool:
        """Whether too many requests are in progress to begin another."""
        return self.publishes.is_full or len(self._commits) >= limits.COMMITS_IN_FLIGHT_MAX

    @property
    def _is_settling(self) -> bool:
        """Whether acknowledgements of queues are not stored yet."""
        return False

    def _expire(self, now: float) -> None:
        """Forget records of queues whose lock expired."""

    def _handle_frames(self, now: float) -> list[Reaction]:  # noqa: ARG002 (of the session)
        """Handle received frames that waited for a request in progress."""
        return self._take()

    def check_at(self) -> float:
        """Return when `tick` is needed at the latest."""
        if self.state is State.DRAINING:
            return self._drained_by
        times = [
            self._last_received_at + limits.SILENCE_SECONDS_MAX,
            self._last_sent_at + limits.HEARTBEAT_SECONDS,
        ]
        if not self._has_frame:
            times.append(self._opened_at + limits.FIRST_FRAME_SECONDS_MAX)
        if self._expires_at is not None:
            times.append(self._expires_at)
        if self._frame_ends_at is not None:
            times.append(self._frame_ends_at)
        times += (
            one.last_commit_at + limits.COMMIT_INTERVAL_SECONDS
            for one in self.subscriptions.values()
            if one.acknowledged and one.committing is None
        )
        return min(times)

    # --- Commits ---

    def _commit_if_due(
        self, subscription: Subscription, now: float, *, is_forced: bool = False
    ) -> None:
        """Commit the acknowledged positions, if it is time and no commit is in progress."""
        if not subscription.acknowledged or subscription.committing is not None:
            return
        if is_forced or now >= subscription.last_commit_at + limits.COMMIT_INTERVAL_SECONDS:
            request = subscription.request
            assert request.group is not None
            offsets = subscription.begin_commit(now)
            self._reactions.append(
                Commit(subscription.number, request.group, request.topic, offsets, None)
            )

    def committed(self, number: int, message_id: int | None, now: float) -> list[Reaction]:
        """Offsets are committed."""
        if message_id is not None:
            self._topic_committed(message_id, None)
        else:
            self._commit_ended(number, now, is_committed=True)
        self._close_if_drained(now)
        return self._handle_frames(now)

    def commit_refused(
        self, number: int, message_id: int | None, refusal: Refusal, now: float
    ) -> list[Reaction]:
        """Offsets are not committed; a refusal that is not retriable ends the session."""
        if message_id is not None:
            self._topic_committed(message_id, refusal)
        else:
            self._commit_ended(number, now, is_committed=not refusal.retriable)
            if not refusal.retriable and not self.is_ending:
                self._end(f"offsets cannot be committed: {refusal.error}", refusal.code, now)
        self._close_if_drained(now)
        return self._handle_frames(now)

    def _topic_committed(self, message_id: int, refusal: Refusal | None) -> None:
        """A topic of COMMIT_OFFSET is done; the answer follows the last one."""
        left, before = self._commits.pop(message_id)
        refusal = before or refusal
        if left > 1:
            self._commits[message_id] = left - 1, refusal
        elif refusal is None:
            self._answer(message_id, {})
        elif self.state is not State.CLOSED:
            self._acknowledge_with(message_id, write_refusal(refusal))

    def _commit_ended(self, number: int, now: float, *, is_committed: bool) -> None:
        subscription = self.subscriptions.get(number)
        if subscription is None:
            return
        subscription.commit_done(is_committed=is_committed)
        ending_id = subscription.ending_id
        if ending_id is None and self.state is not State.DRAINING:
            return
        if is_committed and subscription.acknowledged:
            self._commit_if_due(subscription, now, is_forced=True)
        elif is_committed and ending_id is not None:
            self._forget(subscription)
            self._unsubscribed(ending_id, subscription.request.topic)

    def _unsubscribed(self, message_id: int, topic: str) -> None:
        """Answer when the last subscription that the request ends has ended."""
        if not any(one.ending_id == message_id for one in self.subscriptions.values()):
            self._answer(message_id, {"unsubscribed": topic})

    def _forget(self, subscription: Subscription) -> None:
        del self.subscriptions[subscription.number]
        self._reactions.append(Ended(subscription.number))

    # --- Time and the end ---

    def tick(self, now: float) -> list[Reaction]:
        """Do what is due at `now`."""
        if self.state is State.DRAINING and now >= self._drained_by:
            self._closed("the session did not end in time")
        if self.is_ending:
            return self._take()
        overdue = self._overdue(now)
        if overdue is not None:
            self._end(*overdue)
            return self._take()
        if now >= self._last_sent_at + limits.HEARTBEAT_SECONDS:
            self._send(FrameType.HEARTBEAT, 0, b"", now)
        for subscription in tuple(self.subscriptions.values()):
            self._commit_if_due(subscription, now)
        self._expire(now)
        return self._take()

    @property
    def _frame_ends_at(self) -> float | None:
        """Return when an incomplete frame must be complete; frames of a full session wait."""
        if self._frame_began_at is None or self._is_full:
            return None
        return self._frame_began_at + limits.FRAME_SECONDS_MAX

    def _overdue(self, now: float) -> tuple[str, str, float, int | None] | None:
        """Return why the session ends now, with the code, the time and the time to come back."""
        frame_ends_at = self._frame_ends_at
        if not self._has_frame and now >= self._opened_at + limits.FIRST_FRAME_SECONDS_MAX:
            return "no frame came within 10 s", INVALID_REQUEST, now, None
        if now >= self._last_received_at + limits.SILENCE_SECONDS_MAX:
            return "nothing came from the client for 45 s", "REQUEST_TIMED_OUT", now, None
        if frame_ends_at is not None and now >= frame_ends_at:
            return "a frame was not complete within 30 s", INVALID_REQUEST, now, None
        if self._expires_at is not None and now >= self._expires_at:
            return "the credentials expired", "SASL_AUTHENTICATION_FAILED", now, 0
        return None

    def drain(self, reason: str, code: str, retry_after_ms: int, now: float) -> list[Reaction]:
        """Send DISCONNECT with the reason, commit acknowledged positions, and close."""
        if not self.is_ending:
            self._end(reason, code, now, retry_after_ms)
        return self._take()

    def connection_lost(self, now: float) -> list[Reaction]:
        """The connection is gone: only the commits of acknowledged positions are left."""
        is_new = self.state is not State.CLOSED
        self.state = State.CLOSED
        if is_new:
            for subscription in self.subscriptions.values():
                if subscription.has_group:
                    self._commit_if_due(subscription, now, is_forced=True)
        return [one for one in self._take() if isinstance(one, Commit)]

    def _end(self, reason: str, code: str, now: float, retry_after_ms: int | None = None) -> None:
        """Send DISCONNECT, then end in order."""
        self._send_disconnect(reason, code, now, retry_after_ms)
        self._drain(now)

    def _break(self, reason: str, now: float) -> None:
        """The client broke the protocol."""
        self._end(reason, INVALID_REQUEST, now)

    def _send_disconnect(
        self, reason: str, code: str, now: float, retry_after_ms: int | None = None
    ) -> None:
        found: dict[str, object] = {"reason": reason[:1_000], "code": code}
        if retry_after_ms is not None:
            found["retry_after_ms"] = retry_after_ms
        self._send(FrameType.DISCONNECT, 0, write_object(found), now)

    def _drain(self, now: float) -> None:
        if self.is_ending:
            return
        self.state = State.DRAINING
        self._drained_by = now + limits.DRAIN_SECONDS_MAX
        for subscription in tuple(self.subscriptions.values()):
            if subscription.has_group:
                self._commit_if_due(subscription, now, is_forced=True)
        self._close_if_drained(now)

    def _close_if_drained(self, now: float) -> None:
        if self.state is not State.DRAINING or self._commits or len(self.publishes):
            return
        if self._is_settling:
            return
        if any(one.committing is not None for one in self.subscriptions.values()):
            return
        if self._answers_disconnect:
            self._send_disconnect("the client ended the session", "NONE", now)
        self._closed("the session ended")

    def _closed(self, reason: str) -> None:
        self.state = State.CLOSED
        self._reactions.append(Close(reason))

    # --- Frames ---

    def _send(self, frame_type: FrameType, message_id: int, payload: bytes, now: float) -> None:
        self._last_sent_at = now
        self._reactions.append(Send(encode_frame(frame_type, message_id, payload)))

    def _acknowledge_with(self, message_id: int, payload: bytes) -> None:
        self._reactions.append(Send(encode_frame(FrameType.ACK, message_id, payload)))

    def _answer(self, message_id: int, found: dict[str, object]) -> None:
        if self.state is not State.CLOSED:
            self._acknowledge_with(message_id, write_object(found))

    def _refuse(self, message_id: int, error: str, code: str = INVALID_REQUEST) -> None:
        self._acknowledge_with(message_id, write_refusal(Refusal(error=error, code=code)))

    def _take(self) -> list[Reaction]:
        taken, self._reactions = self._reactions, []
        return taken
