"""Brokers that have not caught up: their metadata is old, for a while or for ever."""

import uuid
from collections.abc import Collection
from dataclasses import replace

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from tests.client.fake_broker import FakeCluster, FakeConnection


class StaleBrokers:
    """Makes brokers of a cluster answer Metadata as if they were behind."""

    def __init__(
        self,
        fake: FakeCluster,
        broker_ids: Collection[int],
        topic_id: uuid.UUID | None = None,
        answers: int = 1_000,
    ) -> None:
        """To them every topic has the id `topic_id`, or is not there, in their next answers."""
        self._fake = fake
        self._broker_ids = broker_ids
        self._topic_id = topic_id
        self.answers_left = answers
        self.asked: list[int] = []
        """Which brokers were asked, in order."""
        self._answer_well = fake.handlers.get(MetadataRequest, self._true_answer)
        fake.handlers[MetadataRequest] = self._answer

    def _true_answer(self, broker_id: int, request: object, code: ErrorCode) -> MetadataResponse:
        assert isinstance(request, MetadataRequest)
        return FakeConnection(self._fake, broker_id)._metadata(request, code)

    def _answer(self, broker_id: int, request: object, code: ErrorCode) -> MetadataResponse:
        self.asked.append(broker_id)
        answer = self._answer_well(broker_id, request, code)
        assert isinstance(answer, MetadataResponse)
        if broker_id not in self._broker_ids or not self.answers_left:
            return answer
        self.answers_left -= 1
        return replace(answer, topics=tuple(map(self._stale, answer.topics)))

    def _stale(self, topic: MetadataResponseTopic) -> MetadataResponseTopic:
        if self._topic_id is not None:
            return replace(topic, topic_id=self._topic_id)
        return MetadataResponseTopic(
            name=topic.name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, partitions=()
        )
