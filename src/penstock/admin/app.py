"""The HTTP application: routes, limits and problems, as ASGI. It opens no socket.

    /metrics                 for Prometheus
    /health/live             200 while the event loop runs
    /health/ready            200 when new clients can be sent here, else 503; with reasons, for
                             callers that may see them
    /api/v1/status           health, reasons, limits
    /api/v1/openapi.json     the OpenAPI description of these paths
    /api/v1/...              the operations of `topics`, `groups`, `brokers`, `transactions`,
                             `client_sessions`, `pipes`, `leases`

Every request is bounded: its body, its time, and the number of concurrent requests. Every answer
but a success is `application/problem+json`. A path is matched as it was sent, before it is decoded:
a slash in a group's name is `%2F` in a URL.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from email.utils import formatdate
from itertools import groupby
from typing import Any, Final

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.admin import brokers, client_sessions, groups, topics, transactions
from penstock.admin.browser_safety import objection
from penstock.admin.desk import Desk
from penstock.admin.edge import push_sessions
from penstock.admin.error_problems import problem_of
from penstock.admin.leases import lease_operations
from penstock.admin.model import Input
from penstock.admin.openapi import describe
from penstock.admin.operation import API_PREFIX, Asked, Operation
from penstock.admin.parsing import decoded, query_texts, read_body, read_parameters
from penstock.admin.pipes import pipe_operations
from penstock.admin.ports import BrokerView, CallerCheck, Credentials
from penstock.admin.problems import (
    CONTENT_TYPE,
    RETRY_AFTER_SECONDS,
    RefusedError,
    refused,
    stopping,
)
from penstock.admin.refresh import refresh_operations
from penstock.admin.status import Alive, readiness, status
from penstock.core.errors import PenstockError
from penstock.core.metrics import Collected

BODY_BYTES_MAX: Final = 1_048_576
"""The largest body: a reset of a thousand topics with long names."""
REQUEST_SECONDS_MAX: Final = 60.0
"""Time for one request, from its head to the end of its answer."""
JSON: Final = "application/json"
CALLER: Final = "penstock.caller"
"""The caller in the scope of a request."""
CLIENT_CERTIFICATE: Final = "client_certificate"
"""The verified certificate of a caller in the state of a request, in DER."""
IDENTIFIED: Final = "identified"
"""In the state of a request: a function to call when its caller has proven its identity."""
LOST: Final = "lost"
"""In the state of a request: an event that is set when its connection is gone."""
READY: Final = "/health/ready"
"""Its answer is longer for callers with an identity."""

OPERATIONS: Final[tuple[Operation, ...]] = (
    *topics.OPERATIONS,
    *groups.OPERATIONS,
    *brokers.OPERATIONS,
    *transactions.OPERATIONS,
    *client_sessions.OPERATIONS,
    *push_sessions.OPERATIONS,
    *pipe_operations.OPERATIONS,
    *refresh_operations.OPERATIONS,
    *lease_operations.OPERATIONS,
)
"""All administrative operations."""

Endpoint = Callable[[Request], Awaitable[Response]]


def make_app(
    view: BrokerView, desk: Desk, check: CallerCheck, *, allowed_names: frozenset[str]
) -> ASGIApp:
    """Return the application for one broker."""
    document = json.dumps(describe(OPERATIONS, version=view.identity.version)).encode()

    async def metrics(request: Request) -> Response:
        _nothing_asked(request)
        _check_describe(request, check, "METRICS")
        collected, accept = view.metrics.collect(), request.headers.get("accept", "")
        page, content_type = await asyncio.to_thread(_metrics_page, collected, accept)
        return Response(page, media_type=content_type)

    async def live(request: Request) -> Response:
        _nothing_asked(request)
        return _answer(Alive())

    async def ready(request: Request) -> Response:
        _nothing_asked(request)
        found = readiness(view.facts())
        caller = request.scope.get(CALLER)
        if caller is None or not check.may_describe(caller):
            found = found.without_reasons()
        return _answer(found, 200 if found.ready else 503)

    async def show_status(request: Request) -> Response:
        _nothing_asked(request)
        _check_describe(request, check, "STATUS")
        return _answer(status(view))

    async def openapi(request: Request) -> Response:
        _nothing_asked(request)
        return Response(document, media_type=JSON)

    routes = [
        Route("/health/live", live),
        Route(READY, ready),
        Route("/metrics", metrics),
        Route(f"{API_PREFIX}/status", show_status),
        Route(f"{API_PREFIX}/openapi.json", openapi),
        *_routes(OPERATIONS, desk),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={
            HTTPException: _on_http_error,
            PenstockError: _on_error,
            Exception: _on_defect,
        },
    )
    app.router.redirect_slashes = False
    return Guard(app, check, allowed_names)


class Guard:
    """Checks of every request: allowed clients, identity, time limit, response headers."""

    def __init__(self, app: ASGIApp, check: CallerCheck, allowed_names: frozenset[str]) -> None:
        self._app = app
        self._check = check
        self._names = allowed_names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        assert scope["type"] == "http", scope["type"]
        has_begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                headers = MutableHeaders(scope=message)
                headers["date"] = formatdate(usegmt=True)
                headers["cache-control"] = "no-store"
                headers["x-content-type-options"] = "nosniff"
            await send(message)

        raw_path = scope["raw_path"].decode("ascii")
        refusal = objection(scope["method"], raw_path, Headers(scope=scope), self._names)
        if refusal is not None:
            await _problem(refusal)(scope, receive, send_with_headers)
            return
        why = f"The request took longer than {REQUEST_SECONDS_MAX:.0f} s."
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX) as limit:
                identified = {**scope, "path": raw_path}
                app = await self._identify(identified)
                await app(identified, receive, send_with_headers)
        except TimeoutError:
            if not limit.expired():
                raise  # raised by the application itself: a defect
        except asyncio.CancelledError:
            why = "The broker stopped before the request was done."
        else:
            return
        if not has_begun:
            await _problem(_unfinished(scope["method"], why))(scope, receive, send_with_headers)

    async def _identify(self, scope: MutableMapping[str, Any]) -> ASGIApp:
        """Add the caller to a request; return the application that answers it."""
        is_open = self._check.is_open(scope["path"])
        if is_open and scope["path"] != READY:
            return self._app
        try:
            caller = await self._check.identify(credentials(scope))
        except PenstockError as error:
            return self._app if is_open else _problem(problem_of(error))
        if caller is not None:
            scope[CALLER] = caller
            if (identified := scope.get("state", {}).get(IDENTIFIED)) is not None:
                identified()
        elif not is_open:
            return unidentified(self._check.challenge)
        return self._app


def _routes(operations: Sequence[Operation], desk: Desk) -> list[Route]:
    """Return one route for each path, so a wrong method gets a list of the allowed ones."""
    by_path = groupby(sorted(operations, key=lambda one: one.path), key=lambda one: one.path)
    return [
        Route(
            f"{API_PREFIX}{path}",
            _endpoint({one.method: one for one in some}, desk),
            methods=methods,
        )
        for path, found in by_path
        for some in [list(found)]
        for methods in [[one.method for one in some]]
    ]


def _endpoint(by_method: dict[str, Operation], desk: Desk) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        # A HEAD request is handled as GET; the server leaves the body out.
        method = "GET" if request.method == "HEAD" else request.method
        operation = by_method[method]
        try:
            asked = await _read(operation, request)
        except asyncio.CancelledError:
            raise (stopping() if desk.is_stopping else _no_body()) from None
        answer = await desk.carry_out(operation, asked, request.scope[CALLER])
        if answer is None:
            return Response(status_code=operation.status)
        response = _answer(answer, operation.status)
        if operation.location is not None:
            response.headers["location"] = f"{API_PREFIX}{operation.location(asked)}"
        return response

    return endpoint


async def _read(operation: Operation, request: Request) -> Asked:
    path = {name: decoded(text) for name, text in request.path_params.items()}
    return Asked(
        path=read_parameters(operation.path_model, path, "path"),
        query=read_parameters(
            operation.query_model, query_texts(request.scope["query_string"]), "query"
        ),
        body=await _read_body(operation, request),
    )


def _metrics_page(collected: Sequence[Collected], accept: str) -> tuple[bytes, str]:
    """Render metrics collected on the loop; on a thread, because the page may have megabytes."""
    from penstock.admin import metrics_page  # imported by the first scrape

    return metrics_page.write(collected, accept)


def credentials(scope: Scope) -> Credentials:
    """Return the proof of identity of a request."""
    headers, client = Headers(scope=scope), scope.get("client")
    given, state = headers.getlist("authorization"), scope.get("state", {})
    return Credentials(
        address=client[0] if client else "",
        authorization=given[0] if len(given) == 1 else None,
        certificate=state.get(CLIENT_CERTIFICATE),
        lost=state.get(LOST),
    )


def unidentified(challenge: str | None) -> Response:
    """Return the answer to a caller that did not prove its identity."""
    remedy = "Send the credentials of a user in the header Authorization."
    if challenge is None:
        remedy = "Connect with a client certificate that the broker trusts."
    refusal = refused(
        401, "Authentication required", "The identity of the caller is not proven.", remedy
    )
    return _problem(refusal, {} if challenge is None else {"www-authenticate": challenge})


def _check_describe(request: Request, check: CallerCheck, api: str) -> None:
    caller = request.scope.get(CALLER)
    if caller is not None and not check.may_describe(caller, api):
        raise refused(
            403,
            "Not allowed",
            f"{caller.principal} may not describe the cluster.",
            f"Allow it: `penstock acl add --principal {caller.principal} --operation describe "
            "--cluster`, or set admin.metrics_open for /metrics alone.",
        )


def _nothing_asked(request: Request) -> None:
    read_parameters(Input, query_texts(request.scope["query_string"]), "query")


async def _read_body(operation: Operation, request: Request) -> Input:
    if operation.body_model is None:
        return Input()
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != JSON:
        raise refused(
            415,
            "Not JSON",
            f"The body is {content_type or 'of no type'}, and {JSON} is expected.",
            f"Send JSON with `Content-Type: {JSON}`.",
        )
    data = bytearray()
    try:
        async for chunk in request.stream():
            data += chunk
            if len(data) > BODY_BYTES_MAX:
                raise refused(
                    413,
                    "Too large",
                    f"The body is larger than {BODY_BYTES_MAX} bytes.",
                    "Send several smaller requests.",
                )
    except ClientDisconnect as error:
        raise refused(400, "Malformed request", "The body ended too early.") from error
    return read_body(operation.body_model, bytes(data))


def _answer(answer: BaseModel, status_code: int = 200) -> Response:
    return Response(answer.model_dump_json(), status_code=status_code, media_type=JSON)


def _problem(error: RefusedError, headers: dict[str, str] | None = None) -> Response:
    extra = dict(headers or {})
    if error.retry_after_seconds is not None:
        extra["retry-after"] = str(error.retry_after_seconds)
    return Response(
        error.problem.model_dump_json(exclude_none=True),
        status_code=error.problem.status,
        headers=extra,
        media_type=CONTENT_TYPE,
    )


def _no_body() -> RefusedError:
    return refused(
        408,
        "Too slow",
        f"The body of the request did not come within {REQUEST_SECONDS_MAX:.0f} s.",
        "Nothing was done: repeat it, and send the whole body.",
    )


def _unfinished(method: str, why: str) -> RefusedError:
    """Return the error for a request that was abandoned during its execution."""
    if method in ("GET", "HEAD"):
        return refused(
            503,
            "Not finished",
            why,
            "Nothing was changed: repeat it.",
            retry_after_seconds=RETRY_AFTER_SECONDS,
        )
    return refused(
        504,
        "Outcome unknown",
        why,
        "It may or may not have been carried out: look before you repeat it.",
    )


async def _on_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, PenstockError)
    return _problem(problem_of(error))


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    remedy = "GET /api/v1/openapi.json lists the paths and methods."
    detail = f"{request.method} {request.scope['path']}: {error.detail}"
    refusal = refused(error.status_code, str(error.detail), detail, remedy)
    return _problem(refusal, dict(error.headers or {}))


async def _on_defect(_request: Request, _error: Exception) -> Response:
    return _problem(
        refused(
            500,
            "The broker failed",
            "This is a defect of Penstock.",
            "See the broker's log for it.",
        )
    )
