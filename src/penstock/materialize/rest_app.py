"""The REST interface as ASGI: routes, bounds and problems. It opens no socket.

    GET  /health                200 unless UNHEALTHY (503); details for callers with the token
    GET  /v1/{topic}/{key}      one row
    GET  /v1/{topic}            rows by key: filter, limit, page
    POST /v1/query              one SELECT, read-only
    GET  /v1/export.sqlite      a copy of the file

Both GETs of rows accept `at_least=partition:offset` and `wait=seconds`. Every request is bounded:
its body, its time, its rows and bytes, and the number of concurrent queries and exports. Without a
token file there is no authentication; the command allows that only on a loopback address.
"""

import asyncio
import hmac
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, TypeVar
from urllib.parse import parse_qsl, unquote_to_bytes

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.admin.app import IDENTIFIED, LOST
from penstock.admin.browser_safety import objection
from penstock.admin.problems import CONTENT_TYPE, RefusedError, refused
from penstock.core.errors import InvalidRequestError, PenstockError
from penstock.materialize import rest_answers
from penstock.materialize.bounded_queries import BoundedQueries, QueryBounds
from penstock.materialize.file_export import copy_to_file
from penstock.materialize.index_columns import IndexColumn
from penstock.materialize.offset_waits import parse_at_least, parse_wait_seconds
from penstock.materialize.page_tokens import PageStart, read_token, write_token
from penstock.materialize.progress_board import ProgressBoard
from penstock.materialize.row_changes import Row, column_of, row_json
from penstock.materialize.row_filters import parse_filter
from penstock.materialize.store_health import Health, document, overall
from penstock.materialize.table_schema import EXPORT_PATH_NAME, table_name
from penstock.materialize.topic_decisions import TopicState

BODY_BYTES_MAX: Final = 262_144
REQUEST_SECONDS_MAX: Final = 60.0
"""Time for one request without an export."""
EXPORT_SECONDS_MAX: Final = 3_600.0
CHUNK_BYTES: Final = 262_144
CHUNK_SECONDS_MAX: Final = 30.0
"""A client of an export that does not read a chunk in this time is disconnected."""
QUERY_THREADS: Final = 4
QUERIES_WAITING_MAX: Final = 64
"""Queries that run or wait for a thread."""
EXPORTS_MAX: Final = 1
EXPORT_PATH: Final = f"/v1/{EXPORT_PATH_NAME}"
EXTEND: Final = "extend"
"""In the state of a request: a function that sets the deadline of its connection, in seconds."""
JSON: Final = "application/json"

_PARAMETERS: Final = frozenset({"at_least", "wait", "filter", "limit", "page"})

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Service:
    """The parts that requests use."""

    path: Path
    board: ProgressBoard
    queries: BoundedQueries
    columns: dict[str, tuple[IndexColumn, ...]]
    """The generated columns of each topic of this service."""
    allowed_names: frozenset[str]
    token: bytes | None = None
    bounds: QueryBounds = field(default_factory=QueryBounds)


