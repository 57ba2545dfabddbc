"""The service under test, running beside the broker of the test.

The broker comes from Penstock's pytest plugin: there is nothing to import and nothing to start.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orders_service.ledger import Ledger
from orders_service.service import CONFIRMATIONS, ORDERS, run_service
from penstock.testing import Broker

STOP_SECONDS_MAX = 30.0


@contextmanager
def running_service(bootstrap_server: str, ledger_path: Path) -> Iterator[None]:
    """The service on a thread, as a process of its own would run it; stopped at the end."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(run_service(bootstrap_server, ledger_path))

    def serve() -> None:
        loop.run_until_complete(asyncio.wait([task]))
        loop.close()

    thread = threading.Thread(target=serve, name="orders-service")
    thread.start()
    yield
    if not task.done():
        loop.call_soon_threadsafe(task.cancel)
    thread.join(STOP_SECONDS_MAX)
    assert not thread.is_alive(), "the service did not stop"
    if not task.cancelled():
        task.result()


@pytest.fixture
def ledger_path(tmp_path: Path) -> Path:
    """Where the service keeps its totals."""
    return tmp_path / "ledger.sqlite3"


@pytest.fixture
def service(penstock_broker: Broker, ledger_path: Path) -> Iterator[None]:
    """The service, with the topics it needs."""
    penstock_broker.create_topic(ORDERS, partitions=2)
    penstock_broker.create_topic(CONFIRMATIONS)
    with running_service(penstock_broker.bootstrap_server, ledger_path):
        yield


@pytest.fixture
def ledger(ledger_path: Path, service: None) -> Iterator[Ledger]:
    """A second look at the totals, from this thread."""
    opened = Ledger(ledger_path)
    yield opened
    opened.close()
