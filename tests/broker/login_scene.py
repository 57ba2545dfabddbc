"""`LoginScene`: connections of a listener with SASL, without sockets, threads or real time.

A scene has real connections (`ConnectionProtocol`, `ClientLogin`) with the real checks of a node
(`ListenerLogins`, audit log, throttle) on an event loop whose time the test moves. Users and
passwords are those of `tests.oracle.secured_kafka`. No handler runs but that of ApiVersions: a
request that reaches another one is noted in `reached`, and answered with nothing.

The scene checks nothing by itself except that no callback of the loop fails.
"""

import asyncio
import dataclasses
import heapq
import itertools
import struct
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextvars import Context
from functools import partial
from typing import Any, Final

from penstock.broker.answers import NO_ANSWER, NoAnswer
from penstock.broker.connections.entrance import Entrance
from penstock.broker.connections.listener import ConnectionProtocol
from penstock.broker.connections.listener_state import ListenerState
from penstock.broker.context import RequestContext
from penstock.broker.dispatch import Dispatcher, Handler
from penstock.broker.handlers import HANDLERS
from penstock.broker.pacing.turns import TurnBudget
from penstock.broker.peer import Peer
from penstock.core.metrics import Registry
from penstock.core.settings.tree import ListenerSettings
from penstock.node.security.audit_log import AuditLog
from penstock.node.security.logins import Identities, ListenerLogins
from penstock.protocol import codec, headers
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.codec import Message
from penstock.security.sasl.exchange import ExchangeSettings
from penstock.security.sasl.mechanism_logins import MECHANISMS, VerifiedToken
from penstock.security.scram_credential import ScramCredential, credential_of, salted_password
from penstock.security.secret import Secret
from tests.broker.handlers.fakes import FakeServices
from tests.oracle.secured_kafka import PASSWORDS, PLAIN, SCRAM_256, SCRAM_512

ADDRESS: Final = "192.0.2.7"
GOOD_TOKEN: Final = "token-of-alice"
SALT: Final = b"salt-of-a-test-with-26-byte"
LATER_SECONDS: Final = 20.0
"""Longer than a whole login with its delays may take."""


def scram_credential(mechanism: str, user: str) -> ScramCredential:
    salted = salted_password(mechanism, Secret(PASSWORDS[mechanism][user]), SALT, 4096)
    return credential_of(mechanism, salted, SALT, 4096)


CREDENTIALS: Final = {
    (mechanism, user): scram_credential(mechanism, user)
    for mechanism in (SCRAM_256, SCRAM_512)
    for user in PASSWORDS[mechanism]
}


