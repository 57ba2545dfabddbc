"""`ClusterView`: what a client knows of brokers, topics and leaders, as Metadata told it (pure).

Both clusters, the blocking and the asyncio one, keep what they know here and decide with it. It is
as true as the last answer: who finds that it is not forgets the topics and learns again. It does
NOT ask anybody.
"""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.client.transport.addresses import Address
from penstock.client.transport.call import raise_error
from penstock.core.errors import (
    AdvertisedAddressError,
    BrokerUnreachableError,
    UnknownTopicOrPartitionError,
)
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic


class PartitionDescription(NamedTuple):
    """Who leads a partition, and since which epoch; -1 when nobody does or it is not told."""

    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as Metadata describes it."""

    name: str
    topic_id: uuid.UUID | None
    """None from a broker that is older than topic ids."""
    is_internal: bool
    partitions: dict[int, PartitionDescription]


class Leader(NamedTuple):
    """The broker that leads a partition, and the epoch in which it does."""

    address: Address
    leader_epoch: int


class ClusterView:
    """What is known of one cluster."""

    def __init__(self) -> None:
        self.brokers: dict[int, Address] = {}
        self.controller_id = -1
        self.cluster_id: str | None = None
        self._topics: dict[str, TopicDescription] = {}
        self._turn = 0
        """How often what a broker had told proved wrong."""

    def learn(self, response: MetadataResponse) -> None:
        """Take over what a broker answered. Topics that it has trouble with stay unknown."""
        found = {one.node_id: Address(one.host, one.port) for one in response.brokers}
        # In one order, whoever answers: taking turns would else miss some of them.
        self.brokers = dict(sorted(found.items()))
        self.controller_id = response.controller_id
        self.cluster_id = response.cluster_id
        for topic in response.topics:
            if topic.name is not None and topic.error_code == ErrorCode.NONE:
                self._topics[topic.name] = described(topic)

    def forget_topics(self) -> None:
        """What was known of leaders may be wrong; the next to be asked is another broker."""
        self._topics.clear()
        self._turn += 1

    def forget_topic(self, name: str) -> None:
        """This topic was changed."""
        self._topics.pop(name, None)

    def topic(self, name: str) -> TopicDescription | None:
        """A topic, if it is known."""
        return self._topics.get(name)

    def unknown_topics(self, partitions: Iterable[TopicPartition]) -> list[str]:
        """The topics of these partitions that must be learnt first."""
        return [name for name in {at.topic: None for at in partitions} if name not in self._topics]

    def controller(self) -> Address | None:
        """The controller's address, if it is known."""
        return self.brokers.get(self.controller_id)

    def candidates(self, bootstrap: Iterable[Address]) -> list[Address]:
        """Whom to ask what everybody knows: those known, then the bootstrap addresses.

        The known ones take turns: a broker that has not caught up would say the same again.
        """
        known = list(self.brokers.values())
        first = self._turn % len(known) if known else 0
        return list(dict.fromkeys([*known[first:], *known[:first], *bootstrap]))

    def unreachable(
        self, address: Address, bootstrap: Sequence[Address], error: BrokerUnreachableError
    ) -> BrokerUnreachableError:
        """Return the error for this address, which says so when a broker named the address.

        A client reaches the bootstrap address and is sent to one that it cannot reach: the most
        frequent mistake of a setup, and nobody finds it who is told of the second address only.
        """
        broker_id = next((id_ for id_, known in self.brokers.items() if known == address), None)
        if broker_id is None or address in bootstrap:
            return error
        asked = ",".join(map(str, bootstrap))
        return AdvertisedAddressError(
            f"{error} The cluster at {asked} advertises this address for broker {broker_id}.",
            hint=f"Correct the advertised address of the broker: "
            f"`penstock doctor --bootstrap-server {asked}` checks it.",
            unreachable=error,
        )

    def leader(self, at: TopicPartition) -> Leader:
        """Who leads a partition; an error that is worth repeating when that is not known now."""
        topic = self._topics.get(at.topic)
        partition = None if topic is None else topic.partitions.get(at.partition)
        if topic is not None and partition is None:
            raise UnknownTopicOrPartitionError(f"partition {at} not found.")
        address = None if partition is None else self.brokers.get(partition.leader_id)
        if partition is None or address is None:
            raise_error(ErrorCode.LEADER_NOT_AVAILABLE, None, str(at))
            raise AssertionError("unreachable")
        return Leader(address, partition.leader_epoch)


def join_unreachable(problems: Sequence[BrokerUnreachableError]) -> BrokerUnreachableError:
    """Return one error for all addresses that were tried, with the first hint that there is.

    The bootstrap addresses are among them, so an advertised address is not to blame.
    """
    plain = [
        one.unreachable if isinstance(one, AdvertisedAddressError) else one for one in problems
    ]
    hint = next((one.hint for one in plain if one.hint), "")
    return BrokerUnreachableError("; ".join(map(str, plain)), hint=hint)


def described(topic: MetadataResponseTopic) -> TopicDescription:
    """The description of a topic that has no error."""
    assert topic.name is not None
    return TopicDescription(
        topic.name,
        topic.topic_id,
        topic.is_internal,
        {
            part.partition_index: PartitionDescription(part.leader_id, part.leader_epoch)
            for part in sorted(topic.partitions, key=lambda part: part.partition_index)
        },
    )


def present_topics(response: MetadataResponse) -> dict[str, TopicDescription]:
    """The topics of an answer by name; one that does not exist is absent, other errors are raised.

    A partition without a leader is in it, with leader -1.
    """
    found: dict[str, TopicDescription] = {}
    for topic in response.topics:
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        raise_error(topic.error_code, None, topic.name or "a topic")
        if topic.name is not None:
            found[topic.name] = described(topic)
    return dict(sorted(found.items()))


def check_topics(response: MetadataResponse) -> None:
    """Raise the first error of a topic in an answer."""
    for topic in response.topics:
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise unknown_topic(topic.name or "")
        raise_error(topic.error_code, None, topic.name or "a topic")


def topic_problem(topic: MetadataResponseTopic) -> ErrorCode:
    """The first reason why a topic cannot be used as a whole; NONE when it can."""
    codes = [topic.error_code, *(part.error_code for part in topic.partitions)]
    problem = next((code for code in codes if code != ErrorCode.NONE), ErrorCode.NONE)
    if problem == ErrorCode.NONE and not topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return problem


def unknown_topic(name: str) -> UnknownTopicOrPartitionError:
    """Return the error for a topic that does not exist."""
    return UnknownTopicOrPartitionError(f"topic {name!r} not found.", topic=name)
