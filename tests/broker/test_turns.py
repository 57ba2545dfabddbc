"""The work of one turn of the event loop is bounded, and the queue behind it is fair.

The first part drives `TurnBudget` with owners whose time the test decides. The second joins
connections to transports in memory, with a clock that only handlers move: one client that sends
many expensive requests at once must not hold up another one.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.answers import Answer
from penstock.broker.connections.entrance import Entrance
from penstock.broker.connections.listener import ConnectionProtocol
from penstock.broker.connections.listener_state import ListenerState
from penstock.broker.context import RequestContext
from penstock.broker.dispatch import Dispatcher, Handler
from penstock.broker.pacing.turns import EXPENSIVE_SECONDS, TAG_SECONDS_MAX, TurnBudget
from penstock.core.limits import CONNECTION_TURN_SECONDS, QUEUED_TURN_SECONDS, TURN_SECONDS
from penstock.core.metrics import Registry
from penstock.core.settings.tree import ListenerSettings
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.connection import ClientConnection
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.broker.handlers.fakes import FakeServices
from tests.broker.memory_transport import Transport
from tests.storage.logs import Clock

REQUEST_SECONDS_MAX = 0.02
"""The longest piece of work in these tests."""


class Owner:
    """Work of given pieces, each with its time."""

    def __init__(self, turns: TurnBudget, pieces: list[float]) -> None:
        self.turn_tag = 0.0
        self.turn_seconds = 0.0
        self.pieces = pieces
        self.is_queued = False
        self.longest_slice = 0.0
        self._turns = turns

    def arrive(self) -> None:
        """The event loop reads from this one."""
        if not self.is_queued:
            self.continue_turn()

    def continue_turn(self) -> None:
        self.is_queued = False
        seconds, limit = 0.0, self._turns.slice_seconds(self)
        while self.pieces and seconds < limit:
            seconds += self.pieces.pop(0)
        self.longest_slice = max(self.longest_slice, seconds)
        self._turns.spend(self, seconds)
        if self.pieces:
            self.is_queued = True
            self._turns.join(self, seconds)


class Loop:
    """Turns of an event loop: first scheduled callbacks, then connections with data to read."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.turns = TurnBudget(self.soon.append)

    def turn(self, readable: list[Owner]) -> float:
        """One turn; returns the seconds of work in it."""
        before = sum(sum(owner.pieces) for owner in readable)
        due, self.soon[:] = tuple(self.soon), []
        for call in due:
            call()
        for owner in readable:
            owner.arrive()
        return before - sum(sum(owner.pieces) for owner in readable)


SECONDS = st.floats(min_value=1e-6, max_value=REQUEST_SECONDS_MAX)


@given(st.lists(st.lists(SECONDS, max_size=20), max_size=12))
def test_every_turn_is_bounded_and_all_work_is_done(work: list[list[float]]) -> None:
    loop = Loop()
    owners = [Owner(loop.turns, list(pieces)) for pieces in work]
    left = sum(map(sum, work))
    turns = 0
    while any(owner.pieces for owner in owners):
        done = loop.turn(owners)
        assert done <= QUEUED_TURN_SECONDS + TURN_SECONDS + 2 * REQUEST_SECONDS_MAX
        left -= done
        turns += 1
        assert turns <= 2 + sum(map(len, work)), "a turn without any work"
    assert left == pytest.approx(0, abs=1e-9)
    assert loop.turns.waiting_count == 0
    for owner in owners:
        assert owner.longest_slice < CONNECTION_TURN_SECONDS + REQUEST_SECONDS_MAX


@given(st.integers(1, 200), st.floats(min_value=0.001, max_value=REQUEST_SECONDS_MAX))
def test_a_small_request_does_not_wait_for_the_queue(hogs: int, seconds: float) -> None:
    """However many expensive owners wait: those that have had a turn are behind it."""
    loop = Loop()
    owners = [Owner(loop.turns, [seconds] * 200) for _ in range(hogs)]
    for _ in range(hogs + 2):
        loop.turn(owners)
    small = Owner(loop.turns, [0.0001])
    waited = 0.0
    while small.pieces:
        waited += loop.turn([*owners, small])
    assert waited <= 2 * (TURN_SECONDS + QUEUED_TURN_SECONDS) + 4 * REQUEST_SECONDS_MAX


@given(st.integers(2, 50), st.floats(EXPENSIVE_SECONDS, CONNECTION_TURN_SECONDS))
def test_expensive_requests_of_many_owners_do_not_follow_one_another(
    hogs: int, seconds: float
) -> None:
    """Each owner has one request at a time, below its share: from the second on they take turns."""
    loop = Loop()
    owners = [Owner(loop.turns, []) for _ in range(hogs)]
    for turn in range(4 * hogs):
        for owner in owners:
            if not owner.pieces:
                owner.pieces = [seconds]
        done = loop.turn(owners)
        if turn >= hogs:
            assert done <= 2 * QUEUED_TURN_SECONDS + 2 * seconds


def test_cheap_requests_do_not_make_an_expensive_owner_cheap() -> None:
    """Guards: a client that alternated both had the whole turn for its expensive ones."""
    loop = Loop()
    owners = [Owner(loop.turns, []) for _ in range(50)]
    for turn in range(100):
        seconds = 0.9 * CONNECTION_TURN_SECONDS if turn % 2 else 1e-6
        for owner in owners:
            if not owner.pieces:
                owner.pieces = [seconds]
        done = loop.turn(owners)
        if turn >= 4:
            assert done <= 4 * QUEUED_TURN_SECONDS


