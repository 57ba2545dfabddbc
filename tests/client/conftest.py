"""A cluster in memory, and a client of it that never sleeps."""

import pytest

from penstock.client.addresses import Address
from penstock.client.cluster import Cluster
from tests.client.fake_broker import FakeCluster


class StepClock:
    """A clock that moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return 1_700_000_000_000 + round(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def clock() -> StepClock:
    return StepClock()


@pytest.fixture
def fake() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def cluster(fake: FakeCluster, clock: StepClock) -> Cluster:
    return Cluster(
        [Address("bootstrap", 9000)],
        fake.connect,
        timeout_seconds=10.0,
        clock=clock,
        sleep=clock.sleep,
    )
