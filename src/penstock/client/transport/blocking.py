"""`BlockingConnection`: a `ClientConnection` over a blocking socket, for one thread.

It is for scripts, the command line, Spark tasks and other code that can block a thread. Opening it
requests the broker's versions (`transport.versions`). `carry` sends one call and waits. `send` and
`receive` allow several calls in flight. A broker answers in the order of the requests; an answer
that arrives early is kept until `receive` asks for it. The timeout runs only while a caller waits,
so long work between two answers does not lose an answer.

A failure says whether the broker may have executed the request. A broker executes whole frames
only. Until the last byte is handed to the kernel, nothing happened: `BrokerUnreachableError`, safe
to retry. After the last byte it is `AnswerLostError`: the request may have been executed. After
either error the connection is unusable; the owner closes it.

Nothing is read while a request is written. So a caller that sends large requests must not have
large answers in flight on the same connection: both sides would wait for each other until the
timeout.

With TLS the same holds: a request is executed only when its last TLS record arrived whole, and a
failed write did not complete that record. A connection with a login authenticates again before
its session ends, between two requests, after the answers of all earlier ones.
"""

import os
import socket
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

from penstock.client.security.mechanisms import forget_credential, new_exchange
from penstock.client.security.options import NO_SECURITY, Security
from penstock.client.transport.addresses import Address
from penstock.client.transport.call import Call, Ticket
from penstock.client.transport.login import closed_early, log_in, login_failure, renewal_at
from penstock.client.transport.strangers import not_a_broker
from penstock.client.transport.versions import (
    ASK_VERSIONS,
    CLIENT_NAME,
    Versions,
    ask_versions,
    choose_version,
    lower_version,
    served_versions,
)
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import (
    AnswerLostError,
    AuthenticationError,
    BrokerUnreachableError,
    ClientError,
    PenstockError,
)
from penstock.protocol.codec import Message
from penstock.protocol.connection import ClientConnection, Response
from penstock.protocol.encoder_source import Buffer

RESPONSE_BYTES_MAX: Final = 268_435_456
"""Metadata of 100,000 partitions needs about 10 MiB, a fetch the size that it requests."""

ANSWER_BYTES_AT_ONCE: Final = 16_777_216
"""An answer up to this size gets its memory at once: more than the default size of a fetch."""

ANSWER_BUFFERS_KEPT_MAX: Final = 2
"""Large answers whose memory is reused: the one in processing and the one being received.
Allocating memory for each answer costs as much as receiving it."""

CONNECT_SECONDS_MAX: Final = 10.0
"""Time limit to open a connection; lower when the caller's timeout is lower."""

BUFFERS_PER_WRITE_MAX: Final = 512
"""Buffers handed to the kernel at once; Linux accepts 1,024."""

Result = TypeVar("Result")


class Stream(Protocol):
    """A connected socket, plain or with TLS."""

    def settimeout(self, seconds: float, /) -> None:
        """Set the time limit of the next calls; 0: they do not wait."""
        ...

    def sendmsg(self, buffers: Iterable[Buffer], /) -> int:
        """Send the first bytes of these buffers; return their number."""
        ...

    def recv_into(self, buffer: memoryview, /) -> int:
        """Read bytes; return their number, 0 at the end of the stream."""
        ...

    def fileno(self) -> int:
        """Return the descriptor for `select`."""
        ...

    def close(self) -> None:
        """Close the socket."""
        ...


def connect(
    address: Address,
    *,
    timeout_seconds: float,
    client_id: str = CLIENT_NAME,
    security: Security = NO_SECURITY,
    clock: Clock | None = None,
) -> "BlockingConnection":
    """Open a connection, request versions and log in; raise `BrokerUnreachableError` if it fails.

    A refused login raises `AuthenticationError`, a refused certificate `TlsHandshakeError`.
    """
    return adopt(
        _open_socket(address, min(timeout_seconds, CONNECT_SECONDS_MAX), security),
        address,
        timeout_seconds=timeout_seconds,
        client_id=client_id,
        security=security,
        clock=clock,
    )


