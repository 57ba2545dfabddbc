"""A Produce that is not handled at once is charged for all of its work, and for no wait.

The clock moves by a second with each batch that is validated, and by more while the request waits.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import TypeVar

import pytest

from penstock.broker import dispatch
from penstock.broker.connections.session import Session
from penstock.broker.dispatch import Dispatcher, Handler
from penstock.broker.handlers import produce
from penstock.broker.quotas.limit_table import QuotaClient
from penstock.broker.quotas.quotas import Quotas
from penstock.cluster.quota_entities import REQUEST_PERCENTAGE, entity_of
from penstock.core.cancellation import Cancellation
from penstock.core.metrics import Registry
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.connection import ClientConnection, ServerConnection
from penstock.protocol.framing import ReadArena
from penstock.protocol.messages.produce import ProduceRequest
from tests.broker.handlers.asker import batch_of, produce_request
from tests.broker.handlers.fakes import FakeServices
from tests.storage.logs import PARTITION, Clock

pytestmark = pytest.mark.uncompiled
"""It adds up what compiled quotas are asked to charge."""

Result = TypeVar("Result")

TOPIC = PARTITION.topic
VERSION = 11
PARTITIONS = 5
WAIT_SECONDS = 1_000.0
TURNS = 4 * PARTITIONS
"""Of the event loop, more than a request needs."""


class PricedClock(Clock):
    """A batch looks at the date once and costs a second."""

    def now_ms(self) -> int:
        self.seconds += 1.0
        return super().now_ms()


class CountingQuotas(Quotas):
    """Note the time that clients are charged."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.charged_seconds = 0.0
        self.put(entity_of([("client-id", None)]), {REQUEST_PERCENTAGE: 1_000.0})

    def charge_time(self, client: QuotaClient, seconds: float) -> int:
        self.charged_seconds += seconds
        return super().charge_time(client, seconds)


class Threads:
    """Does heavy work at once."""

    async def run(
        self, call: Callable[[], Result], size_bytes: int, client: Cancellation | None
    ) -> Result:
        return call()


class Scene:
    """A session whose client has a quota of request time."""

    def __init__(self) -> None:
        self.fake = FakeServices()
        for index in range(1, PARTITIONS):
            self.fake.node.add(TOPIC, index)
        self.clock = PricedClock()
        self.quotas = CountingQuotas(self.clock)
        services = replace(
            self.fake.services,
            clock=self.clock,
            quotas=self.quotas,
            tasks=self,
            heavy_work=Threads(),
        )
        handlers: dict[int, Handler] = {ApiKey.PRODUCE: Handler(produce.handle, 3, 13)}
        dispatcher = Dispatcher(services, handlers, Registry())
        self._group: asyncio.TaskGroup | None = None
        self._client = ClientConnection("test")
        self._server = ServerConnection(dispatcher.version_ranges, ReadArena())
        self._session = Session(
            dispatcher,
            services.unsent_answers,
            lambda buffers, _: self._client.receive_data(b"".join(buffers)),
            lambda: None,
            lambda: None,
            lambda _: None,
        )

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        assert self._group is not None
        self._group.create_task(coroutine)

    def charged_seconds(self, request: ProduceRequest) -> float:
        """What the client is charged for a request, when it is answered."""
        _, frame = self._client.send_request(request, VERSION)
        self._server.receive_data(b"".join(frame))
        asyncio.run(self._handle())
        self.fake.node.sync()
        assert self._client.next_response() is not None
        return self.quotas.charged_seconds

    async def _handle(self) -> None:
        received = self._server.next_request()
        assert received is not None
        async with asyncio.TaskGroup() as self._group:
            self._session.handle(received)
            for _ in range(TURNS):
                self.clock.seconds += WAIT_SECONDS
                due, self.fake.soon[:] = tuple(self.fake.soon), []
                for call in due:
                    call()
                await asyncio.sleep(0)
        assert not self.fake.soon


def batches(*, transactional: bool = False) -> dict[int, bytes]:
    one = batch_of(b"x", timestamps_ms=[0])
    if transactional:
        one = batch_of(
            b"x",
            timestamps_ms=[0],
            producer_id=70,
            producer_epoch=0,
            sequence=0,
            transactional=True,
        )
    return dict.fromkeys(range(PARTITIONS), one)


def test_every_slice_is_charged() -> None:
    """Guards `ProduceRun.continue_turn`: only the first slice of a request was charged."""
    scene = Scene()
    assert scene.charged_seconds(produce_request(TOPIC, batches())) == PARTITIONS


def test_a_request_that_a_thread_decodes_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards `Dispatcher._handle_late`: the slice after the decoding was free."""
    monkeypatch.setattr(dispatch, "ELEMENTS_ON_LOOP_MAX", 1)
    scene = Scene()
    assert scene.charged_seconds(produce_request(TOPIC, batches())) == PARTITIONS


def test_a_request_that_waits_for_its_coordinator_is_charged() -> None:
    """Guards `append_transaction`: the slice after the coordinator's answer was free."""
    scene = Scene()
    request = produce_request(TOPIC, batches(transactional=True), transactional_id="bank")
    # The checks before and after the wait for a turn look at the date once each.
    assert scene.charged_seconds(request) == PARTITIONS + 2
