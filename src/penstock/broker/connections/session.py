"""One connection: its requests in order, its answers in the same order, and how many at once.

Requests are handled as they arrive; an answer that is ready early waits for those before it.
Guarantees:

- answers leave in the order of requests, however they complete;
- at most `REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX` requests of a connection are being handled, and
  none behind a fetch, JoinGroup or SyncGroup that waits, behind a produce that is not appended
  yet, or behind answers of `WRITE_BUFFER_BYTES_HIGH` that cannot leave yet: for a client that asks
  for much and reads nothing one large answer is built, not sixty-four;
- the bytes of a request count against the node's budget until it is answered. A fetch,
  JoinGroup or SyncGroup that waits holds none: the client says how long that is, and others must
  not wait for it. The coordinator bounds the memory that a group keeps of it;
- while a quota is set, each request is charged to its client once, its answer says how long the
  client is to wait, and the owner pauses reading meanwhile. Answers are still sent;
- a request whose client is gone waits for nothing, and a fetch whose client sends no more is
  answered with the records available.

It knows neither sockets nor the event loop: `listener` passes it functions to write and to
close.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from penstock.broker.answers import (
    DEFECT,
    Answer,
    BrokenRequest,
    EncodedAnswer,
    HoldingAnswer,
    NoAnswer,
    WaitingAnswer,
)
from penstock.broker.connections.throttled import throttled
from penstock.broker.dispatch import Dispatcher
from penstock.broker.pacing.budget import MemoryBudget
from penstock.broker.peer import UNKNOWN_PEER, Peer
from penstock.broker.quotas.meter import RequestMeter
from penstock.broker.wide_requests import WrittenAnswer
from penstock.core.cancellation import Cancellation
from penstock.core.deferred import Deferred
from penstock.core.errors import PeerError
from penstock.core.limits import (
    ELEMENTS_ON_LOOP_MAX,
    REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX,
    WRITE_BUFFER_BYTES_HIGH,
)
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.codec import Message
from penstock.protocol.connection import Request, encode_response_frame
from penstock.protocol.element_count import has_more_elements
from penstock.protocol.encoder_source import Buffer
from penstock.protocol.response_errors import error_codes

if TYPE_CHECKING:
    from penstock.broker.connections.client_login import ClientLogin

logger = logging.getLogger(__name__)

CLIENT_ID_CHARACTERS_MAX: Final = 249
"""As of a topic's name."""

