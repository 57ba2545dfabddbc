"""Wide requests are decoded, and wide answers are encoded, by worker threads.

`ForwardingWaiter` stands for a request that is not decoded yet; `WrittenAnswer` is an answer that a
thread has encoded. `wide_permits` bounds their number.
"""

from collections import Counter
from collections.abc import Callable, Mapping

from penstock.broker.answers import Answer, HoldingAnswer, Waiter, WaitingAnswer
from penstock.broker.pacing.wide_permits import WidePermit
from penstock.core.deferred import Deferred
from penstock.protocol.codec import Message
from penstock.protocol.connection import Request, encode_wide_response_frame
from penstock.protocol.encoder_source import Buffer
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.response_errors import error_codes


class WrittenAnswer:
    """The frame of an answer, and how often each error is in it."""

    __slots__ = ("buffers", "errors", "size_bytes")

    def __init__(self, request: Request, answer: Message) -> None:
        self.buffers: list[Buffer] = encode_wide_response_frame(request, answer)
        self.size_bytes = sum(map(len, self.buffers))
        self.errors: Mapping[ErrorCode, int] = Counter(error_codes(answer))


class ForwardingWaiter:
    """`Waiter` of the answer to a wide request, which later follows another answer."""

    __slots__ = ("_inner", "_is_abandoned", "_is_hurried", "_on_end", "_permit")

    def __init__(self) -> None:
        self._inner: Waiter | None = None
        self._is_abandoned = False
        self._is_hurried = False
        self._permit: WidePermit | None = None
        self._on_end: Callable[[], None] | None = None

    def abandon(self) -> None:
        """The client is gone."""
        self._is_abandoned = True
        if self._inner is not None:
            self._inner.abandon()
            self._release()

    def hurry(self) -> None:
        """The client sends no more."""
        self._is_hurried = True
        if self._inner is not None:
            self._inner.hurry()

    def follow(
        self,
        answer: WaitingAnswer,
        outcome: Answer | Deferred[Answer],
        permit: WidePermit | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        """The request was handled: `answer` is set to `outcome`, now or later.

        The permit is released, and `on_end` is called, with the answer or when there will be none.
        """
        self._permit = permit
        self._on_end = on_end
        if isinstance(answer, HoldingAnswer):
            if isinstance(outcome, HoldingAnswer) and outcome.is_holding:
                outcome.on_release = answer.release
            else:
                answer.release()
        if not isinstance(outcome, Deferred):
            self._settle(answer, outcome)
            return
        outcome.then(lambda final: self._settle(answer, final))
        if isinstance(outcome, WaitingAnswer) and not outcome.is_set:
            self._inner = outcome.waiter
            if self._is_abandoned:
                self.abandon()
            elif self._is_hurried:
                self._inner.hurry()

    def _settle(self, answer: WaitingAnswer, final: Answer) -> None:
        self._release()
        self._inner = None
        answer.set(final)

    def _release(self) -> None:
        if self._permit is not None:
            self._permit.release()
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()
