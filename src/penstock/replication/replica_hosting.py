"""`ReplicaHosting`: gives each partition of this broker its role, by following the metadata.

Guarantees:

- A role ends in the same step in which the image shows another one: no request is served in a role
  that this broker knows to be over.
- After this broker has lost its registration it leads nothing, until it is elected again with the
  next one.
- A log is opened when an image places a replica here, and removed when an image at or after that
  revision does not, or when its topic is deleted. One at a time, in the order of the images.
- A state whose leader epoch is below the epochs of the log is refused: the metadata was restored
  from an old copy, and serving it would fork the history.

It elects nothing and writes no state of a partition (`replication.isr_writer` does).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from uuid import UUID

from penstock.cluster.changes import (
    BrokerRegistered,
    BrokerSettingsChanged,
    Change,
    PartitionsChanged,
    TopicPublished,
    TopicRemoved,
    TopicSettingsChanged,
)
from penstock.cluster.configs.broker_configs import OPERATION_CONFIGS
from penstock.cluster.image import MetadataImage, PartitionImage, TopicImage
from penstock.cluster.keys import ALL_BROKERS
from penstock.core.errors import NotLeaderError, StorageError
from penstock.core.types import TopicPartition
from penstock.records.validation import ProduceRules
from penstock.replication.fetchers import Fetchers
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.hosting import Hosting
from penstock.replication.isr import InSyncReplicas
from penstock.replication.isr_writer import IsrWriter
from penstock.replication.log_cuts import LogCuts
from penstock.replication.manager import ReplicaManager
from penstock.replication.partition import PartitionState
from penstock.replication.partition_roles import lacks_committed, role_in
from penstock.replication.ports import PartitionMetadata
from penstock.storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)


class ReplicaHosting:
    """The roles of this broker's partitions."""

    def __init__(
        self,
        broker_id: int,
        metadata: PartitionMetadata,
        replicas: ReplicaManager,
        hosting: Hosting,
        fetchers: Fetchers,
        isr_writer: IsrWriter,
        cuts: LogCuts,
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._replicas = replicas
        self._hosting = hosting
        self._fetchers = fetchers
        self._isr_writer = isr_writer
        self._cuts = cuts
        self._broker_epoch = 0
        """The registration that roles are based on; 0 after it was lost."""
        self._waiting: dict[str, None] = {}
        """Topics whose logs are opened or removed next."""
        self._removed: dict[UUID, TopicImage] = {}
        self._wakened = asyncio.Event()
        self._role_ended = asyncio.Event()
        self._unsubscribe: Callable[[], None] | None = None
        cuts.on_done = self._cut_done
        hosting.begin_role = self._begin_role

    # --- Life ---

    async def start(self) -> None:
        """Serve every replica that the image places here, then follow each new image."""
        self._broker_epoch = self._metadata.broker_epoch
        self._unsubscribe = self._metadata.subscribe(self._follow)
        await self._hosting.host_all()

    async def run(self) -> None:
        """Open and remove logs as images change, until cancelled."""
        while True:
            await self._wakened.wait()
            self._wakened.clear()
            async with self._hosting.one_at_a_time:
                await self._settle()

    async def caught_up(self, seconds_max: float) -> None:
        """Wait until each followed replica has caught up once; at most for a time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                await self._fetchers.caught_up()

    async def drained(self, seconds_max: float) -> None:
        """Wait until this broker leads no partition that another broker can lead; for a time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds_max
        while self._leads_shared() and loop.time() < deadline:
            self._role_ended.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._role_ended.wait()

    def _leads_shared(self) -> bool:
        return any(
            partition.state.in_sync is not None and len(partition.state.in_sync.state.isr) > 1
            for partition in self._replicas
        )

    async def stop(self) -> None:
        """Follow no more images, lead nothing, and copy nothing."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        await self._isr_writer.stop()
        await self._fetchers.stop()
        await self._cuts.finish()

    # --- Images ---

    def _follow(
        self, before: MetadataImage, image: MetadataImage, changes: tuple[Change, ...]
    ) -> None:
        for change in changes:
            match change:
                case PartitionsChanged(topic_id, states):
                    topic = image.topic_by_id(topic_id)
                    if topic is not None:
                        self._partitions_changed(topic, states)
                case TopicPublished(name=name):
                    self._topic_changed(before, image, name)
                case TopicRemoved(name):
                    gone = before.topic(name)
                    if gone is not None:
                        self._remove(gone)
                case TopicSettingsChanged(name=name):
                    self._settings_changed(image, (name,))
                case BrokerSettingsChanged(name=name):
                    self._settings_changed(image, self._concerned(before, image, name))
                case BrokerRegistered(broker):
                    self._broker_changed(broker.id)
                case _:
                    pass

    def _topic_changed(self, before: MetadataImage, image: MetadataImage, name: str) -> None:
        topic, former = image.topics[name], before.topic(name)
        if former is not None and former.id != topic.id:
            self._remove(former)
        self._partitions_changed(topic, range(len(topic.partitions)))

    def _partitions_changed(self, topic: TopicImage, indexes: Iterable[int]) -> None:
        for index in indexes:
            if index >= len(topic.partitions):
                continue
            state = topic.partitions[index]
            partition = self._replicas.find(topic.id.bytes, index)
            if self._broker_id not in state.replicas:
                if partition is not None or TopicPartition(topic.name, index) in self._replicas:
                    self._leave(topic, index)
            elif partition is None:
                self._open_soon(topic.name)
            else:
                self._change_role(partition, state)

    def _concerned(self, before: MetadataImage, image: MetadataImage, name: str) -> Iterable[str]:
        """Return the topics that a changed setting of brokers concerns: none, or all."""
        if name not in (str(self._broker_id), ALL_BROKERS):
            return ()
        former, now = before.settings_of_broker(name), image.settings_of_broker(name)
        changed = {one for one in (*former, *now) if former.get(one) != now.get(one)}
        # Rates of moves and drains are no defaults of topics.
        return () if changed <= OPERATION_CONFIGS.keys() else image.topics

    def _settings_changed(self, image: MetadataImage, names: Iterable[str]) -> None:
        for name in names:
            topic = image.topic(name)
            if topic is None:
                continue
            self._hosting.follow_settings(topic)
            for index in range(len(topic.partitions)):
                partition = self._replicas.find(topic.id.bytes, index)
                if partition is not None and partition.state.in_sync is not None:
                    self._isr_writer.decide_soon(partition.name)

    def _broker_changed(self, broker_id: int) -> None:
        """A broker has registered or changed its state: it may join in-sync replicas now.

        Its fetch may have come before this image, and not counted: it reads again.
        """
        for partition in self._replicas:
            in_sync = partition.state.in_sync
            if in_sync is not None and broker_id in in_sync.followers:
                self._isr_writer.reported(partition, broker_id)
                self._replicas.waits.appended(partition.waits)

    def registration_changed(self, broker_epoch: int) -> None:
        """This broker has another registration; 0: it has lost the one it had."""
        if broker_epoch == self._broker_epoch:
            return
        self._broker_epoch = broker_epoch
        image = self._metadata.image
        for partition in tuple(self._replicas):
            state = image.partition(*partition.name)
            if state is not None:
                self._change_role(partition, state)

    # --- Roles ---

    def _begin_role(
        self, log: PartitionLog, topic: TopicImage, index: int, rules: ProduceRules
    ) -> None:
        """Serve a log that was opened; its role is that of the newest image."""
        newest = self._metadata.image.topic_by_id(topic.id)
        if newest is None or index >= len(newest.partitions):
            return
        state = newest.partitions[index]
        if self._broker_id not in state.replicas:
            # Moved away while its log was opened: the log is removed next.
            self._open_soon(topic.name)
            return
        self._refuse_older(log, state)
        role = self._state_of(log, state)
        partition = self._replicas.host_replica(log, topic.id, rules, role)
        self._role_began(partition, state)

    def _change_role(self, partition: HostedPartition, state: PartitionImage) -> None:
        """Take over a newer state of a partition."""
        if partition.name in self._cuts:
            # A leader must not serve a log that loses its end: `_cut_done` comes back.
            partition.state.resign()
            return
        wanted, now = role_in(state, self._broker_id, self._broker_epoch), partition.state
        is_same = wanted == (now.is_leader, now.leader_id, now.leader_epoch)
        if is_same:
            self._adopt(partition, state)
            return
        self._fetchers.remove(partition.name)
        try:
            self._refuse_older(partition.log, state)
        except StorageError as error:
            self._replicas.drop(partition.name)
            self._replicas.refuse(partition.name, error)
            logger.critical("%s is not served: %s", partition.name, error)
            return
        successor = self._replicas.change_role(partition, self._state_of(partition.log, state))
        self._role_ended.set()
        self._role_began(successor, state)

    def _adopt(self, partition: HostedPartition, state: PartitionImage) -> None:
        """Take over a state in which the role is the same."""
        role = partition.state
        if not role.is_leader:
            return
        if role.in_sync is None and len(state.replicas) > 1:
            self._replicas.add_followers(partition, self._in_sync(partition.log, state))
        elif role.in_sync is not None:
            if state.partition_epoch <= role.in_sync.state.partition_epoch:
                # Known already, as when the topic grows: a change that is being written may land.
                return
            role.in_sync.adopt(state, self._replicas.now())
        if role.in_sync is not None:
            self._replicas.isr_changed(partition)
            self._isr_writer.decide_soon(partition.name)

    def _role_began(self, partition: HostedPartition, state: PartitionImage) -> None:
        role = partition.state
        logger.debug("%s: %s in epoch %s", partition.name, role.role.value, role.leader_epoch)
        if role.leader_id >= 0:
            may_lack = lacks_committed(state, self._broker_id)
            self._fetchers.add(partition, is_recovering=may_lack)
        elif role.in_sync is not None:
            self._isr_writer.appended(partition)
            self._isr_writer.decide_soon(partition.name)

    def _state_of(self, log: PartitionLog, state: PartitionImage) -> PartitionState:
        wanted = role_in(state, self._broker_id, self._broker_epoch)
        is_alone = wanted.is_leader and len(state.replicas) == 1
        in_sync = None
        if wanted.is_leader and not is_alone:
            in_sync = self._in_sync(log, state)
        committed = log.durable_offset if is_alone else min(log.high_watermark, log.durable_offset)
        return PartitionState(
            log.topic_partition,
            leader_epoch=wanted.leader_epoch,
            is_leader=wanted.is_leader,
            durable_offset=log.durable_offset,
            high_watermark=committed,
            leader_id=wanted.leader_id,
            in_sync=in_sync,
        )

    def _in_sync(self, log: PartitionLog, state: PartitionImage) -> InSyncReplicas:
        return InSyncReplicas(self._broker_id, state, log.end_offset, self._replicas.now())

    @staticmethod
    def _refuse_older(log: PartitionLog, state: PartitionImage) -> None:
        if state.leader_epoch < log.latest_epoch:
            raise StorageError(
                f"the metadata is at leader epoch {state.leader_epoch}, the log has records of "
                f"epoch {log.latest_epoch}: the metadata store was restored from an old copy. "
                "Restore a newer one, or move the log's directory away."
            )

    def _cut_done(self, name: TopicPartition) -> None:
        partition = self._replicas.find(name.topic, name.partition)
        state = self._metadata.image.partition(*name)
        if partition is not None and state is not None:
            self._change_role(partition, state)

    # --- Logs ---

    def _open_soon(self, topic: str) -> None:
        self._waiting[topic] = None
        self._wakened.set()

    def _remove(self, topic: TopicImage) -> None:
        """Serve a deleted topic no more; its logs are removed next."""
        for index in range(len(topic.partitions)):
            self._drop(TopicPartition(topic.name, index))
        self._removed[topic.id] = topic
        self._wakened.set()

    def _leave(self, topic: TopicImage, index: int) -> None:
        """Serve a replica no more that was moved to another broker."""
        name = TopicPartition(topic.name, index)
        partition = self._replicas.find(topic.id.bytes, index)
        if partition is not None:
            # Clients look for the new leader; the topic still exists.
            partition.state.resign()
            gone = f"{name} was moved to other brokers"
            self._replicas.waits.failed(partition.waits, NotLeaderError(gone))
        self._drop(name)
        self._waiting[topic.name] = None
        self._wakened.set()

    def _drop(self, name: TopicPartition) -> None:
        self._role_ended.set()
        self._fetchers.remove(name)
        self._replicas.drop(name)

    async def _settle(self) -> None:
        """Remove and open logs, as the newest image has them."""
        while self._removed or self._waiting:
            await self._cuts.finish()
            if self._removed:
                topic_id = next(iter(self._removed))
                await self._hosting.remove(self._removed.pop(topic_id))
                continue
            name = next(iter(self._waiting))
            del self._waiting[name]
            newest = self._metadata.image.topic(name)
            if newest is not None:
                await self._hosting.remove_moved(newest)
                failure = await self._hosting.host(newest)
                if failure is not None:
                    logger.error("a replica of %s is not served: %s", name, failure)
