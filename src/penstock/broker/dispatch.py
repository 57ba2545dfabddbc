"""API key to handler. Decoding, starting and the last line of defence happen here once.

A handler is either plain, and returns its response or a `Deferred` one, or a coroutine function;
the latter costs a task, which only rare requests may. An error of the domain that a handler raises
ends the whole request: its code becomes the answer that the handler's module builds with `refuse`.
Work that a handler starts and does not await has no such net. Any other exception is a defect of
ours: it is logged with its traceback and counted; that connection is closed, and no other is
affected.

An API is served only if `api_rules` declares the permissions that its handler asks for.

Decoding costs a few microseconds for each array element. A request with more elements than the
event loop should decode is decoded by a worker thread.
"""

import importlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Final

from penstock.broker.answers import CLOSE_CONNECTION, Answer, BrokenRequest, HoldingAnswer, NoAnswer
from penstock.broker.api_rules import API_RULES
from penstock.broker.context import BrokerServices, RequestContext, VersionRange
from penstock.broker.error_mapping import code_of, message_of
from penstock.broker.pacing.freeing import exempt_arrays, free_in_slices
from penstock.broker.pacing.wide_permits import WideRequests
from penstock.broker.peer import UNKNOWN_PEER, Peer
from penstock.broker.quotas.meter import MeteredWork, RequestMeter
from penstock.broker.request_metrics import RequestMetrics
from penstock.broker.wide_requests import ForwardingWaiter, WrittenAnswer
from penstock.core.cancellation import Cancellation
from penstock.core.clock import stopwatch
from penstock.core.deferred import Deferred
from penstock.core.errors import MalformedRequestError, PeerError, PenstockError
from penstock.core.limits import ELEMENTS_ON_LOOP_MAX
from penstock.core.metrics import Registry
from penstock.protocol import codec
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.codec import Message
from penstock.protocol.connection import Request
from penstock.protocol.encoder_source import Buffer
from penstock.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)

HandlerFunction = Callable[[Any, RequestContext], "Answer | Deferred[Answer] | Awaitable[Answer]"]
Shortcut = Callable[[Request, BrokerServices, Peer], "Answer | Deferred[Answer] | None"]
"""Tried before the request is decoded; returns None for a request that the shortcut cannot
answer."""
Refuse = Callable[[Any, ErrorCode, str], Message]
"""The answer to a request that failed as a whole, from its error code and error message."""


LONG_APIS: Final = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.LIST_OFFSETS)
"""Requests that wait for other members or for a disk, and release their wide permit first. A fetch
does so when it begins to wait."""

