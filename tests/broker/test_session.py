"""One connection's requests, without a socket: answers in order, room, budget, endings."""

from collections.abc import Callable

import pytest

from penstock.broker.answers import CLOSE_CONNECTION, DEFECT, NO_ANSWER, Answer, WaitingAnswer
from penstock.broker.connections.session import Session
from penstock.broker.context import RequestContext
from penstock.broker.dispatch import Dispatcher, Handler
from penstock.broker.pacing.budget import MemoryBudget
from penstock.cluster.quota_entities import REQUEST_PERCENTAGE, entity_of
from penstock.core.cancellation import Cancellation
from penstock.core.deferred import Deferred
from penstock.core.errors import MalformedRequestError
from penstock.core.limits import REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX, WRITE_BUFFER_BYTES_HIGH
from penstock.core.metrics import Registry
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.codec import Message
from penstock.protocol.connection import ClientConnection, ServerConnection
from penstock.protocol.encoder_source import Buffer
from penstock.protocol.framing import ReadArena
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.broker.handlers.fakes import FakeServices

VERSION = {ApiKey.API_VERSIONS: 0, ApiKey.DESCRIBE_CLUSTER: 0, ApiKey.FETCH: 12, ApiKey.METADATA: 0}
NOW = ApiVersionsRequest()
"""Answered at once."""
LATER = DescribeClusterRequest(include_cluster_authorized_operations=False)
"""Answered when the test says so."""
POLL = FetchRequest(max_wait_ms=0, min_bytes=0, topics=())
"""A fetch that waits."""
TASK = MetadataRequest(topics=())
"""Answered by a coroutine."""


def answer_later(text: str = "") -> DescribeClusterResponse:
    return DescribeClusterResponse(cluster_id=text, brokers=())


class Parked:
    """An answer that records its calls, and returns `hurried` when it is in a hurry."""

    def __init__(self, hurried: Message | None) -> None:
        self.answer = WaitingAnswer(self)
        self._hurried = hurried
        self.is_abandoned = False

    @property
    def is_set(self) -> bool:
        return self.answer.is_set

    def set(self, answer: Answer) -> None:
        self.answer.set(answer)

    def abandon(self) -> None:
        self.is_abandoned = True

    def hurry(self) -> None:
        if self._hurried is not None:
            self.set(self._hurried)


class Connection:
    """A client and a session, joined without a socket; handlers that the test controls."""

    def __init__(self) -> None:
        self.deferred: list[Parked] = []
        self.clients: list[Cancellation | None] = []
        self.raises: Exception | None = None
        self.writes = 0
        self.is_closed = False
        self.room_calls = 0
        self.muted_ms: list[int] = []
        self.client = ClientConnection("test")
        self.metrics = Registry()
        handlers: dict[int, Handler] = {
            ApiKey.API_VERSIONS: Handler(self._now, 0, 4),
            ApiKey.DESCRIBE_CLUSTER: Handler(self._later, 0, 2),
            ApiKey.FETCH: Handler(self._later, 4, 18),
            ApiKey.METADATA: Handler(self._task, 0, 13),
        }
        self.dispatcher = Dispatcher(FakeServices().services, handlers, self.metrics)
        self._server = ServerConnection(self.dispatcher.version_ranges, ReadArena())
        self.budget = MemoryBudget(1_000_000)
        self.session = Session(
            self.dispatcher, self.budget, self._write, self._close, self._has_room, self._mute
        )

    def _now(self, request: ApiVersionsRequest, context: RequestContext) -> Answer:
        if self.raises is not None:
            raise self.raises
        return ApiVersionsResponse(api_keys=())

    def _later(self, request: Message, context: RequestContext) -> Deferred[Answer]:
        self.clients.append(context.client)
        is_fetch = isinstance(request, FetchRequest)
        self.deferred.append(Parked(FetchResponse(responses=()) if is_fetch else None))
        return self.deferred[-1].answer

    async def _task(self, request: MetadataRequest, context: RequestContext) -> Answer:
        if self.raises is not None:
            raise self.raises
        return MetadataResponse(brokers=(), topics=())

    def _write(self, buffers: list[Buffer], size_bytes: int) -> None:
        data = b"".join(buffers)
        assert len(data) == size_bytes
        self.writes += 1
        self.client.receive_data(data)

    def _close(self) -> None:
        self.is_closed = True
        self.session.close()

    def _mute(self, wait_ms: int) -> None:
        self.session.is_muted = True
        self.muted_ms.append(wait_ms)

    def _has_room(self) -> None:
        self.room_calls += 1

    def send(self, *messages: Message) -> None:
        """Let the session handle requests, one after the other."""
        for message in messages:
            key = ApiKey(vars(type(message))["API_KEY"])
            _, frame = self.client.send_request(message, VERSION[key])
            self._server.receive_data(b"".join(frame))
            request = self._server.next_request()
            assert request is not None
            self.session.handle(request)

    def answered(self) -> list[int]:
        """The requests answered since last time; the client insists that they come in order."""
        found = []
        while (response := self.client.next_response()) is not None:
            found.append(response.correlation_id)
        return found

    @property
    def failures(self) -> float:
        return self.metrics.snapshot()["handler_failures_total"]