class RestApp:
    """The ASGI application; `close` after the last request."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._threads = ThreadPoolExecutor(QUERY_THREADS, "query")
        self._running = 0
        self._exports = 0
        routes = [
            Route("/health", self._health),
            Route("/v1/query", self._query, methods=["POST"]),
            Route(EXPORT_PATH, self._export),
            Route("/v1/{topic}", self._rows),
            Route("/v1/{topic}/{key:path}", self._row),
        ]
        app = Starlette(
            routes=routes,
            exception_handlers={HTTPException: _on_http_error, PenstockError: _on_error},
        )
        app.router.redirect_slashes = False
        self._app: ASGIApp = app

    def close(self) -> None:
        """End the threads; no request may run."""
        self._threads.shutdown()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        assert scope["type"] == "http", scope["type"]
        raw_path = scope["raw_path"].decode("ascii")
        scope = {**scope, "path": raw_path}
        has_begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                headers = MutableHeaders(scope=message)
                headers["cache-control"] = "no-store"
                headers["x-content-type-options"] = "nosniff"
            await send(message)

        refusal = self._objection(scope)
        if refusal is not None:
            await _problem(refusal)(scope, receive, send_with_headers)
            return
        seconds_max = EXPORT_SECONDS_MAX if raw_path == EXPORT_PATH else REQUEST_SECONDS_MAX
        try:
            async with asyncio.timeout(seconds_max) as limit:
                await self._app(scope, receive, send_with_headers)
            return
        except TimeoutError:
            if not limit.expired():
                raise  # raised by the application itself: a defect
        if not has_begun:
            late = f"The request took longer than {seconds_max:.0f} s."
            await _problem(refused(503, "Not finished", late, "Repeat it."))(
                scope, receive, send_with_headers
            )

    def _objection(self, scope: Scope) -> RefusedError | None:
        """Return the error of a request from another site, or without the token."""
        headers, path = Headers(scope=scope), scope["path"]
        found = objection(scope["method"], path, headers, self._service.allowed_names)
        if found is not None:
            return refused(
                found.problem.status,
                found.problem.title,
                f"Rejected: host {headers.get('host', '')[:128]!r}, a page of another site, or a "
                "name that was not allowed.",
                "Use the address or localhost, or allow the name with --allowed-host.",
            )
        is_identified = self._is_identified(headers)
        scope["state"] = {**scope.get("state", {}), "is_identified": is_identified}
        if is_identified:
            if (keep_place := scope["state"].get(IDENTIFIED)) is not None:
                keep_place()
            return None
        if path == "/health":
            return None
        return refused(
            401,
            "Authentication required",
            "The token is missing or wrong.",
            "Send the header `Authorization: Bearer TOKEN`, with the token of --token-file.",
        )

    def _is_identified(self, headers: Headers) -> bool:
        token, given = self._service.token, headers.getlist("authorization")
        if token is None:
            return True
        if len(given) != 1 or not given[0].lower().startswith("bearer "):
            return False
        return hmac.compare_digest(given[0][7:].strip().encode("utf-8", "replace"), token)

    # --- Endpoints ---

    async def _health(self, request: Request) -> Response:
        facts = self._service.board.facts()
        health = overall(facts)
        is_identified = request.scope["state"]["is_identified"]
        answer = document(facts) if is_identified else {"status": health.value}
        return JSONResponse(answer, 503 if health is Health.UNHEALTHY else 200)

    async def _row(self, request: Request) -> Response:
        topic = self._topic(request)
        parameters = _query_parameters(request, {"at_least", "wait"})
        key = column_of(unquote_to_bytes(request.path_params["key"]))
        await self._wait(topic, parameters)
        sql = (
            f"SELECT {_ROW} FROM {table_name(topic)} "  # noqa: S608 (a checked name)
            'WHERE "key" = ? ORDER BY "timestamp" DESC, "partition" DESC LIMIT 1'
        )
        found = await self._in_thread(
            lambda: self._service.queries.own(sql, (key,), self._service.bounds)
        )
        if not found.rows:
            state = self._service.board.facts().topics[topic].state
            raise rest_answers.missing_key(topic, is_loading=state is not TopicState.FOLLOWING)
        return Response(row_json(_row_of(found.rows[0])), media_type=JSON)

    async def _rows(self, request: Request) -> Response:
        topic = self._topic(request)
        parameters = _query_parameters(request, _PARAMETERS)
        text = _one(parameters, "filter") or ""
        columns = {one.path.text: one.name for one in self._service.columns[topic]}
        condition = parse_filter(text, columns)
        limit = rest_answers.parse_limit(_one(parameters, "limit"))
        token = _one(parameters, "page")
        after = None if token is None else read_token(token, topic, text)
        await self._wait(topic, parameters)
        start = "" if after is None else ' AND ("key", "partition") > (?, ?)'
        sql = (
            f"SELECT {_ROW} FROM {table_name(topic)} "  # noqa: S608 (checked names)
            f'WHERE {condition.sql}{start} ORDER BY "key", "partition" LIMIT ?'
        )
        values = (*condition.parameters, *(after or ()), limit + 1)
        found = await self._in_thread(
            lambda: self._service.queries.own(sql, values, self._service.bounds)
        )
        rows = [_row_of(row) for row in found.rows[:limit]]
        next_page = None
        if rows and (found.is_truncated or len(found.rows) > limit):
            next_page = write_token(topic, text, PageStart(rows[-1].key, rows[-1].partition))
        return Response(rest_answers.page_json(rows, next_page), media_type=JSON)

    async def _query(self, request: Request) -> Response:
        _query_parameters(request, set())
        sql, values, limit = rest_answers.parse_query(await _body(request))
        bounds = self._service.bounds
        rows_max = min(limit or bounds.rows_max, bounds.rows_max)
        allowed = QueryBounds(bounds.seconds_max, rows_max, bounds.bytes_max)
        answer = await self._in_thread(
            lambda: rest_answers.result_json(self._service.queries.foreign(sql, values, allowed))
        )
        return Response(answer, media_type=JSON)

    async def _export(self, request: Request) -> Response:
        _query_parameters(request, set())
        if self._exports >= EXPORTS_MAX:
            raise refused(
                429, "Busy", "Another export runs.", "Repeat it later.", retry_after_seconds=10
            )
        state = request.scope["state"]
        lost: asyncio.Event | None = state.get(LOST)
        extend: Callable[[float], None] | None = state.get(EXTEND)
        is_ended = False
        self._exports += 1
        try:
            if extend is not None:
                extend(EXPORT_SECONDS_MAX)
            file = await asyncio.to_thread(
                copy_to_file,
                self._service.path,
                lambda: is_ended or (lost is not None and lost.is_set()),
            )
        except BaseException:
            is_ended = True
            self._exports -= 1
            raise
        return FileAnswer(file, self._export_ended, extend, lost)

    def _export_ended(self) -> None:
        self._exports -= 1

    # --- Parts of requests ---

    def _topic(self, request: Request) -> str:
        topic = unquote_to_bytes(request.path_params["topic"]).decode(errors="replace")
        if topic not in self._service.columns:
            raise rest_answers.unknown_topic(topic, list(self._service.columns))
        return topic

    async def _wait(self, topic: str, parameters: dict[str, list[str]]) -> None:
        """Wait for the offsets of `at_least`; raise an error if there are no rows in time."""
        seconds_max = parse_wait_seconds(_one(parameters, "wait"))
        wanted = parse_at_least(parameters.get("at_least", []))
        left = await self._service.board.wait(topic, wanted, seconds_max)
        if left:
            positions = self._service.board.facts().topics[topic].positions
            raise rest_answers.not_reached(topic, left, positions)
        if self._service.board.facts().topics[topic].generation == 0:
            raise refused(
                503,
                "Not loaded",
                f"topic {topic!r} has no table yet.",
                "See /health for the reason.",
                retry_after_seconds=1,
            )

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        """Run a query in a thread of its own; the number of waiting queries is bounded."""
        if self._running >= QUERIES_WAITING_MAX:
            raise refused(
                503,
                "Busy",
                f"{QUERIES_WAITING_MAX} queries run or wait.",
                "Repeat it later.",
                retry_after_seconds=1,
            )
        self._running += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._running -= 1


class FileAnswer(Response):
    """Streams an open file and closes it, also when the client is gone."""

    def __init__(
        self,
        file: BinaryIO,
        ended: Callable[[], None],
        extend: Callable[[float], None] | None,
        lost: asyncio.Event | None,
    ) -> None:
        size = file.seek(0, 2)
        file.seek(0)
        super().__init__(media_type="application/vnd.sqlite3")
        self.headers["content-length"] = str(size)
        self._file = file
        self._ended = ended
        self._extend = extend
        self._lost = lost

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the file in chunks; the deadline of the connection moves with each."""
        try:
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
            while chunk := await asyncio.to_thread(self._file.read, CHUNK_BYTES):
                if self._lost is not None and self._lost.is_set():
                    return
                if self._extend is not None:
                    self._extend(CHUNK_SECONDS_MAX)
                body = {"type": "http.response.body", "body": chunk, "more_body": True}
                await send(body)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._file.close()
            self._ended()