PARKED_APIS: Final = (ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
"""Requests that wait by their client's wish: the broker keeps only the fields it needs."""


class Handler:
    """One row of the table: the versions of an API that are served, and their function.

    A handler that is given by the name of its module is imported at its first request, so that a
    broker starts without code that its clients may never use.
    """

    __slots__ = ("function", "is_coroutine", "module_name", "refuse", "shortcut", "versions")

    def __init__(
        self,
        function: HandlerFunction | str,
        lowest: int,
        highest: int,
        lowest_advertised: int | None = None,
        shortcut: Shortcut | None = None,
    ) -> None:
        self.module_name = function if isinstance(function, str) else ""
        self.function: HandlerFunction | None = None if isinstance(function, str) else function
        self.shortcut = shortcut
        self.refuse: Refuse | None = None
        """Of a module that is given by its name, if the module has one."""
        self.is_coroutine = iscoroutinefunction(function)
        self.versions = VersionRange(
            lowest, highest, lowest if lowest_advertised is None else lowest_advertised
        )

    def load(self) -> HandlerFunction:
        """The function, imported if it is not yet."""
        if self.function is None:
            module = importlib.import_module(f"penstock.broker.handlers.{self.module_name}")
            self.function = module.handle
            self.is_coroutine = iscoroutinefunction(module.handle)
            self.refuse = getattr(module, "refuse", None)
        return self.function


class Dispatcher:
    """Runs the handler of a request."""

    def __init__(
        self, services: BrokerServices, handlers: Mapping[int, Handler], metrics: Registry
    ) -> None:
        unruled = sorted(int(key) for key in handlers if key not in API_RULES)
        if unruled:
            raise ValueError(f"no permissions are declared in API_RULES for API keys {unruled}")
        self._services: Final = services
        self.unsent_answers: Final = services.unsent_answers
        self.quotas: Final = services.quotas
        self.turns: Final = services.turns
        self.clock: Final = services.clock
        self._handlers: Final = handlers
        self._wide: Final = WideRequests()
        self._wide_answers: Final = WideRequests()
        """Separate: a broker with thousands of partitions returns wide answers to small
        requests."""
        self.version_ranges: Final = {
            int(key): (handler.versions.lowest, handler.versions.highest)
            for key, handler in handlers.items()
        }
        self.requests: Final = RequestMetrics(handlers, stopwatch(services.clock), metrics)
        self._failures = metrics.counter(
            "handler_failures_total", "Requests that failed with an unexpected error."
        )

    def dispatch(
        self,
        request: Request,
        peer: Peer = UNKNOWN_PEER,
        meter: RequestMeter | None = None,
        client: Cancellation | None = None,
    ) -> "Answer | Deferred[Answer]":
        """Decode and handle one request. Raises `PeerError` for bytes that are not a request."""
        handler = self._handlers[request.api_key]
        if handler.shortcut is not None:
            answer = self._take_shortcut(handler.shortcut, request, peer)
            if answer is not None:
                return answer
        context = RequestContext(
            self._services,
            request.api_version,
            request.client_id,
            request.is_version_unsupported,
            peer,
            meter,
            client,
            api_key=request.api_key,
        )
        try:
            message = request.decode(ELEMENTS_ON_LOOP_MAX)
        except MalformedRequestError:
            if request.frame_bytes <= ELEMENTS_ON_LOOP_MAX:
                raise
            # It may be valid, with too many elements for the event loop.
            return self._decode_on_thread(handler, request, context)
        return self._handle(handler, message, request.api_key, context)

    def _handle(
        self, handler: Handler, message: Message, api_key: int, context: RequestContext
    ) -> "Answer | Deferred[Answer]":
        function = handler.function or handler.load()
        if handler.is_coroutine:
            work: Any = function(message, context)
            if context.meter is not None:
                work = MeteredWork(work, context.meter)
            return self._start(self._refused_late(work, handler, message, api_key))
        try:
            return function(message, context)  # type: ignore[return-value]
        except PeerError:
            raise
        except PenstockError as error:
            return self._refused(handler, message, api_key, error)
        except Exception:
            logger.exception("API key %d failed; its connection is closed", api_key)
            return self.failed()

    def _handle_late(
        self, handler: Handler, message: Message, api_key: int, context: RequestContext
    ) -> "Answer | Deferred[Answer]":
        """As `_handle`, for a request whose meter does not run."""
        meter = context.meter
        if meter is None:
            return self._handle(handler, message, api_key, context)
        meter.begin()
        try:
            return self._handle(handler, message, api_key, context)
        finally:
            meter.end()

    def _decode_on_thread(
        self, handler: Handler, request: Request, context: RequestContext
    ) -> HoldingAnswer:
        """Decode a wide request on a thread, then handle it; later ones of the connection wait."""
        answer = HoldingAnswer(ForwardingWaiter())
        # Take the body now: a request that waits by its client's wish releases it.
        decode = partial(_decode_wide, request.api_key, request.api_version, request.body)
        self._services.tasks.start(
            self._decode_and_handle(handler, decode, request.api_key, context, answer)
        )
        return answer

    async def _decode_and_handle(
        self,
        handler: Handler,
        decode: Callable[[], Message],
        api_key: int,
        context: RequestContext,
        answer: HoldingAnswer,
    ) -> None:
        outcome: Answer | Deferred[Answer]
        permit = await self._wide.permit(context.client)
        if permit is None:
            return
        context = context._replace(permit=permit)
        holder: list[Message] = []
        try:
            message = await self._services.heavy_work.run(decode, 0, context.client)
            outcome = self._handle_late(handler, message, api_key, context)
            holder.append(message)
            del message
        except PeerError as broken:
            outcome = BrokenRequest(broken)
        except PenstockError as error:
            logger.info("a wide request was not decoded; its connection is closed: %s", error)
            outcome = CLOSE_CONNECTION
        except Exception:
            logger.exception("API key %d failed; its connection is closed", api_key)
            outcome = self.failed()
        if api_key in LONG_APIS:
            permit.release()
        waiter = answer.waiter
        assert isinstance(waiter, ForwardingWaiter)
        if api_key in PARKED_APIS:
            self._free(holder)
        waiter.follow(answer, outcome, permit, partial(self._free, holder))

    def write_wide(
        self,
        request: Request,
        answer: Message,
        done: Callable[[WrittenAnswer | None], None],
        client: Cancellation,
    ) -> None:
        """Encode a wide answer on a thread; `done` gets None when that was not possible."""
        exempt_arrays(answer)
        self._services.tasks.start(self._write_wide(request, [answer], done, client))

    async def _write_wide(
        self,
        request: Request,
        holder: list[Message],
        done: Callable[[WrittenAnswer | None], None],
        client: Cancellation,
    ) -> None:
        written: WrittenAnswer | None = None
        permit = await self._wide_answers.permit(client)
        if permit is None:
            done(None)
            return
        try:
            written = await self._services.heavy_work.run(
                partial(WrittenAnswer, request, holder[0]), 0, client
            )
        except PenstockError as error:
            logger.info("a wide answer was not written; its connection is closed: %s", error)
        except Exception:
            logger.exception("an answer cannot be written: %r", request.api_key)
            self.failed()
        finally:
            permit.release()
        done(written)
        self._free(holder)

    def _free(self, holder: list[Message]) -> None:
        free_in_slices(holder, self._services.turns, self._services.clock)

    def _take_shortcut(
        self, shortcut: Shortcut, request: Request, peer: Peer
    ) -> "Answer | Deferred[Answer] | None":
        try:
            return shortcut(request, self._services, peer)
        except Exception:
            logger.exception("API key %d failed; its connection is closed", request.api_key)
            return self.failed()

    def _refused(
        self, handler: Handler, message: Message, api_key: int, error: PenstockError
    ) -> Answer:
        """The answer to a request that an error of the domain ended."""
        if handler.refuse is None:
            logger.error("API key %d failed; its connection is closed", api_key, exc_info=error)
            return self.failed()
        return handler.refuse(message, code_of(error), message_of(error))

    async def _refused_late(
        self, work: Awaitable[Answer], handler: Handler, message: Message, api_key: int
    ) -> Answer:
        """The answer of a coroutine, also if an error of the domain ends it."""
        try:
            return await work
        except PenstockError as error:
            return self._refused(handler, message, api_key, error)

    def _start(self, work: Awaitable[Answer]) -> "Deferred[Answer]":
        deferred: Deferred[Answer] = Deferred()
        self._services.tasks.start(self._run(work, deferred))
        return deferred

    async def _run(self, work: Awaitable[Answer], deferred: "Deferred[Answer]") -> None:
        try:
            answer = await work
        except Exception:
            logger.exception("a request failed; its connection is closed")
            answer = self.failed()
        deferred.set(answer)

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        """Run work of a connection that is not a request."""
        self._services.tasks.start(coroutine)

    def load_cold(
        self,
        load: Callable[[], None],
        done: Callable[[Exception | None], None],
        client: Cancellation,
    ) -> None:
        """Run `load` on a thread of storage, then `done` on the loop with the error, if any."""
        self._services.tasks.start(self._load_cold(load, done, client))

    async def _load_cold(
        self,
        load: Callable[[], None],
        done: Callable[[Exception | None], None],
        client: Cancellation,
    ) -> None:
        error: Exception | None = None
        try:
            await self._services.cold_reader.load(load, client)
        except (OSError, PenstockError) as raised:
            error = raised
        done(error)

    def failed(self) -> NoAnswer:
        """Count a defect of ours; the answer to it is to close the connection."""
        self._failures.value += 1
        return CLOSE_CONNECTION


def _decode_wide(api_key: int, api_version: int, body: Buffer) -> Message:
    message = codec.decode_request(api_key, api_version, body)
    exempt_arrays(message)
    return message
