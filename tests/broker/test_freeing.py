"""A wide message is freed in slices: all of it, and nothing that another owner refers to."""

import gc
from collections.abc import Callable
from typing import ClassVar

from penstock.broker.pacing.freeing import exempt_arrays, free_in_slices
from penstock.broker.pacing.slices import SLICE_ITEMS
from penstock.broker.pacing.turns import TurnBudget
from penstock.core.limits import CONNECTION_TURN_SECONDS
from penstock.protocol.codec import Message
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.storage.logs import Clock

TOPICS = 30
PARTITIONS = 100


class SlowClock(Clock):
    """A slice is over after each look."""

    def monotonic(self) -> float:
        self.seconds += CONNECTION_TURN_SECONDS
        return super().monotonic()


class Counted(ListOffsetsPartition):
    """Says when it is freed."""

    freed: ClassVar[int] = 0

    def __del__(self) -> None:
        Counted.freed += 1


def wide() -> ListOffsetsRequest:
    topics = tuple(
        ListOffsetsTopic(
            name=f"topic-{number}",
            partitions=tuple(
                Counted(partition_index=index, timestamp=-1) for index in range(PARTITIONS)
            ),
        )
        for number in range(TOPICS)
    )
    return ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics)


def test_a_few_objects_in_each_turn() -> None:
    soon: list[Callable[[], None]] = []
    holder: list[Message] = [wide()]
    kept = holder[0].topics[3]  # type: ignore[attr-defined]
    Counted.freed = 0
    free_in_slices(holder, TurnBudget(soon.append), SlowClock())
    assert not holder
    turns = 0
    while soon:
        before = Counted.freed
        soon.pop(0)()
        assert Counted.freed - before <= SLICE_ITEMS
        turns += 1
    assert Counted.freed == (TOPICS - 1) * PARTITIONS
    assert turns >= Counted.freed / SLICE_ITEMS
    assert len(kept.partitions) == PARTITIONS


def test_an_empty_holder_is_nothing_to_do() -> None:
    soon: list[Callable[[], None]] = []
    free_in_slices([], TurnBudget(soon.append), Clock())
    assert not soon


def test_collections_do_not_visit_the_arrays_of_a_wide_message() -> None:
    """Guards pauses: each collection looked at 100,000 elements, 7 ms, as long as it was young."""
    message = wide()
    exempt_arrays(message)
    assert not gc.is_tracked(message.topics)
    assert not any(gc.is_tracked(topic.partitions) for topic in message.topics[:SLICE_ITEMS])
    assert gc.is_tracked(message.topics[0])
