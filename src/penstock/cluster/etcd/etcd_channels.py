"""`EtcdChannels`: one gRPC channel for each etcd member; sends requests and reads answers.

The only module that imports gRPC. Guarantees: a failed attempt raises `AttemptError` with a `Fault`
whose code is None only if the request was not sent: the connection is established first, and a
request is sent only on a connection that stands. gRPC never sends a request a second time. A
channel that cannot connect is closed, and the next attempt reads the certificates again.

A cancelled task stays cancelled; a call that ends because this process closed it is a fault.

It decides nothing: no retries, no other member, no meaning of a code.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any, Final

# Read when gRPC is imported: without it, gRPC writes each failed connection to the error stream.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]

from penstock.cluster.etcd.etcd_certificates import CertificateFiles, read_certificate_files
from penstock.cluster.etcd.etcd_faults import Fault, StatusCode
from penstock.cluster.etcd.etcd_limits import (
    ANSWER_BYTES_MAX,
    WATCH_IDLE_SECONDS,
    WATCH_OPEN_SECONDS,
    WATCH_SILENCE_SECONDS,
)
from penstock.cluster.etcd.etcd_messages import RANGE, WATCH, watch_progress_request
from penstock.cluster.etcd.etcd_options import EtcdOptions
from penstock.core.errors import StoreError

_CHANNEL_OPTIONS: Final = (
    # A connection of its own, not one that other channels of the process use too.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    # A member that is frozen answers no ping. etcd rejects pings more often than every 5 s.
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)
_REASON_SECONDS: Final = 0.2
_NEEDS_LEADER: Final = ("hasleader", "true")
"""A member without a leader ends the stream instead of staying silent."""


class AttemptError(Exception):
    """One attempt failed."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


class EtcdChannels:
    """The connections to all members. Used from one event loop."""

    def __init__(self, options: EtcdOptions, *, answer_bytes_max: int = ANSWER_BYTES_MAX) -> None:
        self._options = options
        self._arguments = (*_CHANNEL_OPTIONS, ("grpc.max_receive_message_length", answer_bytes_max))
        self._channels: dict[int, Any] = {}
        self._closed = False

    async def ask(
        self, member: int, method: str, request: bytes, *, timeout_seconds: float, token: str = ""
    ) -> bytes:
        """Send one request and return its answer."""
        channel = await self._connected(member, timeout_seconds)
        call = channel.unary_unary(method)
        try:
            answer = await call(request, timeout=timeout_seconds, metadata=_metadata(token))
        except grpc.aio.AioRpcError as error:
            raise AttemptError(_fault(error)) from None
        except (asyncio.CancelledError, grpc.aio.UsageError) as error:
            raise _ended(error) from None
        return bytes(answer)

    async def ask_stream(
        self, member: int, method: str, request: bytes, *, timeout_seconds: float, token: str = ""
    ) -> bytes:
        """Open a stream, send one request, return its first answer, and close the stream."""
        channel = await self._connected(member, timeout_seconds)
        metadata = (*_metadata(token), _NEEDS_LEADER)
        try:
            call = channel.stream_stream(method)(timeout=timeout_seconds, metadata=metadata)
            try:
                await call.write(request)
                answer = await call.read()
            finally:
                call.cancel()
        except grpc.aio.AioRpcError as error:
            raise AttemptError(_fault(error)) from None
        except (asyncio.CancelledError, asyncio.InvalidStateError, grpc.aio.UsageError) as error:
            raise _ended(error) from None
        if answer is grpc.aio.EOF:
            raise AttemptError(Fault(StatusCode.UNAVAILABLE, "the stream ended without an answer"))
        return bytes(answer)

    async def open_watch(
        self, member: int, request: bytes, *, timeout_seconds: float, token: str = ""
    ) -> "WatchStream":
        """Open a watch; its first message says whether it is open."""
        channel = await self._connected(member, timeout_seconds)
        return WatchStream(channel, request, (*_metadata(token), _NEEDS_LEADER))

    async def close(self) -> None:
        """Close every connection; calls that wait fail."""
        self._closed = True
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    async def _connected(self, member: int, timeout_seconds: float) -> Any:  # noqa: ANN401 gRPC has no types
        channel = self._channels.get(member)
        if channel is None:
            files = await self._certificate_files()
            if self._closed:
                raise AttemptError(Fault(None, "the store was closed"))
            # Another call may have opened it meanwhile.
            channel = self._channels.get(member) or self._open(member, files)
            self._channels[member] = channel
        if channel.get_state() is not grpc.ChannelConnectivity.READY:
            await self._connect(member, channel, timeout_seconds)
        return channel

    async def _connect(self, member: int, channel: Any, timeout_seconds: float) -> None:  # noqa: ANN401
        problem = f"no connection within {timeout_seconds:g} s"
        try:
            async with asyncio.timeout(timeout_seconds):
                state = channel.get_state(try_to_connect=True)
                while state is not grpc.ChannelConnectivity.READY:
                    if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                        problem = await _connection_problem(channel)
                        break
                    await channel.wait_for_state_change(state)
                    state = channel.get_state(try_to_connect=True)
                else:
                    return
        except TimeoutError:
            pass
        except (grpc.aio.UsageError, RuntimeError):
            problem = "the channel was closed"
        except asyncio.CancelledError as error:
            # gRPC cancels the waits of all callers when one of them closes the channel. Without
            # this, the task of another caller would end, silently.
            if _is_own(error):
                raise
            problem = "the channel was closed"
        if self._channels.get(member) is channel:
            del self._channels[member]
        await channel.close()
        target = self._options.endpoints[member].target
        raise AttemptError(Fault(None, f"{target}: {problem}"))

    def _open(self, member: int, files: CertificateFiles | None) -> Any:  # noqa: ANN401
        target = self._options.endpoints[member].target
        if files is None:
            return grpc.aio.insecure_channel(target, options=self._arguments)
        credentials = grpc.ssl_channel_credentials(files.authorities, files.key, files.certificate)
        return grpc.aio.secure_channel(target, credentials, options=self._arguments)

    async def _certificate_files(self) -> CertificateFiles | None:
        if not self._options.has_tls:
            return None
        try:
            return await asyncio.to_thread(read_certificate_files, self._options)
        except StoreError as error:
            raise AttemptError(Fault(None, str(error))) from error


