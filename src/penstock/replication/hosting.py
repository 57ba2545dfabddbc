"""`Hosting`: opens and closes the logs of this broker as metadata changes.

The metadata places partitions on brokers. `host` serves the partitions of a topic that are placed
here and creates missing logs; `remove` ends the service and deletes the logs; `follow_settings`
applies settings to running logs. A log that finds no disk space is created later. It decides
nothing about metadata and does NOT serialize its callers: two calls for one topic must not overlap.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final
from uuid import UUID

from penstock.cluster.configs.topic_configs import TopicSettings, usable_topic_settings
from penstock.cluster.image import TopicImage
from penstock.cluster.service import MetadataService
from penstock.core.errors import DiskFullError, StorageError
from penstock.core.types import TopicPartition
from penstock.records.validation import ProduceRules
from penstock.replication.manager import ReplicaManager
from penstock.replication.topic_conversion import log_settings, produce_rules
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.service import StorageService

logger = logging.getLogger(__name__)

LOGS_AT_ONCE: Final = 2
"""Logs created before other tasks get their turn: about a millisecond each, in system calls."""
REMOVED_AT_ONCE: Final = 256
"""Partitions taken out of service in one turn of the event loop: about a millisecond. 5,000 at once
took 24 ms."""


BeginRole = Callable[[PartitionLog, TopicImage, int, ProduceRules], None]
"""Serves one partition of a topic; raises `StorageError` if its log does not fit the metadata."""


class Hosting:
    """The partitions of this broker."""

    def __init__(
        self,
        node_id: int,
        metadata: MetadataService,
        storage: StorageService,
        replicas: ReplicaManager,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._storage = storage
        self._replicas = replicas
        self.without_room: set[str] = set()
        """Topics with a log that found no disk space; the metadata has them already."""
        self.one_at_a_time = asyncio.Lock()
        """Held by callers: two calls for one topic must not overlap."""
        self.begin_role: BeginRole | None = None
        """Serves an opened log in the role that the metadata gives it. None: there is one broker,
        and it leads."""

    async def host_all(self) -> None:
        """Serve every partition that the metadata places here."""
        for topic in self._metadata.image.topics.values():
            await self.host(topic)

    async def host_without_room(self) -> None:
        """Create the logs that found no disk space before."""
        names, self.without_room = self.without_room, set()
        for name in names:
            topic = self._metadata.image.topic(name)
            if topic is not None:
                await self.host(topic)

    async def host(self, topic: TopicImage) -> StorageError | None:
        """Serve the partitions of `topic` that are placed here, creating missing logs.

        Returns the error of the first that cannot be served, if there is one.
        """
        settings = self._settings(topic)
        rules = produce_rules(settings)
        wanted_settings = log_settings(settings, is_adopted=topic.is_adopted)
        failure: StorageError | None = None
        await self._remove_former(topic)
        for index, partition in enumerate(topic.partitions):
            name = TopicPartition(topic.name, index)
            if self._node_id not in partition.replicas or name in self._replicas:
                continue
            try:
                log = self._open(name, topic.id, wanted_settings)
                self._serve(log, topic, index, rules)
            except StorageError as error:
                self._replicas.refuse(name, error)
                failure = failure or error
                if isinstance(error, DiskFullError):
                    self.without_room.add(topic.name)
                continue
            if index % LOGS_AT_ONCE == LOGS_AT_ONCE - 1:
                await asyncio.sleep(0)
        return failure

    async def _remove_former(self, topic: TopicImage) -> None:
        """Remove logs of a deleted topic that had the same name."""
        logs = self._storage.manager.logs
        names = [TopicPartition(topic.name, index) for index in range(len(topic.partitions))]
        former = [name for name in names if self._is_of_another(logs.get(name), topic)]
        if former:
            for name in former:
                self._replicas.drop(name)
            await self._storage.delete_logs(former)

    @staticmethod
    def _is_of_another(log: PartitionLog | None, topic: TopicImage) -> bool:
        return log is not None and log.topic_id not in (None, topic.id)

    def _serve(self, log: PartitionLog, topic: TopicImage, index: int, rules: ProduceRules) -> None:
        if self.begin_role is not None:
            self.begin_role(log, topic, index, rules)
        else:
            epoch = topic.partitions[index].leader_epoch
            hosted = self._replicas.host(log, topic.id, epoch, rules)
            hosted.mark_mirror(is_mirror=topic.mirror is not None)

    def _open(self, name: TopicPartition, topic_id: UUID, settings: LogSettings) -> PartitionLog:
        manager = self._storage.manager
        return manager.get_log(name) or manager.create_log(name, topic_id, settings)

    def follow_settings(self, topic: TopicImage) -> None:
        """Apply the settings of a topic to its running logs."""
        settings = self._settings(topic)
        rules = produce_rules(settings)
        wanted = log_settings(settings, is_adopted=topic.is_adopted)
        for index in range(len(topic.partitions)):
            partition = self._replicas.find(topic.name, index)
            if partition is not None:
                partition.rules = rules
                # Gaps of compaction stay, whatever the policy is now.
                had_gaps = partition.log.settings.is_compacted
                partition.log.settings = replace(
                    wanted, is_compacted=wanted.is_compacted or had_gaps
                )

    def _settings(self, topic: TopicImage) -> TopicSettings:
        """The valid part of a topic's settings: stored settings must not stop a broker."""
        settings, problems = usable_topic_settings(topic.settings, self._metadata.topic_defaults)
        for problem in problems:
            logger.warning("a setting of %s is not used: %s", topic.name, problem)
        return settings

    async def remove(self, topic: TopicImage) -> None:
        """End the service of a topic that the metadata does not have any more.

        A new topic of the same name keeps its logs.
        """
        count, logs = len(topic.partitions), self._storage.manager.logs
        for start in range(0, count, REMOVED_AT_ONCE):
            indexes = range(start, min(count, start + REMOVED_AT_ONCE))
            names = [TopicPartition(topic.name, index) for index in indexes]
            names = [name for name in names if not self._is_of_another(logs.get(name), topic)]
            for name in names:
                self._replicas.drop(name)
            await self._storage.delete_logs(names)

    async def remove_moved(self, topic: TopicImage) -> None:
        """Remove the logs of partitions that the metadata places on other brokers."""
        logs = self._storage.manager.logs
        names = [
            TopicPartition(topic.name, index)
            for index, partition in enumerate(topic.partitions)
            if self._node_id not in partition.replicas
        ]
        moved = [name for name in names if name in logs and name not in self._replicas]
        if moved:
            await self._storage.delete_logs(moved)
