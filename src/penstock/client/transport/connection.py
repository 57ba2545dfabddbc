"""`AsyncConnection`: a `ClientConnection` over an asyncio transport, for many tasks at once.

It has the same calls and errors as `transport.blocking`. `BrokerUnreachableError` means that the
broker certainly did not execute the request, `AnswerLostError` that it may have. Calls of several
tasks are in flight together, up to the limit of the protocol; later calls wait for room. A frame is
sent whole before the next one begins.

A transport does not report the bytes that it has buffered when a connection breaks. So a request
counts as sent when its last byte is handed to the transport. The last byte of a large request is
held back until the transport has handed all earlier bytes to the kernel. A large request that was
sent in part is then known to be not executed.

When a task is cancelled, its answer is discarded. If the task was in the middle of a frame, the
connection ends. A timeout ends the connection too, because a stream without its next answer is
unusable; the other tasks then get `AnswerLostError`. A connection belongs to one event loop and
retries nothing.

With TLS the layer below accepts and encrypts a whole request at once. A request that was sent in
part then counts as sent: the error is `AnswerLostError`, the careful one. A connection with a login
authenticates again before its session ends, between two requests. A login that is interrupted, also
by a cancelled task, ends the connection: the broker would wait for its next token.
"""

import asyncio
import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

from penstock.client.security.mechanisms import forget_credential, new_exchange
from penstock.client.security.options import NO_SECURITY, Security
from penstock.client.security.tls import build_context
from penstock.client.transport.addresses import Address
from penstock.client.transport.blocking import (
    ANSWER_BUFFERS_KEPT_MAX,
    ANSWER_BYTES_AT_ONCE,
    CONNECT_SECONDS_MAX,
    RESPONSE_BYTES_MAX,
    negotiation_failure,
    reason,
)
from penstock.client.transport.call import Call
from penstock.client.transport.login import (
    LoginCalls,
    closed_early,
    log_in,
    login_failure,
    renewal_at,
)
from penstock.client.transport.tls_errors import certificate_name, ended, tls_failure
from penstock.client.transport.versions import (
    ASK_VERSIONS,
    CLIENT_NAME,
    Versions,
    ask_versions,
    choose_version,
    lower_version,
    served_versions,
)
from penstock.core.errors import (
    AnswerLostError,
    AuthenticationError,
    BrokerUnreachableError,
    PeerError,
    PenstockError,
)
from penstock.protocol.codec import Message
from penstock.protocol.connection import ClientConnection
from penstock.protocol.encoder_source import Buffer

WRITE_AT_ONCE_BYTES: Final = 65_536
"""The last byte of a larger request is held back; a smaller one fits into any socket's buffer."""

Result = TypeVar("Result")


async def connect(
    address: Address,
    *,
    timeout_seconds: float,
    client_id: str = CLIENT_NAME,
    security: Security = NO_SECURITY,
) -> "AsyncConnection":
    """Open a connection, request versions and log in; raise `BrokerUnreachableError` if it fails.

    A refused login raises `AuthenticationError`, a refused certificate `TlsHandshakeError`.
    """

    def make() -> AsyncConnection:
        return AsyncConnection(
            address, timeout_seconds=timeout_seconds, client_id=client_id, security=security
        )

    connection = await _open(address, make, min(timeout_seconds, CONNECT_SECONDS_MAX), security)
    try:
        await connection.negotiate()
    except BaseException as error:
        await connection.close()
        if isinstance(error, PenstockError):
            raise negotiation_failure(address, security, error) from error
        raise
    if security.uses_sasl:
        try:
            await connection.authenticate()
        except BaseException as error:
            await connection.close()
            if isinstance(error, PenstockError):
                raise login_failure(address, error) from error
            raise
    return connection


async def _open(
    address: Address,
    make: "Callable[[], AsyncConnection]",
    timeout_seconds: float,
    security: Security,
) -> "AsyncConnection":
    # The context reads files.
    context = await asyncio.to_thread(build_context, security.tls) if security.tls else None
    name = certificate_name(address) if context else None
    try:
        async with asyncio.timeout(timeout_seconds):
            _, connection = await asyncio.get_running_loop().create_connection(
                make, *address, ssl=context, server_hostname=name
            )
    except ssl.SSLError as error:
        raise tls_failure(address, error) from error
    except (OSError, UnicodeError) as error:
        if context is not None and isinstance(error, ConnectionResetError):
            raise ended(address) from error
        raise BrokerUnreachableError(
            f"cannot reach a broker at {address}: {reason(error)}."
        ) from error
    return connection


