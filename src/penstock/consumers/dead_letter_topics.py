"""Dead letters of consumers, read without a group: topics with counts, records with their causes.

A topic counts as a dead-letter topic by its name (`dlq.`); any topic can be read by its name. The
position of replays is the committed offset of the group `dlq.replay.<topic>`: records below it were
replayed. Records of other programs have no origin here, and are listed without one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.client.calls import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from penstock.client.cluster import Cluster
from penstock.client.groups.groups import Groups
from penstock.client.records.positions import AT_OFFSET, Start
from penstock.client.records.topic_reader import ReadRecord, TopicReader
from penstock.consumers.delivery.dead_letters import Origin, read_origin
from penstock.consumers.errors import ConsumerError
from penstock.core.types import TopicPartition

TOPIC_PREFIX: Final = "dlq."
REPLAY_PREFIX: Final = "dlq.replay."


@dataclass(frozen=True, slots=True)
class DeadLetterTopic:
    """A dead-letter topic with its counts of offsets."""

    name: str
    partitions: int
    waiting: int
    """Offsets above the position of replays."""
    replayed: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record of a dead-letter topic with its origin; None for a record of another program."""

    record: ReadRecord
    origin: Origin | None


def replay_group(topic: str) -> str:
    """Return the group (and transactional id) of replays of a topic."""
    return REPLAY_PREFIX + topic


def list_topics(cluster: Cluster, prefix: str = TOPIC_PREFIX) -> list[DeadLetterTopic]:
    """Return the dead-letter topics, by name."""
    names = sorted(
        topic.name for topic in cluster.all_topics() if topic.name and topic.name.startswith(prefix)
    )
    return [_counted(cluster, name) for name in names]


def _counted(cluster: Cluster, name: str) -> DeadLetterTopic:
    places = cluster.partitions_of(name)
    starts = cluster.find_offsets(dict.fromkeys(places, EARLIEST_TIMESTAMP))
    ends = cluster.find_offsets(dict.fromkeys(places, LATEST_TIMESTAMP))
    positions = replay_positions(cluster, name)
    waiting = sum(ends[at] - min(ends[at], max(starts[at], positions.get(at, 0))) for at in places)
    kept = sum(ends[at] - starts[at] for at in places)
    return DeadLetterTopic(name, len(places), waiting, kept - waiting)


def replay_positions(cluster: Cluster, topic: str) -> Mapping[TopicPartition, int]:
    """Return the offsets at which the next replay begins; partitions without one are absent."""
    committed = Groups(cluster).committed(replay_group(topic))
    return {at: one.offset for at, one in committed.items() if at.topic == topic}


def read_dead_letters(
    cluster: Cluster, topic: str, *, partition: int | None = None, is_all: bool = False
) -> Iterator[DeadLetter]:
    """Return the records that wait for a replay, or all; by partition and offset."""
    positions = {} if is_all else replay_positions(cluster, topic)
    for at in cluster.partitions_of(topic, () if partition is None else (partition,)):
        start = Start(AT_OFFSET, positions.get(at, 0))
        for record in TopicReader(cluster, [at], start).records():
            yield DeadLetter(record, read_origin(tuple(record.headers)))


def read_dead_letter(cluster: Cluster, at: TopicPartition, offset: int) -> DeadLetter:
    """Return one record; raise if the topic has none at this offset."""
    cluster.partitions_of(at.topic, (at.partition,))
    for record in TopicReader(cluster, [at], Start(AT_OFFSET, offset)).records():
        if record.offset == offset:
            return DeadLetter(record, read_origin(tuple(record.headers)))
        break
    raise ConsumerError(
        f"{at} has no record at offset {offset}.",
        hint=f"`penstock dlq list {at.topic} --all` lists the records.",
    )
