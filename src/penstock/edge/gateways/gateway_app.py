"""The gateway for HTTP, as ASGI. It opens no socket.

    POST /v1/topics/{topic}/records    publish; the answer has partition and offset of each record
    GET  /v1/topics/{topic}/records    records of one partition, with a long poll
    GET  /v1/topics/{topic}/stream     records as server-sent events
    GET  /penstock.js, /penstock.d.ts  the library for browsers, and its types

WebSockets are at `/v1/push` (`websocket_gateway`). Guarantees: every request is bounded: its body,
its time and its answer. The rules for browsers and the identity of the client are checked before a
route runs. Every answer but a success is `application/problem+json`. A path is matched as it was
sent, before it is decoded. It decides nothing about records: `record_publish`, `record_read` and
`event_stream` do.
"""

import asyncio
import logging
from collections.abc import Sequence
from email.utils import formatdate
from importlib.resources import files
from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.core.errors import PenstockError
from penstock.edge.gateways.gateway_problems import GatewayRefusedError
from penstock.edge.gateways.record_routes import IDENTITY, UNLIMITED, RecordRoutes
from penstock.edge.gateways.web_limits import REQUEST_SECONDS_MAX
from penstock.edge.gateways.web_ports import (
    CERTIFICATE,
    CLIENT,
    IDENTIFIED,
    LOST,
    BrowserRules,
    GatewayDoor,
    Proof,
)
from penstock.edge.gateways.websocket_gateway import by_name, unauthorized
from penstock.edge.push.server import PushServer

logger = logging.getLogger(__name__)

SCRIPTS: Final = {"/penstock.js": "text/javascript", "/penstock.d.ts": "application/typescript"}
"""Files that need no login, and their types."""
_CORS_METHODS: Final = "GET, POST"
_CORS_HEADERS: Final = "authorization, content-type, last-event-id"
_CORS_SECONDS: Final = "600"


def make_gateway_app(
    server: PushServer,
    door: GatewayDoor,
    rules: BrowserRules,
    stopping: asyncio.Event,
    more_routes: Sequence[Route] = (),
) -> ASGIApp:
    """Return the application of one broker; reads end when `stopping` is set."""
    app = Starlette(
        routes=[
            *(Route(path, _script) for path in SCRIPTS),
            *RecordRoutes(server, door, stopping).routes(),
            *more_routes,
        ],
        exception_handlers={
            HTTPException: _on_http_error,
            PenstockError: _on_error,
            Exception: _on_defect,
        },
    )
    app.router.redirect_slashes = False
    return Guard(app, door, rules)


class Guard:
    """Checks of every request: browsers, identity, time limit, headers of the answer."""

    def __init__(self, app: ASGIApp, door: GatewayDoor, rules: BrowserRules) -> None:
        self._app = app
        self._door = door
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        assert scope["type"] == "http", scope["type"]
        has_begun = False
        headers = by_name(Headers(scope=scope).items())
        origin = self._rules.allowed_origin(headers)

        async def send_with_headers(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                _add_headers(MutableHeaders(scope=message), origin)
            await send(message)

        raw_path = scope["raw_path"].decode("ascii")
        answer = self._before(scope["method"], headers, origin)
        if answer is not None:
            await answer(scope, receive, send_with_headers)
            return
        asked = {**scope, "path": raw_path}
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX) as limit:
                asked[UNLIMITED] = lambda: limit.reschedule(None)
                app = await self._identify(asked)
                await app(asked, receive, send_with_headers)
        except TimeoutError:
            if not limit.expired():
                raise
        except asyncio.CancelledError:
            pass
        else:
            return
        if not has_begun:
            await _problem(_unfinished(scope["method"]))(scope, receive, send_with_headers)

    def _before(self, method: str, headers: dict[str, str], origin: str | None) -> Response | None:
        """Return the answer of a request that reaches no route; None for others."""
        found = self._rules.objection(headers)
        if found is not None:
            return _problem(GatewayRefusedError(found[0], "Not accepted", found[1], found[2]))
        if method == "OPTIONS" and origin is not None:
            return Response(
                status_code=204,
                headers={
                    "access-control-allow-methods": _CORS_METHODS,
                    "access-control-allow-headers": _CORS_HEADERS,
                    "access-control-max-age": _CORS_SECONDS,
                },
            )
        return None

    async def _identify(self, scope: Scope) -> ASGIApp:
        """Add the client to a request; return the application that answers it."""
        if scope["path"] in SCRIPTS:
            return self._app
        try:
            identified = await self._door.identify(proof_of(scope))
        except GatewayRefusedError as error:
            return _problem(error)
        if identified is None:
            answer = _problem(unauthorized())
            if self._door.challenge is not None:
                answer.headers["www-authenticate"] = self._door.challenge
            return answer
        scope[CLIENT], scope[IDENTITY] = identified.client, identified
        if (noted := scope.get("state", {}).get(IDENTIFIED)) is not None:
            noted()
        return self._app


