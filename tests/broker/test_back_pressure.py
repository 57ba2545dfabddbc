"""Requests that wait by a client's wish cost others nothing; reads while memory is short.

Sessions and connections without sockets, whose requests are answered when the test says so. The
last test is a broker: members of groups that wait for each other with more bytes than the budget.
"""

import asyncio
import logging

import pytest

from penstock.broker.answers import Answer
from penstock.broker.connections.entrance import Entrance
from penstock.broker.connections.listener import ConnectionProtocol
from penstock.broker.connections.listener_state import ListenerState
from penstock.broker.connections.session import WAITING_APIS, Session
from penstock.broker.context import RequestContext
from penstock.broker.dispatch import Dispatcher, Handler
from penstock.broker.pacing.budget import RequestBudget
from penstock.core.deferred import Deferred
from penstock.core.limits import SMALL_REQUEST_BYTES
from penstock.core.metrics import Registry
from penstock.core.settings.config import BrokerConfig
from penstock.core.settings.tree import ListenerSettings, Settings
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.codec import Message
from penstock.protocol.connection import ClientConnection, ServerConnection
from penstock.protocol.encoder_source import Buffer
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.framing import ReadArena
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from penstock.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.testing import Broker
from tests.broker.handlers.asker import Asker
from tests.broker.handlers.fakes import FakeServices
from tests.broker.memory_transport import Transport

VERSIONS = {
    ApiKey.API_VERSIONS: 0,
    ApiKey.FETCH: 12,
    ApiKey.HEARTBEAT: 0,
    ApiKey.JOIN_GROUP: 3,
    ApiKey.SHARE_FETCH: 2,
    ApiKey.SYNC_GROUP: 3,
}
HALF_HOUR_MS = 1_800_000


def join(metadata: bytes, group: str = "g", member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=HALF_HOUR_MS,
        rebalance_timeout_ms=HALF_HOUR_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=metadata),),
    )


HEARTBEAT = HeartbeatRequest(group_id="g" * 1_000, generation_id=1, member_id="m")
"""Stands for a request that is worked on: it is answered late here."""

WAITING: list[tuple[Message, Message]] = [
    (FetchRequest(max_wait_ms=0, min_bytes=0, topics=()), FetchResponse(responses=())),
    (
        ShareFetchRequest(
            group_id="g",
            member_id="m",
            share_session_epoch=0,
            max_wait_ms=0,
            min_bytes=0,
            max_records=1,
            batch_size=1,
            topics=(),
            forgotten_topics_data=(),
        ),
        ShareFetchResponse(responses=(), acquisition_lock_timeout_ms=1, node_endpoints=()),
    ),
    (join(bytes(1_000)), JoinGroupResponse(protocol_name="", leader="", member_id="m", members=())),
    (
        SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=()),
        SyncGroupResponse(assignment=b""),
    ),
]


class Dispatching:
    """Handlers whose answers are deferred; ApiVersions is answered at once."""

    def __init__(self) -> None:
        self.deferred: list[Deferred[Answer]] = []
        handlers = {
            int(key): Handler(self._later, 0, 18) for key in VERSIONS if key != ApiKey.API_VERSIONS
        }
        handlers[ApiKey.API_VERSIONS] = Handler(self._now, 0, 4)
        self.dispatcher = Dispatcher(FakeServices().services, handlers, Registry())

    def _later(self, request: Message, context: RequestContext) -> Deferred[Answer]:
        self.deferred.append(Deferred())
        return self.deferred[-1]

    def _now(self, request: Message, context: RequestContext) -> Answer:
        return ApiVersionsResponse(api_keys=())


def frame_of(client: ClientConnection, message: Message) -> bytes:
    key = ApiKey(vars(type(message))["API_KEY"])
    return b"".join(client.send_request(message, VERSIONS[key])[1])


class OneSession:
    """One session without a listener."""

    def __init__(self) -> None:
        self.made = Dispatching()
        self.budget = RequestBudget(10_000, 10)
        self.client = ClientConnection("test")
        self._server = ServerConnection(self.made.dispatcher.version_ranges, ReadArena())
        self.session = Session(
            self.made.dispatcher,
            self.budget,
            self._write,
            lambda: None,
            lambda: None,
            lambda _: None,
        )

    def _write(self, buffers: list[Buffer], size_bytes: int) -> None:
        self.client.receive_data(b"".join(buffers))

    def send(self, message: Message) -> None:
        self._server.receive_data(frame_of(self.client, message))
        request = self._server.next_request()
        assert request is not None
        self.session.handle(request)

    def has_room(self) -> bool:
        return self.session.has_room