def adopt(
    opened: Stream,
    address: Address,
    *,
    timeout_seconds: float,
    client_id: str = CLIENT_NAME,
    security: Security = NO_SECURITY,
    clock: Clock | None = None,
) -> "BlockingConnection":
    """As `connect`, over a socket that is connected already; an error closes it."""
    connection = BlockingConnection(
        opened,
        address,
        timeout_seconds=timeout_seconds,
        client_id=client_id,
        security=security,
        clock=clock,
    )
    try:
        connection.negotiate()
    except BaseException as error:
        connection.close()
        if isinstance(error, PenstockError):
            raise negotiation_failure(address, security, error) from error
        raise
    if security.uses_sasl:
        try:
            connection.authenticate()
        except BaseException as error:
            connection.close()
            if isinstance(error, PenstockError):
                raise login_failure(address, error) from error
            raise
    return connection


def _open_socket(address: Address, timeout_seconds: float, security: Security) -> Stream:
    try:
        opened = socket.create_connection(address, timeout_seconds)
    except (OSError, UnicodeError) as error:
        raise BrokerUnreachableError(
            f"cannot reach a broker at {address}: {reason(error)}."
        ) from error
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if security.tls is None:
        return opened
    from penstock.client.transport.tls_socket import secure  # keeps the start of commands fast

    return secure(opened, address, security.tls)


def negotiation_failure(address: Address, security: Security, error: PenstockError) -> ClientError:
    """Return the error of a connection whose first exchange failed."""
    if security.tls is not None:
        from penstock.client.transport.tls_errors import ended_early
        from penstock.client.transport.tls_socket import late_failure

        failure = late_failure(address, error)
        if failure is not None:
            return failure
        if isinstance(error, AnswerLostError):
            return ended_early(address, error)
    return not_a_broker(address, error)


