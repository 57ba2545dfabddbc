"""The effects of share groups: order, bounds, refusals, and ends of logs here and elsewhere."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from penstock.coordinator.groups.share.state_effects import (
    AskedPlace,
    DeleteStates,
    InitializeStates,
    OffsetSummary,
    ReadSummaries,
)
from penstock.coordinator.shares.ports import Refusal, ShareKey, ShareSummary
from penstock.core.deferred import Deferred
from penstock.core.errors import BrokerUnreachableError, PenstockError
from penstock.core.types import TopicPartition
from penstock.node.coordination.share_group_effects import CALLS_AT_ONCE_MAX, ShareGroupEffects
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponseGroup,
)

T = UUID(int=1)


class States:
    """Calls that wait until a test answers them."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ShareKey, Deferred[Any]]] = []

    def _call(self, word: str, key: ShareKey) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        self.calls.append((word, key, answer))
        return answer

    def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> Deferred[Any]:
        return self._call(f"initialize {state_epoch} {start_offset}", key)

    def delete(self, key: ShareKey) -> Deferred[Any]:
        return self._call("delete", key)

    def summary(self, key: ShareKey, leader_epoch: int = -1) -> Deferred[Any]:
        return self._call("summary", key)

    def answer(self, result: object) -> None:
        for _, _, waiting in self.calls:
            if not waiting.is_set:
                waiting.set(result)

    @property
    def words(self) -> list[str]:
        return [f"{word} {key.group_id}-{key.partition}" for word, key, _ in self.calls]


class Peers:
    own_id = 1

    def __init__(self, answer: "dict[TopicPartition, int | ErrorCode] | PenstockError") -> None:
        self.answer = answer
        self.asked: list[tuple[int, Sequence[TopicPartition]]] = []

    async def log_ends(self, broker_id: int, names: Sequence[TopicPartition]) -> object:
        self.asked.append((broker_id, names))
        return self.answer


def effects_of(
    states: States, leaders: dict[int, int] | None = None, peers: Peers | None = None
) -> ShareGroupEffects:
    """`leaders` by partition: broker 1 is this one, and has the end 100."""
    known = leaders or {}

    def find(_topic: str, partition: int) -> object:
        is_here = known.get(partition) == 1
        state = SimpleNamespace(is_leader=True, high_watermark=100)
        return SimpleNamespace(state=state) if is_here else None

    def partition(_topic: str, number: int) -> object:
        return SimpleNamespace(leader=known[number]) if number in known else None

    return ShareGroupEffects(
        lambda: cast("Any", states),
        cast("Any", SimpleNamespace(find=find)),
        lambda: cast("Any", SimpleNamespace(partition=partition)),
        cast("Any", peers),
    )


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(cast("Any", scenario()))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_effects_of_one_group_do_not_overtake_each_other() -> None:
    async def scenario() -> None:
        states = States()
        effects = effects_of(states)
        creation = asyncio.ensure_future(  # noqa: TID251 - awaited below
            effects.perform(InitializeStates("g", 3, (((T, 0), -1),)))
        )
        await turns()
        deletion = asyncio.ensure_future(  # noqa: TID251 - awaited below
            effects.perform(DeleteStates("g", ((T, 0),)))
        )
        other = asyncio.ensure_future(  # noqa: TID251 - awaited below
            effects.perform(DeleteStates("h", ((T, 0),)))
        )
        await turns()
        assert states.words == ["initialize 3 -1 g-0", "delete h-0"]
        states.answer(None)
        await turns()
        assert states.words[2:] == ["delete g-0"]
        states.answer(Refusal(ErrorCode.NOT_COORDINATOR))
        assert await creation == {(T, 0): None}
        assert await deletion == {(T, 0): Refusal(ErrorCode.NOT_COORDINATOR)}
        assert await other == {(T, 0): None}
        del creation, deletion, other
        assert len(effects._locks) == 0, "no group is remembered"

    run(scenario)


def test_a_wide_effect_has_a_bounded_number_of_calls_in_flight() -> None:
    async def scenario() -> None:
        states = States()
        places = tuple((T, number) for number in range(CALLS_AT_ONCE_MAX + 2))
        task = asyncio.ensure_future(  # noqa: TID251 - awaited below
            effects_of(states).perform(DeleteStates("g", places))
        )
        await turns()
        assert len(states.calls) == CALLS_AT_ONCE_MAX
        states.answer(None)
        for _ in range(CALLS_AT_ONCE_MAX):
            await turns()
        states.answer(None)
        assert await task == dict.fromkeys(places)

    run(scenario)


def summaries(
    states: States, effects: ShareGroupEffects, partitions: Sequence[int], summary: object
) -> dict[tuple[UUID, int], OffsetSummary]:
    found: dict[tuple[UUID, int], OffsetSummary] = {}

    async def scenario() -> None:
        asked = tuple(AskedPlace("t", (T, number)) for number in partitions)
        answer = DescribeShareGroupOffsetsResponseGroup(group_id="g", topics=())
        task = asyncio.ensure_future(  # noqa: TID251 - awaited below
            effects.perform(ReadSummaries("g", asked, 1, answer))
        )
        await turns()
        states.answer(summary)
        found.update(cast("Any", await task))

    run(scenario)
    return found


def test_ends_are_read_here_and_from_other_leaders() -> None:
    states = States()
    peers = Peers(
        {TopicPartition("t", 1): 50, TopicPartition("t", 2): ErrorCode.FENCED_LEADER_EPOCH}
    )
    effects = effects_of(states, {0: 1, 1: 2, 2: 2, 3: -1}, peers)
    state = ShareSummary(1, 2, 10, 3)
    found = summaries(states, effects, range(5), state)
    assert {number: found[T, number].end for number in range(5)} == {
        0: 100,
        1: 50,
        2: Refusal(ErrorCode.FENCED_LEADER_EPOCH),
        3: Refusal(ErrorCode.LEADER_NOT_AVAILABLE),
        4: Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    }
    assert peers.asked == [(2, [TopicPartition("t", 1), TopicPartition("t", 2)])]


def test_a_leader_that_does_not_answer() -> None:
    states = States()
    peers = Peers(BrokerUnreachableError("gone"))
    found = summaries(states, effects_of(states, {0: 2}, peers), [0], ShareSummary(1, 2, 10, 3))
    assert found[T, 0].end == Refusal(ErrorCode.LEADER_NOT_AVAILABLE, "gone")


def test_a_state_without_lag_needs_no_end() -> None:
    for summary in (
        Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ShareSummary(1, 2, -1, 0),
        ShareSummary(1, 2, 5, -1),
    ):
        states = States()
        found = summaries(states, effects_of(states, {0: 1}), [0], summary)
        assert found == {(T, 0): OffsetSummary(cast("Any", summary), None)}
