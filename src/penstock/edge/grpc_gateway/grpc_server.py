"""`GrpcServer`: the gRPC gateway on its port. The only module of the gateway that imports gRPC.

Guarantees:

- a call is counted and its client authenticated before its message is read: all methods are
  streams for gRPC, which reads a message only when it is asked for;
- messages are bounded in bytes before they are allocated, each and in sum, and compressed ones are
  refused: a small message cannot unfold into a large one;
- the port belongs to this server alone: a second one on it is an error;
- a defect of ours ends one call with INTERNAL, and no other.

It decides nothing about a call: `gateway_calls` and the push session do.
"""

import asyncio
import logging
import os
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

# Read when gRPC is imported: without it, gRPC writes each failed handshake to the error stream.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]

from penstock.core.errors import ConfigError
from penstock.core.metrics import Registry
from penstock.edge.grpc_gateway import gateway_limits as limits
from penstock.edge.grpc_gateway.call_admission import CallAdmission, MessageRoom
from penstock.edge.grpc_gateway.gateway_calls import GatewayCalls
from penstock.edge.grpc_gateway.gateway_ports import GatewayDoor, Proven, ServerPem
from penstock.edge.grpc_gateway.gateway_statuses import (
    DEADLINE_EXCEEDED,
    INTERNAL,
    INVALID_ARGUMENT,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    GatewayRefusalError,
    status_of,
)
from penstock.edge.grpc_gateway.peer_names import address_of
from penstock.edge.grpc_gateway.proto_fields import MalformedRequestError
from penstock.edge.grpc_gateway.session_stream import SessionStream, StreamEndedError
from penstock.edge.push.connection import PushConnection
from penstock.edge.push.limits import RETRY_AFTER_MS_MIN
from penstock.edge.push.ports import Admitted, PushRefusedError
from penstock.edge.push.server import PushServer
from penstock.protocol.push.payloads import Credentials

logger = logging.getLogger(__name__)

SERVICE: Final = "/penstock.v1.Penstock/"
STOP_SECONDS_MAX: Final = 1.0
_OPTIONS: Final = (
    # Otherwise a second broker shares the port, and each gets some of the calls.
    ("grpc.so_reuseport", 0),
    ("grpc.max_send_message_length", -1),
    # A message of 1 MiB could unfold into 1 GiB.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.max_concurrent_streams", limits.STREAMS_PER_CONNECTION_MAX),
    ("grpc.max_allowed_incoming_connections", limits.CONNECTIONS_MAX),
    ("grpc.max_metadata_size", limits.METADATA_BYTES_MAX),
    ("grpc.absolute_max_metadata_size", limits.METADATA_BYTES_MAX),
    ("grpc.server_handshake_timeout_ms", limits.HANDSHAKE_MS_MAX),
    ("grpc.max_connection_idle_ms", limits.IDLE_MS_MAX),
    ("grpc.keepalive_time_ms", limits.KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", limits.KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", limits.PINGS_MS_MIN),
    # The window of a stream does not grow: an unread stream holds 64 KiB.
    ("grpc.http2.bdp_probe", 0),
)

Unary = Callable[[object, bytes, float], Awaitable[bytes]]


class CallDetails(Protocol):
    """gRPC's description of a call."""

    method: str


