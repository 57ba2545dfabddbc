"""`create_topic` of a broker in this process: the routing is stored with the topic."""

import asyncio
from pathlib import Path

import pytest

from penstock.cluster.configs.topic_routing import TopicRouting, topic_routing
from penstock.core.errors import PenstockError
from penstock.core.settings.config import BrokerConfig
from penstock.node.server import BrokerServer


def test_a_queue_in_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with BrokerServer(BrokerConfig(port=0, data_dir=tmp_path)) as broker:
            await broker.create_topic("q", routing="queue", buffer_size=7)
            await broker.create_topic("q", routing="fanout")
            await broker.create_topic("f")
            assert broker._parts is not None
            image = broker._parts.services.metadata.image
            queue, fanout = image.topic("q"), image.topic("f")
            assert queue is not None
            assert fanout is not None
            assert topic_routing(queue.settings) == TopicRouting(is_queue=True, buffer_size=7)
            assert fanout.settings == {}
            with pytest.raises(PenstockError, match=r"penstock\.buffer\.size"):
                await broker.create_topic("x", buffer_size=-1)

    asyncio.run(scenario())
