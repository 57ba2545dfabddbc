"""`TopicAdministration`: metadata decides which partitions exist; this creates and deletes logs.

The order matters. Creating: the topic is stored first, then its logs are created, then it is
served, then the call returns. When a log cannot be created, the topic is deleted again, so an error
means that the topic does not exist. Deleting: the topic is removed from the store first, then it is
no longer served, then its logs are renamed, then the call returns. A crash at any point leaves
either a topic whose logs are created at the next start, or logs without a topic, which the next
start sets aside.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from penstock.cluster.configs.setting_changes import SettingsChange
from penstock.cluster.configs.topic_configs import TopicSettings, usable_topic_settings
from penstock.cluster.controller import NewTopic
from penstock.cluster.image import TopicImage
from penstock.cluster.service import MetadataService
from penstock.cluster.topic_changes import MorePartitions
from penstock.core.errors import DiskFullError, PenstockError, StorageError
from penstock.core.types import TopicPartition
from penstock.node.topic_conversion import log_settings, produce_rules
from penstock.replication.manager import ReplicaManager
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.service import StorageService

logger = logging.getLogger(__name__)

LOGS_AT_ONCE: Final = 8
"""Logs created before other tasks get a turn: about a millisecond each, in system calls."""
CHANGES_AT_ONCE: Final = 20
"""Changes of settings handled before other connections get a turn: about 5 ms of work. Rejected
changes never wait, and one request may name twenty thousand topics."""
ROOM_SECONDS = 1.0
"""Time between two attempts to create a log after a lack of disk space."""


class Topics:
    """Creates, changes and deletes topics, logs included."""

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
        self._defaults = metadata.topic_defaults
        """The defaults that the logs use for settings that topics do not have."""
        self._one_at_a_time = asyncio.Lock()
        self._without_room: set[str] = set()
        """Topics with a log that lacks disk space; the metadata has them already."""

    async def create(
        self, topics: Sequence[NewTopic], *, validate_only: bool
    ) -> list[TopicImage | PenstockError]:
        """Return one outcome for each topic, in request order."""
        async with self._one_at_a_time:
            outcomes = await self._metadata.create_topics(topics, validate_only=validate_only)
            if validate_only:
                return outcomes
            return [
                await self._serve(outcome) if isinstance(outcome, TopicImage) else outcome
                for outcome in outcomes
            ]

    async def _serve(self, topic: TopicImage) -> TopicImage | PenstockError:
        """Serve a new topic, or remove it and return the error."""
        failure = await self._host(topic)
        if failure is None:
            return topic
        self._without_room.discard(topic.name)
        (deleted,) = await self._metadata.delete_topics([topic.id])
        if isinstance(deleted, TopicImage):
            try:
                await self._remove(deleted)
            except StorageError:
                # A disk that cannot delete either: the files are set aside at the next start.
                logger.exception("what was made of the topic %s stays on the disk", topic.name)
        return failure

    async def delete(self, topic_ids: Sequence[UUID]) -> list[PenstockError | None]:
        """Return one outcome for each topic, in request order; None is success."""
        async with self._one_at_a_time:
            outcomes = await self._metadata.delete_topics(topic_ids)
            for outcome in outcomes:
                if isinstance(outcome, TopicImage):
                    await self._remove(outcome)
            return [None if isinstance(o, TopicImage) else o for o in outcomes]

    async def add_partitions(
        self, wanted: Sequence[MorePartitions], *, validate_only: bool
    ) -> list[PenstockError | None]:
        """Return one outcome for each topic, in request order; None is success.

        A new partition whose log cannot be created exists anyway, because partitions cannot be
        removed, and the client gets a success, as in Kafka. This broker logs the error, and returns
        it to every request for that partition. Without disk space, the log is created when there is
        space; after any other error, at the next start at the latest.
        """
        outcomes: list[PenstockError | None] = []
        async with self._one_at_a_time:
            for number, one in enumerate(wanted, 1):
                if number % CHANGES_AT_ONCE == 0:
                    await asyncio.sleep(0)
                try:
                    topic = await self._metadata.create_partitions(one, validate_only=validate_only)
                except PenstockError as error:
                    outcomes.append(error)
                    continue
                if not validate_only:
                    failure = await self._host(topic)
                    if failure is not None:
                        logger.error("a new partition of %s is not served: %s", topic.name, failure)
                outcomes.append(None)
        return outcomes

    async def change_settings(
        self, changes: Sequence[SettingsChange], *, validate_only: bool
    ) -> list[PenstockError | None]:
        """Return one outcome for each topic; when the call returns, its logs use the settings."""
        outcomes: list[PenstockError | None] = []
        async with self._one_at_a_time:
            for number, change in enumerate(changes, 1):
                if number % CHANGES_AT_ONCE == 0:
                    await asyncio.sleep(0)
                try:
                    topic = await self._metadata.change_settings(
                        change, validate_only=validate_only
                    )
                except PenstockError as error:
                    outcomes.append(error)
                    continue
                if not validate_only:
                    self._follow_settings(topic)
                outcomes.append(None)
        return outcomes

    async def follow_defaults(self) -> None:
        """Apply the present defaults to every topic without its own value."""
        async with self._one_at_a_time:
            defaults = self._metadata.topic_defaults
            if defaults == self._defaults:
                return
            self._defaults = defaults
            for number, topic in enumerate(tuple(self._metadata.image.topics.values()), 1):
                self._follow_settings(topic)
                if number % CHANGES_AT_ONCE == 0:
                    await asyncio.sleep(0)

    def _follow_settings(self, topic: TopicImage) -> None:
        """Apply the settings of a topic to its running logs."""
        settings = self._settings(topic)
        rules = produce_rules(settings)
        wanted = log_settings(settings, is_adopted=topic.is_adopted)
        for index in range(len(topic.partitions)):
            partition = self._replicas.find(topic.name, index)
            if partition is not None:
                partition.rules = rules
                # Gaps of compaction stay, independent of the present policy.
                had_gaps = partition.log.settings.is_compacted
                partition.log.settings = replace(
                    wanted, is_compacted=wanted.is_compacted or had_gaps
                )

    def _settings(self, topic: TopicImage) -> TopicSettings:
        """Return the valid settings of a topic: invalid stored settings must not stop a broker."""
        settings, problems = usable_topic_settings(topic.settings, self._metadata.topic_defaults)
        for problem in problems:
            logger.warning("a setting of %s is not used: %s", topic.name, problem)
        return settings

    async def host_all(self) -> None:
        """Serve every partition that the metadata places here."""
        for topic in self._metadata.image.topics.values():
            await self._host(topic)

    async def host_when_there_is_room(self) -> None:
        """Create the logs that lack disk space, as soon as there is some; until cancelled."""
        while True:
            await asyncio.sleep(ROOM_SECONDS)
            if self._without_room:
                names, self._without_room = self._without_room, set()
                async with self._one_at_a_time:
                    for name in names:
                        topic = self._metadata.image.topic(name)
                        if topic is not None:
                            await self._host(topic)

    async def _host(self, topic: TopicImage) -> StorageError | None:
        """Serve the partitions of `topic` that are placed here, creating missing logs.

        Return the error of the first partition that cannot be served, if there is one.
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
                    self._without_room.add(topic.name)
                continue
            self._replicas.host(log, topic.id, partition.leader_epoch, rules)
            if index % LOGS_AT_ONCE == LOGS_AT_ONCE - 1:
                await asyncio.sleep(0)
        return failure

    def _open(self, name: TopicPartition, topic_id: UUID, settings: LogSettings) -> PartitionLog:
        manager = self._storage.manager
        return manager.get_log(name) or manager.create_log(name, topic_id, settings)

    async def _remove(self, topic: TopicImage) -> None:
        names = [TopicPartition(topic.name, index) for index in range(len(topic.partitions))]
        for name in names:
            self._replicas.drop(name)
        await self._storage.delete_logs(names)
