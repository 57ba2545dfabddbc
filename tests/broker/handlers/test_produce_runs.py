"""A Produce that takes more than its share of a turn: in slices, in order, answered once.

The clock moves with each look at it, so the test decides how many batches fit into a slice.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.broker.answers import CLOSE_CONNECTION, DEFECT, NO_ANSWER, Answer, HoldingAnswer
from penstock.broker.connections.session import Session
from penstock.broker.context import RequestContext
from penstock.broker.dispatch import Dispatcher, Handler
from penstock.broker.handlers import produce
from penstock.broker.producing import produce_run
from penstock.core.deferred import Deferred
from penstock.core.errors import StorageBusyError
from penstock.core.limits import CONNECTION_TURN_SECONDS, UNFOLD_ON_LOOP_BYTES_MAX
from penstock.core.metrics import Registry
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.connection import ClientConnection, ServerConnection
from penstock.protocol.encoder_source import Buffer
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.framing import ReadArena
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.records.compression import ZSTD
from tests.broker.handlers.asker import batch_of, produce_request
from tests.broker.handlers.fakes import FakeServices
from tests.storage.logs import PARTITION, Clock

TOPIC = PARTITION.topic
VERSION = 12
PARTITIONS = 100
PER_SLICE = 10
"""Batches that fit into one slice."""


class SlowClock(Clock):
    """Time passes with each look."""

    def monotonic(self) -> float:
        self.seconds += CONNECTION_TURN_SECONDS / PER_SLICE
        return super().monotonic()


def small(number: int = 0) -> bytes:
    return batch_of(str(number).encode(), timestamps_ms=[0])


def heavy() -> bytes:
    """A good batch that is too much for the event loop."""
    return batch_of(bytes(UNFOLD_ON_LOOP_BYTES_MAX), timestamps_ms=[0], codec=ZSTD)


class Scene:
    """Partitions 0 to 99 of one topic, and produces to them."""

    def __init__(self) -> None:
        self.fake = FakeServices()
        for index in range(1, PARTITIONS):
            self.fake.node.add(TOPIC, index)
        self.services = replace(self.fake.services, clock=SlowClock())

    def start(
        self, request: ProduceRequest, then: Callable[[Answer], None]
    ) -> Answer | Deferred[Answer]:
        context = RequestContext(self.services, VERSION, "test", is_version_unsupported=False)
        outcome = produce.handle(request, context)
        if isinstance(outcome, Deferred):
            outcome.then(then)
        return outcome

    def appended(self) -> int:
        replicas = self.fake.node.replicas
        found = (replicas.find(TOPIC, index) for index in range(PARTITIONS))
        return sum(one.log.end_offset for one in found if one is not None)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def codes(answer: Answer) -> list[int]:
    assert isinstance(answer, ProduceResponse)
    return [found.error_code for found in answer.responses[0].partition_responses]


def test_many_partitions_are_appended_in_slices(scene: Scene) -> None:
    """Guards `ProduceRun._advance`: 5,000 partitions were one pause of over a second."""
    answers: list[Answer] = []
    request = produce_request(TOPIC, {index: small(index) for index in range(PARTITIONS)})
    outcome = scene.start(request, answers.append)
    assert isinstance(outcome, HoldingAnswer)
    assert 0 < scene.appended() <= PER_SLICE
    assert scene.fake.run_turns() >= PARTITIONS // PER_SLICE - 1
    assert scene.appended() == PARTITIONS
    assert not outcome.is_holding
    assert not answers
    scene.fake.node.sync()
    assert codes(answers[0]) == [ErrorCode.NONE] * PARTITIONS
    assert len(answers) == 1


@pytest.mark.uncompiled
def test_a_wide_produce_waits_for_the_disk_between_its_parts(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards `ProduceRun._waits_for_disk`: 5,000 files were ahead of each other client's record."""
    monkeypatch.setattr(produce_run, "PRODUCE_UNSYNCED_PARTITIONS_MAX", 25)
    answers: list[Answer] = []
    request = produce_request(TOPIC, {index: small(index) for index in range(PARTITIONS)})
    outcome = scene.start(request, answers.append)
    assert isinstance(outcome, HoldingAnswer)
    for part in range(1, PARTITIONS // 25 + 1):
        scene.fake.run_turns()
        assert scene.appended() == 25 * part
        assert outcome.is_holding
        scene.fake.node.sync()
    scene.fake.run_turns()
    assert not outcome.is_holding
    assert codes(answers[0]) == [ErrorCode.NONE] * PARTITIONS


@pytest.mark.uncompiled
def test_a_wide_produce_continues_on_a_disk_that_does_not_answer(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce_run, "PRODUCE_UNSYNCED_PARTITIONS_MAX", 60)
    answers: list[Answer] = []
    request = produce_request(TOPIC, {index: small() for index in range(PARTITIONS)})
    scene.start(request, answers.append)
    scene.fake.run_turns()
    scene.fake.node.timer.advance(produce_run.DISK_WAIT_MS_MAX / 1000 + 0.1)
    scene.fake.run_turns()
    assert scene.appended() == PARTITIONS
    assert not answers


def test_a_request_that_fits_is_answered_as_before(scene: Scene) -> None:
    outcome = scene.start(produce_request(TOPIC, {0: small(), 1: small()}), lambda _: None)
    assert not isinstance(outcome, HoldingAnswer)
    assert scene.appended() == 2
    assert not scene.fake.soon


def test_a_heavy_batch_is_checked_by_a_worker(scene: Scene) -> None:
    answers: list[Answer] = []
    outcome = scene.start(
        produce_request(TOPIC, {0: small(), 1: heavy(), 2: small()}), answers.append
    )
    assert isinstance(outcome, HoldingAnswer)
    assert scene.fake.heavy.jobs == 1
    assert scene.appended() == 1
    scene.fake.run_turns()
    assert scene.appended() == 3
    scene.fake.node.sync()
    assert codes(answers[0]) == [ErrorCode.NONE] * 3


def test_a_partition_that_is_deleted_meanwhile_gets_nothing(scene: Scene) -> None:
    answers: list[Answer] = []
    replicas = scene.fake.node.replicas
    partition = replicas.find(TOPIC, 1)
    assert partition is not None
    scene.fake.heavy.before = lambda: replicas.drop(partition.name)
    scene.start(produce_request(TOPIC, {1: heavy(), 2: small()}), answers.append)
    scene.fake.run_turns()
    scene.fake.node.sync()
    assert codes(answers[0]) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
    assert partition.log.end_offset == 0


def test_a_partition_that_is_deleted_after_its_append_is_not_waited_for(scene: Scene) -> None:
    """Guards `WaitTable.park_commit`: the whole answer waited for the request's timeout."""
    answers: list[Answer] = []
    replicas = scene.fake.node.replicas
    partition = replicas.find(TOPIC, 1)
    assert partition is not None
    scene.fake.heavy.before = lambda: replicas.drop(partition.name)
    scene.start(produce_request(TOPIC, {1: small(), 2: heavy()}), answers.append)
    assert partition.log.end_offset == 1
    scene.fake.run_turns()
    scene.fake.node.sync()
    assert codes(answers[0]) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


def test_too_much_heavy_work_is_refused_with_an_error_that_producers_retry(scene: Scene) -> None:
    answers: list[Answer] = []
    scene.fake.heavy.outcome = StorageBusyError("busy")
    scene.start(produce_request(TOPIC, {0: heavy(), 1: small()}), answers.append)
    scene.fake.run_turns()
    scene.fake.node.sync()
    assert codes(answers[0]) == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]


