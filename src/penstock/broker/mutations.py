"""`Mutations`: topics are created, grown and deleted as far as the client's quota allows (KIP-599).

Invalid topics are rejected first and cost nothing, as in Kafka; valid ones are charged by their
partitions. A client that knows the error gets THROTTLING_QUOTA_EXCEEDED for topics above the quota,
and the rest is done; for an older one everything is done and it waits afterwards. While no quota is
set, the calls go through unchanged.
"""

from collections.abc import Sequence
from typing import Final, TypeVar
from uuid import UUID

from penstock.broker.context import RequestContext
from penstock.cluster.controller import NewTopic
from penstock.cluster.image import TopicImage
from penstock.cluster.topic_changes import MorePartitions
from penstock.core.errors import PenstockError, ThrottledError

ALWAYS_STRICT: Final = 0

Asked = TypeVar("Asked")
Outcome = TypeVar("Outcome")


class Mutations:
    """The changes of one request."""

    def __init__(self, context: RequestContext, strict_version: int) -> None:
        """Requests of a lower version than `strict_version` are never refused."""
        self._topics = context.services.topics
        self._image = context.services.metadata.image
        self._meter = context.meter
        self._is_strict = context.api_version >= strict_version

    async def create(
        self, topics: Sequence[NewTopic], *, validate_only: bool
    ) -> list[TopicImage | PenstockError]:
        """As `TopicAdministration.create`."""
        if self._meter is None:
            return await self._topics.create(topics, validate_only=validate_only)
        checked = await self._topics.create(topics, validate_only=True)
        outcomes = [
            (self._refusal(len(outcome.partitions)) or outcome)
            if isinstance(outcome, TopicImage)
            else outcome
            for outcome in checked
        ]
        allowed = [isinstance(outcome, TopicImage) for outcome in outcomes]
        if validate_only or not any(allowed):
            return outcomes
        made = await self._topics.create(_chosen(topics, allowed), validate_only=False)
        return _merged(outcomes, allowed, made)

    async def add_partitions(
        self, wanted: Sequence[MorePartitions], *, validate_only: bool
    ) -> list[PenstockError | None]:
        """As `TopicAdministration.add_partitions`."""
        if self._meter is None:
            return await self._topics.add_partitions(wanted, validate_only=validate_only)
        checked = await self._topics.add_partitions(wanted, validate_only=True)
        outcomes = [
            self._refusal(one.count - self._partition_count(one.name))
            if outcome is None
            else outcome
            for one, outcome in zip(wanted, checked, strict=True)
        ]
        allowed = [outcome is None for outcome in outcomes]
        if validate_only or not any(allowed):
            return outcomes
        done = await self._topics.add_partitions(_chosen(wanted, allowed), validate_only=False)
        return _merged(outcomes, allowed, done)

    async def delete(self, topic_ids: Sequence[UUID]) -> list[PenstockError | None]:
        """As `TopicAdministration.delete`."""
        if self._meter is None:
            return await self._topics.delete(topic_ids)
        outcomes: list[PenstockError | None] = []
        for topic_id in topic_ids:
            topic = self._image.topic_by_id(topic_id)
            outcomes.append(None if topic is None else self._refusal(len(topic.partitions)))
        allowed = [outcome is None for outcome in outcomes]
        if not any(allowed):
            return outcomes
        done = await self._topics.delete(_chosen(topic_ids, allowed))
        return _merged(outcomes, allowed, done)

    def _partition_count(self, name: str) -> int:
        topic = self._image.topic(name)
        return 0 if topic is None else len(topic.partitions)

    def _refusal(self, partitions: int) -> ThrottledError | None:
        assert self._meter is not None
        try:
            self._meter.charge_mutations(partitions, strict=self._is_strict)
        except ThrottledError as error:
            return error
        return None


def _chosen(asked: Sequence[Asked], allowed: Sequence[bool]) -> list[Asked]:
    return [one for one, is_allowed in zip(asked, allowed, strict=True) if is_allowed]


def _merged(
    outcomes: Sequence[Outcome], allowed: Sequence[bool], done: Sequence[Outcome]
) -> list[Outcome]:
    """The outcomes, with the results of the allowed changes filled in."""
    results = iter(done)
    return [
        next(results) if is_allowed else outcome
        for outcome, is_allowed in zip(outcomes, allowed, strict=True)
    ]
