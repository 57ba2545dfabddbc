"""How the five handlers of share state ask share coordinators: each share-partition has its own.

A request is split into requests for one share-partition; the answers become one, in the order of
the request. Very many are asked in slices. A request without a group, without topics, or with a
topic without partitions gets an empty answer, as in Kafka. Nothing here knows the meaning of an
answer.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

from penstock.broker.answers import Answer
from penstock.broker.context import RequestContext
from penstock.broker.denials import CLUSTER_DENIED
from penstock.broker.error_mapping import code_of, message_of
from penstock.broker.pacing.slices import NextTurn
from penstock.broker.pieces import promise, settled
from penstock.coordinator.shares.ports import Refusal
from penstock.coordinator.shares.share_keys import key_text
from penstock.coordinator.shares.share_messages import StateRequest, key_of, refused
from penstock.core.deferred import Deferred
from penstock.core.errors import PenstockError
from penstock.protocol.codec import Message
from penstock.security.acls.values import Operation

_DENIED: Final = Refusal(*CLUSTER_DENIED)


def ask_coordinators(
    request: StateRequest, response_class: type[Message], context: RequestContext
) -> Deferred[Answer]:
    """Ask the coordinator of each share-partition; answer when all have answered."""
    is_denied = not context.allows_cluster(Operation.CLUSTER_ACTION)
    asking = _Asking(response_class, None if is_denied else context)
    has_group = is_denied or bool(request.group_id)
    is_whole = has_group and all(topic.partitions for topic in request.topics)
    if not is_whole:
        asking.finish_if_done()
    elif context.permit is not None:
        return promise(_ask_wide(request, asking, context), context)
    else:
        asking.expect(request)
        for place, single in _singles(request):
            asking.ask(place, single)
        asking.finish_if_done()
    return asking.answer


async def _ask_wide(request: StateRequest, asking: "_Asking", context: RequestContext) -> Answer:
    services = context.services
    turn = NextTurn(services.turns, services.clock)
    asking.expect(request)
    for place, single in _singles(request):
        asking.ask(place, single)
        await turn.wait_if_due()
    asking.finish_if_done()
    return await settled(asking.answer)


def _singles(request: Any) -> Iterator[tuple[tuple[int, int], StateRequest]]:  # noqa: ANN401
    """Yield a request for each share-partition, and its place among topics and partitions."""
    for topic_place, topic in enumerate(request.topics):
        for place, partition in enumerate(topic.partitions):
            one = replace(topic, partitions=(partition,))
            yield (topic_place, place), replace(request, topics=(one,))


class _Asking:
    """One request while its share-partitions are being asked."""

    __slots__ = ("_context", "_pending", "_response_class", "_results", "_topics", "answer")

    def __init__(self, response_class: Any, context: RequestContext | None) -> None:  # noqa: ANN401
        """`context` is None for a client without permission: no coordinator is asked."""
        self.answer: Deferred[Answer] = Deferred()
        self._context = context
        self._response_class = response_class
        self._topics: list[Any] = []
        """The result of each topic, without its partitions."""
        self._results: list[list[Any]] = []
        """The results of its partitions."""
        self._pending = 0

    def expect(self, request: StateRequest) -> None:
        """Note the share-partitions of the request; the answer waits for all."""
        self._topics = [None] * len(request.topics)
        self._results = [[None] * len(topic.partitions) for topic in request.topics]
        self._pending = sum(map(len, self._results))

    def ask(self, place: tuple[int, int], single: StateRequest) -> None:
        """Ask the coordinator of one share-partition."""
        done = partial(self._answered, place, single)
        context = self._context
        if context is None:
            done(refused(single, _DENIED))
            return
        coordinators = context.services.coordinators
        coordinators.submit("share", key_text(key_of(single)), single, context).then(done)

    def _answered(
        self, place: tuple[int, int], single: StateRequest, answer: Message | PenstockError
    ) -> None:
        if isinstance(answer, PenstockError):
            answer = refused(single, Refusal(code_of(answer), message_of(answer)))
        found: Any = answer
        (self._topics[place[0]],) = found.results
        ((self._results[place[0]][place[1]],),) = (one.partitions for one in found.results)
        self._pending -= 1
        self.finish_if_done()

    def finish_if_done(self) -> None:
        """Answer when no share-partition is pending."""
        if self._pending == 0 and not self.answer.is_set:
            results = tuple(
                replace(topic, partitions=tuple(partitions))
                for topic, partitions in zip(self._topics, self._results, strict=True)
            )
            self.answer.set(self._response_class(results=results))