@pytest.mark.parametrize(("request_", "response"), WAITING)
def test_a_request_that_waits_by_wish_holds_nothing(request_: Message, response: Message) -> None:
    """Guards `Session.handle`: 84 parked JoinGroups stopped the reading of every connection."""
    one = OneSession()
    one.send(request_)
    assert one.budget.reserved_bytes == 0
    assert one.budget.requests == 0
    assert not one.has_room()
    one.made.deferred[0].set(response)
    assert one.has_room()
    assert one.client.next_response() is not None
    one.send(HEARTBEAT)
    assert one.budget.reserved_bytes > 1_000
    assert one.budget.requests == 1
    assert one.has_room()


def test_each_api_that_waits_is_here() -> None:
    assert {vars(type(message))["API_KEY"] for message, _ in WAITING} == set(WAITING_APIS)


# --- While the budget is spent ---


class OneListener:
    """Connections of one listener, without sockets."""

    def __init__(self) -> None:
        self.made = Dispatching()
        self.state = ListenerState(ListenerSettings(), self.made.dispatcher, Registry())

    def connect(self) -> tuple[ConnectionProtocol, Transport]:
        protocol, transport = ConnectionProtocol(self.state, Entrance()), Transport()
        protocol.connection_made(transport)
        return protocol, transport

    def receive(self, connection: tuple[ConnectionProtocol, Transport], data: bytes) -> None:
        protocol, _ = connection
        while data:
            room = protocol.get_buffer(-1)
            taken = min(len(room), len(data))
            room[:taken] = data[:taken]
            protocol.buffer_updated(taken)
            data = data[taken:]

    def send(self, connection: tuple[ConnectionProtocol, Transport], message: Message) -> None:
        self.receive(connection, frame_of(connection[1].client, message))


def test_small_requests_are_answered_while_the_budget_is_spent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And the log says, once, that others are not read from."""

    async def go() -> None:
        listener = OneListener()
        state = listener.state
        state.handling.reserve(state.handling.bytes_max)
        small, busy, large = (listener.connect() for _ in range(3))
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                listener.send(small, ApiVersionsRequest())
            listener.send(busy, HEARTBEAT)
            whole = frame_of(large[1].client, join(bytes(SMALL_REQUEST_BYTES)))
            listener.receive(large, whole[:1_000])
        assert small[1].answers == 3
        assert [one[1].is_reading_paused for one in (small, busy, large)] == [False, True, True]
        assert state.handling.waiting_count == 2
        (line,) = caplog.messages
        assert "reading is paused" in line
        assert "of 134217728 bytes" in line
        state.stop()

    asyncio.run(go())


# --- A broker ---


def test_members_that_wait_for_each_other_do_not_stop_the_broker() -> None:
    """Each join has a third of what requests may hold; four of them wait for a fifth member."""
    listener = {"request_bytes_in_flight_max": 4_194_304}
    tree = Settings.model_validate({"listener": listener})
    with Broker(BrokerConfig(port=0, storage="memory", settings=tree)) as broker:
        askers = [Asker(broker.port) for _ in range(6)]
        first, *others, neighbour = askers
        while True:
            found = first.ask(
                FindCoordinatorRequest(key="g", key_type=0), 2, FindCoordinatorResponse
            )
            if found.error_code == ErrorCode.NONE:
                break
        joined = first.ask(join(b"x"), 3, JoinGroupResponse)
        assert joined.error_code == ErrorCode.NONE
        for asker in others:
            asker.send(join(bytes(700_000)), 3)
        for _ in range(3):
            neighbour.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
            answer = neighbour.ask(
                HeartbeatRequest(group_id="other", generation_id=1, member_id="m"),
                0,
                HeartbeatResponse,
            )
            assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert broker.metrics()["requests_in_flight"] == 0
        for asker in askers:
            asker.close()
