"""Acknowledgements of a queue member: one that is refused does not refuse its neighbours."""

import asyncio
from collections.abc import Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from penstock.coordinator.shares.delivery.acknowledgement import Acknowledged
from penstock.coordinator.shares.ports import Refusal
from penstock.core.deferred import Deferred
from penstock.edge.push.queue_subscription import (
    ACCEPT,
    RELEASE,
)
from penstock.edge.push.reactions import OpenedTopic, Settled
from penstock.node.push import queue_heartbeats
from penstock.node.push.queue_member import NodeQueueMember
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from penstock.protocol.push.payloads import Refusal as PushRefusal


class Partition:
    """A share-partition where some offsets are not acquired any more."""

    def __init__(self, expired: set[int]) -> None:
        self._expired = expired
        self.stored: list[tuple[int, int]] = []
        self.calls = 0

    def acknowledge(self, member: str, batches: Sequence[Acknowledged]) -> Deferred[Refusal | None]:
        """Store all offsets, or none."""
        assert member
        self.calls += 1
        answer: Deferred[Refusal | None] = Deferred()
        offsets = [
            (offset, one.types[0]) for one in batches for offset in range(one.first, one.last + 1)
        ]
        if self._expired & {offset for offset, _ in offsets}:
            answer.set(Refusal(ErrorCode.INVALID_RECORD_STATE, "not acquired"))
        else:
            self.stored += offsets
            answer.set(None)
        return answer


def member_of(partition: Partition, *, may_read: bool = True) -> NodeQueueMember:
    """Return a member of a group with one share-partition."""
    groups = cast("Any", SimpleNamespace(find=lambda *_: partition))
    unused = cast("Any", None)
    topic = OpenedTopic(1, {}, 1, {}, {})
    return NodeQueueMember(
        "g", UUID(int=7), topic, groups, unused, unused, lambda: may_read, unused
    )


def acknowledge(member: NodeQueueMember, settled: list[Settled]) -> dict[int, bool]:
    """Return whether each message was stored."""
    outcomes: dict[int, bool] = {}

    def done(found: Sequence[Settled], is_stored: bool) -> None:
        for one in found:
            assert one.message_id not in outcomes
            outcomes[one.message_id] = is_stored

    member.acknowledge(settled, done)
    return outcomes


def test_an_expired_lock_refuses_only_its_own_acknowledgement() -> None:
    async def test() -> None:
        partition = Partition(expired={3, 77})
        settled = [Settled(n, 0, n, RELEASE if n == 5 else ACCEPT) for n in range(100, 0, -1)]
        outcomes = acknowledge(member_of(partition), settled)
        assert {one for one, is_stored in outcomes.items() if not is_stored} == {3, 77}
        assert len(outcomes) == 100
        assert sorted(partition.stored) == [
            (n, RELEASE if n == 5 else ACCEPT) for n in range(1, 101) if n not in (3, 77)
        ]
        assert partition.calls < 40

    asyncio.run(test())


def test_all_neighbours_are_one_call() -> None:
    async def test() -> None:
        partition = Partition(expired=set())
        acknowledge(member_of(partition), [Settled(n, 0, n, ACCEPT) for n in range(50)])
        assert partition.calls == 1

    asyncio.run(test())


def test_a_client_that_may_not_read_acknowledges_nothing() -> None:
    async def test() -> None:
        partition = Partition(expired=set())
        outcomes = acknowledge(member_of(partition, may_read=False), [Settled(1, 0, 1, ACCEPT)])
        assert outcomes == {1: False}
        assert not partition.calls

    asyncio.run(test())


def test_a_member_whose_coordinator_moved_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group expires it elsewhere: its client has to subscribe at the other broker."""
    monkeypatch.setattr(queue_heartbeats, "RETRY_SECONDS", 0.001)
    answers = [ErrorCode.NONE, *[ErrorCode.NOT_COORDINATOR] * 4, ErrorCode.NONE]
    answers += [ErrorCode.NOT_COORDINATOR] * queue_heartbeats.MOVED_TRIES

    async def send(_: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        code = answers.pop(0)
        return ShareGroupHeartbeatResponse(
            error_code=code, member_epoch=1, heartbeat_interval_ms=100
        )

    async def test() -> None:
        loop = asyncio.get_running_loop()
        lost: asyncio.Future[PushRefusal] = loop.create_future()
        running: set[asyncio.Task[None]] = set()

        def start(work: Coroutine[object, object, None]) -> None:
            running.add(loop.create_task(work))

        heartbeats = queue_heartbeats.QueueHeartbeats("g", "m", "t", send, start, lost.set_result)
        await heartbeats.join()
        refusal = await asyncio.wait_for(lost, 5)
        assert (refusal.code, refusal.retriable) == ("NOT_COORDINATOR", True)
        assert not answers

    asyncio.run(test())