WAITING_APIS: Final = (ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
"""Requests whose answer waits by their client's wish, for up to half an hour: for records, or for
the other members of a group. They hold no bytes of the budget, and a connection has one at most."""


class Writer(Protocol):
    """Sends answers."""

    def __call__(self, buffers: list[Buffer], size_bytes: int) -> None:
        """Send the buffers, `size_bytes` in total."""
        ...


def _write_nowhere(buffers: list[Buffer], size_bytes: int) -> None:
    """The connection is gone."""


def _do_nothing() -> None:
    """The connection is gone."""


def _mute_nobody(wait_ms: int) -> None:
    """The connection is gone."""


class _Slot:
    """The place of one answer."""

    __slots__ = ("buffers", "meter", "received_at", "request", "size_bytes", "waiting")

    def __init__(self, request: Request, received_at: float) -> None:
        self.request = request
        self.received_at = received_at
        self.buffers: list[Buffer] | None = None
        self.size_bytes = 0
        self.waiting: WaitingAnswer | None = None
        """Notified when the client abandons the answer. It refers to this slot in turn, so it is
        removed as soon as the answer is set."""
        self.meter: RequestMeter | None = None
        """Only while a quota is set."""


class Session:
    """The requests of one connection."""

    __slots__ = (
        "_budget",
        "_client",
        "_close",
        "_dispatcher",
        "_encodings",
        "_held_bytes",
        "_is_collecting",
        "_is_held",
        "_is_hurried",
        "_mute",
        "_quotas",
        "_received_at",
        "_requests",
        "_slots",
        "_write",
        "client_id",
        "is_closed",
        "is_muted",
        "is_open",
        "login",
        "number",
        "on_peer_error",
        "on_room",
        "opened_at",
        "peer",
        "time",
        "wants_room",
    )

    def __init__(
        self,
        dispatcher: Dispatcher,
        budget: MemoryBudget,
        write: Writer,
        close: Callable[[], None],
        on_room: Callable[[], None],
        mute: Callable[[int], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._requests = dispatcher.requests
        self._budget = budget
        self._write = write
        self._close = close
        self.on_room = on_room
        self._mute = mute
        self.on_peer_error: Callable[[PeerError], None] | None = None
        """Called instead of `close` when a request was found late to be broken."""
        self._quotas = dispatcher.quotas
        self._client = Cancellation()
        """Cancelled with the connection, so that reads on threads end early."""
        self.peer = UNKNOWN_PEER
        """The client; the owner sets it when it knows it."""
        self.number = 0
        """Its place among all connections of the broker; the owner sets it."""
        self.opened_at = 0.0
        """The time of the connection on the monotonic clock; the owner sets it."""
        self.client_id: str | None = None
        """Of the last request, its beginning: it is kept as long as the connection."""
        self.is_open = False
        """Whether the client may send requests, if it has logged in."""
        self.login: ClientLogin | None = None
        """Of a listener with SASL: it renews the session, or ends it."""
        self._slots: deque[_Slot] = deque()
        self._held_bytes = 0
        self._encodings = 0
        """Answers that a thread encodes. No request is handled behind them: they take much
        memory."""
        self._is_collecting = False
        self._is_held = False
        self._is_hurried = False
        self._received_at = 0.0
        """When the last bytes arrived: requests are complete since then, however late they are
        handled, because nothing is read while some are held back."""
        self.time = 0.0
        """The last reading of the clock; requests that are handled in a row share it."""
        self.is_closed = False
        self.is_muted = False
        """Set by the owner while the client has to wait for a quota."""
        self.wants_room = False
        """Set by the owner when it holds requests back because there is no room. After a burst the
        owner checks itself whether there is room again; later `on_room` is called."""

    @property
    def in_flight(self) -> int:
        """Requests that wait for their answer or for their turn."""
        return len(self._slots)

    @property
    def has_room(self) -> bool:
        """Whether another request may be handled now."""
        return (
            len(self._slots) < REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX
            and self._held_bytes < WRITE_BUFFER_BYTES_HIGH
            and not self._is_held
            and not self._encodings
            and not self.is_muted
        )

    def meet(self, peer: Peer, *, is_open: bool) -> None:
        """Take the client; it is not open before the end of its TLS handshake."""
        self.peer, self.is_open = peer, is_open

    def received(self) -> None:
        """Bytes arrived just now."""
        self._received_at = self.time = self._requests.monotonic()

    def resumed(self) -> None:
        """Requests that were held back are handled now."""
        self.time = self._requests.monotonic()

    def begin_burst(self) -> None:
        """Hold answers back until `end_burst`, so that pipelined requests share one write."""
        self._is_collecting = True

    def end_burst(self) -> None:
        """Send the answers that have become ready since `begin_burst`."""
        if self._slots and self._slots[0].buffers is not None:
            self._send_ready()
        self._is_collecting = False

    def handle(self, request: Request) -> None:
        """Start one request. Raises `PeerError` when its bytes are not a request."""
        slot = _Slot(request, self._received_at)
        client_id = request.client_id
        self.client_id = client_id and client_id[:CLIENT_ID_CHARACTERS_MAX]
        if self._quotas.is_active:
            slot.meter = self._metered(request)
        answer: Answer | Deferred[Answer] | None = None
        if self.login is not None and self.login.concerns(request.api_key):
            answer = self.login.renew(request)
        if answer is None:
            answer = self._dispatcher.dispatch(request, self.peer, slot.meter, self._client)
        if slot.meter is not None:
            slot.meter.end()
        self._slots.append(slot)
        if isinstance(answer, Deferred):
            if request.api_key != ApiKey.PRODUCE and request.api_key in WAITING_APIS:
                self._is_held = True
                request.forget_body()
            elif isinstance(answer, HoldingAnswer) and answer.is_holding:
                self._is_held = True
                answer.on_release = self._released
            self._budget.reserve(request.frame_bytes)
            answer.then(lambda result: self._complete(slot, result))
            if isinstance(answer, WaitingAnswer) and not answer.is_set:
                slot.waiting = answer
                if self._is_hurried:
                    answer.waiter.hurry()
        else:
            self._budget.reserve(request.frame_bytes)
            self._complete(slot, answer)
        now = self._requests.monotonic()
        self._requests.handled(request.api_key, now - self.time)
        self.time = now

    def _metered(self, request: Request) -> RequestMeter:
        meter = RequestMeter(self._quotas, request.client_id, self.peer.principal.name)
        if request.api_key == ApiKey.PRODUCE:
            wait_ms = meter.charge_produce(request.frame_bytes)
            if wait_ms:
                # Now, and not when it is answered: the client's later requests have to wait.
                self._mute(wait_ms)
        return meter

    def close(self) -> None:
        """The connection is closed: later answers are dropped."""
        self.is_closed = True
        # The owner refers to the session: these are the references back.
        self._write = _write_nowhere
        self._close = self.on_room = _do_nothing
        self._mute = _mute_nobody
        self.on_peer_error = None
        self._client.cancel()
        while self._slots:
            slot = self._slots.popleft()
            self._budget.release(slot.request.frame_bytes)
            waiting, slot.waiting = slot.waiting, None
            if waiting is not None:
                waiting.waiter.abandon()

    def hurry(self) -> None:
        """The client sends no more: answer its fetches now with the records available."""
        self._is_hurried = True
        self.hurry_waiting()

    def hurry_waiting(self) -> None:
        """Answer the fetches that wait now with the records available."""
        for slot in tuple(self._slots):
            if slot.waiting is not None:
                slot.waiting.waiter.hurry()

    def _complete(self, slot: _Slot, answer: Answer) -> None:
        slot.waiting = None
        if self.is_closed:
            return
        if slot.meter is not None:
            answer = self._charged(slot.meter, slot.request, answer)
        if self._fill(slot, answer):
            self._filled(slot)

    def _filled(self, slot: _Slot) -> None:
        """The bytes of an answer are in its place: send them if it is their turn."""
        if not slot.request.frame_bytes:
            # It waited by its client's wish, and nothing was handled behind it.
            self._is_held = False
        if slot.meter is not None:
            slot.meter.finish()
        if not self._is_collecting and self._slots[0] is slot:
            self._send_ready()

    def _fill(self, slot: _Slot, answer: Answer) -> bool:
        """Put the answer in its place; False when it comes later or the connection is closed."""
        if isinstance(answer, EncodedAnswer):
            slot.buffers = [answer.frame]
            slot.size_bytes = len(answer.frame)
            self._held_bytes += slot.size_bytes
        elif isinstance(answer, NoAnswer):
            if answer.close_connection:
                if answer is DEFECT:
                    self._dispatcher.failed()
                if isinstance(answer, BrokenRequest) and self.on_peer_error is not None:
                    self.on_peer_error(answer.error)
                else:
                    self._close()
                return False
            slot.buffers = []
        elif has_more_elements(answer, ELEMENTS_ON_LOOP_MAX):
            self._encodings += 1
            written = partial(self._written, slot)
            self._dispatcher.write_wide(slot.request, answer, written, self._client)
            return False
        else:
            return self._encode(slot, answer)
        return True

    def _written(self, slot: _Slot, written: WrittenAnswer | None) -> None:
        """A thread has encoded an answer, or could not."""
        self._encodings -= 1
        if self.is_closed:
            return
        if written is None:
            self._close()
            return
        slot.buffers, slot.size_bytes = written.buffers, written.size_bytes
        self._held_bytes += slot.size_bytes
        self._requests.refused_often(slot.request.api_key, written.errors)
        self._filled(slot)

    def _charged(self, meter: RequestMeter, request: Request, answer: Answer) -> Answer:
        """Return the answer with its throttle time; the connection is not read from meanwhile."""
        # Exempt as in Kafka: a client that wants no answer, and requests between coordinators.
        is_exempt = isinstance(answer, NoAnswer) or request.api_key == ApiKey.WRITE_TXN_MARKERS
        wait_ms = meter.settle(is_exempt=is_exempt)
        if not wait_ms:
            return answer
        self._mute(wait_ms)
        return throttled(answer, request.api_version, wait_ms)

    def _encode(self, slot: _Slot, answer: Message) -> bool:
        """Whether the answer could be encoded; if not, that is a defect of ours."""
        try:
            slot.buffers = encode_response_frame(slot.request, answer)
            codes = error_codes(answer)
        except Exception:
            logger.exception("an answer cannot be written: %r", slot.request.api_key)
            self._dispatcher.failed()
            self._close()
            return False
        if codes:
            self._requests.refused(slot.request.api_key, codes)
        slot.size_bytes = sum(map(len, slot.buffers))
        self._held_bytes += slot.size_bytes
        return True

    def _send_ready(self) -> None:
        slots = self._slots
        out: list[Buffer] = []
        size_bytes = 0
        now = self.time if self._is_collecting else self._requests.monotonic()
        while slots and (buffers := slots[0].buffers) is not None:
            slot = slots.popleft()
            out += buffers
            size_bytes += slot.size_bytes
            self._budget.release(slot.request.frame_bytes)
            self._requests.answered(slot.request.api_key, now - slot.received_at)
        self._held_bytes -= size_bytes
        if out:
            self._write(out, size_bytes)
        self._offer_room()

    def _released(self) -> None:
        """The request that held back the later ones has had its effect."""
        self._is_held = False
        self._offer_room()

    def _offer_room(self) -> None:
        if self.wants_room and not self._is_collecting and self.has_room:
            self.wants_room = False
            self.on_room()
