"""`MirrorTopics`: mirrors are created, extended, promoted and restored: metadata first, then logs.

Guarantees: the metadata is stored before the running partitions change, so a crash in between is
finished by the next start. A partition gets a new role in each new epoch, so requests that hold the
former one neither append nor acknowledge. A promotion ends the transactions that the parent had not
decided here: no coordinator would, and consumers with `read_committed` would wait for ever.

Only for a broker that is alone. It does not copy records: `node.pipes.mirror_logs` does.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from penstock.cluster.configs.topic_configs import check_override
from penstock.cluster.controller import NewTopic
from penstock.cluster.image import Mirror, TopicImage
from penstock.cluster.link.change_values import ChangeBase, Decision
from penstock.cluster.mirrors import mirror_changes
from penstock.cluster.service import MetadataService
from penstock.cluster.topic_changes import MorePartitions
from penstock.cluster.topic_rules import TopicRules
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.edge.pipes.ports import ParentTopic
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.hosting import Hosting
from penstock.replication.manager import ReplicaManager, TransactionEnd
from penstock.replication.partition import PartitionState

logger = logging.getLogger(__name__)

NOT_COPIED: Final = (
    "follower.replication.",
    "leader.replication.",
    "local.retention.",
    "min.insync.replicas",
    "remote.",
    "unclean.leader.election.enable",
)
"""Settings about the replicas and the tiers of the parent's cluster."""
ABORTS_AT_ONCE: Final = 500
"""Transactions that are ended in one turn of the event loop."""


