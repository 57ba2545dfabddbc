"""FindCoordinator: which broker coordinates a group, a transactional id or a share-partition.

The internal topic is created at the first request. Kafka lets that client retry; here the topic is
served when the answer is sent, so no retry is needed. A request whose keys are all denied does not
create it. Keys of share groups are `group:topicId:partition`; only brokers may look them up.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from penstock.broker.context import RequestContext
from penstock.broker.denials import CLUSTER_DENIED, GROUP_DENIED, TRANSACTIONAL_ID_DENIED
from penstock.broker.error_mapping import code_of
from penstock.broker.pacing.slices import map_in_slices
from penstock.coordinator.kinds import KINDS_BY_KEY_TYPE, TOPICS, CoordinatorKind
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.security.acls.values import Operation, ResourceType

BATCH_SINCE: Final = 4
SHARE_SINCE: Final = 6
"""Starting at this version brokers may look up the coordinator of a share group's state."""
_NOBODY: Final = (-1, "", -1)
_PROTECTION: Final[Mapping[CoordinatorKind, tuple[ResourceType, ErrorCode]]] = {
    "group": (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    "transaction": (
        ResourceType.TRANSACTIONAL_ID,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
}
"""The resource that a key names, and the error for a client that may not describe it."""
_DENIALS: Final = dict((GROUP_DENIED, TRANSACTIONAL_ID_DENIED, CLUSTER_DENIED))
"""The messages of denials by their codes."""


async def handle(
    request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    """Name the leader of the key's partition."""
    is_batch = context.api_version >= BATCH_SINCE
    keys = request.coordinator_keys if is_batch else (request.key,)
    kind = KINDS_BY_KEY_TYPE.get(request.key_type)
    services = context.services
    if kind is None or kind == "share":
        found = await _find_shares(keys, context, is_known=kind is not None)
    elif services.access is None:
        found = await _find_all(keys, kind, context)
    else:
        found = await _find_allowed(keys, kind, context)
    if is_batch:
        return FindCoordinatorResponse(coordinators=tuple(found))
    (one,) = found
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message or "NONE",
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


async def _find_shares(
    keys: Sequence[str], context: RequestContext, *, is_known: bool
) -> list[Coordinator]:
    """Find the coordinators of share-partitions; an unknown type of keys is an error for each."""
    services = context.services
    code = ErrorCode.INVALID_REQUEST
    if is_known and context.api_version >= SHARE_SINCE:
        if context.allows_cluster(Operation.CLUSTER_ACTION):
            # Imported here: only brokers look up share-partitions.
            from penstock.coordinator.shares.share_keys import parsed_text

            texts = await map_in_slices(parsed_text, keys, services.turns, services.clock)
            if any(texts):
                return await _find_all(keys, "share", context, texts)
        else:
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    refuse = partial(_coordinator, code=code)
    return await map_in_slices(refuse, keys, services.turns, services.clock)


async def _find_allowed(
    keys: Sequence[str], kind: CoordinatorKind, context: RequestContext
) -> list[Coordinator]:
    """`_find_all` for the keys that the client may describe, and an error for each other key."""
    resource_type, code = _PROTECTION[kind]
    services = context.services
    is_allowed = partial(context.allows, Operation.DESCRIBE, resource_type)
    allowed = await map_in_slices(is_allowed, keys, services.turns, services.clock)
    permitted = [key for key, is_permitted in zip(keys, allowed, strict=True) if is_permitted]
    found = iter(await _find_all(permitted, kind, context) if permitted else ())

    def answer(asked: tuple[str, bool]) -> Coordinator:
        key, is_permitted = asked
        return next(found) if is_permitted else _coordinator(key, code)

    pairs = tuple(zip(keys, allowed, strict=True))
    return await map_in_slices(answer, pairs, services.turns, services.clock)


async def _find_all(
    keys: Sequence[str],
    kind: CoordinatorKind,
    context: RequestContext,
    texts: Sequence[str | None] | None = None,
) -> list[Coordinator]:
    """Find the coordinator of each key; with `texts`, of each text, None for an invalid key."""
    services = context.services
    # Once for all keys: a request may have a hundred thousand.
    error = await services.coordinators.ensure_topic(kind)
    if error is None:
        find = partial(_find, kind=kind, context=context)
    else:
        find = partial(_refuse, code=code_of(error))
    pairs = tuple(zip(keys, keys if texts is None else texts, strict=True))
    return await map_in_slices(find, pairs, services.turns, services.clock)


def _refuse(asked: tuple[str, str | None], code: ErrorCode) -> Coordinator:
    return _coordinator(asked[0], code)


def _find(
    asked: tuple[str, str | None], kind: CoordinatorKind, context: RequestContext
) -> Coordinator:
    key, text = asked
    if text is None:
        return _coordinator(key, ErrorCode.INVALID_REQUEST)
    image = context.services.metadata.image
    index = context.services.coordinators.partition_of(kind, text)
    partition = image.partition(TOPICS[kind], index)
    broker = None if partition is None else image.brokers.get(partition.leader)
    at = None if broker is None else broker.endpoint(context.peer.listener)
    if broker is None or at is None:
        return _coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _coordinator(key, ErrorCode.NONE, (broker.id, at.host, at.port))


def _coordinator(key: str, code: ErrorCode, address: tuple[int, str, int] = _NOBODY) -> Coordinator:
    node_id, host, port = address
    message = None if code is ErrorCode.NONE else f"The coordinator: {code.name}."
    message = _DENIALS.get(code, message)
    return Coordinator(
        key=key, node_id=node_id, host=host, port=port, error_code=code, error_message=message
    )
