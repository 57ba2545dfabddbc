"""`Member`: one member of a consumer group (KIP-848), with the calls that tests of access repeat.

Each call is one request; nothing is retried.
"""

from uuid import uuid4

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import consumer_group_describe, consumer_group_heartbeat
from tests.broker.handlers.asker import Asker


class Member:
    """A member and its epoch."""

    def __init__(self, asker: Asker, group: str) -> None:
        self._asker = asker
        self._group = group
        self._member_id = str(uuid4())
        self._epoch = 0

    def join(self, *topics: str, expression: str | None = None) -> ErrorCode:
        """Join with a subscription to topics, or to an expression."""
        return self._ask(
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=topics if expression is None else None,
            subscribed_topic_regex=expression,
            topic_partitions=(),
        )

    def beat(self) -> ErrorCode:
        """Send a heartbeat without changes."""
        return self._ask()

    def leave(self) -> ErrorCode:
        """Leave the group."""
        self._epoch = -1
        return self._ask()

    def _ask(self, **fields: object) -> ErrorCode:
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            **fields,  # type: ignore[arg-type]
        )
        response_class = consumer_group_heartbeat.ConsumerGroupHeartbeatResponse
        answer = self._asker.ask(request, 1, response_class)
        if answer.error_code == ErrorCode.NONE:
            self._epoch = answer.member_epoch
        return answer.error_code

    def describe(self) -> consumer_group_describe.DescribedGroup:
        """The group of the member."""
        request = consumer_group_describe.ConsumerGroupDescribeRequest(
            group_ids=(self._group,), include_authorized_operations=False
        )
        response_class = consumer_group_describe.ConsumerGroupDescribeResponse
        (found,) = self._asker.ask(request, 1, response_class).groups
        return found

    @property
    def assigned(self) -> set[str]:
        """The topics of all members of its group; the client must be allowed to see them."""
        return {
            topic.topic_name
            for member in self.describe().members
            for topic in member.target_assignment.topic_partitions
        }
