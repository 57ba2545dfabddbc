"""`Brokers.forget`: a request whose answer was lost is carried out once, and succeeds."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from penstock.cluster.changes import BrokerRegistered, NodeChanged, apply
from penstock.cluster.image import BrokerImage, Endpoint, MetadataImage, NodeImage
from penstock.cluster.keys import Keys
from penstock.cluster.link.change_values import ChangeBase, Decision, Result
from penstock.cluster.service import MetadataService
from penstock.core.errors import UnknownBrokerError
from penstock.node.administration.broker_administration import Brokers
from penstock.node.administration.topic_administration import Topics
from penstock.node.given_layers import GivenLayers

OWN = BrokerImage(1, (Endpoint("PLAINTEXT", "localhost", 9091),), None, "d1", 11)
KNOWN = apply(
    MetadataImage(), [BrokerRegistered(OWN), NodeChanged(3, NodeImage("d3", 25))], revision=30
)
FORGOTTEN = apply(KNOWN, [NodeChanged(3, None)], revision=31)


class Metadata:
    """Decides on one image after the other, as after lost answers."""

    def __init__(self, *images: MetadataImage) -> None:
        self._images = images
        self.writes = 0

    async def carry_out(
        self, action: str, decide: Callable[[ChangeBase], Awaitable[Decision[Result]]]
    ) -> Result:
        for image in self._images:
            decision = await decide(ChangeBase(image, Keys(), ()))
            if decision.writes is None:
                break
            self.writes += 1
        return decision.result()


def forget(*images: MetadataImage) -> int:
    """Forget broker 3; return the number of writes."""
    metadata = Metadata(*images)
    brokers = Brokers(
        cast("MetadataService", metadata), cast("GivenLayers", None), cast("Topics", None)
    )
    asyncio.run(brokers.forget(3))
    return metadata.writes


def test_a_lost_answer() -> None:
    assert forget(KNOWN, FORGOTTEN) == 1


def test_a_write_that_failed_is_repeated() -> None:
    assert forget(KNOWN, KNOWN, FORGOTTEN) == 2


def test_a_broker_that_was_forgotten_before() -> None:
    with pytest.raises(UnknownBrokerError):
        forget(FORGOTTEN)
