"""How handlers ask a shard of a coordinator: one deferred answer, or many at once.

A shard's answer passes through; a refusal becomes the answer that the handler builds from the code,
or is raised. Nothing here knows an API.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

from penstock.broker.answers import DEFECT, Answer
from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import code_of
from penstock.broker.pacing.slices import SLICE_ITEMS, NextTurn
from penstock.core.deferred import Deferred
from penstock.core.errors import PenstockError
from penstock.protocol.codec import Message
from penstock.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)

Response = TypeVar("Response", bound=Message)


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
) -> list[Response | ErrorCode]:
    """Ask the coordinators of several groups, some at once; a code where one refused."""
    coordinators = context.services.coordinators
    turn = NextTurn(context.services.turns, context.services.clock)
    left = iter(requests)
    results: list[Response | ErrorCode] = []
    while few := list(islice(left, SLICE_ITEMS)):
        found = await asyncio.gather(
            *(coordinators.ask("group", group_id, request, context) for group_id, request in few)
        )
        results += [_checked(result, response_class) for result in found]
        await turn.wait_if_due()
    return results


def _checked(
    result: Message | PenstockError, response_class: type[Response]
) -> Response | ErrorCode:
    # Not raised: a request may name thousands of groups.
    return (
        code_of(result) if isinstance(result, PenstockError) else required(result, response_class)
    )


def required(result: Message | PenstockError, response_class: type[Response]) -> Response:
    """Return a shard's answer; raise its refusal, which then ends the whole request."""
    if isinstance(result, PenstockError):
        raise result.again()
    assert isinstance(result, response_class)
    return result
