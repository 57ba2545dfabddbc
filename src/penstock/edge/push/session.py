"""`PushSession`: one session of the push protocol. Pure: no socket, no log, no clock.

    OPEN ──► AUTHENTICATED ──► SUBSCRIBED ──► DRAINING ──► CLOSED
      (credentials)    (first subscription)  (DISCONNECT, stop)

Events are bytes, results of reactions, and `tick`; each returns the reactions to carry out, in
order (`reactions`). Guarantees:

- nothing but SUBSCRIBE and DISCONNECT is accepted before the client is authenticated, and frames
  behind the credentials wait until these are checked;
- each request is answered once with its message id; a publish when its record is on disk;
- the log is read only for subscriptions with credit, and while the session has fewer than
  `UNACKNOWLEDGED_BYTES_MAX` unacknowledged bytes;
- a group's committed position is never above an unacknowledged record;
- a client that breaks the protocol gets DISCONNECT with the reason, and the session ends;
- the session ends after 10 s without a first frame, after 45 s of silence, when its credentials
  expire, and 5 s after DISCONNECT at the latest.

It does NOT check access or find offsets: `connection` does, through `ports`.
"""

from typing import Final

from penstock.edge.push import limits
from penstock.edge.push.queue_subscription import QueueSubscription
from penstock.edge.push.reactions import (
    Authenticate,
    Open,
    OpenedTopic,
    Publish,
    Published,
    Reaction,
)
from penstock.edge.push.refreshing import SessionRefreshes
from penstock.edge.push.session_core import INVALID_REQUEST, State
from penstock.edge.push.session_subscription import Subscription
from penstock.protocol.push.frames import (
    CONTROL_BYTES_MAX,
    Frame,
    FrameReader,
    FrameType,
    PushFrameError,
)
from penstock.protocol.push.payloads import (
    PushPayloadError,
    Refusal,
    SubscribeRequest,
    read_subscribe,
    vector_json,
    write_refusal,
)

ACCEPT: Final = 1
ACK_KINDS: Final = (1, 2, 3, 4)
NUMBER_MAX: Final = 65_535
_OWNERS_MIN: Final = 1_024


