"""Objects of requests and connections are freed at once, without the garbage collector.

The collector looks at old objects only while the broker is idle (`node.garbage`), so a cycle that a
client can cause is memory that a client can take: 56 refused batches once kept 560,000 objects.
"""

import gc
import time
from collections.abc import Iterator

import pytest

from penstock.broker.connections.listener import ConnectionProtocol
from penstock.broker.connections.session import Session
from penstock.broker.producing.produce_run import ProduceRun
from penstock.core.errors import PenstockError, RecordsError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.testing import Broker
from tests.broker.handlers.asker import Asker, batch_of

pytestmark = pytest.mark.uncompiled
"""Objects of compiled classes are not all in the collector's lists."""

LOOKS_MAX = 1_000
"""Ten seconds of this process: a machine that stands still for seconds does not count."""


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Count references only, and look at no object that was there before: a million of them."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()


def alive(kind: type) -> int:
    return sum(isinstance(found, kind) for found in gc.get_objects())


class Leftovers:
    """Objects of a class beyond those that other tests left."""

    def __init__(self, kind: type) -> None:
        self._kind = kind
        self._before = alive(kind)

    def are_freed(self) -> bool:
        """Whether all are freed soon; the event loop needs a moment to let go."""
        for _ in range(LOOKS_MAX):
            if alive(self._kind) <= self._before:
                return True
            time.sleep(0.01)
        return False


@pytest.mark.usefixtures("uncollected")
def test_a_closed_connection_is_freed() -> None:
    connections, sessions = Leftovers(ConnectionProtocol), Leftovers(Session)
    with Broker() as broker:
        for number in range(5):
            with Asker(broker.port) as asker:
                asker.create(f"events-{number}")
        assert connections.are_freed()
        assert sessions.are_freed()


@pytest.mark.usefixtures("uncollected")
def test_a_refused_batch_is_freed() -> None:
    errors, runs = Leftovers(RecordsError), Leftovers(ProduceRun)
    with Broker() as broker, Asker(broker.port) as asker:
        asker.create("strict", configs={"cleanup.policy": "compact"})
        keyless = batch_of(*[b"x"] * 5_000)
        for _ in range(3):
            assert asker.produce("strict", keyless).error_code == ErrorCode.INVALID_RECORD
        assert errors.are_freed()
        assert runs.are_freed()


@pytest.mark.usefixtures("uncollected")
def test_a_refused_request_is_freed() -> None:
    too_early = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1_000)
    groups = DescribeGroupsRequest(groups=tuple(f"group-{number}" for number in range(100)))
    errors, requests = Leftovers(PenstockError), Leftovers(InitProducerIdRequest)
    with Broker() as broker, Asker(broker.port) as asker:
        for _ in range(3):
            answer = asker.ask(too_early, 4, InitProducerIdResponse)
            assert answer.error_code is ErrorCode.NOT_COORDINATOR
            assert len(asker.ask(groups, 5, DescribeGroupsResponse).groups) == 100
        assert errors.are_freed()
        assert requests.are_freed()
