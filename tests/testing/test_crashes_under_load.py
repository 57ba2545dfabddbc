"""Crashes in the middle of requests, many times: nothing acknowledged is lost or doubled, no hang.

A thread produces, another reads with a long poll, and the broker crashes, is paused and crashes,
drops connections, and restarts, at random moments.
"""

import os
import random
import threading
import time
from typing import Self

import pytest

from penstock.core.errors import PenstockError
from penstock.testing import Broker

pytestmark = pytest.mark.chaos

TOPIC = "orders"
ROUNDS = 40
PAUSE_SECONDS_MAX = 0.01
"""After the first acknowledgement of a round: in the middle of some later request."""
SECONDS_MAX = 20.0
SEED = 7


class Load:
    """Produces numbers until it is stopped; knows which were acknowledged."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._is_over = threading.Event()
        self.acknowledged: list[str] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def wait_for_more(self) -> None:
        """Until something more is acknowledged: the broker works again, and is worked on."""
        before = len(self.acknowledged)
        deadline = time.monotonic() + SECONDS_MAX
        while len(self.acknowledged) == before:
            assert time.monotonic() < deadline, "the broker takes nothing any more"
            time.sleep(0.001)

    def _run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            number += 1
            try:
                self._broker.produce(TOPIC, f"{number}")
            except PenstockError:
                continue
            self.acknowledged.append(f"{number}")


def disturb(broker: Broker, chance: random.Random) -> None:
    kind = chance.choice(["crash", "paused crash", "drop", "restart"])
    if kind == "paused crash":
        broker.pause()
    if kind == "drop":
        broker.drop_connections()
    elif kind == "restart":
        broker.restart()
    else:
        broker.crash()
        broker.restart()


def test_nothing_acknowledged_is_lost_and_nothing_is_there_twice() -> None:
    chance = random.Random(SEED)
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    with Broker() as broker:
        broker.create_topic(TOPIC)
        with Load(broker) as load:
            for _ in range(ROUNDS):
                load.wait_for_more()
                time.sleep(chance.uniform(0, PAUSE_SECONDS_MAX))
                begun = time.monotonic()
                disturb(broker, chance)
                assert time.monotonic() - begun < SECONDS_MAX
        values = [record.value for record in broker.records(TOPIC)]
    assert len(values) == len(set(values)), "a record is there twice"
    assert set(load.acknowledged) <= set(values), "an acknowledged record is lost"
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 2, "descriptors leak"