@pytest.fixture
def connection() -> Connection:
    return Connection()


# --- Order ---


def test_answers_leave_in_the_order_of_requests(connection: Connection) -> None:
    connection.send(LATER, LATER, LATER)
    first, second, third = connection.deferred
    third.set(answer_later())
    second.set(answer_later())
    assert connection.answered() == []
    assert connection.session.in_flight == 3
    first.set(answer_later())
    assert connection.answered() == [0, 1, 2]
    assert connection.writes == 1
    assert connection.session.in_flight == 0


def test_what_is_ready_at_once_waits_for_what_is_not(connection: Connection) -> None:
    connection.send(NOW, LATER, NOW, NOW)
    assert connection.answered() == [0]
    connection.deferred[0].set(answer_later())
    assert connection.answered() == [1, 2, 3]


def test_some_may_leave_while_others_wait(connection: Connection) -> None:
    connection.send(LATER, NOW, LATER, NOW)
    connection.deferred[0].set(answer_later())
    assert connection.answered() == [0, 1]
    connection.deferred[1].set(answer_later())
    assert connection.answered() == [2, 3]


def test_a_burst_is_written_at_once(connection: Connection) -> None:
    connection.session.begin_burst()
    connection.send(NOW, NOW, NOW)
    assert connection.writes == 0
    connection.session.end_burst()
    assert connection.writes == 1
    assert connection.answered() == [0, 1, 2]


def test_a_burst_ends_at_what_is_not_ready(connection: Connection) -> None:
    connection.session.begin_burst()
    connection.send(NOW, LATER, NOW)
    connection.session.end_burst()
    assert connection.answered() == [0]
    connection.deferred[0].set(answer_later())
    assert connection.answered() == [1, 2]


def test_a_request_without_an_answer_holds_nobody_up(connection: Connection) -> None:
    connection.send(LATER)
    connection.client = ClientConnection("test")
    connection.send(NOW)
    connection.deferred[0].set(NO_ANSWER)
    # The second client never sent the first request: it would refuse an answer to it.
    assert connection.answered() == [0]
    assert not connection.is_closed


def test_a_coroutine_is_answered_too(connection: Connection) -> None:
    connection.send(TASK, NOW)
    assert connection.answered() == [0, 1]


# --- Endings ---


def test_the_connection_may_be_the_answer(connection: Connection) -> None:
    connection.send(LATER, NOW)
    connection.deferred[0].set(CLOSE_CONNECTION)
    assert connection.is_closed
    assert connection.answered() == []
    assert connection.failures == 0


def test_a_defect_is_counted_and_ends_the_connection(connection: Connection) -> None:
    connection.send(LATER)
    connection.deferred[0].set(DEFECT)
    assert connection.is_closed
    assert connection.failures == 1


@pytest.mark.parametrize("message", [NOW, TASK])
def test_a_handler_that_raises_ends_the_connection(
    connection: Connection, message: Message, caplog: pytest.LogCaptureFixture
) -> None:
    connection.raises = RuntimeError("a defect")
    connection.send(message)
    assert connection.is_closed
    assert connection.failures == 1
    assert "a defect" in caplog.text


def test_bytes_that_are_no_request_are_the_peers_fault(connection: Connection) -> None:
    connection.raises = MalformedRequestError("no")
    with pytest.raises(MalformedRequestError):
        connection.send(NOW)
    assert connection.failures == 0
    assert connection.budget.reserved_bytes == 0


def test_an_answer_that_cannot_be_written_ends_the_connection(connection: Connection) -> None:
    connection.send(LATER)
    connection.deferred[0].set(ApiVersionsResponse(api_keys=(None,)))  # type: ignore[arg-type]
    assert connection.is_closed
    assert connection.failures == 1


def test_late_answers_go_nowhere(connection: Connection) -> None:
    connection.send(LATER, LATER)
    assert connection.budget.reserved_bytes > 0
    connection.session.close()
    assert connection.budget.reserved_bytes == 0
    for deferred in connection.deferred:
        deferred.set(answer_later())
    assert connection.writes == 0


