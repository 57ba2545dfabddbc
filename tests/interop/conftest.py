"""One broker of each kind for the whole run, and one driver for each client on each of them."""

from collections.abc import Callable, Iterator

import pytest

from tests.interop.client_drivers import DriverProcess
from tests.oracle.both_brokers import BothBrokers
from tests.oracle.running_broker import RunningBroker

# Before its first import: a scenario's failing assert then shows both sides.
pytest.register_assert_rewrite("tests.interop.scenarios")

BrokerNamed = Callable[[str], RunningBroker]
DriverOn = Callable[[str, str], DriverProcess]


@pytest.fixture(scope="session")
def broker_named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerNamed]:
    """Start the broker of this name at its first use; all are stopped at the end."""
    with BothBrokers(tmp_path_factory.mktemp) as both:
        yield both.named


@pytest.fixture(scope="session")
def driver_on(broker_named: BrokerNamed) -> Iterator[DriverOn]:
    """Start the driver of this client on the broker of this name at its first use."""
    running: dict[tuple[str, str], DriverProcess] = {}

    def driver(client: str, broker_name: str) -> DriverProcess:
        key = (client, broker_name)
        if key not in running:
            running[key] = DriverProcess(client, broker_named(broker_name).bootstrap)
        return running[key]

    yield driver
    for made in running.values():
        made.close()
