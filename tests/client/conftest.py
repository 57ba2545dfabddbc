"""A cluster in memory, a client of it that never sleeps, and the commands on a real one."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.client.cluster import Cluster
from penstock.client.transport.addresses import Address
from tests.client.fake_broker import FakeCluster


class StepClock:
    """A clock that moves only during a sleep."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return 1_700_000_000_000 + round(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class Commands:
    """The `penstock` command as a process of its own, on one broker."""

    def __init__(self, bootstrap: str) -> None:
        source = Path(__file__).resolve().parents[2] / "src"
        self._environment = {
            **os.environ,
            "PENSTOCK_BOOTSTRAP_SERVER": bootstrap,
            "PYTHONPATH": str(source),
        }

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run it, whatever it ends with."""
        return subprocess.run(
            [sys.executable, "-m", "penstock", *words],
            input=stdin,
            capture_output=True,
            text=True,
            env=self._environment,
            check=False,
        )

    def lines(self, *words: str, stdin: str = "") -> list[str]:
        """What it printed; it must end well."""
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout.splitlines()

    def document(self, *words: str) -> Any:  # noqa: ANN401 (any JSON)
        """What it printed as JSON; it must end well."""
        return json.loads("\n".join(self.lines(*words, "--json")))


@pytest.fixture
def unused_address() -> Address:
    """Where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return Address("127.0.0.1", probe.getsockname()[1])


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
