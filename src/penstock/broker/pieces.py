"""Requests for very many partitions of topics, handled in pieces, and how they become one answer.

A coordinator handles a question whole, so a question for sixty thousand partitions would stop the
event loop. `pieces` cuts the topics of a request, `join_topics` puts the answers together.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import Any, Final, TypeVar

from penstock.broker.answers import DEFECT, Answer
from penstock.broker.context import RequestContext
from penstock.core.deferred import Deferred

logger = logging.getLogger(__name__)

PIECE_PARTITIONS: Final = 500
"""Partitions of one question: 5 ms uncompiled for a commit."""

Topic = TypeVar("Topic")
Result = TypeVar("Result")


def pieces(
    topics: Sequence[Topic], field: str = "partitions", most: int = PIECE_PARTITIONS
) -> Iterator[tuple[Topic, ...]]:
    """Yield the topics in order, `most` partitions at a time; `field` names the partitions."""
    piece: list[Topic] = []
    room = most
    for topic in topics:
        partitions = getattr(topic, field)
        # A topic without partitions is part of the answer too.
        for start in range(0, max(1, len(partitions)), most):
            few = partitions[start : start + most]
            if piece and (len(few) > room or len(piece) >= most):
                yield tuple(piece)
                piece, room = [], most
            changed: Any = {field: few}
            piece.append(topic if len(few) == len(partitions) else replace(topic, **changed))  # type: ignore[type-var]
            room -= len(few)
    if piece:
        yield tuple(piece)


def join_topics(found: Sequence[Topic]) -> tuple[Topic, ...]:
    """The topics of all pieces; neighbours that are one topic become one again."""
    return tuple(
        _joined([first, *others])
        for (first, *others) in (list(same) for _, same in groupby(found, key=_name_and_id))
    )


def _joined(parts: list[Topic]) -> Topic:
    if len(parts) == 1:
        return parts[0]
    changed: Any = {"partitions": tuple(chain.from_iterable(part.partitions for part in parts))}  # type: ignore[attr-defined]
    return replace(parts[0], **changed)  # type: ignore[type-var]


def _name_and_id(topic: Any) -> object:  # noqa: ANN401 (classes of several messages)
    return topic.name, getattr(topic, "topic_id", None)


def promise(work: Coroutine[object, object, Answer], context: RequestContext) -> Deferred[Answer]:
    """The answer of a coroutine, for handlers that need one only for wide requests."""
    answer: Deferred[Answer] = Deferred()
    context.services.tasks.start(_keep(work, answer))
    return answer


async def _keep(work: Coroutine[object, object, Answer], answer: Deferred[Answer]) -> None:
    try:
        result = await work
    except Exception:
        # Caught here, because a task that ends with an exception ends the broker.
        logger.exception("a wide request failed; its connection is closed")
        result = DEFECT
    answer.set(result)


async def settled(answer: "Result | Deferred[Result]") -> Result:
    """Wait for an answer that may come later."""
    if not isinstance(answer, Deferred):
        return answer
    future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    answer.then(lambda result: None if future.done() else future.set_result(result))
    return await future
