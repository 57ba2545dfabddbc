"""`DeliveredOrder`: the acknowledgements of fanout subscriptions, from positions. Pure.

An ACK of fanout includes all earlier deliveries of its subscription, over all partitions. A
delivery is acknowledged when it and all before it are below the position of their partition, so the
broker never commits a position above a record that is not done.
"""

from collections import deque
from collections.abc import Mapping
from typing import Generic, TypeVar

from penstock.core.types import TopicPartition

Record = TypeVar("Record")


class DeliveredOrder(Generic[Record]):
    """The deliveries of one subscription that are not acknowledged."""

    __slots__ = ("_deliveries", "_positions")

    def __init__(self) -> None:
        self._deliveries: deque[tuple[TopicPartition, int, Record]] = deque()
        self._positions: dict[TopicPartition, int] = {}

    def __len__(self) -> int:
        return len(self._deliveries)

    def add(self, at: TopicPartition, offset: int, record: Record) -> None:
        """Note a delivery, in the order of deliveries."""
        self._deliveries.append((at, offset, record))

    def advance(self, positions: Mapping[TopicPartition, int]) -> Record | None:
        """Use positions; return the newest delivery to acknowledge, if there is a new one."""
        self._positions.update(positions)
        newest: Record | None = None
        while self._deliveries and self._is_done(*self._deliveries[0][:2]):
            newest = self._deliveries.popleft()[2]
        return newest

    def _is_done(self, at: TopicPartition, offset: int) -> bool:
        return offset < self._positions.get(at, 0)
