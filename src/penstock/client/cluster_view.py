"""`ClusterView`: a client's knowledge of brokers, topics and leaders, from Metadata (pure).

The blocking and the asyncio cluster both keep their metadata here and decide with it. It is as
accurate as the last answer. When the owner finds an error in it, the owner discards the topics and
fetches them again. It does NOT send requests.
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
    """A partition's leader and its epoch; -1 when there is no leader or it is unknown."""

    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as Metadata describes it."""

    name: str
    topic_id: uuid.UUID | None
    """None from a broker without topic ids (older versions)."""
    is_internal: bool
    partitions: dict[int, PartitionDescription]


class Leader(NamedTuple):
    """The broker that leads a partition, and its leader epoch."""

    address: Address
    leader_epoch: int


class ClusterView:
    """The known metadata of one cluster."""

    def __init__(self) -> None:
        self.brokers: dict[int, Address] = {}
        self.controller_id = -1
        self.cluster_id: str | None = None
        self._topics: dict[str, TopicDescription] = {}
        self._turn = 0
        """How often a broker's metadata proved wrong."""

    def learn(self, response: MetadataResponse) -> None:
        """Store a broker's answer. Topics with an error stay unknown."""
        found = {one.node_id: Address(one.host, one.port) for one in response.brokers}
        # Sort by id, so that the order is the same for every answer. Otherwise the rotation would
        # skip brokers.
        self.brokers = dict(sorted(found.items()))
        self.controller_id = response.controller_id
        self.cluster_id = response.cluster_id
        for topic in response.topics:
            if topic.name is not None and topic.error_code == ErrorCode.NONE:
                self._topics[topic.name] = described(topic)

    def forget_topics(self) -> None:
        """Discard all topics: leaders may be wrong. The next request goes to another broker."""
        self._topics.clear()
        self._turn += 1

    def forget_topic(self, name: str) -> None:
        """Discard a topic that was changed."""
        self._topics.pop(name, None)

    def topic(self, name: str) -> TopicDescription | None:
        """Return a topic, or None if it is unknown."""
        return self._topics.get(name)

    def unknown_topics(self, partitions: Iterable[TopicPartition]) -> list[str]:
        """Return the topics of these partitions whose metadata is not known."""
        return [name for name in {at.topic: None for at in partitions} if name not in self._topics]

    def controller(self) -> Address | None:
        """Return the controller's address, or None if it is unknown."""
        return self.brokers.get(self.controller_id)

    def candidates(self, bootstrap: Iterable[Address]) -> list[Address]:
        """Return the brokers for a general request: known brokers, then the bootstrap addresses.

        The known brokers rotate: a broker that is not up to date would send the same answer again.
        """
        known = list(self.brokers.values())
        first = self._turn % len(known) if known else 0
        return list(dict.fromkeys([*known[first:], *known[:first], *bootstrap]))

    def unreachable(
        self, address: Address, bootstrap: Sequence[Address], error: BrokerUnreachableError
    ) -> BrokerUnreachableError:
        """Return the error for this address; it says if a broker advertised the address.

        The client reaches the bootstrap address, but not the advertised address. This is the most
        frequent setup mistake, and an error that names only the second address does not help to
        find it.
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
        """Return the leader of a partition; raise a retriable error when it is not known now."""
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
    """Return one error for all tried addresses, with the first hint.

    The bootstrap addresses are among them, so an advertised address is not the cause.
    """
    plain = [
        one.unreachable if isinstance(one, AdvertisedAddressError) else one for one in problems
    ]
    hint = next((one.hint for one in plain if one.hint), "")
    return BrokerUnreachableError("; ".join(map(str, plain)), hint=hint)


def described(topic: MetadataResponseTopic) -> TopicDescription:
    """Return the description of a topic without an error."""
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
    """Return the topics of an answer by name; missing topics are absent, other errors are raised.

    A partition without a leader is included, with leader -1.
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
    """Return the first error of a topic or its partitions; NONE when the topic can be used."""
    codes = [topic.error_code, *(part.error_code for part in topic.partitions)]
    problem = next((code for code in codes if code != ErrorCode.NONE), ErrorCode.NONE)
    if problem == ErrorCode.NONE and not topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return problem


def unknown_topic(name: str) -> UnknownTopicOrPartitionError:
    """Return the error for a topic that does not exist."""
    return UnknownTopicOrPartitionError(f"topic {name!r} not found.", topic=name)
