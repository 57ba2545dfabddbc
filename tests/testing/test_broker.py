"""The in-process broker: answers a real client, stops cleanly, reports errors."""

import asyncio
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import cast

import pytest

from penstock.client.cluster import Cluster
from penstock.client.transport.addresses import parse_addresses
from penstock.client.transport.blocking import connect
from penstock.core.errors import ConfigError
from penstock.core.settings.config import BrokerConfig
from penstock.node.server import BrokerServer
from penstock.testing import Broker, broker_run

API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 ffff")


def opened(bootstrap: str) -> Cluster:
    return Cluster(parse_addresses(bootstrap), lambda at: connect(at, timeout_seconds=10))


def answers(address: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(address, 5) as connection:
            connection.sendall(API_VERSIONS)
            return len(connection.recv(4096)) > 4
    except OSError:
        return False


def test_it_answers_and_is_gone_afterwards() -> None:
    with Broker() as broker:
        address = (broker.host, broker.port)
        assert answers(address)
        assert broker.metrics()["connections_opened_total"] == 1
    assert not answers(address)


def test_two_run_side_by_side() -> None:
    with Broker() as first, Broker() as second:
        assert first.port != second.port


@pytest.mark.parametrize(
    "settings", [None, BrokerConfig(port=0, storage="memory", default_partitions=3)]
)
def test_its_groups_start_without_a_delay(settings: BrokerConfig | None) -> None:
    """Asked over the wire: a test's group must not wait 3 s for members that do not come."""
    with Broker(settings) as broker, opened(broker.bootstrap_server) as cluster:
        (broker_id,) = cluster.brokers()
        values = {one.name: one.value for one in cluster.broker_configs(broker_id).configs}
    assert values["group.initial.rebalance.delay.ms"] == "0"


def test_a_directory_keeps_its_data(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        first = broker.metrics()["partitions"]
    assert first == 0
    assert (tmp_path / "data" / "metadata.sqlite3").exists()
    with Broker(data_dir=tmp_path / "data"):
        assert (tmp_path / "data" / "meta.properties").exists()


def test_a_start_that_fails_says_why(tmp_path: Path) -> None:
    with Broker() as broker:
        taken = BrokerConfig(port=broker.port, data_dir=tmp_path)
        with pytest.raises(ConfigError, match=f":{broker.port}: Address already in use") as raised:
            Broker(taken).start()
        assert "choose another port" in raised.value.hint


def test_a_broker_starts_without_a_client() -> None:
    """Most tests bring their own; ours costs a fifth of a cold start."""
    program = """
import sys
from penstock.testing import AsyncBroker, Broker
with Broker():
    pass
print("penstock.client.cluster" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "False"


class _SlowStart:
    is_stopped = False

    async def __aenter__(self) -> None:
        await asyncio.sleep(0.2)

    async def __aexit__(self, *problem: object) -> None:
        self.is_stopped = True


def test_a_start_that_takes_too_long_leaves_nothing_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_run, "START_SECONDS_MAX", 0.01)
    server = _SlowStart()
    run = broker_run.BrokerRun(cast("BrokerServer", server), use_uvloop=False)
    before = threading.active_count()
    with pytest.raises(TimeoutError, match="did not start"):
        run.start()
    assert server.is_stopped
    assert threading.active_count() == before
