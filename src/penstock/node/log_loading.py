"""Assigns the logs of a data directory to topics, at start.

Metadata has the topics, the directory has the logs. Normally they agree. Where they do not:

- a topic whose log is missing gets an empty one (it was created just before a crash); if it had
  durable records, it was removed from outside, and that is reported;
- a log whose topic is unknown, or was deleted and created anew under the same name, is set aside
  under a name that is never loaded and never deleted, and reported: it may be the only copy of its
  records;
- a directory without metadata of ours, such as one that Apache Kafka wrote, has its topics adopted:
  names, ids and number of partitions are taken from the logs, settings are the defaults. It is
  unknown whether such a log was compacted, so offsets may be missing in it, then and ever after.
"""

import asyncio
import logging
import threading
from collections.abc import Iterable, Mapping
from uuid import UUID, uuid4

from penstock.cluster.configs.topic_configs import usable_topic_settings
from penstock.cluster.image import NO_SETTINGS, MetadataImage, PartitionImage, TopicImage
from penstock.core.errors import LogDirectoryOfflineError
from penstock.core.types import TopicPartition
from penstock.replication.topic_conversion import log_settings
from penstock.storage.disk.filesystem import RETRIABLE_ERRNOS
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log_manager import LogManager

logger = logging.getLogger(__name__)


class _GivenUpError(Exception):
    """The start was cancelled while logs were loaded."""


async def load_logs(manager: LogManager, image: MetadataImage, defaults: Mapping[str, str]) -> None:
    """Load every log with the settings of its topic, and log the problems.

    It runs on a thread: after a crash this may take minutes, and signals must be handled meanwhile.
    A cancelled load ends after the current log.
    """
    is_given_up = threading.Event()

    def settings_for(topic_name: str) -> LogSettings:
        if is_given_up.is_set():
            raise _GivenUpError
        topic = image.topic(topic_name)
        overrides = NO_SETTINGS if topic is None else topic.settings
        is_adopted = topic is None or topic.is_adopted
        settings, problems = usable_topic_settings(overrides, defaults)
        for problem in problems:
            logger.warning("a setting of %s is not used: %s", topic_name, problem)
        return log_settings(settings, is_adopted=is_adopted)

    loading = asyncio.get_running_loop().run_in_executor(None, manager.start, settings_for)
    try:
        await asyncio.shield(loading)
    except asyncio.CancelledError:
        is_given_up.set()
        # The caller releases the directory's lock next: the thread must not write after that.
        await asyncio.wait([loading])
        loading.exception()
        raise
    except OSError as error:
        if error.errno in RETRIABLE_ERRNOS:
            raise
        at = error.filename or "the data directory"
        raise LogDirectoryOfflineError(
            f"{at} cannot be read: {error.strerror or error}",
            hint="The disk fails, or is not mounted right: look at the system's log. In a cluster, "
            "an empty data directory on a new disk is filled by the other brokers.",
        ) from error
    for problem in manager.problems:
        level = logging.WARNING if problem.is_served else logging.ERROR
        logger.log(level, "%s: %s", problem.path, problem.message)


def topics_in(manager: LogManager, node_id: int) -> list[TopicImage]:
    """Derive topics from the logs of a directory without metadata."""
    by_topic: dict[str, dict[int, UUID | None]] = {}
    epochs: dict[TopicPartition, int] = {}
    for name, log in manager.logs.items():
        by_topic.setdefault(name.topic, {})[name.partition] = log.topic_id
        epochs[name] = max(0, log.latest_epoch)
    topics = []
    for topic, partitions in sorted(by_topic.items()):
        ids = {topic_id for topic_id in partitions.values() if topic_id is not None}
        topic_id = ids.pop() if ids else uuid4()
        if ids:
            logger.error("logs of %s have several topic ids; only one is served", topic)
        topics.append(
            TopicImage(
                topic,
                topic_id,
                tuple(
                    PartitionImage(
                        (node_id,),
                        node_id,
                        epochs.get(TopicPartition(topic, index), 0),
                        (node_id,),
                        0,
                    )
                    for index in range(max(partitions) + 1)
                ),
                NO_SETTINGS,
                0,
                is_adopted=True,
            )
        )
    return topics


def first_free_producer_id(manager: LogManager) -> int:
    """Return the lowest producer id above all ids in the logs."""
    return 1 + max(
        (max(log.producers.entries, default=-1) for log in manager.logs.values()), default=-1
    )


def settle_differences(
    manager: LogManager, image: MetadataImage, *, node_id: int | None = None
) -> None:
    """Report missing logs, and set aside logs that belong to no topic.

    `node_id`: of a broker in a cluster; logs of partitions that other brokers have are set aside.
    """
    _report_lost(manager, image)
    _set_strays_aside(manager, image, node_id)


def _set_strays_aside(manager: LogManager, image: MetadataImage, node_id: int | None) -> None:
    """Set aside logs that belong to no topic, or not to this broker."""
    strays = list(_strays(manager, image, node_id))
    if strays:
        manager.set_aside(strays)
        for name in strays:
            logger.warning(
                "%s belongs to no topic of this broker: its directory was renamed to end in -stray."
                " "
                "Delete it when you are sure that it is not needed.",
                name,
            )


def _report_lost(manager: LogManager, image: MetadataImage) -> None:
    """Report partitions that start empty although they had records."""
    for name in manager.lost_logs():
        if image.partition(name.topic, name.partition) is not None:
            logger.error("%s had records and its directory is gone: it begins anew, empty.", name)


def _strays(
    manager: LogManager, image: MetadataImage, node_id: int | None
) -> Iterable[TopicPartition]:
    found = {name: log.topic_id for name, log in manager.logs.items()}
    for name, topic_id in {**found, **manager.damaged_logs()}.items():
        topic = image.topic(name.topic)
        if (
            topic is None
            or name.partition >= len(topic.partitions)
            or (topic_id is not None and topic_id != topic.id)
            or (node_id is not None and node_id not in topic.partitions[name.partition].replicas)
        ):
            yield name
