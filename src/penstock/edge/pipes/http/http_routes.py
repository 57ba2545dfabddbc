"""The routes of pipes over HTTP, for children that reach their parent only by HTTP.

Guarantees: all numbers are bounded, unknown and repeated parameters are errors, and a topic that
the client may not read does not exist for it. The bodies of all answers under way are bounded by
`ANSWERS_BYTES_MAX`, also while a client reads slowly. A client above its fetch quota is asked to
come back later. A wait ends when the connection is lost. It does not authenticate clients and opens
no port: `edge.gateways` does, and mounts `pipe_routes`.
"""

import asyncio
import json
from collections.abc import Coroutine
from math import ceil
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from penstock.edge.gateways.gateway_problems import GatewayRefusedError, malformed
from penstock.edge.gateways.record_routes import query_of, topic_of
from penstock.edge.gateways.web_ports import CLIENT, LOST
from penstock.edge.pipes.http.catch_up import LAG_RECORDS_MAX, CatchUp
from penstock.edge.pipes.http.http_ports import (
    BYTES_MAX,
    PATH,
    TOPICS_MAX,
    WAIT_MS_MAX,
    PipeSource,
    SourcePartition,
)
from penstock.edge.pipes.pipe_status import matcher

ANSWERS_BYTES_MAX: Final = 134_217_728
"""Bodies that are being sent: 16 of the largest."""
PIECE_BYTES: Final = 65_536
"""A body is sent in pieces, each after the former one has left for the client."""
COMPARED_BYTES: Final = 1
"""`max_bytes` of a child that compares one batch; it needs no place among the readers."""
PATTERNS_MAX: Final = 256
OFFSET_MAX: Final = 2**63 - 1
_BATCHES: Final = "application/octet-stream"


class _Budget:
    """The bytes of answers under way."""

    def __init__(self) -> None:
        self.used_bytes = 0


