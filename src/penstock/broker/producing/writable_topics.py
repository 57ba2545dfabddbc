"""The topics of a Produce request: their names, and whether the client may write to them."""

from uuid import UUID

from penstock.broker.context import TOPIC_ID_VERSION, RequestContext
from penstock.core.errors import (
    InvalidTopicNameError,
    PenstockError,
    PolicyViolationError,
    UnknownTopicIdError,
)
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.produce import TopicProduceData
from penstock.replication.hosted_partition import HostedPartition
from penstock.security.acls.values import Operation, ResourceType


def topic_name(
    topic: TopicProduceData, context: RequestContext
) -> tuple[str, PenstockError | None]:
    """The name of a topic, which newer requests name by its id."""
    if context.api_version < TOPIC_ID_VERSION:
        return topic.name, None
    topic_id = topic.topic_id or UUID(int=0)
    image = context.services.metadata.image.topic_by_id(topic_id)
    if image is None:
        return "", UnknownTopicIdError(f"there is no topic with id {topic_id}")
    return image.name, None


def writable_topic(
    topic: TopicProduceData, context: RequestContext, *, is_logged: bool = True
) -> tuple[str, PenstockError | ErrorCode | None]:
    """The name of a topic, and the error if it is unknown or the client may not write to it."""
    name, error = topic_name(topic, context)
    if (
        error is None
        and context.services.access is not None
        and not context.allows(Operation.WRITE, ResourceType.TOPIC, name, is_logged=is_logged)
    ):
        return name, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return name, error


def require_not_internal(partition: HostedPartition, topic: str) -> None:
    """Reject client writes to the internal topics of coordinators, and to mirrors."""
    if partition.is_mirror:
        raise PolicyViolationError(
            f"{topic} is a mirror of another cluster and read-only. Write to its parent, or end "
            "the pipe with `penstock pipe promote`."
        )
    if partition.is_internal:
        # Kafka lets the client id `__admin_client` write here, and any client can have it.
        raise InvalidTopicNameError(
            f"Cannot append to internal topic {topic}: only coordinators write to it"
        )
