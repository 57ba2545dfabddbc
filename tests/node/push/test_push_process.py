"""Publish and subscribe within the process of the broker, without a socket."""

import asyncio
import subprocess
import sys

import pytest

from penstock.client.push import PushClosedError, PushRequestError
from tests.node.push.push_stage import push_broker, run, take

NO_PUSH = """
[node]
storage = "memory"
[listener]
port = 0
"""


def test_publish_and_subscribe() -> None:
    async def test() -> None:
        async with push_broker(NO_PUSH) as broker:
            subscription = await broker.subscribe("t", group="g")
            placed = await broker.publish("t", b"v", key=b"k")
            assert (placed.topic, placed.partition, placed.offset) == ("t", 0, 0)
            assert [one.value for one in await take(subscription, 1)] == [b"v"]
            await subscription.close()
            await broker.publish("t", b"w")
            again = await broker.subscribe("t", group="g")
            assert [one.value for one in await take(again, 1)] == [b"w"]
            assert broker.push_port is None

    run(test)


def test_a_topic_is_created_once() -> None:
    async def test() -> None:
        async with push_broker(NO_PUSH, topics={"t": 4}) as broker:
            await broker.create_topic("t")
            subscription = await broker.subscribe("t")
            assert len(subscription.positions) == 4
            with pytest.raises(PushRequestError, match="does not exist"):
                await broker.publish("missing", b"v")

    run(test)


def test_a_reader_that_stops_is_not_sent_more_than_its_credit() -> None:
    async def test() -> None:
        async with push_broker(NO_PUSH) as broker:
            subscription = await broker.subscribe("t", credit=3)
            await asyncio.gather(*(broker.publish("t", b"v") for _ in range(50)))
            while len(subscription) < 3:  # noqa: ASYNC110 (the stage has a time limit)
                await asyncio.sleep(0)
            assert len(subscription) == 3

    run(test)


def test_a_stop_ends_the_iteration() -> None:
    async def test() -> None:
        async with push_broker(NO_PUSH) as broker:
            subscription = await broker.subscribe("t")
        with pytest.raises(PushClosedError, match="the broker stops"):
            await anext(subscription)

    run(test)


def test_a_broker_without_push_loads_nothing_of_it() -> None:
    code = """
import asyncio, sys
from penstock import BrokerServer
from penstock.core.settings.config import load_settings

async def main():
    text = '[node]\\nstorage = "memory"\\n[listener]\\nport = 0\\n'
    async with BrokerServer(load_settings(text, {}, {"admin.enabled": False}).settings):
        return [name for name in sys.modules if ".push" in name]

print(asyncio.run(main()))
"""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == "[]"
