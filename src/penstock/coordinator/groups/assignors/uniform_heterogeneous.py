"""The uniform assignor for members with different subscriptions.

Guarantees: every partition of a subscribed topic has exactly one owner, who subscribes to it; no
single move from one subscriber of a topic to another makes the two more even, unless
`ROUNDS_MAX` was reached. A member keeps its partitions where balance allows. Balance over chains of
members that share only some topics is NOT perfect: that would take moves of several at once.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final
from uuid import UUID

from penstock.coordinator.groups.assignors.specification import GroupSpecification, PartitionSets

ROUNDS_MAX: Final = 16
"""Passes over all topics; each about halves the imbalance, so more would gain next to nothing."""


def assign_heterogeneously(group: GroupSpecification) -> dict[str, PartitionSets]:
    """Spread the partitions of each topic over its own subscribers."""
    balance = _Balance(group)
    balance.keep_assigned()
    topics = balance.topics_in_order()
    for topic_id in topics:
        balance.assign_free(topic_id)
    shared = [topic_id for topic_id in topics if len(balance.subscribers[topic_id]) > 1]
    for _ in range(ROUNDS_MAX):
        moves = sum(balance.even_out(topic_id) for topic_id in shared)
        if moves == 0:
            break
    return balance.result()


class _Balance:
    """The owner of each partition, and the load of each member, numbered in the order of ids."""

    def __init__(self, group: GroupSpecification) -> None:
        self._group = group
        self._member_ids = sorted(group.members)
        self._loads = [0] * len(self._member_ids)
        self.subscribers: dict[UUID, list[int]] = {}
        for index, member_id in enumerate(self._member_ids):
            for topic_id in group.members[member_id].subscribed:
                self.subscribers.setdefault(topic_id, []).append(index)
        self._owners: dict[UUID, list[int | None]] = {
            topic_id: [None] * group.partition_counts[topic_id] for topic_id in self.subscribers
        }

    def topics_in_order(self) -> list[UUID]:
        """Most partitions for each subscriber first: these leave the least choice."""
        counts = self._group.partition_counts

        def rank(topic_id: UUID) -> tuple[float, int, UUID]:
            subscriber_count = len(self.subscribers[topic_id])
            return -counts[topic_id] / subscriber_count, subscriber_count, topic_id

        return sorted(self.subscribers, key=rank)

    def keep_assigned(self) -> None:
        """Start from the members' partitions, as far as they still subscribe to them."""
        for index, member_id in enumerate(self._member_ids):
            member = self._group.members[member_id]
            for topic_id, partitions in member.assigned.items():
                if topic_id in member.subscribed:
                    self._keep(index, topic_id, partitions)

    def _keep(self, index: int, topic_id: UUID, partitions: Iterable[int]) -> None:
        owners = self._owners[topic_id]
        for partition in partitions:
            if partition < len(owners) and owners[partition] is None:
                owners[partition] = index
                self._loads[index] += 1

    def assign_free(self, topic_id: UUID) -> None:
        """Give each partition without owner to the subscriber that has the least."""
        owners = self._owners[topic_id]
        free = [partition for partition, owner in enumerate(owners) if owner is None]
        if not free:
            return
        queue = [(self._loads[index], index) for index in self.subscribers[topic_id]]
        heapify(queue)
        for partition in free:
            load, index = queue[0]
            owners[partition] = index
            self._loads[index] = load + 1
            heapreplace(queue, (load + 1, index))

    def even_out(self, topic_id: UUID) -> int:
        """Move partitions of one topic from the members with most to those with least."""
        loads = self._loads
        subscribers = self.subscribers[topic_id]
        most = max(
            (loads[owner] for owner in self._owners[topic_id] if owner is not None), default=0
        )
        if most - min(loads[index] for index in subscribers) <= 1:
            return 0  # the usual case: no move improves the balance
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic_id]):
            assert owner is not None, "free partitions were assigned before"
            owned.setdefault(owner, []).append(partition)
        givers = [(-loads[index], index) for index in owned]
        takers = [(loads[index], index) for index in subscribers]
        heapify(givers)
        heapify(takers)
        moves = 0
        while givers:
            giver = heappop(givers)[1]
            taker = self._least_loaded(takers)
            if loads[giver] - loads[taker] <= 1:
                break
            self._owners[topic_id][owned[giver].pop()] = taker
            loads[giver] -= 1
            loads[taker] += 1
            moves += 1
            if owned[giver]:
                heappush(givers, (-loads[giver], giver))
        return moves

    def _least_loaded(self, takers: list[tuple[int, int]]) -> int:
        """The first of the heap, whose entries may be older than the loads."""
        while True:
            load, index = takers[0]
            if load == self._loads[index]:
                return index
            heapreplace(takers, (self._loads[index], index))

    def result(self) -> dict[str, PartitionSets]:
        """The assignment of each member; the old object where nothing changed."""
        owned: list[dict[UUID, list[int]]] = [{} for _ in self._member_ids]
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                assert owner is not None, "every partition has an owner"
                owned[owner].setdefault(topic_id, []).append(partition)
        assignments: dict[str, PartitionSets] = {}
        for index, member_id in enumerate(self._member_ids):
            new = {topic_id: frozenset(partitions) for topic_id, partitions in owned[index].items()}
            old = self._group.members[member_id].assigned
            assignments[member_id] = old if old == new else new
        return assignments
