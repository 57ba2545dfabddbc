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

from bisect import bisect_right
from typing import Final

from penstock.edge.push import limits
from penstock.edge.push.reactions import (
    Authenticate,
    Commit,
    Open,
    OpenedTopic,
    Publish,
    Published,
    Reaction,
    Wanted,
)
from penstock.edge.push.record_runs import Run
from penstock.edge.push.session_core import INVALID_REQUEST, SessionCore, State
from penstock.edge.push.session_subscription import Subscription
from penstock.protocol.push.data import decode_data
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
    read_commit,
    read_subscribe,
    vector_json,
    write_refusal,
)

ACCEPT: Final = 1
ACK_KINDS: Final = (1, 2, 3, 4)
NUMBER_MAX: Final = 65_535
_OWNERS_MIN: Final = 1_024


class PushSession(SessionCore):
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
        self._last_id = 0
        self._owners: list[tuple[int, int]] = []
        """(first message id, subscription) of each run of deliveries, in order."""
        self._owners_max = _OWNERS_MIN
        self._turn: list[int] = []
        self.delivered_records = 0

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
        return self._handle_frames(now)

    def _handle_frames(self, now: float) -> list[Reaction]:
        records: list[Published] = []
        try:
            while not self._is_checking and not self.is_ending and not self._is_full:
                frame = self._reader.next_frame()
                if frame is None:
                    break
                self._has_frame = True
                self._handle(frame, records, now)
        except PushFrameError as error:
            self._break(str(error), now)
        if records:
            self._reactions.append(Publish(records))
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
            case _:
                self._refuse(
                    frame.message_id,
                    f"{frame.type.name} is not accepted: this broker has no data set to refresh",
                    "UNSUPPORTED_FOR_MESSAGE_FORMAT",
                )

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

    def authentication_failed(self, error: str, now: float) -> list[Reaction]:
        """The credentials were not accepted: the session ends."""
        assert self._waiting_subscribe is not None
        (message_id, _), self._waiting_subscribe = self._waiting_subscribe, None
        self._is_checking = False
        if not self.is_ending:
            self._refuse(message_id, error, "SASL_AUTHENTICATION_FAILED")
            self._end(error, "SASL_AUTHENTICATION_FAILED", now)
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
        subscription.open(topic)
        answer: dict[str, object] = {
            "subscription": number,
            "partitions": vector_json(subscription.positions),
            "partition_count": topic.partition_count,
        }
        if topic.elsewhere:
            answer["elsewhere"] = vector_json(topic.elsewhere)
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
            else:
                self._forget(one)
        if not any(one.ending_id == message_id for one in same):
            self._answer(message_id, {"unsubscribed": topic})

    # --- Delivery ---

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
        if found.frame_count:
            if not self._owners or self._owners[-1][1] != wanted.number:
                self._add_owner(self._last_id + 1, wanted.number)
            self._last_id += found.frame_count
            self._last_sent_at = now
            self.delivered_records += found.record_count
        return found.frames, found.size_bytes

    def news(self, number: int, partition: int) -> None:
        """A partition may have records at its position."""
        subscription = self.subscriptions.get(number)
        if subscription is not None:
            subscription.news(partition)

    def sent(self, now: float) -> list[Reaction]:
        """The socket accepted all bytes: subscriptions with `auto_ack` are acknowledged."""
        for subscription in tuple(self.subscriptions.values()):
            if subscription.request.auto_ack and subscription.unacknowledged_count:
                subscription.acknowledge(self._last_id)
                self._commit_if_due(subscription, now)
        return self._take()

    def _add_owner(self, first_id: int, number: int) -> None:
        if len(self._owners) >= self._owners_max:
            # Forget runs that are acknowledged; the others are bounded by credit.
            lowest = min(one.first_unacknowledged(first_id) for one in self.subscriptions.values())
            self._owners = self._owners[
                max(0, bisect_right(self._owners, lowest, key=_first_id) - 1) :
            ]
            self._owners_max = max(_OWNERS_MIN, 2 * len(self._owners))
        self._owners.append((first_id, number))

    def _acknowledge(self, frame: Frame, now: float) -> None:
        kind = frame.payload[0] if len(frame.payload) == 1 else ACCEPT
        if len(frame.payload) > 1 or kind not in ACK_KINDS:
            raise PushFrameError("the payload of an ACK is not empty and not one byte from 1 to 4")
        if frame.message_id > self._last_id:
            raise PushFrameError(
                f"an ACK names message {frame.message_id}, the last one sent is {self._last_id}"
            )
        index = bisect_right(self._owners, frame.message_id, key=_first_id) - 1
        if index < 0:
            return
        subscription = self.subscriptions.get(self._owners[index][1])
        if subscription is None:
            return
        if kind != ACCEPT:
            raise PushFrameError(
                f"an ACK with {kind} names a fanout subscription, which only accepts (1)"
            )
        subscription.acknowledge(frame.message_id)
        self._commit_if_due(subscription, now)

    # --- Publish ---

    def _data_bound(self, number: int) -> int:
        """Return the largest payload of a DATA frame of the client."""
        subscription = self.subscriptions.get(number)
        if subscription is None or not subscription.is_open:
            raise PushFrameError(f"a DATA frame names subscription {number}, which is not open")
        return subscription.message_bytes_max

    def _publish(self, frame: Frame, records: list[Published]) -> None:
        data = decode_data(frame.payload)
        subscription = self.subscriptions[data.subscription]
        if not -1 <= data.partition < subscription.partition_count:
            self._refuse(
                frame.message_id,
                f"{subscription.request.topic} has {subscription.partition_count} partitions, "
                f"there is no partition {data.partition}",
                "UNKNOWN_TOPIC_OR_PARTITION",
            )
            return
        size = len(frame.payload)
        if not self.publishes.begin(frame.message_id, size):
            raise PushFrameError(f"message id {frame.message_id} is used by a publish in progress")
        topic, count = subscription.request.topic, subscription.partition_count
        records.append(Published(frame.message_id, topic, data, size, count))

    def published(self, message_id: int, partition: int, offset: int, now: float) -> list[Reaction]:
        """A published record is on disk."""
        return self._publish_done(
            message_id, b'{"partition":%d,"offset":%d}' % (partition, offset), now
        )

    def publish_refused(self, message_id: int, refusal: Refusal, now: float) -> list[Reaction]:
        """A published record was not appended, or is not known to be on disk."""
        return self._publish_done(message_id, write_refusal(refusal), now)

    def _publish_done(self, message_id: int, payload: bytes, now: float) -> list[Reaction]:
        was_full = self.publishes.is_full
        self.publishes.end(message_id)
        if self.state is not State.CLOSED:
            self._acknowledge_with(message_id, payload)
            self._last_sent_at = now
        if self.state is State.DRAINING:
            self._close_if_drained(now)
        if was_full and not self.is_ending:
            return self._handle_frames(now)
        return self._take()

    # --- Commits ---

    def _commit_offset(self, frame: Frame) -> None:
        try:
            offsets = read_commit(frame.payload)
        except PushPayloadError as error:
            self._refuse(frame.message_id, str(error))
            return
        by_topic = {
            one.request.topic: one
            for one in self.subscriptions.values()
            if one.is_open and one.has_group
        }
        missing = sorted(offsets.keys() - by_topic.keys())
        if missing:
            self._refuse(
                frame.message_id,
                f"COMMIT_OFFSET names {missing[0][:249]}, which has no subscription with a group "
                "in this session",
            )
            return
        if frame.message_id in self._commits:
            raise PushFrameError(f"message id {frame.message_id} is used by a commit in progress")
        self._commits[frame.message_id] = len(offsets), None
        for topic, positions in offsets.items():
            number, group = by_topic[topic].number, by_topic[topic].request.group
            assert group is not None
            self._reactions.append(Commit(number, group, topic, positions, frame.message_id))

    def validate(self) -> None:
        """Assert the invariants."""
        assert len(self.subscriptions) <= limits.SUBSCRIPTIONS_MAX
        assert self._opening.keys() <= self.subscriptions.keys()
        for subscription in self.subscriptions.values():
            subscription.validate()
        self.publishes.validate()
        assert [first for first, _ in self._owners] == sorted({first for first, _ in self._owners})


def _first_id(run: tuple[int, int]) -> int:
    return run[0]
