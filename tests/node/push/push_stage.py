"""A broker with push in the event loop of a test."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from penstock import BrokerServer
from penstock.client.push import PushClient, PushRecord, PushSubscription, open_push
from penstock.core.settings.config import load_settings
from penstock.core.settings.tree import Settings

WAIT_SECONDS = 30.0
PLAIN_TEXT = """
[node]
storage = "memory"
[listener]
port = 0
[edge]
push_port = 0
"""


def settings_from(text: str) -> Settings:
    """Return the settings of a file."""
    return load_settings(text, {}, {"admin.enabled": False}).settings


@asynccontextmanager
async def push_broker(
    text: str = PLAIN_TEXT, topics: dict[str, int] | None = None
) -> AsyncIterator[BrokerServer]:
    """Run a broker with topics and their numbers of partitions."""
    async with asyncio.timeout(WAIT_SECONDS), BrokerServer(settings_from(text)) as broker:
        for name, count in (topics or {"t": 1}).items():
            await broker.create_topic(name, partitions=count)
        yield broker


async def connect(broker: BrokerServer) -> PushClient:
    """Return a client of the broker's push port."""
    assert broker.push_port is not None
    return await open_push("127.0.0.1", broker.push_port)


async def take(subscription: PushSubscription, count: int) -> list[PushRecord]:
    """Return the next records, and acknowledge them."""
    found: list[PushRecord] = []
    while len(found) < count:
        record = await anext(subscription)
        found.append(record)
        subscription.acknowledge(record)
    return found


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run the body of a test."""

    async def main() -> None:
        await test()

    asyncio.run(main())
