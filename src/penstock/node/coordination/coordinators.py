"""`broker.ports.Coordinators`: finds the shard of a key, and creates the internal topics.

An internal topic and its shards are created when the first client requests a coordinator; a start
loads existing shards in the background. Guarantees:

- each partition of an internal topic that this broker leads has one shard, in one leader epoch. A
  new role of the partition closes it: the requests that wait get NOT_COORDINATOR. A broker that
  other brokers may soon count as stopped answers no request (`OtherBrokers.is_isolated`);
- a shard gets each created, grown and deleted topic, in order. Other changes of the metadata, such
  as in-sync replicas, cost it nothing;
- when it stops, requests that wait for a shard get an error, and effects of shards are abandoned:
  they are started again when the log is loaded.

It does NOT know the decisions of a shard; the shard's code is imported at its first use.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.broker.ports import Asker, ProducerIds
from penstock.cluster.changes import Change
from penstock.cluster.image import MetadataImage
from penstock.cluster.service import MetadataService
from penstock.coordinator.driver import Answer, Phase
from penstock.coordinator.hashing import key_partition
from penstock.coordinator.kinds import KINDS_BY_TOPIC, TOPICS, CoordinatorKind
from penstock.coordinator.runtime import Runtime
from penstock.coordinator.shard import Asked, Producer
from penstock.core.clock import Clock
from penstock.core.deferred import Deferred
from penstock.core.errors import (
    CoordinatorLoadingError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    PenstockError,
    TopicExistsError,
)
from penstock.core.settings.tree import Settings
from penstock.core.types import TopicPartition
from penstock.node.adapters import LoopTimer
from penstock.node.administration.topic_administration import Topics
from penstock.node.coordination.image_topics import ImageTopics, topic_changes
from penstock.node.coordination.other_brokers import OtherBrokers
from penstock.node.coordination.skipped_records import SkippedRecords
from penstock.protocol.codec import Message
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.manager import ReplicaManager
from penstock.storage.service import StorageService

if TYPE_CHECKING:
    from penstock.coordinator.shares.ports import ShareStates
    from penstock.node.coordination.coordinator_kinds import Kind
    from penstock.node.coordination.transaction_effects import TransactionEffects
    from penstock.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTransaction


class OwnTasks:
    """`coordinator.ports.Tasks` that can be cancelled together."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._running: set[asyncio.Task[None]] = set()

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        """Run the coroutine; the group awaits it."""
        task = self._group.create_task(coroutine)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def cancel(self) -> None:
        """Cancel all running tasks."""
        for task in tuple(self._running):
            task.cancel()


