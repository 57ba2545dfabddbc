"""`ListenerState`: the state that all connections of one broker share.

Budgets, the turns of the event loop, counters and time limits are the broker's: its memory is one,
however many listeners it has. It decides nothing: the budgets and `broker.connections.listener` do.
"""

import asyncio
import logging
from collections import Counter as Multiset
from collections.abc import Callable
from typing import Final, Protocol

from penstock.broker.connections import endings
from penstock.broker.connections.alarms import Alarms, Checked
from penstock.broker.connections.check_turns import CheckTurns
from penstock.broker.connections.entrance import Entrance
from penstock.broker.connections.file_sender import CAN_SEND_FILES, has_files
from penstock.broker.connections.session import Session
from penstock.broker.dispatch import Dispatcher
from penstock.broker.pacing.budget import MemoryBudget, RequestBudget
from penstock.core.client_host import host_of
from penstock.core.limits import SENDFILE_BYTES_MIN, SMALL_REQUEST_BYTES
from penstock.core.metrics import Registry
from penstock.core.security_limits import UNPROVEN_BYTES_MAX
from penstock.core.settings.tree import ListenerSettings
from penstock.protocol.encoder_source import Buffer
from penstock.protocol.framing import ReadArena

logger = logging.getLogger(__name__)

SHORT_READ_BYTES: Final = 4_096
"""Bytes read from a connection that was silent while memory became short: enough for most requests,
and 48 MiB if all twelve thousand send them."""
PAUSE_LOG_SECONDS: Final = 10.0
"""Between two lines of the log about connections that are not read from."""
NEVER_LOGGED: Final = float("-inf")


class Served(Checked, Protocol):
    """A connection of the listener."""

    @property
    def session(self) -> Session:
        """Its requests, and the identity of its client."""
        ...

    def next_check(self, now: float) -> float:
        """When a time limit may be used up at the earliest."""
        ...

    def finish(self) -> None:
        """Accept no more requests; close when the accepted ones are answered."""
        ...


