"""`Records`: the value of the fixture `penstock_records`; a call reads a topic of one broker."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.testing.async_broker import AsyncBroker
from penstock.testing.broker import Broker
from penstock.testing.limits import ARRIVAL_SECONDS_MAX

if TYPE_CHECKING:
    from penstock.testing.topic_records import TopicRecord


class Records:
    """Reads topics of one broker; see `Broker.records`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def __call__(
        self,
        topic: str,
        *,
        count: int | None = None,
        timeout_seconds: float = ARRIVAL_SECONDS_MAX,
        partitions: Sequence[int] = (),
        committed: bool = True,
    ) -> "list[TopicRecord]":
        """Return the records of a topic; with `count`, wait for that number."""
        return self._broker.records(
            topic,
            count=count,
            timeout_seconds=timeout_seconds,
            partitions=partitions,
            committed=committed,
        )

    async def until(
        self,
        topic: str,
        *,
        count: int,
        timeout_seconds: float = ARRIVAL_SECONDS_MAX,
        partitions: Sequence[int] = (),
        committed: bool = True,
    ) -> "list[TopicRecord]":
        """Like a call, for an async test: its event loop continues during the wait."""
        return await AsyncBroker.of(self._broker).records(
            topic,
            count=count,
            timeout_seconds=timeout_seconds,
            partitions=partitions,
            committed=committed,
        )
