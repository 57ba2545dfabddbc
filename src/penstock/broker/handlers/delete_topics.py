"""DeleteTopics: by name or by id. When the answer is sent, the topic and its files are deleted."""

from collections import Counter
from typing import Final
from uuid import UUID

from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import outcome_of
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

    def find(state: DeleteTopicState) -> UUID | PenstockError:
        return _find(state, image, mentions[state.name, state.topic_id])

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
        error = deleted[outcome] if isinstance(outcome, UUID) else outcome
        answered = outcome_of(error)
        topic = image.topic_by_id(outcome) if isinstance(outcome, UUID) else None
        results.append(
            DeletableTopicResult(
                name=state.name if topic is None else topic.name,
                topic_id=state.topic_id if topic is None else topic.id,
                error_code=answered.code,
                error_message=answered.message,
            )
        )
    return DeleteTopicsResponse(responses=tuple(results))


def _find(state: DeleteTopicState, image: MetadataImage, mentions: int) -> UUID | PenstockError:
    if state.name is not None and state.topic_id is not None:
        return InvalidRequestError("You may not specify both topic name and topic id.")
    if state.name is None and state.topic_id is None:
        return InvalidRequestError("Neither topic name nor id were specified.")
    if mentions > 1:
        return InvalidRequestError("The topic is named more than once in the request.")
    if state.topic_id is not None:
        by_id = image.topic_by_id(state.topic_id)
        return UnknownTopicIdError("There is no topic with this id.") if by_id is None else by_id.id
    topic = image.topic(state.name or "")
    if topic is None:
        return UnknownTopicOrPartitionError("There is no topic of this name.")
    return topic.id