class AsyncConnection(asyncio.BufferedProtocol):
    """One connection to one broker, used by the tasks of one event loop."""

    def __init__(
        self,
        address: Address,
        *,
        timeout_seconds: float,
        client_id: str = CLIENT_NAME,
        security: Security = NO_SECURITY,
    ) -> None:
        self._address = address
        self._security = security
        self._is_fresh = True
        """No request except the one for versions was answered yet."""
        self._renew_at_seconds: float | None = None
        """Time to authenticate again; None: the session has no end."""
        self._timeout_seconds = timeout_seconds
        self._protocol = ClientConnection(
            client_id,
            response_bytes_max=RESPONSE_BYTES_MAX,
            at_once_bytes=ANSWER_BYTES_AT_ONCE,
            buffers_kept_max=ANSWER_BUFFERS_KEPT_MAX,
        )
        self._versions: Versions = {}
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        """Futures of the expected answers, in the order of the requests."""
        self._sending = asyncio.Lock()
        self._is_paused = False
        self._changed = asyncio.Event()
        """Set when a waiting sender should check for room again; only the holder of `_sending`
        waits."""
        self._failure: PenstockError | None = None
        self._is_lost = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether calls can be sent; once False, it stays False."""
        return self._transport is not None and self._failure is None

    @property
    def calls_in_flight(self) -> int:
        """Return the number of sent requests without an answer yet."""
        return self._protocol.requests_in_flight

    def set_option(self, level: int, option: int, value: int) -> None:
        """Set an option of the socket, if the transport has one."""
        assert self._transport is not None, "the connection is open"
        opened = self._transport.get_extra_info("socket")
        if opened is not None:
            opened.setsockopt(level, option, value)

    async def negotiate(self) -> None:
        """Request the versions that the broker supports."""
        answer = await self._exchange(ask_versions(ASK_VERSIONS[1]), ASK_VERSIONS[1])
        lower = lower_version(answer)
        if lower is not None:
            answer = await self._exchange(ask_versions(lower), lower)
        self._versions = served_versions(answer)

    async def authenticate(self) -> None:
        """Log in, for the first time or again; raise `AuthenticationError` if it is refused."""
        async with self._sending:
            await self._log_in()

    async def carry(self, call: Call[Result]) -> Result:
        """Send the request and wait for its answer."""
        version = choose_version(call, self._versions, self._address)
        if self._renew_at_seconds is not None:
            await self._renew_session()
        return await self._exchange(call, version)

    async def lost(self) -> None:
        """Wait until the connection has ended, for any reason."""
        await self._is_lost.wait()

    async def close(self) -> None:
        """Close the connection; waiting calls raise `AnswerLostError`."""
        self._fail(AnswerLostError(f"the connection to {self._address} was closed."))
        if self._transport is not None:
            await self._is_lost.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _renew_session(self) -> None:
        """Authenticate again if it is due, after the answers of all sent requests."""
        try:
            async with self._sending:
                due = self._renew_at_seconds
                if due is None or asyncio.get_running_loop().time() < due:
                    return
                async with asyncio.timeout(self._timeout_seconds):
                    while self._failure is None and self._protocol.requests_in_flight:
                        self._changed.clear()
                        await self._changed.wait()
                await self._log_in()
        except TimeoutError:
            raise self._unsent("timed out before the login was renewed") from None
        except PenstockError as error:
            raise login_failure(self._address, error) from error

    async def _log_in(self) -> None:
        """Carry the calls of a login; the caller holds `_sending`."""
        begun = asyncio.get_running_loop().time()
        # A token may have to be requested, and SCRAM derives a key for milliseconds.
        calls = log_in(await asyncio.to_thread(new_exchange, self._security), self._address)
        try:
            call = next(calls)
            while True:
                call = await asyncio.to_thread(_step, calls, await self._carry_login(call))
        except _FinishedError as finished:
            self._renew_at_seconds = renewal_at(begun, finished.lifetime_ms)
        except BaseException as error:
            # The broker waits for the next token: nothing else can follow on this connection.
            self._fail(AnswerLostError(f"the login at {self._address} was interrupted: {error}"))
            if isinstance(error, AuthenticationError):
                forget_credential(self._security)
            raise

    async def _carry_login(self, call: Call[Any]) -> Message:
        """Send a call of a login and wait for its answer, within one timeout."""
        version = choose_version(call, self._versions, self._address)
        deadline = asyncio.get_running_loop().time() + self._timeout_seconds
        try:
            async with asyncio.timeout_at(deadline):
                await self._wait_for_room(is_between_frames=True)
                answer = await self._write(call, version)
        except TimeoutError:
            raise self._unsent("timed out") from None
        message: Message = await self._answer(answer, call, deadline)
        return message

    async def _exchange(self, call: Call[Result], version: int) -> Result:
        deadline = asyncio.get_running_loop().time() + self._timeout_seconds
        answer = await self._send(call, version, deadline)
        return await self._answer(answer, call, deadline)

    async def _answer(
        self, answer: asyncio.Future[Message] | None, call: Call[Result], deadline: float
    ) -> Result:
        """Wait for the answer of a sent request."""
        if answer is None:
            return call.read(None)
        try:
            async with asyncio.timeout_at(deadline):
                message = await answer
        except TimeoutError:
            lost = AnswerLostError(f"{self._address} did not answer: timed out.")
            self._fail(lost)
            raise lost from None
        assert call.answer_type is not None
        assert isinstance(message, call.answer_type)
        return call.read(message)

    # --- Sending ---

    async def _send(
        self, call: Call[Any], version: int, deadline: float
    ) -> asyncio.Future[Message] | None:
        """Send a request, in its turn; return the future of its answer, if it has one."""
        try:
            async with asyncio.timeout_at(deadline), self._sending:
                await self._wait_for_room(is_between_frames=True)
                return await self._write(call, version)
        except TimeoutError:
            raise self._unsent("timed out") from None

    async def _write(self, call: Call[Any], version: int) -> asyncio.Future[Message] | None:
        has_answer = call.answer_type is not None
        correlation_id, frame = self._protocol.send_request(
            call.request, version, expects_response=has_answer
        )
        assert self._transport is not None
        if sum(map(len, frame)) > WRITE_AT_ONCE_BYTES:
            held_back = await self._write_all_but_last(frame)
        else:
            held_back = b"".join(frame)
        answer: asyncio.Future[Message] | None = None
        if has_answer:
            answer = asyncio.get_running_loop().create_future()
            self._waiting[correlation_id] = answer
        self._transport.write(held_back)
        return answer

    async def _write_all_but_last(self, frame: list[Buffer]) -> bytes:
        """Hand all but the last byte of a frame to the kernel; return the last byte."""
        assert self._transport is not None
        *parts, last = frame
        try:
            for part in (*parts, memoryview(last)[:-1]):
                self._transport.write(part)
                await self._wait_for_room(is_between_frames=False)
        except BaseException:
            # The frame is incomplete, whatever the cause: nothing can follow on this connection.
            self._fail(AnswerLostError(f"a request to {self._address} was interrupted."))
            raise
        return bytes(last[-1:])

    async def _wait_for_room(self, *, is_between_frames: bool) -> None:
        """Wait until the kernel has all bytes and, between frames, another request is allowed."""
        while self._failure is None and (
            self._is_paused or (is_between_frames and not self._protocol.can_send)
        ):
            self._changed.clear()
            await self._changed.wait()
        if self._failure is not None:
            raise self._unsent(str(self._failure))

    def _unsent(self, why: str) -> BrokerUnreachableError:
        return BrokerUnreachableError(
            f"the connection to {self._address} failed before the request was sent: {why}"
        )

    # --- Callbacks of the event loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport of the open connection."""
        self._transport = cast("asyncio.Transport", transport)
        # The transport pauses whenever it buffers a byte, so "not paused" means that the kernel has
        # all bytes.
        if self._security.uses_tls:
            # The layer of TLS pauses at the limit, not above it: at 0 it would never resume.
            self._transport.set_write_buffer_limits(high=1, low=0)
        else:
            self._transport.set_write_buffer_limits(high=0)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._protocol.reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Hand out the complete answers after bytes arrived."""
        self._protocol.reader.buffer_updated(nbytes)
        try:
            while (response := self._protocol.next_response()) is not None:
                answer = self._waiting.pop(response.correlation_id, None)
                self._is_fresh = not self._versions
                if answer is not None and not answer.done():
                    answer.set_result(response.message)
        except PeerError as error:
            self._fail(error)
        self._changed.set()

    def pause_writing(self) -> None:
        """Note that the transport holds bytes that the kernel did not accept."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Note that the kernel has all bytes."""
        self._is_paused = False
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection, which either side closed."""
        if isinstance(exc, OSError):
            failure = AnswerLostError(f"{self._address} did not answer: {reason(exc)}.")
            failure.__cause__ = exc
        else:
            failure = closed_early(self._address, self._security, is_fresh=self._is_fresh)
        self._fail(failure)
        self._is_lost.set()

    def _fail(self, error: PenstockError) -> None:
        """End the connection, once.

        A `PeerError` goes to the oldest request; all others get `AnswerLostError`.
        """
        if self._failure is not None:
            return
        self._failure = error
        waiting, self._waiting = self._waiting, {}
        for number, answer in enumerate(waiting.values()):
            if not answer.done():
                is_for_it = number == 0 and isinstance(error, PeerError)
                answer.set_exception(error if is_for_it else _lost(error))
        self._changed.set()
        self._protocol.reader.forget_all()
        if self._transport is not None:
            self._transport.abort()


class _FinishedError(Exception):
    """The login is complete; a `StopIteration` cannot leave a thread's future."""

    def __init__(self, lifetime_ms: int) -> None:
        super().__init__()
        self.lifetime_ms = lifetime_ms


def _step(calls: LoginCalls, answer: Message) -> Call[Any]:
    """Give a login its answer, and return its next call."""
    try:
        return calls.send(answer)
    except StopIteration as finished:
        raise _FinishedError(finished.value) from None


def _lost(error: PenstockError) -> AnswerLostError:
    """A copy for each waiting call, with the same reason."""
    copy = AnswerLostError(str(error), hint=error.hint)
    copy.__cause__ = error.__cause__
    return copy