def proof_of(scope: Scope) -> Proof:
    """Return the proof of identity of a request."""
    client, state = scope.get("client"), scope.get("state", {})
    given = Headers(scope=scope).getlist("authorization")
    return Proof(
        address=client[0] if client else "",
        authorization=given[0] if len(given) == 1 else None,
        certificate=state.get(CERTIFICATE),
        lost=state.get(LOST),
    )


def _add_headers(headers: MutableHeaders, origin: str | None) -> None:
    headers["date"] = formatdate(usegmt=True)
    headers.setdefault("cache-control", "no-store")
    headers["x-content-type-options"] = "nosniff"
    headers["cross-origin-resource-policy"] = "cross-origin" if origin else "same-origin"
    if origin is not None:
        headers["access-control-allow-origin"] = origin
        headers["access-control-expose-headers"] = "retry-after"
    headers.add_vary_header("Origin")


async def _script(request: Request) -> Response:
    path = request.url.path
    content = await asyncio.to_thread(_read_script, path.removeprefix("/"))
    return Response(
        content,
        media_type=SCRIPTS[path],
        headers={"cache-control": "public, max-age=300"},
        status_code=200 if request.method in ("GET", "HEAD") else 405,
    )


def _read_script(name: str) -> bytes:
    return files("penstock.edge").joinpath("static", name).read_bytes()


def _problem(error: GatewayRefusedError) -> Response:
    return Response(error.document(), status_code=error.status, headers=error.headers())


def _unfinished(method: str) -> GatewayRefusedError:
    why = f"The request was not finished within {REQUEST_SECONDS_MAX:.0f} s, or the broker stopped."
    if method in ("GET", "HEAD"):
        return GatewayRefusedError(503, "Not finished", why, "Repeat it.", retry_after_seconds=1)
    return GatewayRefusedError(
        504,
        "Outcome unknown",
        why,
        "The records may or may not be stored: check before you repeat the request.",
    )


async def _on_error(_request: Request, error: Exception) -> Response:
    if isinstance(error, GatewayRefusedError):
        return _problem(error)
    logger.error("a request over HTTP failed", exc_info=error)
    return _problem(
        GatewayRefusedError(
            503, "Not now", str(error), "Repeat it in a moment.", retry_after_seconds=1
        )
    )


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = f"{request.method} {request.scope['path'][:256]}: {error.detail}."
    answer = _problem(
        GatewayRefusedError(
            error.status_code,
            str(error.detail),
            detail,
            "Use /v1/topics/{topic}/records or /v1/topics/{topic}/stream.",
        )
    )
    answer.headers.update(error.headers or {})
    return answer


async def _on_defect(_request: Request, _error: Exception) -> Response:
    return _problem(
        GatewayRefusedError(
            500,
            "The broker failed",
            "This is a defect of Penstock.",
            "See the log of the broker for it.",
        )
    )
