"""The subscriptions of a consumer group, looked up in the cluster's topics.

Names and regular expressions become topic ids; all topics of a group become one number that changes
when any of them does, so that a group need not remember them (Kafka's metadata hash; the numbers
are our own, and are never compared with another broker's). Pure over a `TopicsView`; it keeps
NOTHING.
"""

import hashlib
from collections.abc import Iterable, Mapping
from uuid import UUID

from penstock.coordinator.groups.assignors import (
    GroupSpecification,
    MemberSpecification,
    PartitionSets,
)
from penstock.coordinator.groups.consumer.consumer_group import ResolvedExpression
from penstock.coordinator.groups.consumer.consumer_member import Member
from penstock.coordinator.metadata_view import TopicsView

Expressions = Mapping[str, ResolvedExpression]


def subscribed_names(member: Member, expressions: Expressions) -> frozenset[str]:
    """The topics of a member; an expression that is not resolved matches none."""
    resolved = expressions.get(member.subscribed_regex) if member.subscribed_regex else None
    if resolved is None or not resolved.topics:
        return member.subscribed_names
    return member.subscribed_names | resolved.topics


def subscribed_ids(member: Member, expressions: Expressions, topics: TopicsView) -> frozenset[UUID]:
    """The ids of the member's topics; topics that do not exist are left out."""
    return _ids(subscribed_names(member, expressions), topics)


def metadata_hash(names: Iterable[str], topics: TopicsView) -> int:
    """A number for the ids and partition counts of all these topics; 0 if none exists."""
    digest = hashlib.blake2b(digest_size=8)
    exists = False
    for name in sorted(names):
        topic = topics.by_name(name)
        if topic is not None:
            exists = True
            digest.update(topic.topic_id.bytes)
            digest.update(topic.partition_count.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True) if exists else 0


def specification(
    members: Iterable[Member],
    targets: Mapping[str, PartitionSets],
    expressions: Expressions,
    topics: TopicsView,
) -> GroupSpecification:
    """The group as an assignor sees it. Members with one subscription share one set of ids."""
    cache: dict[tuple[frozenset[str], str], frozenset[UUID]] = {}
    shared: dict[frozenset[UUID], frozenset[UUID]] = {}
    specified: dict[str, MemberSpecification] = {}
    for member in members:
        subscription = (member.subscribed_names, member.subscribed_regex)
        ids = cache.get(subscription)
        if ids is None:
            ids = subscribed_ids(member, expressions, topics)
            ids = cache[subscription] = shared.setdefault(ids, ids)
        specified[member.member_id] = MemberSpecification(
            ids, targets.get(member.member_id, {}), member.instance_id
        )
    counts: dict[UUID, int] = {}
    for topic_id in {topic_id for ids in shared for topic_id in ids}:
        topic = topics.by_id(topic_id)
        assert topic is not None, "ids were looked up in this view"
        counts[topic_id] = topic.partition_count
    return GroupSpecification(specified, counts)


def _ids(names: Iterable[str], topics: TopicsView) -> frozenset[UUID]:
    found = (topics.by_name(name) for name in names)
    return frozenset(topic.topic_id for topic in found if topic is not None)
