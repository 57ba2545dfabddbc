"""DeleteTopics: by name or by id. When the answer is sent, the topic and its files are deleted.

A client needs DELETE on the cluster or on the topic. Without DESCRIBE it does not learn whether a
topic of this name exists, nor the name of a topic that it knows by its id. Answers are in the order
of the request, so their places reveal nothing; Kafka shuffles them, because it groups them first.
"""

from collections import Counter
from typing import Final, NamedTuple
from uuid import UUID

from penstock.broker.context import RequestContext
from penstock.broker.denials import TOPIC_DENIED
from penstock.broker.error_mapping import Outcome, outcome_of
from penstock.broker.mutations import Mutations
from penstock.broker.pacing.slices import NextTurn, map_in_slices
from penstock.cluster.image import MetadataImage
from penstock.core.errors import (
    InvalidRequestError,
    PenstockError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from penstock.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from penstock.security.acls.values import Operation, ResourceType

STRICT_VERSION: Final = 5
"""Starting at this version clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


async def handle(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Delete each topic that can be found."""
    asked = list(request.topics) + [
        DeleteTopicState(name=name, topic_id=None) for name in request.topic_names
    ]
    image = context.services.metadata.image
    mentions = Counter((state.name, state.topic_id) for state in asked)
    services = context.services
    access = _Access(context)

    def find(state: DeleteTopicState) -> UUID | PenstockError | _Denied:
        return _find(state, image, mentions[state.name, state.topic_id], access)

    found = await map_in_slices(find, asked, services.turns, services.clock)
    topic_ids = [outcome for outcome in found if isinstance(outcome, UUID)]
    deleted = dict(
        zip(topic_ids, await Mutations(context, STRICT_VERSION).delete(topic_ids), strict=True)
        if topic_ids
        else ()
    )
    results = []
    turn = NextTurn(services.turns, services.clock)
    for state, outcome in zip(asked, found, strict=True):
        await turn.wait_if_due()
        if isinstance(outcome, _Denied):
            results.append(_result(outcome.name, state.topic_id, TOPIC_DENIED))
            continue
        if not isinstance(outcome, UUID):
            results.append(_result(state.name, state.topic_id, outcome_of(outcome)))
            continue
        topic = image.topic_by_id(outcome)
        assert topic is not None
        results.append(_result(topic.name, topic.id, outcome_of(deleted[outcome])))
    return DeleteTopicsResponse(responses=tuple(results))


def _result(name: str | None, topic_id: UUID | None, outcome: Outcome) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=outcome.code, error_message=outcome.message
    )


class _Denied(NamedTuple):
    """A topic that the client may not delete."""

    name: str | None
    """As the answer has it: None for a topic that is named by id and hidden from the client."""


class _Access:
    """The permissions of one request."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._is_over_all = context.allows_cluster(Operation.DELETE, is_logged=False)

    def can_describe(self, name: str) -> bool:
        """Whether the client may learn that this topic exists."""
        return self._is_over_all or self._context.allows(
            Operation.DESCRIBE, ResourceType.TOPIC, name
        )

    def can_delete(self, name: str) -> bool:
        """Whether the client may delete this topic."""
        if not self._is_over_all:
            return self._context.allows(Operation.DELETE, ResourceType.TOPIC, name)
        self._context.record_change(Operation.DELETE, ResourceType.TOPIC, name)
        return True


def _find(
    state: DeleteTopicState, image: MetadataImage, mentions: int, access: _Access
) -> UUID | PenstockError | _Denied:
    if state.name is not None and state.topic_id is not None:
        return InvalidRequestError("You may not specify both topic name and topic id.")
    if state.name is None and state.topic_id is None:
        return InvalidRequestError("Neither topic name nor id were specified.")
    if mentions > 1:
        return InvalidRequestError("The topic is named more than once in the request.")
    if state.topic_id is not None:
        by_id = image.topic_by_id(state.topic_id)
        if by_id is None:
            return UnknownTopicIdError("There is no topic with this id.")
        if access.can_delete(by_id.name):
            return by_id.id
        return _Denied(by_id.name if access.can_describe(by_id.name) else None)
    name = state.name or ""
    if not access.can_describe(name):
        return _Denied(name)
    topic = image.topic(name)
    if topic is None:
        return UnknownTopicOrPartitionError("There is no topic of this name.")
    return topic.id if access.can_delete(name) else _Denied(name)