class CallContext(Protocol):
    """gRPC's context of a call."""

    async def read(self) -> object:
        """Return the next message, or `grpc.aio.EOF`."""
        ...

    async def write(self, message: bytes) -> None:
        """Send a message, when the client has room for it."""
        ...

    async def abort(
        self, code: object, details: str, trailing_metadata: tuple[tuple[str, str], ...]
    ) -> None:
        """End the call with a status; raise."""
        ...

    def peer(self) -> str:
        """Return the name of the other end."""
        ...

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline; None without one."""
        ...

    def invocation_metadata(self) -> tuple[tuple[str, str], ...] | None:
        """Return the metadata of the client."""
        ...

    def auth_context(self) -> dict[str, list[bytes]]:
        """Return what TLS has proven."""
        ...


class SessionDoor:
    """`edge.push.ports.PushDoor` of a session whose client is authenticated already."""

    needs_credentials = False

    def __init__(self, proven: Proven) -> None:
        self._proven = proven

    def client_of(self, transport: asyncio.BaseTransport) -> tuple[object, str]:  # noqa: ARG002
        """Return the client of the call."""
        return self._proven.client, self._proven.address

    def secured(self, client: object, certificate: bytes | None) -> object:  # noqa: ARG002
        """Return the same client: gRPC has done the handshake."""
        return client

    async def check(self, client: object, credentials: Credentials | None) -> Admitted:  # noqa: ARG002
        """Return the same client."""
        return Admitted(client, None)

    def principal_of(self, client: object) -> str | None:  # noqa: ARG002
        """Return the identity whose sessions are counted."""
        return self._proven.principal


class _Failure(Exception):  # noqa: N818 (never leaves this module)
    """The status that ends a call."""

    def __init__(self, status: str, message: str, code: str = "", *, retriable: bool) -> None:
        super().__init__(message)
        self.status = getattr(grpc.StatusCode, status)
        self.metadata = (
            ("penstock-error", code or status),
            ("penstock-retriable", "true" if retriable else "false"),
        )


class GrpcServer(grpc.GenericRpcHandler):  # type: ignore[misc]
    """The gateway of one broker."""

    def __init__(
        self,
        calls: GatewayCalls,
        door: GatewayDoor,
        push: PushServer,
        metrics: Registry,
        *,
        message_bytes_max: int,
    ) -> None:
        """`message_bytes_max` bounds one received message."""
        self._message_bytes_max = message_bytes_max
        self._door = door
        self._push = push
        self.admission = CallAdmission()
        self.room = MessageRoom()
        self._sessions: set[PushConnection] = set()
        self._server: Any = None
        self._pem: ServerPem | None = None
        self._methods: dict[str, Unary] = {
            "Produce": lambda client, message, _: calls.produce(client, message),
            "Fetch": calls.fetch,
            "GetTopicMetadata": lambda client, message, _: calls.get_topic_metadata(
                client, message
            ),
            "CommitOffset": lambda client, message, _: calls.commit_offset(client, message),
        }
        self._called = metrics.counter("grpc_calls_total", "Calls and sessions of gRPC clients.")
        self._failed = metrics.counter(
            "grpc_calls_failed_total", "Calls of gRPC clients that ended with an error."
        )
        metrics.gauge(
            "grpc_calls", "Calls and sessions of gRPC clients now.", lambda: self.admission.count
        )

    # --- Start and stop ---

    async def listen(self, host: str, port: int, pem: ServerPem | None) -> int:
        """Accept clients; return the port."""
        largest = ("grpc.max_receive_message_length", self._message_bytes_max)
        self._server = grpc.aio.server(handlers=(self,), options=(*_OPTIONS, largest))
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if pem is None:
                bound = self._server.add_insecure_port(address)
            else:
                bound = self._server.add_secure_port(address, self._credentials(pem))
        except RuntimeError:
            raise ConfigError(
                f"cannot listen on {address} for gRPC: the port is in use, or the address is not "
                "one of this machine.",
                hint="Choose another port with edge.grpc_port, or another address with edge.host.",
            ) from None
        await self._server.start()
        return int(bound)

    def _credentials(self, pem: ServerPem) -> object:
        """Return credentials that use the newest files for each handshake."""
        self._pem = used = pem

        def newest() -> object:
            # Called by a thread of gRPC.
            nonlocal used
            if self._pem is used or self._pem is None:
                return None
            used = self._pem
            return _configuration(used)

        return grpc.dynamic_ssl_server_credentials(
            _configuration(pem), newest, require_client_authentication=pem.client_ca is not None
        )

    def use_files(self, pem: ServerPem) -> None:
        """Use other TLS files for new connections."""
        self._pem = pem

    async def stop(self) -> None:
        """Refuse new calls, end sessions in order, and wait a moment for the others."""
        for session in tuple(self._sessions):
            session.drain("the broker stops", "BROKER_NOT_AVAILABLE", RETRY_AFTER_MS_MIN)
        if self._server is not None:
            await self._server.stop(STOP_SECONDS_MAX)

    # --- Calls ---

    def service(self, handler_call_details: CallDetails) -> object:
        """Return the handler of a method; None for an unknown one."""
        service, _, name = handler_call_details.method.rpartition("/")
        if service + "/" != SERVICE:
            return None
        if name == "Session":
            return grpc.stream_stream_rpc_method_handler(self._session)
        method = self._methods.get(name)
        if method is None:
            return None

        async def handle(_: object, context: CallContext) -> None:
            await self._call(method, context)

        return grpc.stream_stream_rpc_method_handler(handle)

    async def _call(self, method: Unary, context: CallContext) -> None:
        left = context.time_remaining()
        seconds = limits.CALL_SECONDS_MAX if left is None else min(left, limits.CALL_SECONDS_MAX)

        async def work(proven: Proven) -> None:
            ends_at = asyncio.get_running_loop().time() + seconds
            with self.room.share(self._message_bytes_max) as share:
                message = await _message(context, self._message_bytes_max)
                share.resize(len(message))
                left_seconds = ends_at - asyncio.get_running_loop().time()
                answer = await method(proven.client, message, left_seconds)
                share.resize(len(message) + len(answer))
                await context.write(answer)

        await self._carry_out(work, context, seconds)

    async def _session(self, _: object, context: CallContext) -> None:
        async def work(proven: Proven) -> None:
            with self.room.share(self._message_bytes_max):
                await self._run_session(proven, context)

        await self._carry_out(work, context, None)

    async def _run_session(self, proven: Proven, context: CallContext) -> None:
        connection = self._push.connection(SessionDoor(proven))
        stream = SessionStream(connection)
        expiry = None
        if proven.lifetime_seconds is not None:
            expiry = asyncio.get_running_loop().call_later(
                proven.lifetime_seconds,
                connection.drain,
                "the credentials of this session expired",
                "SASL_AUTHENTICATION_FAILED",
                RETRY_AFTER_MS_MIN,
            )

        async def read() -> bytes | None:
            try:
                message = await context.read()
            except grpc.aio.BaseError as error:
                raise StreamEndedError from error
            return message if isinstance(message, bytes) else None

        async def write(message: bytes) -> None:
            try:
                await context.write(message)
            except grpc.aio.BaseError as error:
                raise StreamEndedError from error

        self._sessions.add(connection)
        try:
            await stream.run(read, write)
        finally:
            self._sessions.discard(connection)
            if expiry is not None:
                expiry.cancel()
        if stream.malformed is not None:
            raise stream.malformed
        if stream.is_aborted:
            raise GatewayRefusalError(
                RESOURCE_EXHAUSTED,
                "the session ended: the limit of sessions (edge.sessions_max, "
                "edge.sessions_per_address_max) is reached, or the client did not read",
                retriable=True,
            )

    async def _carry_out(
        self, work: Callable[[Proven], Awaitable[None]], context: CallContext, seconds: float | None
    ) -> None:
        """Admit, authenticate and carry out a call; end it with a status if it fails."""
        self._called.value += 1
        failure: _Failure | None = None
        try:
            async with asyncio.timeout(seconds):
                await self._admitted(work, context)
        except _Failure as found:
            failure = found
        except Exception as error:  # noqa: BLE001 (a defect ends one call)
            failure = _failure_of(error, context)
        if failure is not None:
            self._failed.value += 1
            await context.abort(failure.status, str(failure), failure.metadata)

    async def _admitted(
        self, work: Callable[[Proven], Awaitable[None]], context: CallContext
    ) -> None:
        address = address_of(context.peer())
        self.admission.begin(address)
        try:
            authorization = None
            for name, value in context.invocation_metadata() or ():
                if name == "authorization":
                    authorization = value
            proven = await self._door.prove(address, lambda: _certificate(context), authorization)
            await work(proven)
        finally:
            self.admission.end(address)


async def _message(context: CallContext, bytes_max: int) -> bytes:
    """Return the message of a call."""
    try:
        async with asyncio.timeout(limits.REQUEST_SECONDS_MAX):
            message = await context.read()
    except TimeoutError:
        raise _Failure(
            DEADLINE_EXCEEDED,
            f"no message came within {limits.REQUEST_SECONDS_MAX:.0f} s",
            retriable=True,
        ) from None
    if not isinstance(message, bytes):
        raise _Failure(
            INVALID_ARGUMENT,
            f"the call has no message, or one above {bytes_max} bytes "
            "(edge.grpc_message_bytes_max); send large records through Session",
            retriable=False,
        )
    return message


def _certificate(context: CallContext) -> bytes | None:
    """Return the certificate of the client, in DER."""
    found = context.auth_context().get("x509_pem_cert")
    return ssl.PEM_cert_to_DER_cert(found[0].decode()) if found else None


def _configuration(pem: ServerPem) -> object:
    return grpc.ssl_server_certificate_configuration(((pem.key, pem.certificate),), pem.client_ca)


def _failure_of(error: Exception, context: CallContext) -> _Failure:
    """Return the status for an error."""
    match error:
        case PushRefusedError():
            refusal = error.refusal
            return _Failure(
                status_of(refusal), refusal.error, refusal.code, retriable=refusal.retriable
            )
        case GatewayRefusalError():
            return _Failure(error.status, str(error), retriable=error.retriable)
        case MalformedRequestError():
            return _Failure(INVALID_ARGUMENT, str(error), "INVALID_REQUEST", retriable=False)
        case TimeoutError():
            return _Failure(
                DEADLINE_EXCEEDED,
                "the call did not end in time; records of a Produce may be stored",
                "REQUEST_TIMED_OUT",
                retriable=True,
            )
        case grpc.aio.BaseError():
            # The client cancelled, or its connection is gone.
            return _Failure(UNAVAILABLE, "the client is gone", retriable=True)
        case _:
            logger.error("a gRPC call of %s failed", context.peer(), exc_info=error)
            return _Failure(
                INTERNAL, "the call failed by a defect of the broker; see its log", retriable=False
            )