class MirrorTopics:
    """The mirrors of a broker that is alone."""

    def __init__(
        self,
        metadata: MetadataService,
        hosting: Hosting,
        replicas: ReplicaManager,
        rules: Callable[[], TopicRules],
        clock: Clock,
        choose: Callable[[int], int],
    ) -> None:
        """`choose` returns a random number below its argument."""
        self._metadata = metadata
        self._hosting = hosting
        self._replicas = replicas
        self._rules = rules
        self._clock = clock
        self._choose = choose

    @property
    def changes(self) -> asyncio.Lock:
        """Held while topics of this broker change: created, deleted, promoted, other epochs."""
        return self._hosting.one_at_a_time

    def find(self, name: str) -> TopicImage | None:
        """Return a topic of this broker."""
        return self._metadata.image.topic(name)

    def of_pipe(self, pipe: str) -> list[str]:
        """Return the mirrors of a pipe."""
        return [
            topic.name
            for topic in self._metadata.image.topics.values()
            if topic.mirror is not None and topic.mirror.pipe == pipe
        ]

    async def create(self, parent: ParentTopic, settings: Mapping[str, str], pipe: str) -> None:
        """Create a mirror and serve it; raise the error of the metadata or of its logs."""
        assert parent.topic_id is not None
        topic_id = parent.topic_id
        wanted = NewTopic(
            name=parent.name,
            partition_count=len(parent.partitions),
            replication_factor=1,
            settings=_usable(parent.name, settings),
        )
        epochs = [max(0, one.leader_epoch) for one in parent.partitions]
        choice = self._choose(mirror_changes.PRODUCER_ID_RANGE_CHOICES)

        async def decide(base: ChangeBase) -> Decision[TopicImage]:
            known = base.image.topic(parent.name)
            if known is not None and known.mirror == Mirror(pipe) and known.id == topic_id:
                return Decision(None, lambda: known)  # the answer to the write was lost
            defaults = self._metadata.topic_defaults
            creation = mirror_changes.decide_mirror(
                base.image, wanted, topic_id, epochs, pipe, self._rules(), defaults
            )
            writes = mirror_changes.mirror_writes(
                base.keys, base.image, creation, base.guards, choice
            )
            return Decision(writes, lambda: self._metadata.image.topics[parent.name])

        async with self._hosting.one_at_a_time:
            topic = await self._metadata.carry_out("create a mirror", decide)
            failure = await self._hosting.host(topic)
        if failure is not None:
            raise failure

    async def grow(self, name: str, partition_count: int) -> None:
        """Add partitions to a mirror."""
        async with self._hosting.one_at_a_time:
            topic = await self._metadata.create_partitions(MorePartitions(name, partition_count))
            failure = await self._hosting.host(topic)
        if failure is not None:
            raise failure

    async def raise_epochs(self, name: str, epochs: Sequence[int]) -> None:
        """Raise the leader epochs of a mirror to at least these."""
        topic = self.find(name)
        if topic is None or topic.mirror is None or not mirror_changes.raised(topic, epochs):
            return

        async def decide(base: ChangeBase) -> Decision[None]:
            known = base.image.topic(name)
            states = {} if known is None else mirror_changes.raised(known, epochs)
            if known is None or known.mirror is None or not states:
                return Decision(None, lambda: None)
            writes = mirror_changes.change_writes(base.keys, known, states, base.guards)
            return Decision(writes, lambda: None)

        async with self._hosting.one_at_a_time:
            await self._metadata.carry_out("raise leader epochs", decide)
            self._follow(name)

    async def promote(self, name: str) -> None:
        """Let clients write a mirror; its pipe writes it no more."""
        async with self._hosting.one_at_a_time:
            await self._publish(
                "promote a mirror",
                name,
                lambda base: mirror_changes.decide_promotion(base.image, name),
            )
            partitions = self._follow(name)
        for partition in partitions:
            await self._abort_open(partition)
        logger.warning("%s is promoted: clients write it, and its pipe does not any more", name)

    async def restore(self, name: str, pipe: str) -> None:
        """Let a pipe write a topic again; it compares the records with the parent's first."""
        async with self._hosting.one_at_a_time:
            await self._publish(
                "restore a mirror",
                name,
                lambda base: mirror_changes.decide_restoration(base.image, name, pipe),
            )
            self._follow(name)
        logger.warning("%s is a mirror again, of the pipe %s", name, pipe)

    async def restored(self, name: str) -> None:
        """Note that the records of a restored mirror are the parent's."""

        def settled(base: ChangeBase) -> TopicImage | None:
            known = base.image.topic(name)
            if known is None or known.mirror is None or not known.mirror.is_restoring:
                return None
            return replace(known, mirror=Mirror(known.mirror.pipe))

        async with self._hosting.one_at_a_time:
            await self._publish("note a restored mirror", name, settled)

    async def _publish(
        self, action: str, name: str, changed: Callable[[ChangeBase], TopicImage | None]
    ) -> None:
        """Write the changed topic with its partitions; None: nothing is to be changed."""

        async def decide(base: ChangeBase) -> Decision[None]:
            after, before = changed(base), base.image.topic(name)
            if after is None or before is None:
                return Decision(None, lambda: None)
            states = {
                index: state
                for index, (state, known) in enumerate(
                    zip(after.partitions, before.partitions, strict=True)
                )
                if state != known
            }
            writes = mirror_changes.change_writes(base.keys, before, states, base.guards, after)
            return Decision(writes, lambda: None)

        await self._metadata.carry_out(action, decide)

    def _follow(self, name: str) -> list[HostedPartition]:
        """Give the partitions of a topic the epochs and the mark of the metadata."""
        topic = self.find(name)
        followed: list[HostedPartition] = []
        if topic is None:
            return followed
        is_mirror = topic.mirror is not None
        for index, wanted in enumerate(topic.partitions):
            partition = self._replicas.find(name, index)
            if partition is None:
                continue
            is_new = partition.state.leader_epoch != wanted.leader_epoch
            if is_new or partition.is_mirror != is_mirror:
                partition = self.begin_epoch(partition, wanted.leader_epoch)
                partition.mark_mirror(is_mirror=is_mirror)
            followed.append(partition)
        return followed

    def begin_epoch(self, partition: HostedPartition, leader_epoch: int) -> HostedPartition:
        """Lead a partition in an epoch, with a new role."""
        log = partition.log
        state = PartitionState(
            partition.name,
            leader_epoch=leader_epoch,
            is_leader=True,
            durable_offset=log.durable_offset,
        )
        successor = self._replicas.change_role(partition, state)
        successor.unseen.extend(partition.unseen)
        return successor

    async def _abort_open(self, partition: HostedPartition) -> None:
        """Abort the transactions that the parent had not decided here."""
        entries = partition.log.producers.entries
        undecided = [(one, entry) for one, entry in entries.items() if entry.open_offset >= 0]
        for number, (producer_id, entry) in enumerate(undecided, 1):
            end = TransactionEnd(
                producer_id, entry.epoch, max(0, entry.coordinator_epoch), commits=False
            )
            outcome = self._replicas.append_marker(partition, end, self._clock.now_ms())
            outcome.then(partial(_note_abort, str(partition.name)))
            if number % ABORTS_AT_ONCE == 0:
                await asyncio.sleep(0)
        if undecided:
            logger.warning(
                "%s: %d transactions that the parent had not decided are aborted",
                partition.name,
                len(undecided),
            )


def _note_abort(at: str, error: PenstockError | None) -> None:
    if error is not None:
        logger.error("%s: an open transaction could not be aborted: %s", at, error)


def _usable(name: str, settings: Mapping[str, str]) -> dict[str, str | None]:
    """Return the parent's settings that this broker knows."""
    usable: dict[str, str | None] = {}
    for key, value in settings.items():
        if key.startswith(NOT_COPIED):
            continue
        try:
            check_override(key, value)
        except PenstockError as error:
            logger.warning("a setting of the parent's topic %s is not used: %s", name, error)
        else:
            usable[key] = value
    return usable
