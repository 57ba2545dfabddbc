"""The routes of records: they parse queries and bodies, and write the answers.

Guarantees: an unknown or repeated parameter is an error, numbers are bounded, and names are decoded
once, as UTF-8.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Final, Literal, cast
from urllib.parse import parse_qsl, unquote_to_bytes

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from penstock.edge.gateways import web_limits as bounds
from penstock.edge.gateways.encoding_turns import EncodingTurns
from penstock.edge.gateways.event_stream import EventStream
from penstock.edge.gateways.gateway_bodies import BodyBudget, pause, read_body
from penstock.edge.gateways.gateway_problems import GatewayRefusedError, malformed
from penstock.edge.gateways.json_records import GivenRecord
from penstock.edge.gateways.record_publish import Publishes, all_placed, read_records
from penstock.edge.gateways.record_read import ReadRequest, Reads
from penstock.edge.gateways.stream_positions import PositionError, read_positions
from penstock.edge.gateways.web_ports import CLIENT, LOST, STREAMS, GatewayDoor
from penstock.edge.push.ports import PushDoor
from penstock.edge.push.server import PushServer
from penstock.protocol.push.data import NO_PARTITION, NO_TIMESTAMP
from penstock.protocol.push.payloads import OFFSET_MAX, PARTITION_MAX

IDENTITY: Final = "penstock.identified"
"""The client with the end of its credentials, in the scope of a request."""
UNLIMITED: Final = "penstock.unlimited"
"""In the scope of a request: a function to call when its answer has no time limit."""
JSON: Final = "application/json"
QUERY_FIELDS_MAX: Final = 16
Named = Literal["earliest", "latest"]


class RecordRoutes:
    """The routes of one broker."""

    def __init__(self, server: PushServer, door: GatewayDoor, stopping: asyncio.Event) -> None:
        self._server = server
        self._door = door
        self._publishes = Publishes(server.broker)
        self._turns = EncodingTurns()
        self._reads = Reads(server.broker, server.cache, self._turns, stopping)
        self._budget = BodyBudget()

    def routes(self) -> list[Route]:
        """Return the routes."""
        records = "/v1/topics/{topic}/records"
        return [
            Route(records, self._records, methods=["GET", "POST"]),
            Route("/v1/topics/{topic}/stream", self._stream, methods=["GET"]),
        ]

    async def _records(self, request: Request) -> Response:
        if request.method == "POST":
            return await self._publish(request)
        return await self._read(request)

    async def _publish(self, request: Request) -> Response:
        topic, client = topic_of(request), request.scope[CLIENT]
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        is_json = content_type == JSON
        query = query_of(request, set() if is_json else {"key", "partition", "timestamp"})
        limit = bounds.JSON_BODY_BYTES_MAX if is_json else bounds.BODY_BYTES_MAX
        async with read_body(request, limit, self._budget) as body:
            if is_json:
                records = await self._parsed(body)
            else:
                records = [_binary(query, bytes(body))]
            outcomes, wait = await self._publishes.publish(client, topic, records)
            del body, records
        if wait > 0:
            # Without the body: clients above their quota must not fill the budget of all.
            await pause(min(wait, bounds.QUOTA_SECONDS_MAX), _lost(request))
        places = all_placed(outcomes)
        rows = [{"partition": partition, "offset": offset} for partition, offset in places]
        return Response(json.dumps({"records": rows}), media_type=JSON)

    async def _parsed(self, body: bytearray) -> list[GivenRecord]:
        if len(body) <= bounds.PARSE_ON_LOOP_BYTES_MAX:
            return read_records(body)
        return await self._server.broker.run_heavy(lambda: read_records(body), len(body))

    async def _read(self, request: Request) -> Response:
        query = query_of(request, {"partition", "from", "max", "wait_ms"})
        start = query.get("from", "earliest")
        asked = ReadRequest(
            topic=topic_of(request),
            partition=_number(query, "partition", 0, 0, PARTITION_MAX),
            start=cast("Named", start)
            if start in ("earliest", "latest")
            else _number(query, "from", 0, 0, OFFSET_MAX),
            records_max=_number(
                query, "max", bounds.RECORDS_DEFAULT, 1, bounds.RECORDS_PER_REQUEST_MAX
            ),
            wait_ms=_number(query, "wait_ms", 0, 0, bounds.WAIT_MS_MAX),
        )
        found = await self._reads.read(request.scope[CLIENT], asked, _lost(request))
        return Response(json.dumps(found, separators=(",", ":")), media_type=JSON)

    async def _stream(self, request: Request) -> Response:
        if request.method != "GET":
            raise HTTPException(405, headers={"allow": "GET"})
        scope, topic = request.scope, topic_of(request)
        start = _stream_start(query_of(request, {"from"}), request.headers.get("last-event-id"))
        door = self._door.session_door(scope[IDENTITY])
        return _StreamAnswer(self._server, door, self._turns, topic, start)


class _StreamAnswer(Response):
    """Runs an `EventStream` on a connection."""

    def __init__(
        self,
        server: PushServer,
        door: PushDoor,
        turns: EncodingTurns,
        topic: str,
        start: object,
    ) -> None:
        super().__init__()
        self._turns = turns
        self._server = server
        self._door = door
        self._topic = topic
        self._start = start

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the events."""
        state = scope.get("state", {})
        begin = cast("Callable[[], Callable[[], None]] | None", state.get(STREAMS))
        cut = (lambda: None) if begin is None else begin()
        scope[UNLIMITED]()
        client = scope.get("client")
        stream = EventStream(
            self._server, self._door, self._turns, client[0] if client else "", cut
        )
        await stream.run(self._topic, self._start, send, state.get(LOST))