class BlockingConnection:
    """One connection to one broker, used by one thread."""

    def __init__(
        self,
        opened: Stream,
        address: Address,
        *,
        timeout_seconds: float,
        client_id: str = CLIENT_NAME,
        security: Security = NO_SECURITY,
        clock: Clock | None = None,
    ) -> None:
        self._socket = opened
        self._security = security
        self._is_fresh = True
        """No request except the one for versions was answered yet."""
        self._renew_at_seconds: float | None = None
        """Time to authenticate again; None: the session has no end."""
        self._address = address
        self._timeout_seconds = timeout_seconds
        self._clock: Clock = clock or SystemClock()
        self._protocol = ClientConnection(
            client_id,
            response_bytes_max=RESPONSE_BYTES_MAX,
            at_once_bytes=ANSWER_BYTES_AT_ONCE,
            buffers_kept_max=ANSWER_BUFFERS_KEPT_MAX,
        )
        self._versions: Versions = {}
        self._arrived: dict[int, Message] = {}
        """Answers that arrived before `receive` asked for them; at most the requests in flight."""
        self._forgotten: set[int] = set()

    def negotiate(self) -> None:
        """Request the versions that the broker supports."""
        answer = self.receive(self._send(ask_versions(ASK_VERSIONS[1]), ASK_VERSIONS[1]))
        lower = lower_version(answer)
        if lower is not None:
            answer = self.receive(self._send(ask_versions(lower), lower))
        self._versions = served_versions(answer)

    def authenticate(self) -> None:
        """Log in, for the first time or again; raise `AuthenticationError` if it is refused."""
        begun = self._clock.monotonic()
        calls = log_in(new_exchange(self._security), self._address)
        try:
            call = next(calls)
            while True:
                version = choose_version(call, self._versions, self._address)
                call = calls.send(self.receive(self._send(call, version)))
        except StopIteration as finished:
            self._renew_at_seconds = renewal_at(begun, finished.value)
        except AuthenticationError:
            forget_credential(self._security)
            raise

    def carry(self, call: Call[Result]) -> Result:
        """Send the request and wait for its answer."""
        return self.receive(self.send(call))

    def send(self, call: Call[Result]) -> Ticket[Result]:
        """Send the request; more requests may be sent before its answer is received."""
        if self._renew_at_seconds is not None:
            self._renew_session(self._renew_at_seconds)
        version = choose_version(call, self._versions, self._address)
        return self._send(call, version)

    def receive(self, ticket: Ticket[Result]) -> Result:
        """Wait for the answer of a sent call; each ticket can be used once."""
        call = ticket.call
        if call.answer_type is None:
            return call.read(None)
        deadline = self._clock.monotonic() + self._timeout_seconds
        while ticket.correlation_id not in self._arrived:
            self._receive_one(deadline)
        answer = self._arrived.pop(ticket.correlation_id)
        assert isinstance(answer, call.answer_type)
        return call.read(answer)

    def has_answer(self, ticket: Ticket[Any]) -> bool:
        """Whether `receive` would not wait; reads the received bytes and never waits itself."""
        if ticket.call.answer_type is None:
            return True
        while ticket.correlation_id not in self._arrived:
            response = self._protocol.next_response()
            if response is not None:
                self._keep(response)
                continue
            try:
                self._read(timeout_seconds=0)
            except BlockingIOError:
                return False
        return True

    def fileno(self) -> int:
        """Return the descriptor for `select`: readable when a new answer may have arrived."""
        return self._socket.fileno()

    def forget(self, ticket: Ticket[Any]) -> None:
        """Discard the answer of this call when it arrives."""
        has_answer = ticket.call.answer_type is not None
        if has_answer and self._arrived.pop(ticket.correlation_id, None) is None:
            self._forgotten.add(ticket.correlation_id)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _renew_session(self, due_seconds: float) -> None:
        """Authenticate again if it is due, after the answers of all sent requests."""
        now = self._clock.monotonic()
        if now < due_seconds:
            return
        try:
            while self._protocol.requests_in_flight:
                self._receive_one(now + self._timeout_seconds)
            self.authenticate()
        except PenstockError as error:
            raise login_failure(self._address, error) from error

    def _send(self, call: Call[Result], version: int) -> Ticket[Result]:
        deadline = self._clock.monotonic() + self._timeout_seconds
        try:
            while not self._protocol.can_send:
                self._receive_one(deadline)
        except AnswerLostError as error:
            raise BrokerUnreachableError(f"a request could not be sent: {error}") from error
        correlation_id, frame = self._protocol.send_request(
            call.request, version, expects_response=call.answer_type is not None
        )
        try:
            self._write(frame, deadline)
        except OSError as error:
            raise BrokerUnreachableError(
                f"the connection to {self._address} failed before the request was sent: "
                f"{reason(error)}."
            ) from error
        return Ticket(call, correlation_id)

    def _write(self, frame: list[Buffer], deadline: float) -> None:
        parts = deque(memoryview(part) for part in frame)
        while parts:
            self._socket.settimeout(self._seconds_left(deadline))
            sent = self._socket.sendmsg(islice(parts, BUFFERS_PER_WRITE_MAX))
            while parts and sent >= len(parts[0]):
                sent -= len(parts.popleft())
            if sent:
                parts[0] = parts[0][sent:]

    def _receive_one(self, deadline: float) -> None:
        """Wait for the next answer, for any ticket."""
        while (response := self._protocol.next_response()) is None:
            try:
                seconds_left = self._seconds_left(deadline)
            except TimeoutError as error:
                raise AnswerLostError(f"{self._address} did not answer: timed out.") from error
            self._read(timeout_seconds=seconds_left)
        self._keep(response)

    def _read(self, *, timeout_seconds: float) -> None:
        """Read some bytes. With a timeout of 0, raise `BlockingIOError` when there are none."""
        reader = self._protocol.reader
        try:
            self._socket.settimeout(timeout_seconds)
            received = self._socket.recv_into(reader.get_buffer(-1))
        except BlockingIOError:
            raise
        except OSError as error:
            raise AnswerLostError(f"{self._address} did not answer: {reason(error)}.") from error
        if received == 0:
            raise closed_early(self._address, self._security, is_fresh=self._is_fresh)
        reader.buffer_updated(received)

    def _keep(self, response: Response) -> None:
        self._is_fresh = not self._versions
        if response.correlation_id in self._forgotten:
            self._forgotten.remove(response.correlation_id)
        else:
            self._arrived[response.correlation_id] = response.message

    def _seconds_left(self, deadline: float) -> float:
        left = deadline - self._clock.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left


def reason(error: OSError | UnicodeError) -> str:
    """Return the reason of a failed network operation, in the system's words."""
    if isinstance(error, UnicodeError):
        return "its host cannot be looked up: a part between dots has 1 to 63 characters"
    if isinstance(error, TimeoutError):
        return "timed out"
    # Event loops add their own text to a system error; a resolver's error has its own text.
    if error.errno is None or isinstance(error, socket.gaierror):
        return (error.strerror or str(error) or type(error).__name__).lower()
    return os.strerror(error.errno).lower()