class ListenerState(Alarms):
    """The state that the connections of one broker share."""

    def __init__(
        self, settings: ListenerSettings, dispatcher: Dispatcher, metrics: Registry
    ) -> None:
        self.settings = settings
        self.dispatcher = dispatcher
        self.loop = asyncio.get_running_loop()
        super().__init__(self.loop)
        # Halves, so that clients that never finish a request use no memory of the others' answers.
        self.handling = RequestBudget(
            settings.request_bytes_in_flight_max // 2, settings.requests_in_flight_max
        )
        self.receiving = MemoryBudget(settings.request_bytes_in_flight_max // 2)
        self.unsent = dispatcher.unsent_answers
        self.quotas = dispatcher.quotas
        self.turns = dispatcher.turns
        self.arena = ReadArena()
        self.sends_files = CAN_SEND_FILES
        """Off for connections whose bytes must pass through another layer first, such as TLS."""
        self._next_pause_log_at = NEVER_LOGGED
        self._unproven: dict[Served, int] = {}
        """Received bytes of each client that has not logged in and has some, the oldest first."""
        self._unproven_bytes = 0
        self.check_turns = CheckTurns()
        self.connections: dict[Served, None] = {}
        """The open connections, the oldest first."""
        self.by_address: Multiset[str] = Multiset()
        """Connections by `host_of` their address."""
        counter = metrics.counter
        self.opened = counter(
            "connections_opened_total", "Connections that came, refused ones too."
        )
        self.closed = counter("connections_closed_total", "Connections that ended, for any reason.")
        self.endings = endings.Endings(metrics)
        self.received = counter("received_bytes_total", "Bytes received.")
        self.sent = counter("sent_bytes_total", "Bytes of answers.")
        metrics.gauge("connections", "Open connections.", lambda: len(self.connections))
        endings.show_budgets(metrics, self.handling, self.receiving, self.unsent)
        endings.show_turns(metrics, self.turns)

    def follow(self, settings: ListenerSettings) -> None:
        """Use other limits from now on; connections that are above them stay until they end."""
        self.settings = settings
        self.handling.requests_max = settings.requests_in_flight_max
        self.handling.resize(settings.request_bytes_in_flight_max // 2)
        self.receiving.resize(settings.request_bytes_in_flight_max // 2)
        now = self.loop.time()
        for connection in self.connections:
            self.check_by(connection, connection.next_check(now))

    def may_send_files(
        self, transport: asyncio.Transport, buffers: list[Buffer], size_bytes: int
    ) -> bool:
        """Whether an answer may pass the transport, which must hold back none before it."""
        return (
            size_bytes >= SENDFILE_BYTES_MIN
            and self.sends_files
            and has_files(buffers)
            and transport.get_extra_info("tls_version") is None
            and transport.get_write_buffer_size() == 0
            and not transport.is_closing()
        )

    def holds_back(
        self,
        partial_bytes: int,
        needs_bytes: int,
        resume: Callable[[], None],
        *,
        has_requests: bool,
    ) -> bool:
        """Whether a connection must stop reading because a budget is spent; `resume` ends it.

        `partial_bytes` of a request were received and `needs_bytes` are missing. One small request
        at a time is read whatever others hold: a client that asks for versions or topics gets them.
        """
        is_large = partial_bytes + needs_bytes > SMALL_REQUEST_BYTES
        handling, receiving = self.handling, self.receiving
        if handling.is_spent and (is_large or has_requests):
            handling.wait(resume)
            self._log_pause(handling, "being handled")
            return True
        if partial_bytes and receiving.is_spent and is_large and not receiving.may_finish(resume):
            receiving.wait(resume)
            self._log_pause(receiving, "that arrive")
            return True
        return False

    def _log_pause(self, budget: MemoryBudget, which: str) -> None:
        """Log that connections are not read from, at most once in a while."""
        now = self.loop.time()
        if now >= self._next_pause_log_at:
            self._next_pause_log_at = now + PAUSE_LOG_SECONDS
            logger.warning(
                "reading is paused for %d connections: requests %s hold %d of %d bytes. "
                "See listener.request_bytes_in_flight_max and reads_paused_total",
                budget.waiting_count,
                which,
                budget.reserved_bytes,
                budget.bytes_max,
            )

    def admit(
        self, connection: Served, entrance: Entrance, address: str, *, is_inside: bool = False
    ) -> bool:
        """Count a new connection; return whether it is within the limits.

        Limits are for connections of the network, not for those inside this process.
        """
        self.opened.value += 1
        session = connection.session
        session.number, session.opened_at = int(self.opened.value), self.loop.time()
        self.connections[connection] = None
        host = host_of(address)
        self.by_address[host] += 1
        entrance.connection_count += 1
        if is_inside:
            return True
        settings = self.settings
        if len(self.connections) > settings.connections_max:
            refusal = endings.TOO_MANY
        elif self.by_address[host] > settings.connections_per_address_max:
            refusal = endings.TOO_MANY_OF_ADDRESS
        elif entrance.is_full:
            refusal = endings.TOO_MANY_OF_LISTENER
        else:
            return True
        self.endings.refused[refusal].value += 1
        return False

    def hold_ms(self, address: str) -> int:
        """Return how long a new connection is held before it is closed; 0: it is served."""
        if not self.quotas.holds_connections:
            return 0
        wait_ms = self.quotas.hold_ms(address)
        if wait_ms:
            self.endings.refused[endings.TOO_SOON].value += 1
        return wait_ms

    def dismiss(self, connection: Served, entrance: Entrance, address: str) -> None:
        """A connection is gone."""
        self.closed.value += 1
        self.forget(connection)
        entrance.connection_count -= 1
        host = host_of(address)
        self.by_address[host] -= 1
        if not self.by_address[host]:
            del self.by_address[host]

    def count_unproven(self, connection: Served, partial_bytes: int) -> None:
        """Count received bytes of a client that has not logged in; above the bound end the oldest.

        The connection that counts is spared: it has just sent something. So are connections
        that hold nothing: to end them would free nothing.
        """
        unproven = self._unproven
        self._unproven_bytes += partial_bytes - unproven.get(connection, 0)
        if not partial_bytes:
            unproven.pop(connection, None)
            return
        unproven[connection] = partial_bytes
        while self._unproven_bytes > UNPROVEN_BYTES_MAX and len(unproven) > 1:
            oldest = next(one for one in unproven if one is not connection)
            self._unproven_bytes -= unproven.pop(oldest)
            self.endings.refused[endings.UNPROVEN].value += 1
            oldest.abort()

    def forget_unproven(self, connection: Served) -> None:
        """A client has logged in, or its connection is gone."""
        self._unproven_bytes -= self._unproven.pop(connection, 0)

    def forget(self, connection: Served) -> None:
        """The connection is gone."""
        self.connections.pop(connection, None)
        self.stop_checking(connection)
