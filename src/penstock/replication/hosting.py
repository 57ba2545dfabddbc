"""`Hosting`: opens and closes the logs of this broker as metadata changes.

The metadata places partitions on brokers. `host` serves the partitions of a topic that are placed
here and creates missing logs; `remove` ends the service and deletes the logs; `follow_settings`
applies settings to running logs. A log that finds no disk space is created later. It decides
nothing about metadata and does NOT serialize its callers: two calls for one topic must not overlap.
"""

import asyncio
import logging
from dataclasses import replace
from typing import Final
from uuid import UUID

from penstock.cluster.configs.topic_configs import TopicSettings, usable_topic_settings
from penstock.cluster.image import TopicImage
from penstock.cluster.service import MetadataService
from penstock.core.errors import DiskFullError, StorageError
from penstock.core.types import TopicPartition
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
        for index, partition in enumerate(topic.partitions):
            name = TopicPartition(topic.name, index)
            if self._node_id not in partition.replicas or name in self._replicas:
                continue
            try:
                log = self._open(name, topic.id, wanted_settings)
            except StorageError as error:
                self._replicas.refuse(name, error)
                failure = failure or error
                if isinstance(error, DiskFullError):
                    self.without_room.add(topic.name)
                continue
            self._replicas.host(log, topic.id, partition.leader_epoch, rules)
            if index % LOGS_AT_ONCE == LOGS_AT_ONCE - 1:
                await asyncio.sleep(0)
        return failure

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
        """End the service of a topic that the metadata does not have any more."""
        count = len(topic.partitions)
        for start in range(0, count, REMOVED_AT_ONCE):
            indexes = range(start, min(count, start + REMOVED_AT_ONCE))
            names = [TopicPartition(topic.name, index) for index in indexes]
            for name in names:
                self._replicas.drop(name)
            await self._storage.delete_logs(names)