_ROW: Final = '"key", "partition", "value", "offset", "timestamp", "headers"'


def _row_of(values: tuple[str | bytes | int | float | None, ...]) -> Row:
    key, partition, value, offset, timestamp_ms, headers = values
    assert isinstance(key, str | bytes)
    assert isinstance(value, str | bytes)
    assert isinstance(partition, int)
    assert isinstance(offset, int)
    assert isinstance(timestamp_ms, int)
    assert headers is None or isinstance(headers, str)
    return Row(key, partition, value, offset, timestamp_ms, headers)


def _query_parameters(
    request: Request, allowed: "frozenset[str] | set[str]"
) -> dict[str, list[str]]:
    text = request.scope["query_string"].decode("latin-1")
    found: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=64, errors="strict")
    except ValueError:
        raise InvalidRequestError("the query of the URL cannot be parsed.") from None
    for name, value in pairs:
        if name not in allowed:
            raise InvalidRequestError(
                f"the parameter {name[:64]!r} is unknown.",
                hint=f"Known here: {', '.join(sorted(allowed)) or 'none'}.",
            )
        found.setdefault(name, []).append(value)
    return found


def _one(parameters: dict[str, list[str]], name: str) -> str | None:
    values = parameters.get(name, [])
    if len(values) > 1:
        raise InvalidRequestError(f"the parameter {name!r} occurs {len(values)} times.")
    return values[0] if values else None


async def _body(request: Request) -> bytes:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != JSON:
        raise refused(415, "Not JSON", "The body must be JSON.", f"Send `Content-Type: {JSON}`.")
    data = bytearray()
    try:
        async for chunk in request.stream():
            data += chunk
            if len(data) > BODY_BYTES_MAX:
                detail = f"The body is larger than {BODY_BYTES_MAX} bytes."
                raise refused(413, "Too large", detail, "Send a shorter query.")
    except ClientDisconnect as error:
        raise refused(400, "Malformed request", "The body ended too early.") from error
    return bytes(data)


def _problem(error: RefusedError) -> Response:
    headers = {"cache-control": "no-store"}
    if error.retry_after_seconds is not None:
        headers["retry-after"] = str(error.retry_after_seconds)
    if error.problem.status == 401:
        headers["www-authenticate"] = "Bearer"
    return Response(
        error.problem.model_dump_json(exclude_none=True),
        status_code=error.problem.status,
        headers=headers,
        media_type=CONTENT_TYPE,
    )


async def _on_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, PenstockError)
    return _problem(rest_answers.problem_of(error))


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = f"{request.method} {request.scope['path'][:256]}: {error.detail}"
    paths = "Paths are /health, /v1/{topic}, /v1/{topic}/{key}, /v1/query and /v1/export.sqlite."
    return _problem(refused(error.status_code, str(error.detail), detail, paths))
