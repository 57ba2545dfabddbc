"""Metrics of requests: count, duration, errors; the clock is the test's."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.broker.answers import NO_ANSWER, Answer, EncodedAnswer
from penstock.broker.connections.session import Session
from penstock.broker.context import RequestContext
from penstock.broker.dispatch import Dispatcher, Handler
from penstock.broker.pacing.budget import MemoryBudget
from penstock.core.deferred import Deferred
from penstock.core.metrics import Registry
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.codec import Message
from penstock.protocol.connection import ClientConnection, ServerConnection
from penstock.protocol.encoder_source import Buffer
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.framing import ReadArena
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tests.broker.handlers.fakes import FakeServices
from tests.storage.logs import Clock

VERSIONS = "ApiVersions"
CLUSTER = "DescribeCluster"
NOW = ApiVersionsRequest()
LATER = DescribeClusterRequest(include_cluster_authorized_operations=False)


class Scene:
    """A session whose handlers take as long as the test says."""

    def __init__(self) -> None:
        self._clock = Clock()
        self.metrics = Registry()
        self.handling_seconds = 0.0
        self.answer: Answer = ApiVersionsResponse(api_keys=())
        self.deferred: list[Deferred[Answer]] = []
        self._client = ClientConnection("test")
        handlers: dict[int, Handler] = {
            ApiKey.API_VERSIONS: Handler(self._now, 0, 4),
            ApiKey.DESCRIBE_CLUSTER: Handler(self._later, 0, 2),
        }
        services = replace(FakeServices().services, clock=self._clock)
        dispatcher = Dispatcher(services, handlers, self.metrics)
        self._server = ServerConnection(dispatcher.version_ranges, ReadArena())
        self.session = Session(
            dispatcher,
            MemoryBudget(1_000_000),
            self._write,
            lambda: None,
            lambda: None,
            mute=lambda wait_ms: None,
        )

    def pass_time(self, seconds: float) -> None:
        self._clock.seconds += seconds

    def _now(self, request: ApiVersionsRequest, context: RequestContext) -> Answer:
        self.pass_time(self.handling_seconds)
        return self.answer

    def _later(self, request: Message, context: RequestContext) -> Deferred[Answer]:
        self.pass_time(self.handling_seconds)
        self.deferred.append(Deferred())
        return self.deferred[-1]

    def _write(self, buffers: list[Buffer], size_bytes: int) -> None:
        """Nobody reads it."""

    def burst(self, *messages: Message) -> None:
        """Requests that come in one piece."""
        self.session.received()
        self.session.begin_burst()
        self.handle(*messages)
        self.session.end_burst()

    def handle(self, *messages: Message) -> None:
        for message in messages:
            _, frame = self._client.send_request(message, 0, expects_response=False)
            self._server.receive_data(b"".join(frame))
            request = self._server.next_request()
            assert request is not None
            self.session.handle(request)

    def value(self, name: str, api: str) -> float:
        return self.metrics.snapshot()[f'{name}{{api="{api}"}}']

    def answers(self, api: str) -> tuple[float, float]:
        """How many answers, and how many seconds they took together."""
        name = "request_duration_seconds"
        return self.value(f"{name}_count", api), self.value(f"{name}_sum", api)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_request_is_counted_by_its_api(scene: Scene) -> None:
    scene.burst(NOW, NOW, LATER)
    assert scene.value("requests_total", VERSIONS) == 2
    assert scene.value("requests_total", CLUSTER) == 1


def test_an_api_that_nobody_asked_for_is_not_there(scene: Scene) -> None:
    scene.burst(NOW)
    assert f'requests_total{{api="{CLUSTER}"}}' not in scene.metrics.snapshot()
    assert f'request_duration_seconds_count{{api="{CLUSTER}"}}' not in scene.metrics.snapshot()


def test_the_duration_ends_when_the_answer_leaves(scene: Scene) -> None:
    scene.handling_seconds = 0.25
    scene.burst(LATER)
    scene.pass_time(2)
    scene.deferred[0].set(DescribeClusterResponse(cluster_id="", brokers=()))
    assert scene.answers(CLUSTER) == (1, 2.25)
    assert scene.value("request_handling_seconds_total", CLUSTER) == 0.25


def test_an_answer_that_waits_for_an_earlier_one_takes_as_long(scene: Scene) -> None:
    scene.burst(LATER, NOW)
    scene.pass_time(3)
    assert f'request_duration_seconds_count{{api="{VERSIONS}"}}' in scene.metrics.snapshot()
    assert scene.value("request_duration_seconds_count", VERSIONS) == 0
    scene.deferred[0].set(DescribeClusterResponse(cluster_id="", brokers=()))
    assert scene.answers(VERSIONS) == (1, 3)


def test_each_request_of_a_burst_has_its_own_handling(scene: Scene) -> None:
    scene.handling_seconds = 0.5
    scene.burst(NOW, LATER, NOW)
    assert scene.value("request_handling_seconds_total", VERSIONS) == 1.0
    assert scene.value("request_handling_seconds_total", CLUSTER) == 0.5


def test_what_was_held_back_has_waited_since_it_came(scene: Scene) -> None:
    scene.session.received()
    scene.pass_time(4)
    scene.session.resumed()
    scene.session.begin_burst()
    scene.handling_seconds = 0.5
    scene.handle(NOW)
    scene.session.end_burst()
    assert scene.answers(VERSIONS) == (1, 4.5)
    assert scene.value("request_handling_seconds_total", VERSIONS) == 0.5


def test_a_request_without_an_answer_has_a_duration_too(scene: Scene) -> None:
    scene.answer = NO_ANSWER
    scene.burst(NOW)
    assert scene.answers(VERSIONS) == (1, 0)


def test_errors_are_counted_by_api_and_code(scene: Scene) -> None:
    scene.answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=())
    scene.burst(NOW, NOW)
    name = f'request_errors_total{{api="{VERSIONS}",code="UNSUPPORTED_VERSION"}}'
    assert scene.metrics.snapshot()[name] == 2


@pytest.mark.parametrize(
    "answer",
    [lambda: ApiVersionsResponse(api_keys=()), lambda: EncodedAnswer(b"\x00\x00\x00\x00")],
)
def test_a_good_answer_is_no_error(scene: Scene, answer: Callable[[], Answer]) -> None:
    scene.answer = answer()
    scene.burst(NOW)
    assert not any(name.startswith("request_errors") for name in scene.metrics.snapshot())


def test_an_answer_for_nobody_is_not_counted(scene: Scene) -> None:
    scene.burst(LATER)
    scene.session.close()
    scene.deferred[0].set(DescribeClusterResponse(cluster_id="", brokers=()))
    assert scene.value("requests_total", CLUSTER) == 1
    assert scene.value("request_duration_seconds_count", CLUSTER) == 0