class VirtualLoop(asyncio.AbstractEventLoop):
    """Calls callbacks when the test says so; its time is a number."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.failures: list[Exception] = []
        self._ready: deque[tuple[asyncio.Handle, Callable[[], object]]] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle, Callable[[], object]]] = []
        self._numbers = itertools.count()

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append((handle, partial(callback, *args)))
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        call: Callable[[], object] = partial(callback, *args)
        heapq.heappush(self._timers, (when, next(self._numbers), handle, call))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Called by asyncio; `advance` skips the handle."""

    @property
    def timers(self) -> int:
        """Timers that are set and not cancelled."""
        return sum(not handle.cancelled() for _, _, handle, _ in self._timers)

    def run_ready(self) -> None:
        """Run turns until nothing is left to do now."""
        while self._ready:
            handle, call = self._ready.popleft()
            if not handle.cancelled():
                self._call(call)

    def advance(self, seconds: float) -> None:
        """Let time pass, timer by timer."""
        self.run_ready()
        until = self.now + seconds
        while self._timers and self._timers[0][0] <= until:
            when, _, handle, call = heapq.heappop(self._timers)
            if not handle.cancelled():
                self.now = max(self.now, when)
                self._call(call)
                self.run_ready()
        self.now = until

    def _call(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 (each is a finding of the test)
            self.failures.append(error)


class Turn:
    """Awaited, it lets the test decide when to go on."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class SteppedTasks:
    """`broker.ports.Tasks`: a task runs until it waits; `resume` lets all waiting ones go on."""

    def __init__(self) -> None:
        self.waiting: list[Coroutine[object, object, None]] = []
        self.failures: list[Exception] = []

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        self._step(coroutine)

    def resume(self) -> None:
        due, self.waiting = self.waiting, []
        for coroutine in due:
            self._step(coroutine)

    def cancel(self) -> None:
        """End them as the stop of a broker does."""
        due, self.waiting = self.waiting, []
        for coroutine in due:
            coroutine.close()

    def _step(self, coroutine: Coroutine[object, object, None]) -> None:
        try:
            coroutine.send(None)
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001 (it would end the broker)
            self.failures.append(error)
            return
        self.waiting.append(coroutine)


class VirtualClock:
    """The time of the loop, as a clock of the broker."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return int(self._loop.now * 1000)

    def monotonic(self) -> float:
        return self._loop.now


class FakeChecks:
    """`PasswordCheck` and `TokenCheck`; `is_slow` ones wait for `SteppedTasks.resume`."""

    def __init__(self) -> None:
        self.is_slow = False
        self.error: Exception | None = None
        self.checked = 0

    def version(self, user: str) -> object:
        return PASSWORDS[PLAIN].get(user)

    async def verify(self, user: str, password: Secret) -> str | None:
        await self._wait()
        return user if PASSWORDS[PLAIN].get(user) == password.reveal() else None

    async def verify_token(self, token: Secret) -> VerifiedToken | None:
        await self._wait()
        return VerifiedToken("alice", 300.0) if token.reveal() == GOOD_TOKEN else None

    async def _wait(self) -> None:
        self.checked += 1
        if self.is_slow:
            await Turn()
        if self.error is not None:
            raise self.error


@dataclasses.dataclass
class FakeTokens:
    checks: FakeChecks

    async def verify(self, token: Secret) -> VerifiedToken | None:
        return await self.checks.verify_token(token)


class MemoryTransport(asyncio.Transport):
    """Collects frames of the broker; ends the connection in a later turn, as an event loop does."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop
        self.protocol: ConnectionProtocol | None = None
        self.is_paused = False
        self.is_ended = False
        self.is_aborted = False
        self.written = bytearray()

    def get_extra_info(self, name: str, default: object = None) -> object:
        return (ADDRESS, 5_000) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_ended

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_aborted, "written after the end"
        self.written += data

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        for data in list_of_data:
            self.write(data)

    def close(self) -> None:
        if not self.is_ended:
            self.is_ended = True
            assert self.protocol is not None
            self._loop.call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.is_aborted = True
        self.close()


class Line:
    """The client's end of one connection."""

    def __init__(
        self, scene: "LoginScene", protocol: ConnectionProtocol, transport: MemoryTransport
    ) -> None:
        self.scene = scene
        self.protocol = protocol
        self.transport = transport
        self._unread = bytearray()
        self.numbers = itertools.count(1)

    def is_closed(self) -> bool:
        return self.transport.is_ended

    def is_logged_in(self) -> bool:
        gate = self.protocol._gate
        return gate is not None and not gate.is_closed

    def send(self, data: bytes, piece_bytes: int = 1 << 30) -> None:
        """Send bytes, in pieces; the broker reads them as far as it wants to."""
        self._unread += data
        self.deliver(piece_bytes)

    def deliver(self, piece_bytes: int = 1 << 30) -> None:
        """Let the broker read on."""
        loop = self.scene.loop
        while True:
            loop.run_ready()
            if not self._unread or self.transport.is_paused or self.is_closed():
                return
            buffer = self.protocol.get_buffer(-1)
            count = min(len(buffer), len(self._unread), piece_bytes)
            buffer[:count] = self._unread[:count]
            del self._unread[:count]
            self.protocol.buffer_updated(count)

    def later(self, seconds: float = LATER_SECONDS) -> None:
        """Let time pass, and the broker read on."""
        self.scene.loop.advance(seconds)
        self.deliver()

    def request(self, message: Message, version: int) -> bytes:
        """A request frame with its length."""
        api_key = int(vars(type(message))["API_KEY"])
        head = headers.write_request_head(api_key, version, next(self.numbers), "scene")
        return framed(head + codec.encode_request(message, version))

    def frames(self) -> list[bytes]:
        """The frames that the broker has written since the last call."""
        written = bytes(self.transport.written)
        self.transport.written.clear()
        found: list[bytes] = []
        at = 0
        while at < len(written):
            (length,) = struct.unpack_from(">i", written, at)
            found.append(written[at + 4 : at + 4 + length])
            at += 4 + length
        assert at == len(written), "a part of a frame"
        return found

    def answer(self, api_key: int, version: int) -> Any:  # noqa: ANN401 - of any API
        """The one answer that has come."""
        (frame,) = self.frames()
        return decoded(api_key, version, frame)

    def disconnect(self) -> None:
        """The client ends the connection."""
        self.transport.close()
        self.scene.loop.run_ready()


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def decoded(api_key: int, version: int, frame: bytes) -> Any:  # noqa: ANN401 - of any API
    view = memoryview(bytearray(frame))
    body = view[headers.response_body_start(api_key, version, view) :]
    return codec.decode_response(api_key, version, body)


class LoginScene:
    """A listener with SASL."""

    def __init__(
        self,
        *,
        session_ms: int = 0,
        failure_delay_ms: int = 100,
        settings: ListenerSettings | None = None,
    ) -> None:
        self.loop = VirtualLoop()  # type: ignore[abstract]
        self.clock = VirtualClock(self.loop)
        self.tasks = SteppedTasks()
        self.checks = FakeChecks()
        self.reached: Counter[int] = Counter()
        """Requests that reached a handler, by API."""
        self.metrics = Registry()
        fakes = FakeServices()
        services = dataclasses.replace(
            fakes.services,
            clock=self.clock,
            tasks=self.tasks,
            turns=TurnBudget(self.loop.call_soon),
            api_ranges={key: handler.versions for key, handler in HANDLERS.items()},
        )
        self.handlers = {int(key): self._counted(int(key), one) for key, one in HANDLERS.items()}
        self.dispatcher = Dispatcher(services, self.handlers, self.metrics)
        asyncio._set_running_loop(self.loop)
        try:
            self.state = ListenerState(
                settings or ListenerSettings(), self.dispatcher, self.metrics
            )
        finally:
            asyncio._set_running_loop(None)
        self.audit = AuditLog(self.clock, self.metrics)
        identities = Identities(
            lambda mechanism, user: CREDENTIALS.get((mechanism, user)),
            self.checks,
            FakeTokens(self.checks),
            self.audit,
            self.clock,
        )
        exchange = ExchangeSettings(
            mechanisms=MECHANISMS,
            false_key=Secret("secret of the cluster"),
            session_ms_max=dict.fromkeys(MECHANISMS, session_ms),
            failure_delay_ms=failure_delay_ms,
        )
        self.logins = ListenerLogins(exchange, identities)
        self.entrance = Entrance(name="CLIENTS", logins=self.logins)

    def connect(self, peer: Peer | None = None) -> Line:
        """A new connection; with a `peer`, one of this process."""
        transport = MemoryTransport(self.loop)
        protocol = ConnectionProtocol(self.state, self.entrance, peer)
        transport.protocol = protocol
        protocol.connection_made(transport)
        return Line(self, protocol, transport)

    def _counted(self, api_key: int, original: Handler) -> Handler:
        """A handler with the original's refusals, which notes that it was reached."""
        original.load()
        function = original.function
        assert function is not None

        def handle(message: object, context: RequestContext) -> Any:  # noqa: ANN401
            self.reached[api_key] += 1
            return function(message, context) if api_key == ApiKey.API_VERSIONS else NO_ANSWER

        def shortcut(*_: object) -> NoAnswer | None:
            self.reached[api_key] += 1
            return NO_ANSWER

        versions = original.versions
        made = Handler(
            handle,
            versions.lowest,
            versions.highest,
            versions.lowest_advertised,
            None if original.shortcut is None else shortcut,
        )
        made.refuse = original.refuse
        return made

    def check_empty(self) -> None:
        """With all connections gone, nothing is left of them."""
        assert not self.state.connections
        assert not self.state.by_address
        assert not self.state._unproven
        assert self.state._unproven_bytes == 0
        assert self.state.receiving.reserved_bytes == 0
        assert self.state.handling.reserved_bytes == 0
        assert self.state.unsent.reserved_bytes == 0
        assert not self.tasks.waiting
        assert not self.state.check_turns.hosts
        shared = self.state._alarm
        others = self.loop.timers - (shared is not None and not shared.cancelled())
        assert others == 0, "a timer of a connection that is gone"

    def check_no_failure(self) -> None:
        """No callback of the event loop and no task has failed."""
        for failures in (self.loop.failures, self.tasks.failures):
            if failures:
                raise AssertionError("a callback failed") from failures[0]
