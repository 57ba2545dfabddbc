"""A broker in this process over a disk that fails on demand, and a connection to it."""

from collections.abc import Iterator

import pytest

from penstock.testing.broker import Broker
from penstock.testing.memory_disk import MemoryDisk
from tests.faults.wire import FaultyRoom, Wire


@pytest.fixture
def disk() -> FaultyRoom:
    return FaultyRoom(MemoryDisk())


@pytest.fixture
def broker(disk: FaultyRoom) -> Iterator[Broker]:
    with Broker(filesystem=disk) as running:
        yield running


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.port) as connection:
        assert connection.create() == 0
        yield connection