def test_who_is_gone_waits_for_nothing(connection: Connection) -> None:
    connection.send(LATER, LATER, POLL)
    connection.deferred[0].set(answer_later())
    connection.session.close()
    assert [parked.is_abandoned for parked in connection.deferred] == [False, True, True]


def test_who_sends_no_more_is_answered_with_what_there_is(connection: Connection) -> None:
    connection.send(LATER, POLL)
    connection.session.hurry()
    assert [parked.is_set for parked in connection.deferred] == [False, True]
    assert connection.session.has_room
    connection.send(POLL)
    assert connection.deferred[2].is_set
    assert connection.writes == 0
    connection.deferred[0].set(answer_later())
    assert connection.writes == 1
    assert connection.session.in_flight == 0


# --- Room ---


def test_requests_in_flight_are_bounded(connection: Connection) -> None:
    for _ in range(REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX):
        assert connection.session.has_room
        connection.send(LATER)
    assert not connection.session.has_room
    connection.deferred[0].set(answer_later())
    assert connection.session.has_room


def test_nothing_is_handled_behind_a_fetch_that_waits(connection: Connection) -> None:
    connection.send(POLL)
    assert not connection.session.has_room
    connection.deferred[0].set(FetchResponse(responses=()))
    assert connection.session.has_room


def test_answers_that_cannot_leave_take_room(connection: Connection) -> None:
    connection.send(LATER, LATER)
    connection.deferred[1].set(answer_later("x" * 30_000))
    for _ in range(WRITE_BUFFER_BYTES_HIGH // 30_000):
        assert connection.session.has_room
        connection.send(LATER)
        connection.deferred[-1].set(answer_later("x" * 30_000))
    assert not connection.session.has_room
    connection.deferred[0].set(answer_later())
    assert connection.session.has_room


def test_who_waits_for_room_is_told_once(connection: Connection) -> None:
    connection.send(POLL)
    connection.session.wants_room = True
    connection.deferred[0].set(FetchResponse(responses=()))
    assert connection.room_calls == 1
    assert not connection.session.wants_room
    connection.send(NOW)
    assert connection.room_calls == 1


# --- Budget ---


def held(connection: Connection, act: Callable[[], None]) -> int:
    before = connection.budget.reserved_bytes
    act()
    return connection.budget.reserved_bytes - before


def test_a_request_costs_its_bytes_until_it_is_answered(connection: Connection) -> None:
    assert held(connection, lambda: connection.send(LATER)) > 0
    assert held(connection, lambda: connection.send(NOW)) > 0
    connection.deferred[0].set(answer_later())
    assert connection.budget.reserved_bytes == 0


def test_a_fetch_that_waits_costs_nothing(connection: Connection) -> None:
    assert held(connection, lambda: connection.send(POLL)) == 0


# --- Quotas ---

SLOW = entity_of([("client-id", "test")])


def test_nothing_is_metered_while_no_quota_is_set() -> None:
    connection = Connection()
    connection.send(NOW, LATER)
    assert [slot.meter for slot in connection.session._slots] == [None]
    assert connection.muted_ms == []


def test_a_request_above_its_quota_is_answered_and_mutes() -> None:
    connection = Connection()
    connection.dispatcher.quotas.put(SLOW, {REQUEST_PERCENTAGE: 1e-9})
    connection.send(LATER)
    assert connection.muted_ms == []
    connection.deferred[0].set(answer_later())
    assert connection.muted_ms == [1_000]
    assert connection.answered() == [0]
    assert not connection.session.has_room


def test_what_was_begun_before_still_goes_out_in_order() -> None:
    connection = Connection()
    connection.dispatcher.quotas.put(SLOW, {REQUEST_PERCENTAGE: 1e-9})
    connection.send(LATER, LATER)
    connection.deferred[1].set(answer_later())
    assert connection.session.is_muted
    assert connection.answered() == []
    connection.deferred[0].set(answer_later())
    assert connection.answered() == [0, 1]


def test_there_is_no_room_until_the_wait_is_over() -> None:
    connection = Connection()
    connection.dispatcher.quotas.put(SLOW, {REQUEST_PERCENTAGE: 1e-9})
    connection.send(LATER, LATER)
    connection.session.wants_room = True
    connection.deferred[0].set(answer_later())
    connection.deferred[1].set(answer_later())
    assert connection.room_calls == 0
    connection.session.is_muted = False
    assert connection.session.has_room


def test_the_work_of_a_client_that_is_gone_is_cancelled(connection: Connection) -> None:
    """Guards reads on threads: they ended only when they were done, whoever still wanted them."""
    connection.send(LATER, LATER)
    first, second = connection.clients
    assert first is not None
    assert first is second, "a connection is one client"
    assert [first.is_cancelled] == [False]
    connection.session.close()
    assert [first.is_cancelled] == [True]
