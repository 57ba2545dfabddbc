"""`broker.ports.Coordinators`: finds the shard of a key, and creates the internal topics.

An internal topic and its shards are created when the first client requests a coordinator; a start
loads existing shards in the background. Guarantees:

- each partition of an internal topic that this broker serves has one shard;
- a shard gets each new image of the cluster's topics, in order;
- when it stops, requests that wait for a shard get an error, and effects of shards are abandoned:
  they are started again when the log is loaded.

It does NOT know the decisions of a shard; the shard's code is imported at its first use.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from penstock.broker.ports import Asker, ProducerIds
from penstock.cluster.changes import Change
from penstock.cluster.image import MetadataImage, TopicImage
from penstock.cluster.service import MetadataService
from penstock.coordinator.driver import Answer, Phase
from penstock.coordinator.hashing import key_partition
from penstock.coordinator.kinds import KINDS_BY_TOPIC, TOPICS, CoordinatorKind
from penstock.coordinator.metadata_view import TopicView
from penstock.coordinator.runtime import Runtime
from penstock.coordinator.shard import Asked, Producer
from penstock.core.clock import Clock
from penstock.core.deferred import Deferred
from penstock.core.errors import (
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    PenstockError,
    TopicExistsError,
)
from penstock.core.settings.tree import Settings
from penstock.core.types import TopicPartition
from penstock.node.adapters import LoopTimer
from penstock.node.administration.topic_administration import Topics
from penstock.node.coordination.skipped_records import SkippedRecords
from penstock.protocol.codec import Message
from penstock.replication.manager import ReplicaManager
from penstock.storage.service import StorageService

if TYPE_CHECKING:
    from penstock.node.coordination.coordinator_kinds import Kind


class ImageTopics:
    """`coordinator.metadata_view.TopicsView` over an image."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    @property
    def revision(self) -> int:
        """The revision of the image."""
        return self._image.revision

    def by_name(self, name: str) -> TopicView | None:
        """Return the topic of this name."""
        return _view(self._image.topic(name))

    def by_id(self, topic_id: UUID) -> TopicView | None:
        """Return the topic of this id."""
        return _view(self._image.topic_by_id(topic_id))

    def names(self) -> Iterable[str]:
        """Return the names of all topics, in no order."""
        return self._image.topics


def _view(topic: TopicImage | None) -> TopicView | None:
    return None if topic is None else TopicView(topic.id, topic.name, len(topic.partitions))


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
    ) -> None:
        self._settings = settings
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
        self, before: MetadataImage, image: MetadataImage, _changes: tuple[Change, ...]
    ) -> None:
        if before.topics is image.topics:
            return
        view = ImageTopics(image)
        for kind, runtime in self._runtimes.items():
            now = image.topic(TOPICS[kind])
            then = before.topic(TOPICS[kind])
            if then is not None and (now is None or now.id != then.id):
                for partition in range(len(then.partitions)):
                    runtime.close(partition)
            runtime.topics_changed(view)

    def _open_all(self, kind: CoordinatorKind) -> None:
        for partition in range(self.partition_count(kind)):
            self._open(kind, partition)

    def _open(self, kind: CoordinatorKind, partition: int) -> Runtime | None:
        """Return the runtime with the shard of a partition; None when the partition is not here."""
        if self._is_stopped:
            return None
        runtime = self._runtimes.get(kind) or self._make_runtime(kind)
        if partition not in runtime:
            hosted = self._replicas.find(runtime.topic, partition)
            topic = self._metadata.image.topic(runtime.topic)
            # The log of a deleted topic is still here for a moment. A shard on it would outlive the
            # topic, and block the shard of the next topic of this name.
            if hosted is None or topic is None or hosted.topic_id != topic.id:
                return None
            from penstock.node.coordination.journal import PartitionJournal

            decode = self._kinds[kind].decode
            journal = PartitionJournal(hosted, self._replicas, self._storage, decode, self.skipped)
            runtime.open(partition, journal)
        return runtime

    def _make_runtime(self, kind: CoordinatorKind) -> Runtime:
        known = self._kind(kind)
        alarm = LoopTimer(self._loop)
        self._alarms.append(alarm)
        runtime = self._runtimes[kind] = Runtime(
            TOPICS[kind],
            make_shard=known.make_shard,
            topics=lambda: ImageTopics(self._metadata.image),
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
                made = coordinator_kinds.group_kind(
                    self._settings.groups,
                    lambda: self._metadata.image,
                    lambda: (driver.shard for driver in self._runtimes.get(kind, ())),
                )
            else:
                from penstock.node.coordination.transaction_effects import TransactionEffects

                effects = TransactionEffects(
                    self._replicas,
                    self._producer_ids,
                    self._clock,
                    self.marker_written,
                    lambda: self._metadata.image,
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

    def submit(self, kind: CoordinatorKind, key: str, request: Message, asker: Asker) -> Answer:
        """Send a request to the shard of a key."""
        return self.submit_to(kind, self.partition_of(kind, key), request, asker)

    def submit_to(
        self, kind: CoordinatorKind, partition: int, request: Message, asker: Asker
    ) -> Answer:
        """Send a request to the shard of a partition."""
        runtime = self._open(kind, partition)
        if runtime is None:
            answer: Answer = Deferred()
            answer.set(NotCoordinatorError(f"{TOPICS[kind]}-{partition} is not on this broker"))
            return answer
        # Kafka shows an address as Java does, with a slash in front.
        host = f"/{asker.peer.address}"
        permissions = None if asker.services.access is None else asker
        asked = Asked(request, asker.api_version, asker.client_id or "", host, permissions)
        return runtime.ask(partition, asked)

    async def ask(
        self, kind: CoordinatorKind, key: str, request: Message, asker: Asker
    ) -> Message | PenstockError:
        """Send a request to the shard of a key."""
        return await self._result(self.submit(kind, key, request, asker))

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
