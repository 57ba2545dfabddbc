"""Reassignments of many partitions in one request hold the loop for a turn at a time.

A request without rights costs as much as another, so it is paced as well.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import pytest

from penstock.broker.access import Access
from penstock.broker.context import RequestContext
from penstock.broker.handlers import alter_partition_reassignments, list_partition_reassignments
from penstock.broker.pacing.turns import TurnBudget
from penstock.cluster.image import MetadataImage
from penstock.cluster.moves.requested_moves import MoveOutcome, ReplicaMove
from penstock.core.limits import CONNECTION_TURN_SECONDS
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.broker.access.fakes import RuleSet
from tests.broker.handlers.fakes import FakeServices, Nobody

COUNT = 200
READINGS_PER_TURN = 10


class BusyClock:
    """A clock that each reading moves: work takes time."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        self.seconds += CONNECTION_TURN_SECONDS / READINGS_PER_TURN
        return self.seconds


class Topics(Nobody):
    """Topics whose replicas move at once."""

    async def move_replicas(  # type: ignore[override]
        self, moves: Sequence[ReplicaMove], *, may_change_factor: bool
    ) -> list[MoveOutcome]:
        assert may_change_factor
        return [None] * len(moves)


class Metadata:
    """The metadata of a cluster without topics."""

    image = MetadataImage()


ALTER = AlterPartitionReassignmentsRequest(
    topics=(
        ReassignableTopic(
            name="t",
            partitions=tuple(
                ReassignablePartition(partition_index=one, replicas=(1,)) for one in range(COUNT)
            ),
        ),
    )
)
MANY_TOPICS = AlterPartitionReassignmentsRequest(
    topics=tuple(ReassignableTopic(name=f"t{one}", partitions=()) for one in range(COUNT))
)
LIST = ListPartitionReassignmentsRequest(
    topics=(ListPartitionReassignmentsTopics(name="t", partition_indexes=tuple(range(COUNT))),)
)
MANY_LISTED = ListPartitionReassignmentsRequest(
    topics=tuple(
        ListPartitionReassignmentsTopics(name=f"t{one}", partition_indexes=())
        for one in range(COUNT)
    )
)

Handle = Callable[[Any, RequestContext], Coroutine[Any, Any, Any]]
alter: Handle = alter_partition_reassignments.handle
listed: Handle = list_partition_reassignments.handle


def handled(handle: Handle, request: object, *, is_allowed: bool) -> tuple[Any, int]:
    """Return the answer, and how often its work waited for another turn."""

    async def body() -> tuple[Any, int]:
        rules = RuleSet()
        if not is_allowed:
            rules.only()
        turns = TurnBudget(asyncio.get_running_loop().call_soon)
        services = replace(
            FakeServices().services,
            turns=turns,
            clock=BusyClock(),
            topics=Topics(),
            metadata=Metadata(),
            access=Access(rules, rules),
        )
        context = RequestContext(services, 1, "test", is_version_unsupported=False)
        return await handle(request, context), turns.yields

    return asyncio.run(body())


@pytest.mark.parametrize("is_allowed", [False, True])
@pytest.mark.parametrize(
    ("handle", "request_message"),
    [(alter, ALTER), (alter, MANY_TOPICS), (listed, LIST), (listed, MANY_LISTED)],
    ids=["alter", "alter-topics", "list", "list-topics"],
)
def test_a_wide_request_waits_for_other_turns(
    handle: Handle, request_message: object, is_allowed: bool
) -> None:
    answer, yields = handled(handle, request_message, is_allowed=is_allowed)
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert answer.error_code == (ErrorCode.NONE if is_allowed else denied)
    # A request with rights has two loops: over its partitions, and over the outcomes.
    loops = 2 if is_allowed else 1
    assert yields >= loops * COUNT // (READINGS_PER_TURN + 2)


def test_the_answer_has_each_partition_in_order() -> None:
    for is_allowed in (False, True):
        answer, _ = handled(alter, ALTER, is_allowed=is_allowed)
        (topic,) = answer.responses
        assert [one.partition_index for one in topic.partitions] == [*range(COUNT)]
    answer, _ = handled(listed, LIST, is_allowed=False)
    assert [one.partition_index for one in answer.topics[0].partitions] == [*range(COUNT)]
