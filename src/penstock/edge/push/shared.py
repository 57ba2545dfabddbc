"""`PushShared`: the state that all push sessions of one broker share, and their turns.

Guarantees:

- sessions take turns: one that has much to deliver, or reads slowly, delays the others by one turn;
- the work on deliveries in one turn of the event loop is bounded, and requests of Kafka clients go
  on in between;
- the number of sessions, of sessions of one address or principal, and of connections that are not
  authenticated is bounded; above the last bound the oldest one is closed;
- one timer serves the time limits of all sessions, and none runs without sessions.

It creates no connection: `server` does.
"""

import asyncio
import logging
import random
import time
from collections import Counter as Multiset
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from penstock.core.client_host import host_of
from penstock.core.deadlines import DeadlineTable
from penstock.core.metrics import Counter, Registry
from penstock.edge.push import limits
from penstock.edge.push.feeds import Feeds
from penstock.edge.push.ports import PushBroker, PushDoor, Start
from penstock.edge.push.record_runs import RunCache
from penstock.edge.push.session import PushSession

logger = logging.getLogger(__name__)

ARENA_BYTES: Final = 65_536


class Served(Protocol):
    """A connection of a push client."""

    number: int
    """Of this connection in the life of the broker."""
    client: object
    check_at: float
    check_key: int
    is_queued: bool
    held_bytes: int
    """Received bytes of incomplete frames, as they are counted."""

    @property
    def address(self) -> str:
        """The address that the client connects from."""
        ...

    @property
    def door(self) -> PushDoor:
        """The address that it connected to."""
        ...

    @property
    def session(self) -> PushSession:
        """Its session."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """Bytes that its socket has not accepted."""
        ...

    def next_check(self) -> float:
        """Return when `tick` is needed at the latest."""
        ...

    def tick(self, now: float) -> None:
        """Do what is due."""
        ...

    def take_turn(self) -> None:
        """Deliver records up to `TURN_BYTES`."""
        ...

    def drain(self, reason: str, code: str, retry_after_ms: int) -> None:
        """End the session in order."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...


class PushCounters:
    """The metrics of push."""

    def __init__(self, metrics: Registry, server: "PushShared") -> None:
        counter = metrics.counter
        self.opened = counter("push_sessions_opened_total", "Push connections that came.")
        self.refused = counter(
            "push_sessions_refused_total", "Push connections that were closed above a limit."
        )
        self.login_failures = counter(
            "push_login_failures_total", "Push sessions that were not authenticated."
        )
        self.failures = counter(
            "push_failures_total", "Push sessions that ended with an unexpected error."
        )
        self.expired = counter(
            "push_expired_locks_total",
            "Records of queues that were delivered by push and not acknowledged in time.",
        )
        self.delivered = counter("push_delivered_records_total", "Records delivered by push.")
        self.published = counter("push_published_records_total", "Records published by push.")
        self.received_bytes: Counter = counter(
            "push_received_bytes_total", "Bytes received from push clients."
        )
        self.sent_bytes: Counter = counter("push_sent_bytes_total", "Bytes sent to push clients.")
        metrics.gauge("push_sessions", "Open push connections.", lambda: len(server.connections))
        metrics.gauge(
            "push_unacknowledged_bytes",
            "Bytes that were delivered by push and are not acknowledged.",
            lambda: sum(one.session.unacknowledged_bytes for one in server.connections),
        )


