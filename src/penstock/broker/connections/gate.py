"""`Gate`: the way of one connection through its login, between its frames and its session.

Guarantees: until the first login is complete, frames go to the login and to nothing else, and their
size is bounded; afterwards requests are bounded as usual. A renewal does not close the gate again.
It is the login's owner; the connection is the only one to use it.
"""

from typing import Protocol

from penstock.broker.connections.client_login import ClientLogin
from penstock.broker.connections.listener_state import SHORT_READ_BYTES, ListenerState, Served
from penstock.broker.connections.login_ports import LoginChecks
from penstock.broker.connections.session import Session
from penstock.broker.peer import Peer
from penstock.protocol.connection import ServerConnection
from penstock.protocol.encoder_source import Buffer


class Gated(Served, Protocol):
    """The connection behind a gate."""

    def write(self, buffers: list[Buffer], size_bytes: int) -> None:
        """Send the buffers, `size_bytes` in total, unless the connection is closing."""
        ...

    def resume_reading(self) -> None:
        """Go on reading if it was paused."""
        ...


class Gate:
    """The login of one connection."""

    __slots__ = ("_connection", "_login", "_owner", "_session", "_state", "is_closed")

    def __init__(
        self,
        owner: Gated,
        checks: LoginChecks,
        state: ListenerState,
        session: Session,
        connection: ServerConnection,
    ) -> None:
        self._owner = owner
        self._state = state
        self._session = session
        self._connection = connection
        self.is_closed = True
        """Until the first login is complete, and again when a renewal has failed."""
        login = ClientLogin(
            self, checks, state.check_turns, state.dispatcher, state.loop, session.peer
        )
        self._login = session.login = login
        connection.bound_frames(login.frame_bytes_max)

    @property
    def is_busy(self) -> bool:
        """Whether nothing is to be read, because the first login is being checked."""
        return self.is_closed and self._login.is_busy

    def take_frame(self) -> bool:
        """Handle the next frame of the login; False if there is none, or it has to wait."""
        login, session = self._login, self._session
        if login.is_busy or login.is_over or session.is_closed or session.is_muted:
            return False
        frame = self._connection.reader.next_frame()
        if frame is None:
            return False
        if login.expects_raw_token:
            login.take_token(frame)
        else:
            login.take_request(self._connection.read_request(frame))
        return True

    def count_partial(self, partial_bytes: int) -> None:
        """Count the received bytes of an incomplete frame before the login is complete."""
        if self.is_closed:
            if not partial_bytes and self._connection.reader.has_unread:
                partial_bytes = SHORT_READ_BYTES  # at most; they wait for the login
            self._state.count_unproven(self._owner, partial_bytes)

    def end(self) -> None:
        """The connection is gone."""
        self._login.close()
        self._session.login = None
        self._state.forget_unproven(self._owner)

    # --- Called by the login ---

    def login_write(self, buffers: list[Buffer]) -> None:
        """Send an answer of the login."""
        self._owner.write(buffers, sum(map(len, buffers)))

    def login_close(self) -> None:
        """Close when everything that was written is sent; nothing else is handled."""
        self.is_closed = True
        self._owner.finish()

    def login_abort(self) -> None:
        """Close at once."""
        self._owner.abort()

    def login_changed(self, peer: Peer | None) -> None:
        """Go on reading; a peer is the identity that the client has proven."""
        if peer is not None:
            self._session.peer = peer
        if self.is_closed:
            self._connection.bound_frames(self._login.frame_bytes_max)
            self.is_closed = not self._login.is_complete
            if not self.is_closed:
                self._state.forget_unproven(self._owner)
        self._owner.resume_reading()

    def session_ended(self) -> None:
        """Answer waiting fetches: the session is over."""
        self._session.hurry_waiting()