def _lost(request: Request) -> asyncio.Event | None:
    """Return the event that is set when the connection is gone."""
    return cast("asyncio.Event | None", request.scope.get("state", {}).get(LOST))


def topic_of(request: Request) -> str:
    """Return the name of the topic in a path."""
    try:
        topic = unquote_to_bytes(request.path_params["topic"]).decode()
    except UnicodeDecodeError:
        raise malformed("The name of the topic is not UTF-8.") from None
    if not 0 < len(topic) <= 249:
        raise GatewayRefusedError(404, "Not found", "The name of a topic has 1 to 249 characters.")
    return topic


def query_of(request: Request, known: set[str]) -> dict[str, str]:
    """Return the parameters of a query."""
    text = request.scope["query_string"].decode("latin-1")
    try:
        pairs = parse_qsl(
            text,
            keep_blank_values=True,
            strict_parsing=bool(text),
            errors="strict",
            max_num_fields=QUERY_FIELDS_MAX,
        )
    except ValueError:
        raise malformed("The query is not a list of name=value pairs in UTF-8.") from None
    found = dict(pairs)
    if len(found) != len(pairs):
        raise malformed("The query has a parameter twice.")
    unknown = sorted(found.keys() - known)
    if unknown:
        names = ", ".join(sorted(known)) or "none"
        raise malformed(f"Parameter {unknown[0][:64]!r} is unknown; known here: {names}.")
    return found


def _number(query: dict[str, str], name: str, default: int, least: int, most: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(OFFSET_MAX))
    if not is_number or not least <= int(text) <= most:
        raise malformed(
            f"Parameter {name!r} is {text[:64]!r}, which is not a number from {least} to {most}."
        )
    return int(text)


def _binary(query: dict[str, str], body: bytes) -> GivenRecord:
    key = query.get("key")
    return GivenRecord(
        _number(query, "partition", NO_PARTITION, 0, PARTITION_MAX),
        _number(query, "timestamp", NO_TIMESTAMP, 0, OFFSET_MAX),
        None if key is None else key.encode(),
        body,
        (),
    )


Start = Named | dict[int, int]


def _stream_start(query: dict[str, str], last_event_id: str | None) -> Start:
    """Return where a stream begins; the id of the last event is stronger than the query."""
    start = query.get("from", "latest")
    try:
        if last_event_id:
            return {one: last + 1 for one, last in read_positions(last_event_id).items()}
        if start in ("earliest", "latest"):
            return cast("Start", start)
        found = read_positions(start)
    except PositionError as error:
        raise malformed(f"The position of the stream is not valid: {error}.") from None
    if min(found.values()) < 0:
        raise malformed("The position of the stream is not valid: an offset in 'from' is below 0.")
    return dict(found)