class PushShared:
    """The push sessions of one broker."""

    def __init__(
        self,
        broker: PushBroker,
        start: Start,
        metrics: Registry,
        *,
        sessions_max: int,
        sessions_per_address_max: int,
        sessions_per_principal_max: int = 2**31,
        read_seconds: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`read_seconds` measures work: the time of some event loops stands still in a turn."""
        self._read_seconds = read_seconds
        self.broker = broker
        self.start = start
        self.loop = asyncio.get_running_loop()
        self.sessions_max = sessions_max
        self.sessions_per_address_max = sessions_per_address_max
        self.sessions_per_principal_max = sessions_per_principal_max
        self.arena = memoryview(bytearray(ARENA_BYTES))
        """Received bytes of the connection that is being handled."""
        self.cache = RunCache()
        self.feeds = Feeds(broker, self.loop)
        self.queue_cache = RunCache(limits.QUEUE_CACHE_BYTES_MAX)
        self.connections: dict[Served, None] = {}
        self._by_address: Multiset[str] = Multiset()
        self._principals: dict[Served, str] = {}
        self._by_principal: Multiset[str] = Multiset()
        self._unproven: dict[Served, None] = {}
        self._stalled: dict[Served, None] = {}
        self._waits_for_room: dict[Served, None] = {}
        self._held_bytes = 0
        self._ready: deque[Served] = deque()
        self._is_pumping = False
        self._deadlines: DeadlineTable[Served] = DeadlineTable()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._is_stopped = False
        self.counters = PushCounters(metrics, self)

    def follow(
        self, sessions_max: int, sessions_per_address_max: int, sessions_per_principal_max: int
    ) -> None:
        """Use other limits; sessions above them stay until they end."""
        self.sessions_max = sessions_max
        self.sessions_per_address_max = sessions_per_address_max
        self.sessions_per_principal_max = sessions_per_principal_max

    def seconds(self) -> float:
        """Return the time of the event loop."""
        return self.loop.time()

    # --- Connections ---

    def admit(self, connection: Served) -> bool:
        """Count a new connection; return whether it is within the limits."""
        self.counters.opened.value += 1
        self.connections[connection] = None
        connection.number = int(self.counters.opened.value)
        host = host_of(connection.address)
        self._by_address[host] += 1
        is_refused = (
            self._is_stopped
            or len(self.connections) > self.sessions_max
            or self._by_address[host] > self.sessions_per_address_max
        )
        if is_refused:
            self.counters.refused.value += 1
            return False
        if connection.door.needs_credentials:
            self._unproven[connection] = None
            if len(self._unproven) > limits.UNPROVEN_SESSIONS_MAX:
                oldest = next(iter(self._unproven))
                del self._unproven[oldest]
                self.counters.refused.value += 1
                oldest.abort()
        return True

    def proven(self, connection: Served, principal: str | None) -> bool:
        """Count an authenticated client; return whether its principal is within the limit."""
        self._unproven.pop(connection, None)
        if principal is None or connection not in self.connections:
            return True
        if connection not in self._principals:
            self._principals[connection] = principal
            self._by_principal[principal] += 1
        if self._by_principal[principal] > self.sessions_per_principal_max:
            self.counters.refused.value += 1
            return False
        return True

    def dismiss(self, connection: Served) -> None:
        """A connection is gone."""
        if self.connections.pop(connection, self) is self:
            return
        host = host_of(connection.address)
        self._by_address[host] -= 1
        if not self._by_address[host]:
            del self._by_address[host]
        principal = self._principals.pop(connection, None)
        if principal is not None:
            self._by_principal[principal] -= 1
            if not self._by_principal[principal]:
                del self._by_principal[principal]
        self._held_bytes -= connection.held_bytes
        connection.held_bytes = 0
        self._unproven.pop(connection, None)
        self._waits_for_room.pop(connection, None)
        self.caught_up(connection)
        if connection.check_key >= 0:
            self._deadlines.discard(connection, connection.check_key)
            connection.check_key = -1

    def holds(self, connection: Served, size_bytes: int) -> None:
        """Count the bytes of incomplete frames of a session; end it if all hold too many."""
        if connection not in self.connections:
            return
        self._held_bytes += size_bytes - connection.held_bytes
        connection.held_bytes = size_bytes
        if size_bytes > limits.HELD_BYTES_FREE and self._held_bytes > limits.HELD_BYTES_MAX:
            self.counters.refused.value += 1
            connection.drain(
                f"all sessions hold more than {limits.HELD_BYTES_MAX} bytes of incomplete frames",
                "BROKER_NOT_AVAILABLE",
                limits.RETRY_AFTER_MS_MAX,
            )

    # --- Turns ---

    def ready(self, connection: Served) -> None:
        """Give a session a turn."""
        if not connection.is_queued:
            connection.is_queued = True
            self._ready.append(connection)
            if not self._is_pumping:
                self._is_pumping = True
                self.loop.call_soon(self._pump)

    def _pump(self) -> None:
        ready, loop = self._ready, self.loop
        ends_at = self._read_seconds() + limits.PUMP_SECONDS
        while ready:
            connection = ready.popleft()
            connection.is_queued = False
            try:
                connection.take_turn()
            except Exception:
                logger.exception("delivery to the push client at %s failed", connection.address)
                self.counters.failures.value += 1
                connection.abort()
            if ready and self._read_seconds() >= ends_at:
                loop.call_soon(self._pump)
                return
        self._is_pumping = False

    # --- Unsent bytes ---

    @property
    def is_unsent_spent(self) -> bool:
        """Whether sockets hold back too many bytes, over all sessions."""
        return (
            len(self._stalled) * limits.WRITE_BUFFER_BYTES_HIGH > limits.UNSENT_BYTES_MAX
            and self.unsent_bytes > limits.UNSENT_BYTES_MAX
        )

    @property
    def unsent_bytes(self) -> int:
        """Bytes that sockets do not accept."""
        return sum(one.unsent_bytes for one in self._stalled)

    def stalled(self, connection: Served) -> None:
        """The socket of a session accepts no more bytes."""
        self._stalled[connection] = None
        self.check_by(connection, self.loop.time() + limits.STALL_SECONDS_MAX)

    def caught_up(self, connection: Served) -> None:
        """The socket of a session accepts bytes, or is gone."""
        if self._stalled.pop(connection, self) is not self and self._waits_for_room:
            waiting, self._waits_for_room = self._waits_for_room, {}
            for one in waiting:
                self.ready(one)

    def wait_for_room(self, connection: Served) -> None:
        """Give a session a turn when another one has caught up."""
        self._waits_for_room[connection] = None

    # --- Time ---

    def check_by(self, connection: Served, moment: float) -> None:
        """Call `tick` of a connection at a moment, instead of at the one before."""
        if connection not in self.connections:
            return
        if connection.check_key >= 0:
            self._deadlines.discard(connection, connection.check_key)
        connection.check_at = moment
        connection.check_key = self._deadlines.add(connection, moment)
        self._set_timer()

    def _set_timer(self) -> None:
        moment = self._deadlines.next_deadline()
        if moment is None:
            return
        if self._timer is not None:
            if self._timer_at <= moment:
                return
            self._timer.cancel()
        self._timer_at = moment
        self._timer = self.loop.call_at(moment, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self.loop.time()
        for connection in self._deadlines.expire(now):
            connection.check_key = -1
            try:
                connection.tick(now)
            except Exception:
                logger.exception("a push session of %s failed", connection.address)
                self.counters.failures.value += 1
                connection.abort()
            if connection.check_key < 0 and connection in self.connections:
                self.check_by(connection, connection.next_check())
        self._set_timer()

    # --- End ---

    def begin_stop(self) -> None:
        """Refuse new connections, and end all sessions in order."""
        self._is_stopped = True
        for connection in tuple(self.connections):
            # Spread, so that a restarted broker does not meet all of them at once.
            wait_ms = random.randint(limits.RETRY_AFTER_MS_MIN, limits.RETRY_AFTER_MS_MAX)  # noqa: S311
            connection.drain("the broker stops", "BROKER_NOT_AVAILABLE", wait_ms)

    async def stop(self, seconds_max: float = limits.STOP_SECONDS_MAX) -> None:
        """End all sessions; a session that does not end in time is cut off."""
        self.begin_stop()
        deadline = self.loop.time() + seconds_max
        while self.connections and self.loop.time() < deadline:  # noqa: ASYNC110 (has a deadline)
            await asyncio.sleep(0.005)
        for connection in tuple(self.connections):
            connection.abort()
        if self._timer is not None:
            self._timer.cancel()
        self.feeds.stop()