class WatchStream:
    """One stream of a watch: the request, and messages as they come."""

    def __init__(self, channel: Any, request: bytes, metadata: tuple[tuple[str, str], ...]) -> None:  # noqa: ANN401
        self._loop = asyncio.get_running_loop()
        self._is_reading = False
        self._last_message = self._loop.time()
        self._has_messages = False
        self._interruption = ""
        self._call = channel.stream_stream(WATCH)(self._requests(request), metadata=metadata)

    async def read(self) -> bytes:
        """Return the next message. A stream that is silent for too long fails."""
        seconds = WATCH_SILENCE_SECONDS if self._has_messages else WATCH_OPEN_SECONDS
        timer = self._loop.call_later(seconds, self.interrupt, f"no message for {seconds:g} s")
        self._is_reading = True
        try:
            message = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise AttemptError(_fault(error)) from None
        except (asyncio.CancelledError, asyncio.InvalidStateError, grpc.aio.UsageError) as error:
            raise _ended(error, self._interruption) from None
        finally:
            self._is_reading = False
            self._last_message = self._loop.time()
            timer.cancel()
        if message is grpc.aio.EOF:
            raise AttemptError(Fault(StatusCode.UNAVAILABLE, "the member ended the stream"))
        self._has_messages = True
        return bytes(message)

    def interrupt(self, reason: str) -> None:
        """End the stream: a read that waits fails, and so does every later one."""
        self._interruption = self._interruption or reason
        self._call.cancel()

    async def _requests(self, request: bytes) -> AsyncIterator[bytes]:
        """Yield the watch, then a question whenever its reader has waited for long."""
        yield request
        while True:
            await asyncio.sleep(WATCH_IDLE_SECONDS / 2)
            idle_seconds = self._loop.time() - self._last_message
            if self._is_reading and idle_seconds >= WATCH_IDLE_SECONDS / 2:
                yield watch_progress_request()


def _metadata(token: str) -> tuple[tuple[str, str], ...]:
    return (("token", token),) if token else ()


async def _connection_problem(channel: Any) -> str:  # noqa: ANN401
    """Return why a channel has no connection: only a call on it says so.

    The call is an empty read, which etcd rejects if the channel connects at this moment.
    """
    try:
        await channel.unary_unary(RANGE)(b"", timeout=_REASON_SECONDS)
    except grpc.aio.AioRpcError as error:
        return _fault(error).details
    return "the connection was lost"


def _fault(error: Any) -> Fault:  # noqa: ANN401
    return Fault(StatusCode(error.code().value[0]), error.details() or "")


def _ended(error: BaseException, reason: str = "") -> BaseException:
    """Return the error of a call that ended here: a fault, unless this task is cancelled."""
    if _is_own(error):
        return error
    return AttemptError(Fault(StatusCode.CANCELLED, reason or "the connection was closed"))


def _is_own(error: BaseException) -> bool:
    """Return whether this task is cancelled; gRPC raises the same error for a cancelled call."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
