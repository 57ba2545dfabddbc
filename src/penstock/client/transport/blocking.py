"""`BlockingConnection`: a `ClientConnection` over a blocking socket, for one thread.

For scripts, the command line, Spark tasks and whoever has a thread to spare. Opening it asks the
broker for its versions (`client.versions`). `carry` sends one call and waits; `send` and `receive`
let several be under way: a broker answers in the order of the requests, and an answer that comes
before its turn is kept until it is asked for. Time counts while somebody waits, so who works for
long between two answers loses none.

A failure says whether the request can have been carried out. A broker acts on whole frames only, so
while one byte of a request was not handed to the kernel, nothing happened:
`BrokerUnreachableError`, safe to repeat. After the last byte it is `AnswerLostError`: it may have
happened. After either the connection is of no use; the owner closes it.

Nothing is read while a request is written. So whoever sends large requests must not have large
answers under way on the same connection: both sides would wait for the other until the time is up.
"""

import os
import socket
from collections import deque
from itertools import islice
from typing import Any, Final, TypeVar

from penstock.client.transport.addresses import Address
from penstock.client.transport.call import Call, Ticket
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
from penstock.core.errors import AnswerLostError, BrokerUnreachableError, PenstockError
from penstock.protocol.codec import Message
from penstock.protocol.connection import ClientConnection, Response
from penstock.protocol.encoder_source import Buffer

RESPONSE_BYTES_MAX: Final = 268_435_456
"""Metadata of 100,000 partitions takes about 10 MiB, a fetch what it asks for."""

ANSWER_BYTES_AT_ONCE: Final = 16_777_216
"""An answer up to this size gets its memory at once: more than a fetch asks for by default."""

ANSWER_BUFFERS_KEPT_MAX: Final = 2
"""Large answers whose memory is used again: the one being worked on and the one being received. To
make new memory for each of them costs as much as to receive them."""

CONNECT_SECONDS_MAX: Final = 10.0
"""Time to open a connection; less when the caller has less."""

BUFFERS_PER_WRITE_MAX: Final = 512
"""Buffers handed to the kernel at once; Linux takes 1,024."""

Result = TypeVar("Result")


def connect(
    address: Address,
    *,
    timeout_seconds: float,
    client_id: str = CLIENT_NAME,
    clock: Clock | None = None,
) -> "BlockingConnection":
    """Open a connection and learn the broker's versions; `BrokerUnreachableError` if it fails."""
    try:
        opened = socket.create_connection(address, min(timeout_seconds, CONNECT_SECONDS_MAX))
    except (OSError, UnicodeError) as error:
        raise BrokerUnreachableError(
            f"cannot reach a broker at {address}: {reason(error)}."
        ) from error
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection = BlockingConnection(
        opened, address, timeout_seconds=timeout_seconds, client_id=client_id, clock=clock
    )
    try:
        connection.negotiate()
    except PenstockError as error:
        connection.close()
        raise not_a_broker(address, error) from error
    return connection


class BlockingConnection:
    """One connection to one broker, used by one thread."""

    def __init__(
        self,
        opened: socket.socket,
        address: Address,
        *,
        timeout_seconds: float,
        client_id: str = CLIENT_NAME,
        clock: Clock | None = None,
    ) -> None:
        self._socket = opened
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
        """Answers that came before they were asked for; at most as many as may be in flight."""
        self._forgotten: set[int] = set()

    def negotiate(self) -> None:
        """Ask for the versions that the broker serves."""
        answer = self.receive(self._send(ask_versions(ASK_VERSIONS[1]), ASK_VERSIONS[1]))
        lower = lower_version(answer)
        if lower is not None:
            answer = self.receive(self._send(ask_versions(lower), lower))
        self._versions = served_versions(answer)

    def carry(self, call: Call[Result]) -> Result:
        """Send the request and wait for its answer."""
        return self.receive(self.send(call))

    def send(self, call: Call[Result]) -> Ticket[Result]:
        """Send the request; others may be sent before its answer is received."""
        version = choose_version(call, self._versions, self._address)
        return self._send(call, version)

    def receive(self, ticket: Ticket[Result]) -> Result:
        """Wait for the answer of a call that was sent; each ticket is good for once."""
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
        """Whether `receive` would not wait: takes in what has come, and waits for nothing."""
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
        """For `select`: readable when an answer may have come that `has_answer` does not know."""
        return self._socket.fileno()

    def forget(self, ticket: Ticket[Any]) -> None:
        """Nobody will ask for this answer: it is thrown away when it comes."""
        has_answer = ticket.call.answer_type is not None
        if has_answer and self._arrived.pop(ticket.correlation_id, None) is None:
            self._forgotten.add(ticket.correlation_id)

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()

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
        """Wait for the next answer, whoever asked for it."""
        while (response := self._protocol.next_response()) is None:
            try:
                seconds_left = self._seconds_left(deadline)
            except TimeoutError as error:
                raise AnswerLostError(f"{self._address} did not answer: timed out.") from error
            self._read(timeout_seconds=seconds_left)
        self._keep(response)

    def _read(self, *, timeout_seconds: float) -> None:
        """Take in some bytes. With no time at all, `BlockingIOError` says that there are none."""
        reader = self._protocol.reader
        try:
            self._socket.settimeout(timeout_seconds)
            received = self._socket.recv_into(reader.get_buffer(-1))
        except BlockingIOError:
            raise
        except OSError as error:
            raise AnswerLostError(f"{self._address} did not answer: {reason(error)}.") from error
        if received == 0:
            raise AnswerLostError(f"{self._address} closed the connection before it answered.")
        reader.buffer_updated(received)

    def _keep(self, response: Response) -> None:
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
    """Why an operation of the network failed, in the system's words."""
    if isinstance(error, UnicodeError):
        return "its host cannot be looked up: a part between dots has 1 to 63 characters"
    if isinstance(error, TimeoutError):
        return "timed out"
    # Event loops put words of their own into an error of the system; a resolver's has its own.
    if error.errno is None or isinstance(error, socket.gaierror):
        return (error.strerror or str(error) or type(error).__name__).lower()
    return os.strerror(error.errno).lower()
