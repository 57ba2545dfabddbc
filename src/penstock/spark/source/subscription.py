"""A subscription (topics, a pattern, or partitions), and the partitions that it matches (pure).

A pattern matches a topic when it is found anywhere in the name, as in Spark's Kafka source; write
`^orders$` for the whole name. Internal topics are never read. A named topic or partition that does
not exist is an error when a query starts. Later it is a loss, which `data_loss` reports.
"""

import base64
import re
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from penstock.client.cluster_view import TopicDescription
from penstock.core.limits import TOPIC_NAME_CHARACTERS_MAX
from penstock.core.quantities import count_text
from penstock.core.types import TopicPartition
from penstock.spark.errors import SubscriptionError
from penstock.spark.partition_json import partition_names

_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics or partitions to read; exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()

    @property
    def option(self) -> str:
        """The option that defines the subscription."""
        if self.topics:
            return "subscribe"
        return "subscribePattern" if self.pattern else "assign"

    def covers(self, at: TopicPartition) -> bool:
        """Return whether the subscription includes this partition; the partition need not exist."""
        if self.pattern:
            return re.search(self.pattern, at.topic) is not None
        return at.topic in self.topics or at in self.partitions

    @property
    def names(self) -> list[str] | None:
        """The topics to request from the brokers; None requests all of them."""
        if self.pattern:
            return None
        return list(self.topics) or list(dict.fromkeys(at.topic for at in self.partitions))


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitions to read, in order, and the known ids of their topics."""

    partitions: tuple[TopicPartition, ...]
    topic_ids: Mapping[str, str]


def assign(subscription: Subscription, described: Mapping[str, TopicDescription]) -> Assignment:
    """Return the existing partitions of the subscription."""
    topics = [one for one in described.values() if not one.is_internal]
    if subscription.pattern:
        pattern = re.compile(subscription.pattern)
        topics = [one for one in topics if pattern.search(one.name)]
    found = [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]
    if subscription.partitions:
        wanted = set(subscription.partitions)
        found = [at for at in found if at in wanted]
    names = {at.topic for at in found}
    return Assignment(
        tuple(sorted(found)),
        {
            topic.name: topic_id_text(topic.topic_id)
            for topic in topics
            if topic.topic_id is not None and topic.name in names
        },
    )


def require_present(
    subscription: Subscription, described: Mapping[str, TopicDescription], found: Assignment
) -> None:
    """Reject a query that names missing topics or partitions."""
    names = subscription.names or []
    missing = [name for name in names if name not in described]
    if missing:
        named = ", ".join(f"'{name}'" for name in missing)
        raise SubscriptionError(
            subscription.option,
            f"there is no topic {named}.",
            f"Create {'it' if len(missing) == 1 else 'them'}, or correct the name.",
            missing,
        )
    internal = [name for name in names if described[name].is_internal]
    if internal:
        raise SubscriptionError(
            subscription.option,
            f"{', '.join(internal)} is internal to the brokers and is not read.",
            "Take it out.",
        )
    absent = set(subscription.partitions) - set(found.partitions)
    if absent:
        topic = min(absent).topic
        count = len(described[topic].partitions)
        raise SubscriptionError(
            "assign",
            f"there is no partition {partition_names(absent)}. {topic} has "
            f"{count_text(count, 'partition')}, numbered from 0.",
            "Correct the list.",
        )


def closest_topics(error: SubscriptionError, there: Collection[str]) -> SubscriptionError:
    """Return the error with a hint that names similar topics; the same error without a match."""
    close = [
        found[0]
        for name in error.missing
        if (found := get_close_matches(name, there, n=1, cutoff=0.6))
    ]
    if not close:
        return error
    meant = " and ".join(f"'{name}'" for name in dict.fromkeys(close))
    remedy = f"Did you mean {meant}? {error.remedy}"
    return SubscriptionError(error.option, error.problem, remedy, error.missing)


def is_topic_name(name: str) -> bool:
    """Return whether Kafka allows this topic name."""
    is_short = len(name) <= TOPIC_NAME_CHARACTERS_MAX
    return is_short and name not in {".", ".."} and _TOPIC_NAME.fullmatch(name) is not None


def topic_id_text(topic_id: uuid.UUID) -> str:
    """Return a topic's id as Kafka's tools write it: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def topic_id_from(text: str) -> uuid.UUID:
    """Return the topic id that `topic_id_text` encoded."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
