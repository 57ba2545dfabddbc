"""`Elections`: carries out the decisions of `cluster.elections` while this broker is controller.

Each write compares the role of the controller, the state of each partition, and the registration
and the disk of each new leader: a controller that was replaced, or that decided on an old image,
changes nothing. After a failed compare it decides again on the newer image, with smaller
transactions: one partition that changes often must not stop the others. All of it runs beside the
changes of administrators, and waits for none of them.

The order: reassignments whose replicas have joined; partitions of brokers that have gone or come;
leaders, then replicas of draining brokers; internal topics with too few replicas; first replicas
that lead again. Only changes that concern all partitions cost a look at each. Nothing is decided
here.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from penstock.cluster.changes import (
    BrokerRegistered,
    BrokerRemoved,
    BrokerSettingsChanged,
    Change,
    ControllerChanged,
    NodeChanged,
    PartitionsChanged,
    TopicPublished,
)
from penstock.cluster.configs.drain_setting import drained_brokers
from penstock.cluster.controller import PARTITIONS_PER_TRANSACTION, GuardedWrites
from penstock.cluster.elections import (
    Decide,
    Members,
    election_writes,
    is_settled,
    member_decision,
    preferred_decision,
    state_writes,
    without_drained_leader,
    without_drained_replicas,
)
from penstock.cluster.image import BrokerState, MetadataImage, PartitionImage, TopicImage
from penstock.cluster.link.broker_link import BrokerLink
from penstock.cluster.link.change_values import ClusterRules
from penstock.cluster.link.preferred_leaders import STABLE_SECONDS, PreferredLeaders
from penstock.cluster.moves.internal_topics import growth_decision
from penstock.cluster.moves.reassignment import completion_decision
from penstock.cluster.moves.running_moves import RunningMoves
from penstock.cluster.stores.port import Compare
from penstock.core.clock import Clock
from penstock.core.errors import StoreError
from penstock.core.setting_text import is_true

logger = logging.getLogger(__name__)

UNCLEAN: Final = "unclean.leader.election.enable"
TRANSACTIONS_AT_ONCE: Final = 4
"""Transactions of an election under way."""
NEXT_SECONDS: Final = 1.0
"""Between two moves of leaders to first replicas, each of at most one transaction."""
PAUSE_SECONDS: Final = 0.05
"""Before the same decision is written again."""
_SMALLER: Final = 10
"""Transactions are divided by this number after a failed compare."""

Guards = tuple[Compare, ...]


class Elections:
    """The elections of one cluster, by this broker."""

    def __init__(
        self,
        link: BrokerLink,
        defaults: Callable[[MetadataImage], Mapping[str, str]],
        clock: Clock,
        rules: ClusterRules,
    ) -> None:
        self._link = link
        self._defaults = defaults
        self._clock = clock
        self._rebalance_seconds = rules.rebalance_seconds
        self._internal_replicas_max = rules.internal_replicas_max
        self._preferred = PreferredLeaders()
        self._examine_at = 0.0
        self._moves = RunningMoves()
        self._must_look = True
        """Whether there may be something to decide about any partition of the cluster."""

    def follow(
        self, before: MetadataImage, image: MetadataImage, changes: tuple[Change, ...]
    ) -> bool:
        """Follow an image; return whether there may be something to decide."""
        if self._link.controls() is None:
            self._preferred = PreferredLeaders()
            return False
        self._preferred.follow(image, changes)
        if _has_started(before, changes):
            self._examine_within(STABLE_SECONDS)
        self._must_look = concerns(image, changes) or self._must_look
        return self._moves.follow(changes) or self._must_look

    @property
    def next_seconds(self) -> float | None:
        """The time until the next examination of first replicas; None for never."""
        if self._rebalance_seconds is None or self._link.controls() is None:
            return None
        return max(0.0, self._examine_at - self._clock.monotonic())

    async def carry_out(self, guards: Callable[[], Guards | None]) -> None:
        """Write the decisions until there are none left, or the role is lost.

        `guards` returns the compares of a controller, None for another broker.
        """
        partition_max = PARTITIONS_PER_TRANSACTION
        while (compares := guards()) is not None:
            image = self._link.image
            try:
                sent, stored = await self._decide(image, compares, partition_max)
            except StoreError:
                self._must_look = True
                raise
            if not sent:
                return
            is_stored = stored == sent
            partition_max = (
                PARTITIONS_PER_TRANSACTION if is_stored else max(1, partition_max // _SMALLER)
            )
            if not is_stored:
                self._must_look = True
                if self._link.image is image:
                    await asyncio.sleep(PAUSE_SECONDS)

    async def _decide(
        self, image: MetadataImage, compares: Guards, partition_max: int
    ) -> tuple[int, int]:
        """Write the first decision that changes something; return as `_send`.

        Moves of replicas that are done cost a look at their partitions only.
        """
        keys = self._link.keys
        moved = self._moves.take(keys, image)
        writes = state_writes(keys, image, moved, compares, partition_max=partition_max)
        sent, stored = await self._send(writes)
        if sent:
            return sent, stored
        is_due = self._rebalance_seconds is not None and self.next_seconds == 0.0
        if not self._must_look and not is_due:
            return 0, 0
        self._must_look = False
        for decide, count_max in self._decisions(image):
            writes = election_writes(
                keys,
                image,
                decide,
                compares,
                count_max=count_max,
                partition_max=partition_max,
                skipped=self._link.followed.unreadable,
            )
            sent, stored = await self._send(writes)
            if sent:
                # There may be more, and other decisions follow.
                self._must_look = True
                return sent, stored
        return 0, 0

    def _decisions(self, image: MetadataImage) -> Iterator[tuple[Decide, int | None]]:
        """Yield the decisions in their order, each with the most partitions of one round."""
        defaults = self._defaults(image)

        def is_unclean_allowed(topic: TopicImage) -> bool:
            return is_true(topic.settings.get(UNCLEAN, defaults.get(UNCLEAN)))

        members = Members.of(image)
        yield member_decision(image, is_unclean_allowed), None
        yield completion_decision(members), None
        if members.draining:
            yield _of_members(without_drained_leader, members), PARTITIONS_PER_TRANSACTION
            yield _of_members(without_drained_replicas, members), PARTITIONS_PER_TRANSACTION
        grown = growth_decision(image, self._internal_replicas_max)
        if grown is not None:
            yield grown, None
        now = self._clock.monotonic()
        if self._rebalance_seconds is not None and now >= self._examine_at:
            due = self._preferred.examine(image, now)
            self._examine_at = now + self._rebalance_seconds
            if due:
                self._examine_within(NEXT_SECONDS)
                yield preferred_decision(members, due), PARTITIONS_PER_TRANSACTION
            elif (soon := self._preferred.next_seconds(now)) is not None:
                self._examine_within(soon)

    def _examine_within(self, seconds: float) -> None:
        self._examine_at = min(self._examine_at, self._clock.monotonic() + seconds)

    async def _send(self, writes: Iterator[GuardedWrites]) -> tuple[int, int]:
        """Return the number of sent and of stored transactions."""
        sent = stored = 0
        while few := list(islice(writes, TRANSACTIONS_AT_ONCE)):
            done = await asyncio.gather(*(self._link.write((one,)) for one in few))
            sent, stored = sent + len(few), stored + sum(done)
        if sent:
            logger.info("the controller wrote %d of %d changes of partitions", stored, sent)
        return sent, stored


def _of_members(
    change: Callable[[PartitionImage, Members], PartitionImage | None], members: Members
) -> Decide:
    return lambda _topic, _index, state: change(state, members)


def _has_started(before: MetadataImage, changes: Iterable[Change]) -> bool:
    """Return whether a broker runs that did not run before."""
    for change in changes:
        if isinstance(change, BrokerRegistered) and change.broker.state is BrokerState.RUNNING:
            known = before.brokers.get(change.broker.id)
            if known is None or known.state is not BrokerState.RUNNING:
                return True
    return False


def concerns(image: MetadataImage, changes: Iterable[Change]) -> bool:
    """Return whether the controller may have to decide something because of these changes.

    A change of one partition costs only a look at it: leaders change in-sync replicas all the time.
    """
    epochs = {broker.id: broker.epoch for broker in image.brokers.values()}
    drained = drained_brokers(image)
    for change in changes:
        match change:
            case (
                BrokerRegistered()
                | BrokerRemoved()
                | NodeChanged()
                | ControllerChanged()
                | BrokerSettingsChanged()
            ):
                return True
            case PartitionsChanged(_, partitions):
                states: Iterable[PartitionImage | None] = partitions.values()
                if any(one is not None and not is_settled(one, epochs) for one in states):
                    return True
                # Another replica of a drained leader may have joined.
                if drained and any(one is not None and one.leader in drained for one in states):
                    return True
            case TopicPublished(name):
                # Also at a change of its settings, which may allow an unclean election.
                topic = image.topics.get(name)
                if topic and not all(is_settled(one, epochs) for one in topic.partitions):
                    return True
            case _:
                pass
    return False
