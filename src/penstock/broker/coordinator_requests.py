"""How handlers ask a shard of a coordinator: one deferred answer, or many at once.

A shard's answer passes through; a refusal becomes the answer that the handler builds from the code,
or is raised. Groups that the client may not use are not asked. Nothing here knows an API.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TypeVar

from penstock.broker.answers import DEFECT, Answer
from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import code_of
from penstock.broker.pacing.slices import SLICE_ITEMS, NextTurn, in_slices
from penstock.core.deferred import Deferred
from penstock.core.errors import PenstockError
from penstock.protocol.codec import Message
from penstock.protocol.error_codes import ErrorCode
from penstock.security.acls.values import Operation, ResourceType

logger = logging.getLogger(__name__)

Response = TypeVar("Response", bound=Message)
Item = TypeVar("Item")


def ask_group(
    context: RequestContext,
    group_id: str,
    request: Message,
    response_class: type[Response],
    refuse: Callable[[ErrorCode], Answer],
    finish: Callable[[Response], Answer] | None = None,
) -> Deferred[Answer]:
    """Ask the coordinator of a group; `finish` may change its answer."""
    answer: Deferred[Answer] = Deferred()

    def answered(result: Message | PenstockError) -> None:
        try:
            if isinstance(result, PenstockError):
                final = refuse(code_of(result))
            else:
                assert isinstance(result, response_class)
                final = result if finish is None else finish(result)
        except Exception:
            # The coordinator must continue even if this answer fails.
            logger.exception("the answer of a coordinator could not be converted")
            final = DEFECT
        answer.set(final)

    context.services.coordinators.submit("group", group_id, request, context).then(answered)
    return answer


async def ask_groups(
    context: RequestContext,
    requests: Iterable[tuple[str, Message]],
    response_class: type[Response],
    needs: Operation | None = None,
) -> list[Response | ErrorCode]:
    """Ask the coordinators of several groups, some at once; a code where one refused.

    Groups on which the client may not do what it `needs` to are not asked, and have a code too.
    """
    coordinators = context.services.coordinators
    turn = NextTurn(context.services.turns, context.services.clock)
    left = iter(requests)
    results: list[Response | ErrorCode] = []
    while few := list(islice(left, SLICE_ITEMS)):
        allowed = [
            needs is None or context.allows(needs, ResourceType.GROUP, group_id)
            for group_id, _ in few
        ]
        found = iter(
            await asyncio.gather(
                *(
                    coordinators.ask("group", group_id, request, context)
                    for (group_id, request), is_allowed in zip(few, allowed, strict=True)
                    if is_allowed
                )
            )
        )
        results += [
            _checked(next(found), response_class)
            if is_allowed
            else ErrorCode.GROUP_AUTHORIZATION_FAILED
            for is_allowed in allowed
        ]
        await turn.wait_if_due()
    return results


def _checked(
    result: Message | PenstockError, response_class: type[Response]
) -> Response | ErrorCode:
    # Not raised: a request may name thousands of groups.
    return (
        code_of(result) if isinstance(result, PenstockError) else required(result, response_class)
    )


async def visible(
    context: RequestContext,
    resource_type: ResourceType,
    items: Sequence[Item],
    name_of: Callable[[Item], str],
) -> Sequence[Item]:
    """Return the items that the client may describe; the others are hidden from it."""
    services = context.services
    if services.access is None:
        return items
    shown: list[Item] = []
    async for few in in_slices(items, services.turns, services.clock):
        shown += [
            item
            for item in few
            if context.allows(Operation.DESCRIBE, resource_type, name_of(item), is_logged=False)
        ]
    return shown


def required(result: Message | PenstockError, response_class: type[Response]) -> Response:
    """Return a shard's answer; raise its refusal, which then ends the whole request."""
    if isinstance(result, PenstockError):
        raise result.again()
    assert isinstance(result, response_class)
    return result