def test_work_that_was_done_while_nobody_waited_costs_little_later() -> None:
    """Else a client that used an idle broker for an hour would wait for an hour."""
    loop = Loop()
    busy = Owner(loop.turns, [])
    for _ in range(1_000):
        busy.pieces = [REQUEST_SECONDS_MAX]
        loop.turn([busy])
        loop.turn([])
    assert busy.turn_tag <= loop.turns._virtual_seconds + TAG_SECONDS_MAX


def test_work_that_fails_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()

    class Broken:
        turn_tag = 0.0
        turn_seconds = 0.0

        def continue_turn(self) -> None:
            raise RuntimeError("broken")

    after = Owner(loop.turns, [0.001])
    loop.turns.join(Broken(), 0)
    loop.turns.join(after, 0)
    with caplog.at_level(logging.CRITICAL):
        loop.turn([])
    assert not after.pieces


# --- Connections ---


class Scene:
    """Connections to a listener whose requests take as long as the test says."""

    def __init__(self) -> None:
        self.clock = Clock()
        fakes = FakeServices()
        self.soon = fakes.soon
        self.run_turns = fakes.run_turns
        self.seconds: dict[str, float] = {}
        """What one request of a client takes, by its name."""
        handlers: dict[int, Handler] = {ApiKey.API_VERSIONS: Handler(self._handle, 0, 4)}
        self.metrics = Registry()
        dispatcher = Dispatcher(replace(fakes.services, clock=self.clock), handlers, self.metrics)
        self.state = ListenerState(ListenerSettings(), dispatcher, Registry())

    def _handle(self, request: ApiVersionsRequest, context: RequestContext) -> Answer:
        self.clock.seconds += self.seconds[context.client_id or ""]
        return ApiVersionsResponse(api_keys=())

    def connect(
        self, name: str, seconds: float, transport: Transport | None = None
    ) -> tuple[ConnectionProtocol, Transport]:
        self.seconds[name] = seconds
        transport = transport or Transport()
        transport.client = ClientConnection(name)
        protocol = ConnectionProtocol(self.state, Entrance())
        protocol.connection_made(transport)
        return protocol, transport

    def send(self, connection: tuple[ConnectionProtocol, Transport], count: int) -> None:
        protocol, transport = connection
        data = b""
        for _ in range(count):
            _, frame = transport.client.send_request(ApiVersionsRequest(), 0)
            data += b"".join(frame)
        protocol.get_buffer(-1)[: len(data)] = data
        protocol.buffer_updated(len(data))

    def one_turn(self) -> None:
        due, self.soon[:] = tuple(self.soon), []
        for call in due:
            call()


def paused(connection: tuple[ConnectionProtocol, Transport]) -> bool:
    return connection[1].is_reading_paused


def test_pipelined_requests_of_one_connection_yield() -> None:
    """Guards `listener._handle_burst`: 40 requests of 10 ms were one pause of 400 ms."""

    async def go() -> None:
        scene = Scene()
        greedy, small = scene.connect("greedy", 0.01), scene.connect("small", 0.0001)
        scene.send(greedy, 40)
        assert greedy[1].answers == 1
        assert paused(greedy)
        scene.send(small, 1)
        scene.one_turn()
        assert small[1].answers == 1
        assert greedy[1].answers <= 3
        scene.run_turns()
        assert greedy[1].answers == 40
        assert not paused(greedy)
        scene.state.stop()

    asyncio.run(go())


def test_small_requests_that_fit_a_turn_do_not_yield() -> None:
    async def go() -> None:
        scene = Scene()
        usual = scene.connect("usual", 0.00001)
        scene.send(usual, 60)
        assert usual[1].answers == 60
        assert scene.state.turns.yields == 0
        scene.state.stop()

    asyncio.run(go())


def test_a_connection_that_ends_in_the_queue_is_forgotten() -> None:
    async def go() -> None:
        scene = Scene()
        greedy = scene.connect("greedy", 0.01)
        scene.send(greedy, 10)
        greedy[0].connection_lost(None)
        scene.run_turns()
        assert greedy[1].answers == 1
        assert scene.state.turns.waiting_count == 0
        scene.state.stop()

    asyncio.run(go())


def test_the_last_requests_before_an_end_of_sending_are_answered() -> None:
    """A connection with requests in the queue is not drained."""

    async def go() -> None:
        scene = Scene()
        greedy = scene.connect("greedy", 0.01)
        scene.send(greedy, 10)
        assert greedy[0].eof_received()
        scene.run_turns()
        assert greedy[1].answers == 10
        scene.state.stop()

    asyncio.run(go())


class BrokenTransport(Transport):
    """Fails from the given answer on."""

    def __init__(self, answers_max: int) -> None:
        super().__init__()
        self._answers_max = answers_max

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.answers >= self._answers_max:
            raise RuntimeError("broken")
        super().write(data)


@pytest.mark.parametrize("answers_max", [0, 1, 3])
def test_a_connection_whose_requests_fail_is_closed(
    answers_max: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Guards `listener._handle_requests`: after a later turn it stayed open and was not read."""

    async def go() -> None:
        scene = Scene()
        broken = scene.connect("broken", 0.01, BrokenTransport(answers_max))
        scene.send(broken, 10)
        scene.run_turns()
        assert broken[1].answers == answers_max
        assert broken[1].is_aborted
        assert scene.state.turns.waiting_count == 0
        assert scene.metrics.snapshot()["handler_failures_total"] == 1
        scene.state.stop()

    with caplog.at_level(logging.CRITICAL):
        asyncio.run(go())