@pytest.mark.parametrize(("batches", "expected"), [(heavy(), NO_ANSWER), (b"", CLOSE_CONNECTION)])
def test_without_acknowledgement_an_error_closes(
    scene: Scene, batches: bytes, expected: Answer
) -> None:
    answers: list[Answer] = []
    request = produce_request(TOPIC, {0: heavy(), 1: batches}, acks=0)
    scene.start(request, answers.append)
    scene.fake.run_turns()
    assert answers == [expected]


def test_a_run_whose_client_is_gone_stops(scene: Scene) -> None:
    answers: list[Answer] = []
    request = produce_request(TOPIC, {index: small() for index in range(PARTITIONS)})
    outcome = scene.start(request, answers.append)
    assert isinstance(outcome, HoldingAnswer)
    outcome.waiter.abandon()
    scene.fake.run_turns()
    assert scene.appended() <= PER_SLICE
    assert not answers


@pytest.mark.uncompiled
def test_a_defect_in_a_later_turn_closes_the_connection(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Answer] = []
    request = produce_request(TOPIC, {index: small() for index in range(PARTITIONS)})
    scene.start(request, answers.append)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("penstock.broker.producing.produce_run.validate_produced", broken)
    with caplog.at_level("CRITICAL"):
        scene.fake.run_turns()
    assert answers == [DEFECT]


# --- The connection behind it ---


class Connection:
    """A client and a session without a socket."""

    def __init__(self, scene: Scene) -> None:
        handlers: dict[int, Handler] = {
            ApiKey.PRODUCE: Handler(produce.handle, 3, 13, shortcut=produce.handle_single)
        }
        dispatcher = Dispatcher(scene.services, handlers, Registry())
        self.client = ClientConnection("test")
        self._server = ServerConnection(dispatcher.version_ranges, ReadArena())
        self.rooms = 0
        self.session = Session(
            dispatcher,
            scene.services.unsent_answers,
            self._write,
            lambda: None,
            self._on_room,
            lambda _: None,
        )

    def _write(self, buffers: list[Buffer], size_bytes: int) -> None:
        self.client.receive_data(b"".join(buffers))

    def _on_room(self) -> None:
        self.rooms += 1

    def send(self, request: ProduceRequest) -> None:
        _, frame = self.client.send_request(request, VERSION)
        self._server.receive_data(b"".join(frame))

    def handle_next(self) -> None:
        request = self._server.next_request()
        assert request is not None
        self.session.handle(request)


def has_room(connection: Connection) -> bool:
    return connection.session.has_room


def test_later_requests_wait_until_a_heavy_one_is_appended(scene: Scene) -> None:
    """Guards the hold: idempotent producers send five batches, and the second must not pass."""
    connection = Connection(scene)
    connection.send(produce_request(TOPIC, {0: heavy()}))
    connection.handle_next()
    assert scene.appended() == 0
    assert not has_room(connection)
    connection.session.wants_room = True
    scene.fake.run_turns()
    assert scene.appended() == 1
    assert has_room(connection)
    assert connection.rooms == 1
    scene.fake.node.sync()
    response = connection.client.next_response()
    assert response is not None
    assert codes(response.message) == [ErrorCode.NONE]


def test_a_heavy_batch_of_a_connection_that_closes_is_dropped(scene: Scene) -> None:
    connection = Connection(scene)
    connection.send(produce_request(TOPIC, {0: heavy()}))
    connection.handle_next()
    connection.session.close()
    scene.fake.run_turns()
    assert scene.appended() == 0
