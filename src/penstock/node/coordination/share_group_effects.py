"""Carries out the effects of share groups: calls to share coordinators, and ends of logs.

The calls of one effect go out together, a bounded number at a time. Effects that change the states
of one group are carried out one after the other, because a creation and a deletion of the same
state must not overtake each other. A refused call is a result, and nothing is retried: the group
coordinator decides that. It does NOT know groups.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from penstock.broker.pieces import settled
from penstock.cluster.image import MetadataImage
from penstock.coordinator.groups.share.state_effects import (
    DeleteStates,
    InitializeStates,
    OffsetSummary,
    ReadSummaries,
)
from penstock.coordinator.groups.share.state_partitions import Place
from penstock.coordinator.shares.ports import Refusal, ShareKey, ShareStates, ShareSummary
from penstock.core.deferred import Deferred
from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition
from penstock.node.coordination.other_brokers import OtherBrokers
from penstock.protocol.error_codes import ErrorCode
from penstock.replication.manager import ReplicaManager

CALLS_AT_ONCE_MAX: Final = 500
"""Calls of one effect in flight: share coordinators get the requests of other groups in between."""

Result = TypeVar("Result")


class ShareGroupEffects:
    """`coordinator.ports.Effects` of group shards."""

    def __init__(
        self,
        states: Callable[[], ShareStates],
        replicas: ReplicaManager,
        image: Callable[[], MetadataImage],
        peers: OtherBrokers | None,
    ) -> None:
        """`peers` is None for a broker that is alone."""
        self._states = states
        self._replicas = replicas
        self._image = image
        self._peers = peers
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """One for each group with an effect that changes states; the effect holds it."""

    async def perform(self, effect: object) -> object:
        """Carry an effect out and return its result for each partition."""
        match effect:
            case InitializeStates():
                return await self._initialize(effect)
            case DeleteStates():
                return await self._delete(effect)
            case ReadSummaries():
                return await self._read(effect)
            case _:
                raise AssertionError(f"unknown effect {effect!r}")

    async def _initialize(self, effect: InitializeStates) -> dict[Place, Refusal | None]:
        states, starts = self._states(), dict(effect.starts)

        def call(place: Place) -> Deferred[Refusal | None]:
            key = ShareKey(effect.group_id, *place)
            return states.initialize(key, effect.state_epoch, starts[place])

        async with self._lock(effect.group_id):
            return await _each(tuple(starts), call)

    async def _delete(self, effect: DeleteStates) -> dict[Place, Refusal | None]:
        states = self._states()
        async with self._lock(effect.group_id):
            return await _each(
                effect.places, lambda place: states.delete(ShareKey(effect.group_id, *place))
            )

    def _lock(self, group_id: str) -> asyncio.Lock:
        lock = self._locks.get(group_id)
        if lock is None:
            lock = self._locks[group_id] = asyncio.Lock()
        return lock

    # --- Summaries ---

    async def _read(self, effect: ReadSummaries) -> dict[Place, OffsetSummary]:
        states = self._states()
        summaries = await _each(
            tuple(asked.place for asked in effect.asked),
            lambda place: states.summary(ShareKey(effect.group_id, *place)),
        )
        wanted = {
            asked.place: TopicPartition(asked.topic, asked.place[1])
            for asked in effect.asked
            if _has_lag(summaries[asked.place])
        }
        ends = await self._ends(tuple(wanted.values()))
        return {
            place: OffsetSummary(summary, ends[wanted[place]] if place in wanted else None)
            for place, summary in summaries.items()
        }

    async def _ends(self, names: Sequence[TopicPartition]) -> dict[TopicPartition, int | Refusal]:
        """Return the high watermark of each partition, from its leader."""
        found: dict[TopicPartition, int | Refusal] = {}
        elsewhere: dict[int, list[TopicPartition]] = {}
        image = self._image()
        for name in names:
            partition = self._replicas.find(name.topic, name.partition)
            at = image.partition(name.topic, name.partition)
            if partition is not None and partition.state.is_leader:
                found[name] = partition.state.high_watermark
            elif at is None:
                found[name] = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif self._peers is None or at.leader in (self._peers.own_id, -1):
                found[name] = Refusal(ErrorCode.LEADER_NOT_AVAILABLE)
            else:
                elsewhere.setdefault(at.leader, []).append(name)
        asked = list(elsewhere.items())
        if asked:
            peers = self._peers
            assert peers is not None
            answers = await asyncio.gather(*(peers.log_ends(*one) for one in asked))
            for (_, some), answer in zip(asked, answers, strict=True):
                found.update({name: _end_of(name, answer) for name in some})
        return found


def _end_of(
    name: TopicPartition, answer: "dict[TopicPartition, int | ErrorCode] | PenstockError"
) -> int | Refusal:
    if isinstance(answer, PenstockError):
        return Refusal(ErrorCode.LEADER_NOT_AVAILABLE, str(answer))
    end = answer.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return Refusal(end) if isinstance(end, ErrorCode) else end


def _has_lag(summary: ShareSummary | Refusal) -> bool:
    return (
        isinstance(summary, ShareSummary)
        and summary.start_offset != -1
        and summary.delivery_complete_count != -1
    )


async def _each(
    places: Sequence[Place], call: Callable[[Place], Deferred[Result]]
) -> dict[Place, Result]:
    """Call for each partition, a bounded number at a time."""
    results: dict[Place, Result] = {}
    for start in range(0, len(places), CALLS_AT_ONCE_MAX):
        few = places[start : start + CALLS_AT_ONCE_MAX]
        answers = [call(place) for place in few]
        for place, answer in zip(few, answers, strict=True):
            results[place] = await settled(answer)
    return results
