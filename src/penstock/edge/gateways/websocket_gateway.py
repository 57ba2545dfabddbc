"""`WebSocketGateway`: accepts WebSockets at `/v1/push`, and opens their push sessions.

Guarantees: an upgrade is refused with a problem document, before any session exists, if its origin
is not allowed, it has a body, its subprotocol is unknown, its credentials are wrong, or the broker
has no room.
Browsers cannot send `Authorization` with a WebSocket: a client without it, of a listener with SASL,
sends its credentials in the first SUBSCRIBE.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from penstock.edge.gateways.gateway_problems import GatewayRefusedError, malformed
from penstock.edge.gateways.web_limits import FIRST_MESSAGE_BYTES_MAX, RETRY_AFTER_SECONDS
from penstock.edge.gateways.web_ports import BrowserRules, GatewayDoor, Proof
from penstock.edge.push.ports import PushDoor
from penstock.edge.push.server import PushServer

if TYPE_CHECKING:
    from penstock.edge.gateways.websocket_link import WebSocketLink

PATH: Final = "/v1/push"
PUSH: Final = "penstock.push.v1"
JSON: Final = "penstock.json.v1"
SWITCHING_PROTOCOLS: Final = 101
_USED: Final = (
    "host",
    "upgrade",
    "connection",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-protocol",
)


class WebSocketGateway:
    """The WebSockets of one address."""

    def __init__(self, server: PushServer, door: GatewayDoor, rules: BrowserRules) -> None:
        self._server = server
        self._door = door
        self._rules = rules

    async def open(
        self,
        path: str,
        headers: Sequence[tuple[str, str]],
        proof: Proof,
        raw: asyncio.Transport,
    ) -> "tuple[WebSocketLink, bytes]":
        """Return an open session and the answer that accepts it; raise `GatewayRefusedError`."""
        named = by_name(headers)
        found = self._rules.objection(named)
        if found is not None:
            raise GatewayRefusedError(found[0], "Not accepted", found[1], found[2])
        if path != PATH:
            raise GatewayRefusedError(
                404, "Not found", f"There is no WebSocket at {path[:256]!r}.", f"Use {PATH}."
            )
        _check_no_body(named)
        chosen = _chosen(headers)
        identified = await self._door.identify(proof)
        if identified is None and proof.authorization is not None:
            raise unauthorized()
        if raw.is_closing():
            raise malformed("The client closed the connection.")
        return self._accept(named, chosen, self._door.session_door(identified), raw)

    def _accept(
        self, headers: Mapping[str, str], chosen: str, door: PushDoor, raw: asyncio.Transport
    ) -> "tuple[WebSocketLink, bytes]":
        try:
            from websockets.http11 import Request
            from websockets.server import ServerProtocol
            from websockets.typing import Subprotocol

            from penstock.edge.gateways.websocket_link import WebSocketLink
        except ImportError as error:
            raise GatewayRefusedError(
                501,
                "Not installed",
                "This broker has no WebSockets, because a package is missing.",
                "Install it with `pip install 'penstock[gateways]'`, or use HTTP.",
            ) from error
        protocol = ServerProtocol(
            subprotocols=[Subprotocol(chosen)], max_size=FIRST_MESSAGE_BYTES_MAX
        )
        lines = [f"GET {PATH} HTTP/1.1"]
        lines += [f"{name}: {headers[name]}" for name in _USED if name in headers]
        protocol.receive_data("\r\n".join([*lines, "", ""]).encode("latin-1"))
        (request,) = protocol.events_received() or (None,)
        response = protocol.accept(request) if isinstance(request, Request) else None
        if response is None or response.status_code != SWITCHING_PROTOCOLS:
            raise malformed(
                f"The upgrade to a WebSocket is refused: "
                f"{protocol.handshake_exc or 'the request is not valid'}."
            )
        link = WebSocketLink(self._server, door, raw, protocol, is_json=chosen == JSON)
        if not link.begin():
            raise no_room()
        protocol.send_response(response)
        return link, b"".join(protocol.data_to_send())


def by_name(headers: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return headers by name; repeated ones are joined, so that no rule sees only one of them."""
    found: dict[str, str] = {}
    for name, value in headers:
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _check_no_body(headers: Mapping[str, str]) -> None:
    """Refuse a body: its bytes would be read as frames. Some clients declare an empty one."""
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers or length != "0":
        declared = "Transfer-Encoding" if "transfer-encoding" in headers else "Content-Length"
        raise malformed(
            f"The upgrade to a WebSocket has a body (the header {declared}), and must have none.",
            "Send frames after the answer with status 101.",
        )


def _chosen(headers: Sequence[tuple[str, str]]) -> str:
    """Return the first subprotocol of the client that is served here."""
    offered = [
        one.strip()
        for name, value in headers
        if name == "sec-websocket-protocol"
        for one in value.split(",")
    ]
    for one in offered:
        if one in (PUSH, JSON):
            return one
    raise malformed(
        f"The WebSocket offers the subprotocols {', '.join(offered)[:256] or 'none'}, and this "
        f"broker has {PUSH} and {JSON}.",
        f'Open it with one of them, such as new WebSocket(url, ["{JSON}"]).',
    )


def unauthorized() -> GatewayRefusedError:
    """Return the error of a client that did not prove its identity."""
    return GatewayRefusedError(
        401,
        "Authentication required",
        "The identity of the client is not proven.",
        "Send the credentials of a user in the header Authorization.",
    )


def no_room() -> GatewayRefusedError:
    """Return the error of a session above a limit."""
    return GatewayRefusedError(
        503,
        "Not now",
        "The broker has no room for another session, or it stops.",
        "Connect again in a moment, or raise edge.sessions_max.",
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )
