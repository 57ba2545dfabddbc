"""A broker that stops ends its duties first: none of them meets a part that has stopped."""

import asyncio

import pytest

from penstock.core.settings.config import BrokerConfig
from penstock.node import duties
from penstock.node.server import BrokerServer


def test_no_periodic_duty_runs_on_while_storage_stops(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # The duty is always due: between any two steps of the stop it wants a worker thread.
    monkeypatch.setattr(duties, "SPACE_SECONDS", 0.0)

    async def main() -> None:
        async with BrokerServer(BrokerConfig(port=0, storage="memory")):
            await asyncio.sleep(0)

    for _ in range(5):
        asyncio.run(main())
    assert "a periodic duty of storage failed" not in caplog.text
