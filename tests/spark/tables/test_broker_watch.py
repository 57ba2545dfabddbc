"""The broker beside a pipeline that runs: it goes and comes back; the lag between two batches."""

import time
from collections.abc import Mapping

import pytest

from penstock.core.errors import BrokerUnreachableError
from penstock.spark.offsets import StreamOffset
from penstock.spark.source.options import Mode, read_source_options
from penstock.spark.tables.run import broker_watch
from penstock.spark.tables.run.broker_watch import look, watching
from penstock.testing import Broker
from tests.spark.tables.inspection_world import VALUES, fill_topic

pytestmark = pytest.mark.slow

WAIT_SECONDS_MAX = 30


class Heard:
    """The listener's calls, in order."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def broker_seen(self, lags: Mapping[str, int]) -> None:
        self.told.append(dict(lags))

    def broker_away(self, problem: str) -> None:
        self.told.append(problem)

    def wait_for(self, kind: type) -> object:
        self.told.clear()
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not any(isinstance(one, kind) for one in self.told):
            assert time.monotonic() < deadline, self.told
            time.sleep(0.02)
        return next(one for one in self.told if isinstance(one, kind))


def test_a_failed_look_is_told_and_raises_nothing() -> None:
    heard = Heard()

    def refused() -> Mapping[str, int]:
        raise BrokerUnreachableError("localhost:1: connection refused.; localhost:2: too.")

    look(refused, heard)
    look(lambda: {"orders": 3}, heard)
    assert heard.told == ["localhost:1: connection refused", {"orders": 3}]


def ends(latest: StreamOffset) -> Mapping[str, int]:
    """Nothing is in the table."""
    lags: dict[str, int] = {}
    for at, one in latest.positions.items():
        lags[at.topic] = lags.get(at.topic, 0) + one.offset
    return lags


@pytest.mark.timeout(120)
def test_a_broker_that_goes_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_watch, "LOOK_SECONDS", 0.05)
    heard = Heard()
    with Broker() as broker:
        address = f"{broker.host}:{broker.port}"
        fill_topic(address, VALUES)
        given = {"kafka.bootstrap.servers": address, "subscribe": "orders"}
        with watching(read_source_options(given, Mode.STREAM), ends, heard):
            assert heard.wait_for(dict) == {"orders": len(VALUES)}
            broker.crash()
            assert str(broker.port) in str(heard.wait_for(str))
            broker.restart()
            assert heard.wait_for(dict) == {"orders": len(VALUES)}