class _Batches(Response):
    """Stored batches; their bytes are counted until they are sent, or the client is gone."""

    media_type = _BATCHES

    def __init__(
        self,
        records: memoryview,
        headers: dict[str, str],
        budget: _Budget,
        stopping: asyncio.Event | None,
    ) -> None:
        super().__init__(bytes(records), headers=headers)
        self._budget = budget
        self._stopping = stopping
        self._size_bytes = len(records)
        budget.used_bytes += self._size_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        try:
            await _unless(self._sent(send), self._stopping)
        finally:
            self._budget.used_bytes -= self._size_bytes

    async def _sent(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})
        body = memoryview(self.body)
        for begin in range(0, len(body), PIECE_BYTES):
            piece = bytes(body[begin : begin + PIECE_BYTES])
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class PipeRoutes:
    """The routes of one broker."""

    def __init__(self, source: PipeSource, stopping: asyncio.Event | None = None) -> None:
        self._source = source
        self._stopping = stopping
        self._budget = _Budget()
        self.catch_up = CatchUp()

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route(PATH, self._topics, methods=["GET"]),
            Route(f"{PATH}/{{topic}}/{{partition}}", self._batches, methods=["GET"]),
        ]

    async def _topics(self, request: Request) -> Response:
        query = query_of(request, {"topics"})
        patterns = tuple(query.get("topics", "*").split(","))
        if len(patterns) > PATTERNS_MAX:
            raise malformed(f"{len(patterns)} patterns, more than {PATTERNS_MAX}.")
        found = self._source.topics(request.scope[CLIENT], matcher(patterns))
        if len(found) > TOPICS_MAX:
            raise GatewayRefusedError(
                413,
                "Too large",
                f"{len(found)} topics match, more than {TOPICS_MAX}.",
                "Name fewer topics in the pipe, or use several pipes.",
            )
        rows = [
            {
                "name": one.name,
                "id": str(one.topic_id),
                "leader_epochs": list(one.leader_epochs),
                "settings": dict(one.settings),
            }
            for one in found
        ]
        return Response(json.dumps({"topics": rows}), media_type="application/json")

    async def _batches(self, request: Request) -> Response:
        topic, partition = topic_of(request), _number_in_path(request)
        query = query_of(request, {"offset", "epoch", "max_bytes", "wait_ms"})
        offset = _number(query, "offset", 0, 0, OFFSET_MAX)
        epoch = _number(query, "epoch", -1, -1, 2**31 - 1)
        bytes_max = _number(query, "max_bytes", 1_048_576, 0, BYTES_MAX)
        wait_ms = _number(query, "wait_ms", 0, 0, WAIT_MS_MAX)
        client = request.scope[CLIENT]
        found = self._find(client, topic, partition, epoch)
        headers = found.headers()
        if not bytes_max:
            return Response(status_code=204, headers=headers)
        status = _verdict(found, offset, epoch)
        if status is not None:
            return Response(status_code=status, headers=headers)
        if offset >= found.high_watermark and wait_ms:
            news = self._source.wait(topic, partition, offset, wait_ms / 1_000)
            await _unless(news, request.scope.get("state", {}).get(LOST), self._stopping)
            found = self._find(client, topic, partition, epoch)
            headers = found.headers()
            status = _verdict(found, offset, epoch)
        if status is not None or offset >= found.high_watermark:
            return Response(status_code=status or 204, headers=headers)
        self._admit(client, found.high_watermark - offset, bytes_max)
        self._budget.used_bytes += bytes_max
        try:
            records = await self._source.read(topic, partition, offset, bytes_max)
            self._source.charge(client, len(records))
            return _Batches(records, headers, self._budget, self._stopping)
        finally:
            self._budget.used_bytes -= bytes_max

    def _find(self, client: object, topic: str, partition: int, epoch: int) -> SourcePartition:
        found = self._source.partition(client, topic, partition, epoch)
        if found is None:
            raise GatewayRefusedError(
                404,
                "Not found",
                f"There is no partition {partition} of {topic} that you may read.",
                "List the topics with GET /v1/pipe, or allow READ with `penstock acl add`.",
            )
        return found

    def _admit(self, client: object, lag_records: int, bytes_max: int) -> None:
        source = self._source
        reader = source.reader(client)
        if lag_records <= LAG_RECORDS_MAX:
            self.catch_up.done(reader)
        wait: int | None = ceil(source.charge(client, 0)) or None
        why = "The fetch quota of the user is used up."
        if wait is None and bytes_max > COMPARED_BYTES:
            limit, now = source.catch_up_max(), source.monotonic()
            wait = self.catch_up.admit(reader, lag_records, limit, now)
            why = f"{self.catch_up.reader_count} children read old records already."
        if wait is None and self._budget.used_bytes + bytes_max > ANSWERS_BYTES_MAX:
            wait, why = 1, f"Answers of {self._budget.used_bytes} bytes are on their way already."
        if wait is not None:
            raise GatewayRefusedError(
                503,
                "Not now",
                why,
                "Repeat the request after the time in Retry-After.",
                retry_after_seconds=wait,
            )


async def _unless(work: Coroutine[None, None, None], *ends: asyncio.Event | None) -> None:
    """Do the work until one of the events is set."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work)]
        tasks += [group.create_task(_set(end)) for end in ends if end is not None]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()


async def _set(event: asyncio.Event) -> None:
    await event.wait()


def pipe_routes(source: PipeSource, stopping: asyncio.Event | None = None) -> list[Route]:
    """Return the routes of pipes, for the HTTP gateway; answers end when `stopping` is set."""
    return PipeRoutes(source, stopping).routes()


def _verdict(found: SourcePartition, offset: int, epoch: int) -> int | None:
    """Return the status for a position that this log does not have; None if it has it."""
    if offset < found.start_offset:
        return 410
    if offset > found.high_watermark or epoch > found.leader_epoch:
        return 409
    end = found.epoch_end
    is_other = epoch >= 0 and (end.epoch != epoch or 0 <= end.end_offset < offset)
    return 409 if is_other and end.end_offset >= 0 else None


def _number_in_path(request: Request) -> int:
    text = request.path_params["partition"]
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise malformed("The partition in the path is not a number.")
    return int(text)


def _number(query: dict[str, str], name: str, default: int, low: int, high: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        raise malformed(f"{name}={text[:40]!r} is not a number.")
    value = int(text)
    if not low <= value <= high:
        raise malformed(f"{name}={value} is not between {low} and {high}.")
    return value
