"""FindCoordinator: which broker coordinates a group or a transactional id.

The internal topic is created at the first request. Kafka lets that client retry; here the topic is
served when the answer is sent, so no retry is needed.
"""

from functools import partial
from typing import Final

from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import code_of
from penstock.broker.pacing.slices import map_in_slices
from penstock.coordinator.kinds import KINDS_BY_KEY_TYPE, TOPICS, CoordinatorKind
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

BATCH_SINCE: Final = 4
_NOBODY: Final = (-1, "", -1)


async def handle(
    request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    """Name the leader of the key's partition."""
    is_batch = context.api_version >= BATCH_SINCE
    keys = request.coordinator_keys if is_batch else (request.key,)
    kind = KINDS_BY_KEY_TYPE.get(request.key_type)
    code = ErrorCode.INVALID_REQUEST
    if kind is not None:
        # Once for all keys: a request may have a hundred thousand.
        error = await context.services.coordinators.ensure_topic(kind)
        code = ErrorCode.NONE if error is None else code_of(error)
    if kind is None or code is not ErrorCode.NONE:
        find = partial(_coordinator, code=code)
    else:
        find = partial(_find, kind=kind, context=context)
    services = context.services
    found = await map_in_slices(find, keys, services.turns, services.clock)
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


def _find(key: str, kind: CoordinatorKind, context: RequestContext) -> Coordinator:
    image = context.services.metadata.image
    index = context.services.coordinators.partition_of(kind, key)
    partition = image.partition(TOPICS[kind], index)
    broker = None if partition is None else image.brokers.get(partition.leader)
    at = None if broker is None else broker.endpoint(context.peer.listener)
    if broker is None or at is None:
        return _coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _coordinator(key, ErrorCode.NONE, (broker.id, at.host, at.port))


def _coordinator(key: str, code: ErrorCode, address: tuple[int, str, int] = _NOBODY) -> Coordinator:
    node_id, host, port = address
    message = None if code is ErrorCode.NONE else f"The coordinator: {code.name}."
    return Coordinator(
        key=key, node_id=node_id, host=host, port=port, error_code=code, error_message=message
    )
