"""`PushConnection`: carries out the reactions of one push session on its transport.

Guarantees:

- records are written in turns of `TURN_BYTES`, and only while the socket accepts them: a slow
  consumer holds one turn of bytes beside its unacknowledged ones, and costs others nothing;
- a partition without records is parked in the step that found it empty (`feeds`);
- a read that misses the page cache, and a run with many records, are done on a thread, and the
  other subscriptions go on meanwhile;
- access to a topic is checked again in each turn, so changed rules apply at once;
- a defect of ours ends this connection and no other.

It decides nothing about the protocol: `session` does.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Final, cast

from penstock.core.errors import PenstockError
from penstock.edge.push import limits
from penstock.edge.push.pauses import Pauses
from penstock.edge.push.ports import PushDoor, PushRefusedError
from penstock.edge.push.publishing import Outcome, publish_all
from penstock.edge.push.queue_ports import QueueMember
from penstock.edge.push.queues.session_queues import SessionQueues
from penstock.edge.push.reactions import (
    Authenticate,
    Close,
    Commit,
    Ended,
    FindBounds,
    Open,
    Publish,
    Published,
    Reaction,
    Send,
    Settle,
    Settled,
)
from penstock.edge.push.reads import SessionReads
from penstock.edge.push.refresh_starts import begin_refresh
from penstock.edge.push.session import PushSession
from penstock.edge.push.shared import PushShared
from penstock.protocol.push.payloads import Refusal

logger = logging.getLogger(__name__)

TOO_MANY: Final = "this principal has too many push sessions (edge.sessions_per_principal_max)"


class PushConnection(asyncio.BufferedProtocol):
    """One connection of a push client."""

    __slots__ = (
        "_address",
        "_is_closing",
        "_is_reading_paused",
        "_is_writable",
        "_pauses",
        "_queues",
        "_reads",
        "_server",
        "_stalled_at",
        "check_at",
        "check_key",
        "client",
        "door",
        "held_bytes",
        "is_queued",
        "next_partition",
        "number",
        "session",
        "transport",
    )

    def __init__(self, server: PushShared, door: PushDoor) -> None:
        self._server = server
        self.door = door
        self.session = PushSession(server.loop.time(), needs_credentials=door.needs_credentials)
        self.client: object = None
        self.number = 0
        self._address = ""
        self.transport: asyncio.Transport | None = None
        self._is_writable = True
        self._stalled_at = 0.0
        self._is_reading_paused = False
        self._is_closing = False
        self.is_queued = False
        """Whether it waits for its turn."""
        self.held_bytes = 0
        self._reads = SessionReads(self, self.session, server)
        self._queues = SessionQueues(self, self.session, server)
        self._pauses = Pauses(server.loop)
        self.next_partition = 0
        """The partition of the next published record without a key."""
        self.check_at = 0.0
        self.check_key = -1

    @property
    def address(self) -> str:
        """The address that the client connects from."""
        return self._address

    @property
    def unsent_bytes(self) -> int:
        """Bytes that its socket has not accepted."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    # --- Called by the event loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected; above a limit it is closed at once."""
        self.transport = cast("asyncio.Transport", transport)
        self.client, self._address = self.door.client_of(transport)
        if not self._server.admit(self):
            self.transport.abort()
            return
        self.transport.set_write_buffer_limits(high=limits.WRITE_BUFFER_BYTES_HIGH)
        self._server.check_by(self, self.session.check_at())

    def secured(self, certificate: bytes | None) -> None:
        """The TLS handshake is complete; `certificate` is the client's, in DER."""
        try:
            self.client = self.door.secured(self.client, certificate)
        except PenstockError as error:
            logger.info("closing the push connection from %s: %s", self._address, error)
            self.abort()
            return
        principal = None if self.door.needs_credentials else self.door.principal_of(self.client)
        if principal is not None and not self._server.proven(self, principal):
            self.drain(TOO_MANY, "POLICY_VIOLATION", limits.RETRY_AFTER_MS_MAX)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (asyncio's)
        """The buffer for the next bytes, which all connections share."""
        return self._server.arena

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes were received."""
        self._server.counters.received_bytes.value += nbytes
        self.receive(self._server.arena[:nbytes])

    def receive(self, data: bytes | memoryview) -> None:
        """Handle received bytes."""
        try:
            self.carry_out(self.session.receive(data, self._server.loop.time()))
            if self.session.held_bytes != self.held_bytes:
                self._server.holds(self, self.session.held_bytes)
        except Exception:
            logger.exception("frames of the push client at %s failed", self._address)
            self._failed()

    def eof_received(self) -> bool:
        """The client will send no more, so it will acknowledge no more."""
        return False

    def pause_writing(self) -> None:
        """The client reads slowly."""
        self._is_writable = False
        self._stalled_at = self._server.loop.time()
        self._server.stalled(self)
        self._settle()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._is_writable = True
        self._server.caught_up(self)
        self._all_sent()
        self.turn_soon()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's)
        """The connection is gone; its acknowledged positions are committed."""
        self.transport = None
        self._server.dismiss(self)
        self._reads.forget(None)
        self._pauses.cancel()
        self._queues.end(None)
        for reaction in self.session.connection_lost(self._server.loop.time()):
            assert isinstance(reaction, Commit)
            self.start(self._commit(reaction))

    # --- Called by the server ---

    def news(self, number: int, partition: int) -> None:
        """A partition may have records for a subscription."""
        self._reads.unparked(number, partition)
        self.session.news(number, partition)
        self.turn_soon()

    def tick(self, now: float) -> None:
        """Do what is due."""
        stall_ends_at = self._stalled_at + limits.STALL_SECONDS_MAX
        if not self._is_writable and now >= stall_ends_at:
            logger.info("closing the push connection from %s: it reads nothing", self._address)
            self.abort()
            return
        expired = self.session.expired_records
        self.carry_out(self.session.tick(now))
        if self.session.expired_records != expired:
            self._server.counters.expired.value += self.session.expired_records - expired

    def drain(self, reason: str, code: str, retry_after_ms: int) -> None:
        """End the session in order."""
        now = self._server.loop.time()
        self.carry_out(self.session.drain(reason, code, retry_after_ms, now))

    def abort(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()

    # --- Reactions ---

    def carry_out(self, reactions: list[Reaction]) -> None:
        """Do what the session decided."""
        output: list[bytes] = []
        for reaction in reactions:
            match reaction:
                case Send(data):
                    output.append(data)
                case Publish(records):
                    self._publish(records)
                case Authenticate(credentials):
                    self.start(self._check(Authenticate(credentials)))
                case Open():
                    self.start(self._open(reaction))
                case Commit():
                    self.start(self._commit(reaction))
                case _:
                    self._carry_out_rare(reaction)
        if output:
            self._write(b"".join(output))
        self._settle()

    def _carry_out_rare(self, reaction: Settle | Ended | FindBounds | Close) -> None:
        match reaction:
            case FindBounds():
                begin_refresh(self, self._server, reaction)
            case Settle(number, settled):
                self._queues.acknowledge(number, settled)
            case Ended(number):
                self._reads.forget(number)
                self._queues.end(number)
            case Close(reason):
                self._is_closing = True
                logger.debug("push connection from %s: %s", self._address, reason)

    def _settle(self) -> None:
        """Adapt reading, the next check and the next turn to the session."""
        transport = self.transport
        if transport is None:
            return
        if self._is_closing:
            self._reads.forget(None)
            transport.close()
            return
        # A client that reads no answers sends no more requests: answers would fill the memory.
        pause = (
            self.session.is_reading_paused or not self._is_writable or self._pauses.is_reading_held
        )
        if pause != self._is_reading_paused:
            self._is_reading_paused = pause
            if pause:
                transport.pause_reading()
            else:
                self.session.reading_resumed(self._server.loop.time())
                transport.resume_reading()
        check_at = self.next_check()
        if check_at < self.check_at or self.check_key < 0:
            self._server.check_by(self, check_at)
        if any(not one.is_waiting for one in self.session.subscriptions.values()):
            self.turn_soon()
        self._pull()

    def _pull(self) -> None:
        """Acquire records of queues, unless they could not be written."""
        if self._is_writable and not self._pauses.is_delivery_held:
            self._queues.pull()

    def _publish(self, records: list[Published]) -> None:
        server = self._server
        wait = server.broker.charge_publish(self.client, sum(one.size_bytes for one in records))
        if wait > 0:
            self._pauses.hold_reading(wait, self._settle)
        publish_all(self, server.broker, records)

    def settled(self, number: int, settled: Sequence[Settled], *, is_stored: bool) -> None:
        """A share group stored or refused acknowledgements."""
        now = self._server.loop.time()
        self.carry_out(self.session.queue_settled(number, settled, now, is_stored=is_stored))

    def next_check(self) -> float:
        """Return when `tick` is needed at the latest."""
        check_at = self.session.check_at()
        if self._is_writable:
            return check_at
        return min(check_at, self._stalled_at + limits.STALL_SECONDS_MAX)

    def _write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self._server.counters.sent_bytes.value += len(data)
            self.transport.write(data)

    def start(self, work: Coroutine[object, object, None]) -> None:
        """Run a coroutine for this connection; a defect in it ends the connection."""
        self._server.start(self._guarded(work))

    async def _guarded(self, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except Exception:
            logger.exception("a request of the push client at %s failed", self._address)
            self._failed()

    def _failed(self) -> None:
        self._server.counters.failures.value += 1
        self.abort()

    async def _check(self, question: Authenticate) -> None:
        server = self._server
        try:
            client, lifetime = await self.door.check(self.client, question.credentials)
        except PushRefusedError as error:
            server.counters.login_failures.value += 1
            refusal = error.refusal
            self.carry_out(
                self.session.authentication_failed(
                    refusal.error, server.loop.time(), retriable=refusal.retriable
                )
            )
            return
        now = server.loop.time()
        self.client = client
        if not server.proven(self, self.door.principal_of(client)):
            self.carry_out(
                self.session.authentication_failed(
                    TOO_MANY, now, "POLICY_VIOLATION", retriable=True
                )
            )
            return
        self.carry_out(
            self.session.authenticated(now, None if lifetime is None else now + lifetime)
        )

    async def _open(self, question: Open) -> None:
        broker, number, request = self._server.broker, question.number, question.request
        member: QueueMember | None = None
        try:
            group = broker.queue_group(request)
            if group is None:
                topic = await broker.open(self.client, request)
            else:
                lost = lambda refusal: self.lost(refusal.error, refusal.code)  # noqa: E731
                member = await broker.join(self.client, request, group, lost)
                topic = member.topic
        except PushRefusedError as error:
            self.carry_out(self.session.open_refused(number, error.refusal))
            return
        if member is not None:
            if self.transport is None or self.session.is_ending:
                member.leave()
                return
            self._queues.add(number, request.topic, member)
        if request.auto_ack and self.transport is not None:
            # `resume_writing` is then called when the socket has accepted every byte.
            self.transport.set_write_buffer_limits(high=0)
        self.carry_out(self.session.opened(number, topic, self._server.loop.time()))

    async def _commit(self, asked: Commit) -> None:
        session, loop = self.session, self._server.loop
        try:
            await self._server.broker.commit(self.client, asked.group, asked.topic, asked.offsets)
        except PushRefusedError as error:
            self.carry_out(
                session.commit_refused(asked.number, asked.message_id, error.refusal, loop.time())
            )
            return
        self.carry_out(session.committed(asked.number, asked.message_id, loop.time()))

    def publishes_done(self, outcomes: list[tuple[int, Outcome]]) -> None:
        """Published records are on disk or were refused; each has its message id."""
        now, session = self._server.loop.time(), self.session
        placed: list[tuple[int, int, int]] = []
        reactions: list[Reaction] = []
        for message_id, outcome in outcomes:
            if isinstance(outcome, Refusal):
                reactions += session.publish_refused(message_id, outcome, now)
            else:
                placed.append((message_id, *outcome))
        if placed:
            self._server.counters.published.value += len(placed)
            reactions += session.published(placed, now)
        self.carry_out(reactions)

    # --- Delivery ---

    def turn_soon(self) -> None:
        """Deliver in a later turn of the event loop."""
        if self._is_writable and not self._is_closing:
            self._server.ready(self)

    def take_turn(self) -> None:
        """Deliver records up to `TURN_BYTES`."""
        transport = self.transport
        if transport is None or not self._is_writable or self._is_closing:
            return
        if self._pauses.is_delivery_held:
            return
        if self._server.is_unsent_spent and self.unsent_bytes:
            self._server.wait_for_room(self)
            return
        session, now = self.session, self._server.loop.time()
        before = session.delivered_records
        frames, written = self._reads.fan_out(now)
        found, size = self._queues.take(limits.TURN_BYTES - written, now)
        frames += found
        written += size
        if frames:
            counters = self._server.counters
            counters.delivered.value += session.delivered_records - before
            self._write(b"".join(frames))
            wait = self._server.broker.charge_delivery(self.client, written)
            if wait > 0:
                self._pauses.hold_delivery(wait, self._settle)
            self._all_sent()
        self._pull()
        if written >= limits.TURN_BYTES:
            self.turn_soon()

    def _all_sent(self) -> None:
        """Acknowledge for subscriptions with `auto_ack`, if the socket accepted everything."""
        if self._is_writable and self.transport is not None and not self.unsent_bytes:
            self.carry_out(self.session.sent(self._server.loop.time()))

    def lost(self, reason: str, code: str) -> None:
        """A topic cannot be read here any more: the session ends."""
        self.drain(reason, code, limits.RETRY_AFTER_MS_MIN)
