"""The command line against brokers of this process: a command runs in a thread of its own."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.cli.main import run
from penstock.storage.disk.memory_disk import MemoryDisk
from tests.cli.conftest import Outcome
from tests.node.peers.three_brokers import ThreeBrokers, three_brokers


class Operated:
    """Running brokers, and commands to operate them."""

    def __init__(self, brokers: ThreeBrokers, capture: pytest.CaptureFixture[str]) -> None:
        self.brokers = brokers
        self._capture = capture

    async def penstock(self, *words: str) -> Outcome:
        """Run a command against the first broker."""
        endpoint = next(iter(self.brokers.image.brokers.values())).endpoints[0]
        bootstrap = ("--bootstrap-server", f"{endpoint.host}:{endpoint.port}")
        self._capture.readouterr()
        code = await asyncio.to_thread(run, [*words, *bootstrap, "--timeout", "10"])
        captured = self._capture.readouterr()
        return Outcome(code, captured.out, captured.err)

    async def document(self, *words: str) -> Any:  # noqa: ANN401 (a JSON document)
        """Run a command with --json; return its document."""
        outcome = await self.penstock(*words, "--json")
        assert outcome.output, outcome.errors
        return json.loads(outcome.output)

    async def start_fourth(self) -> None:
        """Add broker 4."""
        self.brokers._disks[4] = MemoryDisk()
        await self.brokers.start_one(4)


def operate(
    capture: pytest.CaptureFixture[str], act: Callable[[Operated], Awaitable[None]]
) -> None:
    """Let a test operate three brokers."""

    async def begin() -> None:
        async with three_brokers() as brokers:
            await act(Operated(brokers, capture))

    asyncio.run(begin())
