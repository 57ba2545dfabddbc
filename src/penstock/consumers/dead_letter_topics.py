"""Dead letters, read without a group: topics with counts, records with their causes.

Letters of consumers and letters of share groups may be in one topic. A topic counts as a
dead-letter topic by its name (`dlq.`); any topic can be read by its name. The position of replays
is the committed offset of the group `dlq.replay.<topic>`: records below it were replayed. For the
letters of one share group it is that of `dlq.replay.<topic>@<share group>`. Records of other
programs have no origin here, and are listed without one.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.client.calls import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from penstock.client.cluster import Cluster
from penstock.client.groups.groups import Groups
from penstock.client.records.positions import AT_OFFSET, Start
from penstock.client.records.topic_reader import ReadRecord, TopicReader
from penstock.consumers.consumer_record import Headers
from penstock.consumers.delivery.dead_letters import Origin, application_headers, read_origin
from penstock.consumers.delivery.share_letters import read_share_origin, record_headers
from penstock.consumers.errors import ConsumerError
from penstock.core.types import TopicPartition

TOPIC_PREFIX: Final = "dlq."
REPLAY_PREFIX: Final = "dlq.replay."
_TOPIC_NAME: Final = re.compile(r"(?!\.\.?$)[a-zA-Z0-9._-]{1,249}")


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
    is_of_share_group: bool = False

    @property
    def has_copy(self) -> bool:
        """Whether the letter has the record itself; otherwise a replay reads the original topic."""
        is_empty = self.record.key is None and self.record.value is None
        return not (self.is_of_share_group and is_empty)

    @property
    def headers(self) -> Headers:
        """The headers of the original record."""
        if self.is_of_share_group:
            return record_headers(tuple(self.record.headers))
        return application_headers(tuple(self.record.headers))


def letter_of(record: ReadRecord) -> DeadLetter:
    """Return a record of a dead-letter topic as a letter."""
    headers = tuple(record.headers)
    origin = read_share_origin(headers, record.timestamp_ms)
    is_of_share_group = origin is not None
    if origin is None:
        origin = read_origin(headers)
    if origin is not None and not _TOPIC_NAME.fullmatch(origin.topic):
        return DeadLetter(record, None)  # no broker has such a topic: the letter is forged
    return DeadLetter(record, origin, is_of_share_group)


def replay_group(topic: str, share_group: str | None = None) -> str:
    """Return the group (and transactional id) of replays of a topic, or of one group's letters."""
    return REPLAY_PREFIX + topic + ("" if share_group is None else f"@{share_group}")


def list_topics(cluster: Cluster, prefix: str = TOPIC_PREFIX) -> list[DeadLetterTopic]:
    """Return the dead-letter topics, by name."""
    names = sorted(
        topic.name for topic in cluster.all_topics() if topic.name and topic.name.startswith(prefix)
    )
    return [count_letters(cluster, name) for name in names]


def count_letters(cluster: Cluster, name: str, share_group: str | None = None) -> DeadLetterTopic:
    """Return a topic with its counts; the positions are those of one share group's replays."""
    places = cluster.partitions_of(name)
    starts = cluster.find_offsets(dict.fromkeys(places, EARLIEST_TIMESTAMP))
    ends = cluster.find_offsets(dict.fromkeys(places, LATEST_TIMESTAMP))
    positions = replay_positions(cluster, name, share_group)
    waiting = sum(ends[at] - min(ends[at], max(starts[at], positions.get(at, 0))) for at in places)
    kept = sum(ends[at] - starts[at] for at in places)
    return DeadLetterTopic(name, len(places), waiting, kept - waiting)


def replay_positions(
    cluster: Cluster, topic: str, share_group: str | None = None
) -> Mapping[TopicPartition, int]:
    """Return the offsets at which the next replay begins; partitions without one are absent."""
    committed = Groups(cluster).committed(replay_group(topic, share_group))
    return {at: one.offset for at, one in committed.items() if at.topic == topic}


def read_dead_letters(
    cluster: Cluster,
    topic: str,
    *,
    partition: int | None = None,
    is_all: bool = False,
    share_group: str | None = None,
) -> Iterator[DeadLetter]:
    """Return the records that wait for a replay, or all; by partition and offset.

    With a share group, only its letters.
    """
    positions = {} if is_all else replay_positions(cluster, topic, share_group)
    for at in cluster.partitions_of(topic, () if partition is None else (partition,)):
        start = Start(AT_OFFSET, positions.get(at, 0))
        for record in TopicReader(cluster, [at], start).records():
            letter = letter_of(record)
            if share_group is None or _is_of(letter, share_group):
                yield letter


def _is_of(letter: DeadLetter, share_group: str) -> bool:
    origin = letter.origin
    return letter.is_of_share_group and origin is not None and origin.group == share_group


def read_dead_letter(cluster: Cluster, at: TopicPartition, offset: int) -> DeadLetter:
    """Return one record; raise if the topic has none at this offset."""
    cluster.partitions_of(at.topic, (at.partition,))
    for record in TopicReader(cluster, [at], Start(AT_OFFSET, offset)).records():
        if record.offset == offset:
            return letter_of(record)
        break
    raise ConsumerError(
        f"{at} has no record at offset {offset}.",
        hint=f"`penstock dlq list {at.topic} --all` lists the records.",
    )
