"""The registry over HTTP, as ASGI. It opens no socket.

    PUT    /registry/v1/nodes/{id}           a node registers itself, or a change of itself
    GET    /registry/v1/topology/{id}        a node polls, with its instance and ETag
    GET    /registry/v1/tree                 operators: all nodes with their state
    GET    /registry/v1/nodes/{id}           operators: one node
    PATCH  /registry/v1/nodes/{id}           operators: role, parent, instance
    DELETE /registry/v1/nodes/{id}           operators: remove a node
    POST   /registry/v1/nodes/{id}/token     operators: create a node, or replace its key
    PATCH  /registry/v1/levels/{role}        operators: the topics of a level
    GET    /health                           200 while the registry answers; says nothing else

Every request is bounded: its body, its time, and the number of waiting ones. Every answer but a
success is `application/problem+json`. A node proves its identity by its token or its certificate,
an operator by the operator's token; a new node shows the join token too. Operations run on one
thread, in their order, so the event loop never waits for the disk.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import formatdate
from typing import Final, Protocol, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from penstock.core.errors import PenstockError
from penstock.edge.registry.documents import (
    Instance,
    LevelPatch,
    NodeId,
    NodePatch,
    Registration,
    entity_tag,
)
from penstock.edge.registry.identities import bearer_token, is_same, token_identity
from penstock.edge.registry.node_roles import Role
from penstock.edge.registry.registry_errors import (
    RegistryRefusedError,
    RegistryStoreError,
    forbidden,
    unauthorized,
)
from penstock.edge.registry.registry_service import Caller, RegistryService

logger = logging.getLogger(__name__)

PREFIX: Final = "/registry/v1"
BODY_BYTES_MAX: Final = 262_144
"""A level with 512 patterns of 249 characters has 130 KB."""
REQUEST_SECONDS_MAX: Final = 15.0
"""Time for one request, from its head to the end of its answer."""
WAITING_MAX: Final = 256
"""Operations that run or wait; each takes about a millisecond on a disk with a cache."""
RETRY_AFTER_SECONDS: Final = 5
JOIN_HEADER: Final = "penstock-join-token"
JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"

Body = TypeVar("Body", bound=BaseModel)
Result = TypeVar("Result")
_INSTANCE: Final[TypeAdapter[int]] = TypeAdapter(Instance)
_NODE_ID: Final[TypeAdapter[str]] = TypeAdapter(NodeId)


class Objection(Protocol):
    """The rules for browsers: `admin.browser_safety`, which `node` passes in."""

    def __call__(
        self, method: str, path: str, headers: Mapping[str, str]
    ) -> tuple[int, str] | None:
        """Return status and reason of a rejected request; None when it is accepted."""
        ...


@dataclass(frozen=True, slots=True)
class Keys:
    """The identities of the two tokens of a registry."""

    operator: str
    join: str


Certificate = Callable[[Scope], str | None]
"""Returns the identity of the certificate of a connection; None without a verified one."""


class RegistryDesk:
    """Runs operations on one thread, with a bound on waiting ones."""

    def __init__(self, service: RegistryService) -> None:
        self.service = service
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="registry")
        self._waiting = 0

    async def run(self, operation: Callable[[], Result]) -> Result:
        """Return the result of an operation; raise its error."""
        if self._waiting >= WAITING_MAX:
            raise RegistryRefusedError(
                503,
                "Busy",
                f"{self._waiting} requests are waiting (at most {WAITING_MAX})",
                "Nothing was done: repeat it in a moment.",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._worker, operation)
        finally:
            self._waiting -= 1

    def stop(self) -> None:
        """Run no more operations."""
        self._worker.shutdown(wait=True, cancel_futures=True)


class RegistryApp:
    """The application: checks of every request around the routes."""

    def __init__(
        self, desk: RegistryDesk, keys: Keys, objection: Objection, certificate: Certificate
    ) -> None:
        self._objection = objection
        self._app = _Endpoints(desk, keys, certificate).app()

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

        found = self._objection(scope["method"], scope["path"], Headers(scope=scope))
        if found is not None:
            refusal = RegistryRefusedError(
                found[0], "Not accepted", found[1], "Send it from a program, to this address."
            )
            await _problem(refusal)(scope, receive, send_with_headers)
            return
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX) as limit:
                await self._app(scope, receive, send_with_headers)
        except TimeoutError:
            if not limit.expired():
                raise
            if not has_begun:
                await _problem(_late())(scope, receive, send_with_headers)


class _Endpoints:
    """One method for each operation."""

    def __init__(self, desk: RegistryDesk, keys: Keys, certificate: Certificate) -> None:
        self._desk = desk
        self._service = desk.service
        self._keys = keys
        self._certificate = certificate

    def app(self) -> Starlette:
        """Return the routes."""
        node = f"{PREFIX}/nodes/{{id}}"
        app = Starlette(
            routes=[
                Route("/health", _health),
                _route(
                    node, PUT=self._register, GET=self._show, PATCH=self._patch, DELETE=self._remove
                ),
                _route(f"{node}/token", POST=self._token),
                _route(f"{PREFIX}/topology/{{id}}", GET=self._poll),
                _route(f"{PREFIX}/tree", GET=self._tree),
                _route(f"{PREFIX}/levels/{{role}}", PATCH=self._level),
            ],
            exception_handlers={
                HTTPException: _on_http_error,
                PenstockError: _on_error,
                Exception: _on_defect,
            },
        )
        app.router.redirect_slashes = False
        return app

    async def _register(self, request: Request) -> Response:
        node_id, caller = _node_id(request), self._caller(request)
        if caller.identity is None:
            raise unauthorized()  # before its body is read
        given = await _body(Registration, request)
        found = await self._desk.run(lambda: self._service.register(node_id, given, caller))
        return _answer(found, etag=entity_tag(found))

    async def _poll(self, request: Request) -> Response:
        node_id, caller = _node_id(request), self._caller(request)
        instance = _checked(_INSTANCE, request.query_params.get("instance", "0"), "instance")
        found = await self._desk.run(lambda: self._service.poll(node_id, instance, caller))
        etag = entity_tag(found)
        known = request.headers.get("if-none-match", "").split(",")
        if etag in (one.strip() for one in known):
            return Response(status_code=304, headers={"etag": etag})
        return _answer(found, etag=etag)

    async def _show(self, request: Request) -> Response:
        self._operator(request)
        node_id = _node_id(request)
        return _answer(await self._desk.run(lambda: self._service.node(node_id)))

    async def _patch(self, request: Request) -> Response:
        self._operator(request)
        node_id, given = _node_id(request), await _body(NodePatch, request)
        return _answer(await self._desk.run(lambda: self._service.patch(node_id, given)))

    async def _remove(self, request: Request) -> Response:
        self._operator(request)
        node_id = _node_id(request)
        await self._desk.run(lambda: self._service.remove(node_id))
        return Response(status_code=204)

    async def _token(self, request: Request) -> Response:
        self._operator(request)
        node_id = _node_id(request)
        found = await self._desk.run(lambda: self._service.issue_token(node_id))
        return _answer(found, status=201)

    async def _tree(self, request: Request) -> Response:
        self._operator(request)
        found = await self._desk.run(lambda: self._service.tree().model_dump_json())
        return Response(found, media_type=JSON)

    async def _level(self, request: Request) -> Response:
        self._operator(request)
        given = await _body(LevelPatch, request)
        role = request.path_params["role"]
        if role not in set(Role):
            raise _malformed(f"the role {role!r} is not one of {', '.join(Role)}")
        return _answer(await self._desk.run(lambda: self._service.set_level(Role(role), given)))

    def _caller(self, request: Request) -> Caller:
        token = _bearer(request)
        identity = self._certificate(request.scope)
        if identity is None and token is not None:
            identity = token_identity(token)
        shown = request.headers.getlist(JOIN_HEADER)
        has_joined = len(shown) == 1 and is_same(self._keys.join, token_identity(shown[0]))
        address = "" if request.client is None else request.client.host
        return Caller(identity, address, has_joined)

    def _operator(self, request: Request) -> None:
        token = _bearer(request)
        if token is None:
            raise unauthorized()
        if not is_same(self._keys.operator, token_identity(token)):
            raise forbidden("this needs the operator's token", "Name its file with --token-file.")


def _route(path: str, **methods: Callable[[Request], Awaitable[Response]]) -> Route:
    """Return one route for a path, so a wrong method gets a list of the allowed ones."""

    async def endpoint(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await methods[method](request)

    return Route(path, endpoint, methods=list(methods))


async def _health(_request: Request) -> Response:
    return Response('{"status":"ok"}', media_type=JSON)


def _bearer(request: Request) -> str | None:
    given = request.headers.getlist("authorization")
    return bearer_token(given[0]) if len(given) == 1 else None


def _node_id(request: Request) -> str:
    return _checked(_NODE_ID, request.path_params["id"], "id")


def _checked(adapter: TypeAdapter[Result], text: str, name: str) -> Result:
    try:
        return adapter.validate_strings(text)
    except ValidationError as error:
        raise _malformed(f"{name}: {_first(error)}") from error


async def _body(model: type[Body], request: Request) -> Body:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != JSON:
        raise RegistryRefusedError(
            415, "Not JSON", f"the body is not {JSON}", f"Send JSON with `Content-Type: {JSON}`."
        )
    data = bytearray()
    try:
        async for chunk in request.stream():
            data += chunk
            if len(data) > BODY_BYTES_MAX:
                raise RegistryRefusedError(
                    413,
                    "Too large",
                    f"the body is larger than {BODY_BYTES_MAX} bytes",
                    "Send fewer labels or patterns.",
                )
    except ClientDisconnect as error:
        raise _malformed("the body ended too early") from error
    try:
        return model.model_validate_json(bytes(data), strict=True)
    except ValidationError as error:
        raise _malformed(_first(error)) from error


def _first(error: ValidationError) -> str:
    """Return the first error without the value, which may be long."""
    one = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in one["loc"])[:200]
    return f"{where}: {one['msg']}" if where else one["msg"]


def _malformed(detail: str) -> RegistryRefusedError:
    return RegistryRefusedError(
        400, "Malformed request", detail, "See the guide of the registry for the request."
    )


def _late() -> RegistryRefusedError:
    return RegistryRefusedError(
        503,
        "Not finished",
        f"the request took longer than {REQUEST_SECONDS_MAX:.0f} s",
        "It may or may not have been carried out: show the tree before you repeat a change.",
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )


def _answer(document: BaseModel, *, etag: str | None = None, status: int = 200) -> Response:
    headers = {} if etag is None else {"etag": etag}
    return Response(
        document.model_dump_json(), status_code=status, headers=headers, media_type=JSON
    )


def _problem(error: RegistryRefusedError, headers: Mapping[str, str] | None = None) -> Response:
    extra = dict(headers or {})
    if error.retry_after_seconds is not None:
        extra["retry-after"] = str(error.retry_after_seconds)
    if error.status == 401:
        extra["www-authenticate"] = "Bearer"
    document = {
        "type": "about:blank",
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
        "remedy": error.remedy,
    }
    return Response(
        json.dumps(document), status_code=error.status, headers=extra, media_type=PROBLEM
    )


async def _on_error(_request: Request, error: Exception) -> Response:
    if isinstance(error, RegistryRefusedError):
        return _problem(error)
    assert isinstance(error, PenstockError)
    logger.error("%s. %s", error, error.hint)
    status = 503 if isinstance(error, RegistryStoreError) else 500
    return _problem(
        RegistryRefusedError(
            status,
            "Not stored",
            "the registry cannot store a change",
            "See its log. Nodes go on with their last topology.",
            retry_after_seconds=RETRY_AFTER_SECONDS,
        )
    )


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    refusal = RegistryRefusedError(
        error.status_code,
        str(error.detail),
        f"{request.method}: {error.detail}",
        "See the guide of the registry for its paths and methods.",
    )
    return _problem(refusal, error.headers)


async def _on_defect(_request: Request, _error: Exception) -> Response:
    return _problem(
        RegistryRefusedError(
            500, "The registry failed", "this is a defect of Penstock", "See the registry's log."
        )
    )