class NodeCoordinators:
    """`broker.ports.Coordinators` on this node."""

    def __init__(
        self,
        settings: Settings,
        metadata: MetadataService,
        topics: Topics,
        storage: StorageService,
        replicas: ReplicaManager,
        producer_ids: ProducerIds,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        peers: OtherBrokers | None = None,
    ) -> None:
        """`peers` are the other brokers of the cluster; None for a broker that is alone."""
        self._settings = settings
        self._peers = peers
        self._producer_ids = producer_ids
        self._metadata = metadata
        self._topics = topics
        self._replicas = replicas
        self._storage = storage
        self._clock = clock
        self.skipped: Final = SkippedRecords(clock)
        self._tasks = OwnTasks(tasks)
        self._loop: Final = asyncio.get_running_loop()
        self._kinds: dict[CoordinatorKind, Kind] = {}
        self._runtimes: dict[CoordinatorKind, Runtime] = {}
        self._effects: TransactionEffects | None = None
        self._share_states: ShareStates | None = None
        self._served: dict[CoordinatorKind, dict[int, HostedPartition]] = {
            kind: {} for kind in TOPICS
        }
        """The partitions with a shard, in the role that the shard belongs to."""
        self._view: ImageTopics | None = None
        """The topics as shards see them; None before the start."""
        self._changed: set[TopicPartition] = set()
        """Partitions of internal topics with another role since the last turn of the loop."""
        self._alarms: list[LoopTimer] = []
        self._is_stopped = False

    # --- Life ---

    def follow(self, settings: Settings) -> None:
        """Use other settings from now on."""
        self._settings = settings
        for kind in self._kinds.values():
            kind.follow(settings)

    def start(self) -> None:
        """Follow the metadata, and load the shards of the topics that exist."""
        self._metadata.subscribe(self._image_changed)
        self._replicas.on_internal_role = self._role_changed
        self._view = ImageTopics(self._metadata.image)
        for kind, topic in TOPICS.items():
            if self._metadata.image.topic(topic) is not None:
                self._open_all(kind)

    def stop(self) -> None:
        """Answer the waiting requests with an error, and abandon effects."""
        self._is_stopped = True
        for runtime in self._runtimes.values():
            runtime.stop()
        for alarm in self._alarms:
            alarm.cancel()
        self._tasks.cancel()

    def _image_changed(
        self, before: MetadataImage, image: MetadataImage, changes: tuple[Change, ...]
    ) -> None:
        changed = topic_changes(before, image, changes)
        if changed is None:
            return
        view = self._view = ImageTopics(image)
        for kind, runtime in self._runtimes.items():
            if TOPICS[kind] in changed.gone:
                for partition in tuple(self._served[kind]):
                    self._close(kind, partition)
            runtime.topics_changed(view, changed.gone)

    def _topics_now(self) -> ImageTopics:
        return self._view or ImageTopics(self._metadata.image)

    # --- Roles ---

    def _role_changed(self, name: TopicPartition) -> None:
        """Note that a partition of an internal topic has another role, or is served no more.

        The shard is closed, or opened, in the next turn of the loop: the new role has begun then. A
        request that arrives before sees by `is_leader` that the former role is over.
        """
        if name.topic not in KINDS_BY_TOPIC:
            return
        if not self._changed:
            self._loop.call_soon(self._settle)
        self._changed.add(name)

    def _settle(self) -> None:
        changed, self._changed = self._changed, set()
        for topic, partition in sorted(changed):
            self._open(KINDS_BY_TOPIC[topic], partition)

    def _close(self, kind: CoordinatorKind, partition: int) -> None:
        """Serve a partition no more; the requests that wait for its shard are refused."""
        if self._served[kind].pop(partition, None) is None:
            return
        self._runtimes[kind].close(partition)
        if kind == "transaction" and self._effects is not None:
            # The next coordinator writes the markers that are missing.
            self._effects.forget(lambda key: self.partition_of("transaction", key) == partition)

    def _open_all(self, kind: CoordinatorKind) -> None:
        for partition in range(self.partition_count(kind)):
            self._open(kind, partition)

    def _open(self, kind: CoordinatorKind, partition: int) -> Runtime | None:
        """Return the runtime with the shard of a partition; None if another broker leads it."""
        if self._is_stopped:
            return None
        served = self._served[kind].get(partition)
        if served is not None:
            if served.state.is_leader:
                return self._runtimes[kind]
            self._close(kind, partition)
        hosted = self._replicas.find(TOPICS[kind], partition)
        topic = self._metadata.image.topic(TOPICS[kind])
        # The log of a deleted topic is still here for a moment. A shard on it would outlive the
        # topic, and block the shard of the next topic of this name.
        if hosted is None or topic is None or hosted.topic_id != topic.id:
            return None
        if not hosted.state.is_leader:
            return None
        from penstock.node.coordination.journal import PartitionJournal

        runtime = self._runtimes.get(kind) or self._make_runtime(kind)
        known = self._kinds[kind]
        journal = PartitionJournal(
            hosted,
            self._replicas,
            self._storage,
            known.decode,
            self.skipped,
            known.reply_ms_max,
        )
        self._served[kind][partition] = hosted
        runtime.open(
            partition, journal, partial(known.make_shard, self._epoch_of(hosted), partition)
        )
        return runtime

    def _epoch_of(self, partition: HostedPartition) -> int:
        """Return the coordinator epoch: 0 on a broker that is alone, the only coordinator."""
        return 0 if self._peers is None else partition.state.leader_epoch

    def _make_runtime(self, kind: CoordinatorKind) -> Runtime:
        known = self._kind(kind)
        alarm = LoopTimer(self._loop)
        self._alarms.append(alarm)
        runtime = self._runtimes[kind] = Runtime(
            TOPICS[kind],
            make_shard=partial(known.make_shard, 0, 0),
            topics=self._topics_now,
            clock=self._clock,
            alarm=alarm,
            effects=known.effects,
            tasks=self._tasks,
        )
        return runtime

    def _kind(self, kind: CoordinatorKind) -> "Kind":
        if kind not in self._kinds:
            # The code of coordinators is imported here: a broker starts without it.
            from penstock.node.coordination import coordinator_kinds

            if kind == "group":
                from penstock.node.coordination.share_group_effects import ShareGroupEffects

                made = coordinator_kinds.group_kind(
                    self._settings.groups,
                    lambda: self._metadata.image,
                    lambda: (driver.shard for driver in self._runtimes.get(kind, ())),
                    ShareGroupEffects(
                        lambda: self.share_states,
                        self._replicas,
                        lambda: self._metadata.image,
                        self._peers,
                    ),
                )
            elif kind == "share":
                from penstock.node.coordination.share_effects import ShareEffects

                share_effects = ShareEffects(self._replicas, self._storage)
                made = coordinator_kinds.share_kind(self._settings.shares, share_effects)
            else:
                from penstock.node.coordination.transaction_effects import TransactionEffects

                effects = self._effects = TransactionEffects(
                    self._replicas,
                    self._producer_ids,
                    self._clock,
                    self.marker_written,
                    lambda: self._metadata.image,
                    self._peers,
                )
                made = coordinator_kinds.transaction_kind(self._settings.transactions, effects)
            self._kinds[kind] = made
        return self._kinds[kind]

    # --- The port ---

    def partition_count(self, kind: CoordinatorKind) -> int:
        """Return the number of partitions of the internal topic; 0 while it does not exist."""
        topic = self._metadata.image.topic(TOPICS[kind])
        return 0 if topic is None else len(topic.partitions)

    def partition_of(self, kind: CoordinatorKind, key: str) -> int:
        """Return the partition of the internal topic that a key belongs to."""
        count = self.partition_count(kind)
        if count == 0:
            count = self._kind(kind).new_topic.partition_count
        return key_partition(key, count)

    def leader_elsewhere(self, kind: CoordinatorKind, partition: int) -> int | None:
        """Return the other broker that leads a partition; None if this one does, or none."""
        if self._peers is None:
            return None
        at = self._metadata.image.partition(TOPICS[kind], partition)
        return None if at is None or at.leader in (self._peers.own_id, -1) else at.leader

    @property
    def share_states(self) -> "ShareStates":
        """The delivery state of share groups, here and on other brokers."""
        if self._share_states is None:
            from penstock.node.coordination.share_states import NodeShareStates

            self._share_states = NodeShareStates(self, self._peers, self._tasks)
        return self._share_states

    def submit(self, kind: CoordinatorKind, key: str, request: Message, asker: Asker) -> Answer:
        """Send a request to the shard of a key."""
        return self.submit_to(kind, self.partition_of(kind, key), request, asker)

    def submit_to(
        self, kind: CoordinatorKind, partition: int, request: Message, asker: Asker
    ) -> Answer:
        """Send a request to the shard of a partition."""
        # Kafka shows an address as Java does, with a slash in front.
        host = f"/{asker.peer.address}"
        permissions = None if asker.services.access is None else asker
        asked = Asked(request, asker.api_version, asker.client_id or "", host, permissions)
        return self.submit_asked(kind, partition, asked)

    def submit_asked(self, kind: CoordinatorKind, partition: int, asked: Asked) -> Answer:
        """Send a request to the shard of a partition, for a client or for this broker itself."""
        is_isolated = self._peers is not None and self._peers.is_isolated()
        runtime = None if is_isolated else self._open(kind, partition)
        if runtime is None:
            answer: Answer = Deferred()
            why = "this broker cannot reach etcd" if is_isolated else "another broker leads it"
            answer.set(NotCoordinatorError(f"{TOPICS[kind]}-{partition} is not served here: {why}"))
            return answer
        return runtime.ask(partition, asked)

    async def ask(
        self, kind: CoordinatorKind, key: str, request: Message, asker: Asker
    ) -> Message | PenstockError:
        """Send a request to the shard of a key."""
        return await self._result(self.submit(kind, key, request, asker))

    async def verify(
        self, transaction: "AddPartitionsToTxnTransaction", asker: Asker
    ) -> Message | PenstockError:
        """Ask the coordinator of a transaction as a broker, here or on the broker that leads it."""
        # Imported here: most producers have no transactions, and a broker starts without it.
        from penstock.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest

        key = transaction.transactional_id
        if self._peers is not None:
            index = self.partition_of("transaction", key)
            leader = self.leader_elsewhere("transaction", index)
            if leader is not None:
                found = await self._peers.ask(leader, transaction)
                if isinstance(found, PenstockError):
                    # Clients repeat the same request for this code, without another lookup.
                    return CoordinatorLoadingError(
                        f"the coordinator of {key!r} on broker {leader} does not answer: {found}"
                    )
                return found
        request = AddPartitionsToTxnRequest(transactions=(transaction,))
        return await self.ask("transaction", key, request, asker)

    async def ask_partition(
        self, kind: CoordinatorKind, partition: int, request: Message, asker: Asker
    ) -> Message | PenstockError:
        """Send a request to the shard of a partition."""
        return await self._result(self.submit_to(kind, partition, request, asker))

    async def _result(self, answer: Answer) -> Message | PenstockError:
        future: asyncio.Future[Message | PenstockError] = self._loop.create_future()

        def done(result: Message | PenstockError) -> None:
            if not future.done():
                future.set_result(result)

        answer.then(done)
        return await future

    async def ensure_topic(self, kind: CoordinatorKind) -> PenstockError | None:
        """Create the internal topic if it does not exist; return the error if that fails."""
        if self._metadata.image.topic(TOPICS[kind]) is None:
            new_topic = self._kind(kind).new_topic
            if self._peers is not None:
                from penstock.node.coordination.coordinator_kinds import replicated

                replicas_max = self._settings.cluster.internal_replication_factor
                new_topic = replicated(new_topic, self._metadata.image, replicas_max)
            (outcome,) = await self._topics.create([new_topic], validate_only=False)
            failed = isinstance(outcome, PenstockError)
            if failed and not isinstance(outcome, TopicExistsError):
                return CoordinatorNotAvailableError(f"{new_topic.name}: {outcome}")
        self._open_all(kind)
        return None

    def runtime(self, kind: CoordinatorKind) -> Runtime | None:
        """Return the shards of a kind, read-only; None before the first request for one."""
        return self._runtimes.get(kind)

    def unavailable(self) -> tuple[int, int]:
        """Return the number of shards being loaded, and of shards that cannot be loaded."""
        phases = [driver.phase for runtime in self._runtimes.values() for driver in runtime]
        return phases.count(Phase.LOADING), phases.count(Phase.FAILED)

    # --- Markers ---

    def marker_written(
        self, name: TopicPartition, producer_id: int, producer_epoch: int, *, commits: bool
    ) -> None:
        """Handle the end of a transaction that was appended to a partition just now."""
        runtime = self._runtimes.get("group")
        if KINDS_BY_TOPIC.get(name.topic) == "group" and runtime is not None:
            runtime.marker_written(
                name.partition, Producer(producer_id, producer_epoch), commits=commits
            )
