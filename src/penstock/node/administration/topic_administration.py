"""`Topics`: topics are created, changed and deleted in the metadata, then in the logs.

The order matters. Creating, with one broker: the topic is stored first, then its logs are created,
then it is served, then the call returns. When a log cannot be created, the topic is deleted again,
so an error means that the topic does not exist. With several brokers, each opens the logs of its
own replicas when it sees the topic, and the topic stays. Deleting: the topic is removed from the
store first, then it is no longer served, then its logs are renamed, then the call returns. A crash
at any point leaves either a topic whose logs are created at the next start, or logs without a
topic, which the next start sets aside.
"""

import asyncio
import logging
from collections.abc import Sequence
from uuid import UUID

from penstock.cluster.configs.setting_changes import SettingsChange
from penstock.cluster.controller import NewTopic
from penstock.cluster.image import TopicImage
from penstock.cluster.link.partition_moves import PartitionMoves
from penstock.cluster.moves.requested_moves import MoveOutcome, ReplicaMove
from penstock.cluster.service import MetadataService
from penstock.cluster.topic_changes import MorePartitions
from penstock.core.errors import PenstockError, PolicyViolationError, StorageError
from penstock.node.administration.each_change import CHANGES_AT_ONCE, change_each
from penstock.replication.hosting import Hosting

logger = logging.getLogger(__name__)

ROOM_SECONDS = 1.0
"""Time between two attempts to create a log after a lack of disk space."""


class Topics:
    """Creates, changes and deletes topics, logs included."""

    def __init__(self, metadata: MetadataService, hosting: Hosting) -> None:
        self._metadata = metadata
        self._hosting = hosting
        self._defaults = metadata.topic_defaults
        """The defaults that the logs use for settings that topics do not have."""
        self._one_at_a_time = hosting.one_at_a_time
        self._moves = PartitionMoves(metadata)

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
        """Serve a new topic, or remove it and return the error.

        With several brokers a replica without a log is an offline replica, and the topic stays.
        """
        failure = await self._hosting.host(topic)
        if failure is None:
            return topic
        if self._hosting.begin_role is not None:
            logger.error("a replica of %s is not served: %s", topic.name, failure)
            return topic
        self._hosting.without_room.discard(topic.name)
        (deleted,) = await self._metadata.delete_topics([topic.id])
        if isinstance(deleted, TopicImage):
            try:
                await self._hosting.remove(deleted)
            except StorageError:
                # A disk that cannot delete either: the files are set aside at the next start.
                logger.exception("the logs of the topic %s stay on the disk", topic.name)
        return failure

    async def delete(self, topic_ids: Sequence[UUID]) -> list[PenstockError | None]:
        """Return one outcome for each topic, in request order; None is success."""
        async with self._one_at_a_time:
            outcomes = await self._metadata.delete_topics(topic_ids)
            for outcome in outcomes:
                if isinstance(outcome, TopicImage):
                    await self._hosting.remove(outcome)
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

        async def add(one: MorePartitions) -> None:
            known = self._metadata.image.topic(one.name)
            if known is not None and known.mirror is not None:
                raise PolicyViolationError(f"{one.name} is a mirror: it grows with its parent")
            topic = await self._metadata.create_partitions(one, validate_only=validate_only)
            failure = None if validate_only else await self._hosting.host(topic)
            if failure is not None:
                logger.error("a new partition of %s is not served: %s", topic.name, failure)

        async with self._one_at_a_time:
            return await change_each(wanted, add)

    async def change_settings(
        self, changes: Sequence[SettingsChange], *, validate_only: bool
    ) -> list[PenstockError | None]:
        """Return one outcome for each topic; when the call returns, its logs use the settings."""

        async def change(one: SettingsChange) -> None:
            topic = await self._metadata.change_settings(one, validate_only=validate_only)
            if not validate_only:
                self._hosting.follow_settings(topic)

        async with self._one_at_a_time:
            return await change_each(changes, change)

    async def move_replicas(
        self, moves: Sequence[ReplicaMove], *, may_change_factor: bool
    ) -> list[MoveOutcome]:
        """Return one outcome for each partition; each broker opens and removes its own logs."""
        return await self._moves.move(moves, may_change_factor=may_change_factor)

    async def follow_defaults(self) -> None:
        """Apply the present defaults to every topic without its own value."""
        async with self._one_at_a_time:
            defaults = self._metadata.topic_defaults
            if defaults == self._defaults:
                return
            self._defaults = defaults
            for number, topic in enumerate(tuple(self._metadata.image.topics.values()), 1):
                self._hosting.follow_settings(topic)
                if number % CHANGES_AT_ONCE == 0:
                    await asyncio.sleep(0)

    async def host_when_there_is_room(self) -> None:
        """Create the logs that lack disk space, as soon as there is some; until cancelled."""
        while True:
            await asyncio.sleep(ROOM_SECONDS)
            if self._hosting.without_room:
                async with self._one_at_a_time:
                    await self._hosting.host_without_room()