class PushSession(SessionRefreshes):
    """One session, without its connection."""

    def __init__(self, now: float, *, needs_credentials: bool) -> None:
        super().__init__(now, State.OPEN if needs_credentials else State.AUTHENTICATED)
        self._reader = FrameReader(
            self._data_bound,
            limits.FIRST_FRAME_BYTES_MAX if needs_credentials else CONTROL_BYTES_MAX,
        )
        self._is_checking = False
        """Whether credentials are being checked: later frames wait."""
        self._waiting_subscribe: tuple[int, SubscribeRequest] | None = None
        self._last_number = 0
        self._opening: dict[int, int] = {}
        """Subscription to the message id of its SUBSCRIBE, until it is open."""

    # --- Observed by the connection ---

    @property
    def is_reading_paused(self) -> bool:
        """Whether no more bytes should be received now."""
        return self._is_checking or self._is_full or self.is_ending

    @property
    def is_authenticated(self) -> bool:
        """Whether the client has an identity that its listener accepts."""
        return self.state is not State.OPEN

    @property
    def held_bytes(self) -> int:
        """Received bytes of incomplete frames."""
        return self._reader.held_bytes

    # --- Bytes of the client ---

    def receive(self, data: bytes | memoryview, now: float) -> list[Reaction]:
        """Handle received bytes."""
        if self.is_ending:
            return self._take()
        self._reader.feed(data)
        self._last_received_at = now
        reactions = self._handle_frames(now)
        if not self._reader.held_bytes:
            self._frame_began_at = None
        elif self._frame_began_at is None:
            self._frame_began_at = now
        return reactions

    def reading_resumed(self, now: float) -> None:
        """The connection reads again: a frame that the client could not complete has new time."""
        if self._frame_began_at is not None:
            self._frame_began_at = now

    def _handle_frames(self, now: float) -> list[Reaction]:
        records: list[Published] = []
        try:
            while not self._is_checking and not self.is_ending and not self._is_full:
                frame = self._reader.next_frame()
                if frame is None:
                    break
                self._has_frame = True
                self._frame_began_at = None
                self._handle(frame, records, now)
        except PushFrameError as error:
            self._break(str(error), now)
        if records:
            self._reactions.append(Publish(records))
        if self._settled:
            self._settle_soon()
        return self._take()

    def _handle(self, frame: Frame, records: list[Published], now: float) -> None:
        match frame.type:
            case FrameType.SUBSCRIBE:
                self._subscribe(frame, now)
            case FrameType.DISCONNECT:
                self._answers_disconnect = True
                self._drain(now)
            case _ if not self.is_authenticated:
                raise PushFrameError(
                    f"a {frame.type.name} frame came before the client was authenticated; "
                    "send SUBSCRIBE with user and password, or a token, first"
                )
            case FrameType.HEARTBEAT:
                pass
            case FrameType.ACK:
                self._acknowledge(frame, now)
            case FrameType.DATA:
                self._publish(frame, records)
            case FrameType.COMMIT_OFFSET:
                self._commit_offset(frame)
            case FrameType.RESET:
                self._ask_refresh(frame)
            case _:
                self._refuse(frame.message_id, f"{frame.type.name} is sent by the broker only")

    # --- Authentication ---

    def _subscribe(self, frame: Frame, now: float) -> None:
        try:
            request = read_subscribe(frame.payload)
        except PushPayloadError as error:
            self._refuse(frame.message_id, str(error))
            if not self.is_authenticated:
                self._end("the first SUBSCRIBE was refused", INVALID_REQUEST, now)
            return
        if self.is_authenticated:
            self._begin(frame.message_id, request, now)
            return
        self._is_checking = True
        self._waiting_subscribe = frame.message_id, request
        self._reactions.append(Authenticate(request.credentials))

    def authenticated(self, now: float, expires_at: float | None = None) -> list[Reaction]:
        """The credentials were accepted, until `expires_at`."""
        assert self._waiting_subscribe is not None
        (message_id, request), self._waiting_subscribe = self._waiting_subscribe, None
        self._is_checking = False
        if self.is_ending:
            return self._take()
        self.state, self._expires_at = State.AUTHENTICATED, expires_at
        self._reader.control_bytes_max = CONTROL_BYTES_MAX
        self._begin(message_id, request, now)
        return self._handle_frames(now)

    def authentication_failed(
        self,
        error: str,
        now: float,
        code: str = "SASL_AUTHENTICATION_FAILED",
        *,
        retriable: bool = False,
    ) -> list[Reaction]:
        """The credentials were not accepted: the session ends."""
        assert self._waiting_subscribe is not None
        (message_id, _), self._waiting_subscribe = self._waiting_subscribe, None
        self._is_checking = False
        if not self.is_ending:
            refusal = Refusal(error=error, code=code, retriable=retriable)
            self._acknowledge_with(message_id, write_refusal(refusal))
            self._end(error, code, now)
        return self._take()

    # --- Subscriptions ---

    def _begin(self, message_id: int, request: SubscribeRequest, now: float) -> None:
        same = [one for one in self.subscriptions.values() if one.request.topic == request.topic]
        if request.is_unsubscribe:
            self._unsubscribe(message_id, request.topic, same, now)
        elif any(one.request.publish == request.publish for one in same):
            self._refuse(message_id, f"this session has a subscription of {request.topic} already")
        elif len(self.subscriptions) >= limits.SUBSCRIPTIONS_MAX:
            self._refuse(
                message_id, f"a session has at most {limits.SUBSCRIPTIONS_MAX} subscriptions"
            )
        elif request.start == "committed" and request.group is None:
            self._refuse(message_id, "'from' is committed, which needs a 'group'")
        else:
            number = self._new_number()
            self.subscriptions[number] = Subscription(number, request)
            self._opening[number] = message_id
            self._reactions.append(Open(number, request))

    def _new_number(self) -> int:
        """Return a number that no subscription has; numbers have 16 bits."""
        number = self._last_number % NUMBER_MAX + 1
        while number in self.subscriptions:
            number = number % NUMBER_MAX + 1
        self._last_number = number
        return number

    def opened(self, number: int, topic: OpenedTopic, now: float) -> list[Reaction]:
        """The subscription may begin."""
        message_id = self._opening.pop(number, None)
        if message_id is None or self.is_ending:
            return self._take()
        self.state = State.SUBSCRIBED
        subscription = self.subscriptions[number]
        if topic.queue_group is not None:
            subscription = QueueSubscription(number, subscription.request)
            self.subscriptions[number], self._has_queue = subscription, True
        subscription.open(topic)
        answer: dict[str, object] = {
            "subscription": number,
            "partitions": vector_json(subscription.positions),
            "partition_count": topic.partition_count,
        }
        if topic.elsewhere:
            answer["elsewhere"] = vector_json(topic.elsewhere)
            answer["addresses"] = {str(one): at for one, at in topic.addresses.items()}
        if topic.queue_group is not None:
            lock_ms = round(topic.lock_seconds * 1000)
            answer |= {"mode": "queue", "group": topic.queue_group, "lock_ms": lock_ms}
        self._answer(message_id, answer)
        self._commit_if_due(subscription, now)
        return self._take()

    def open_refused(self, number: int, refusal: Refusal) -> list[Reaction]:
        """The subscription may not begin."""
        message_id = self._opening.pop(number, None)
        self.subscriptions.pop(number, None)
        if message_id is not None and not self.is_ending:
            self._acknowledge_with(message_id, write_refusal(refusal))
        return self._take()

    def _unsubscribe(
        self, message_id: int, topic: str, same: list[Subscription], now: float
    ) -> None:
        if not same or any(one.number in self._opening for one in same):
            self._refuse(message_id, f"this session has no subscription of {topic}")
            return
        for one in same:
            if one.has_group and (one.acknowledged or one.committing is not None):
                one.ending_id = message_id
                self._commit_if_due(one, now, is_forced=True)
            elif isinstance(one, QueueSubscription) and one.settling_count:
                one.ending_id = message_id
            else:
                self._forget(one)
        self._unsubscribed(message_id, topic)

    def validate(self) -> None:
        """Assert the invariants."""
        assert len(self.subscriptions) <= limits.SUBSCRIPTIONS_MAX
        assert self._opening.keys() <= self.subscriptions.keys()
        for subscription in self.subscriptions.values():
            subscription.validate()
        self.publishes.validate()
        assert [first for first, _ in self._owners] == sorted({first for first, _ in self._owners})
