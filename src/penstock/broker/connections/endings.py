"""`Endings`: why the broker closed connections, counted by reason; and the budgets, shown.

A connection that the broker closes for what its client did is counted here once: at the door
(`refused`; for the quota of new connections it is counted there and closed a moment later), for a
time limit (`timed_out`), or for bytes that are not Kafka's (`broken`). Connections that a client
closes itself, that a stop of the broker closes, and that a defect of ours closes
(`handler_failures_total`) are not counted here. Pauses of reading are not endings; the budgets that
cause them count them. It decides nothing.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.broker.connections.entrance import Entrance
from penstock.broker.pacing.budget import MemoryBudget, RequestBudget
from penstock.broker.pacing.turns import TurnBudget
from penstock.core.errors import FrameError, PeerError, UnsupportedApiError
from penstock.core.metrics import Counter, Family, Registry, Row

logger = logging.getLogger(__name__)

TOO_MANY: Final = "all"
TOO_MANY_OF_ADDRESS: Final = "address"
TOO_MANY_OF_LISTENER: Final = "listener"
TOO_SOON: Final = "quota"
UNPROVEN: Final = "login_memory"
IDLE: Final = "idle"
UNFINISHED_REQUEST: Final = "unfinished_request"
UNREAD_ANSWERS: Final = "unread_answers"
FRAME_LENGTH: Final = "frame_length"
UNSUPPORTED_API: Final = "unsupported_api"
MALFORMED: Final = "malformed"

TIME_LIMITS: Final[Mapping[str, str]] = {
    IDLE: "the connection was idle",
    UNFINISHED_REQUEST: "a request was begun and not finished",
    UNREAD_ANSWERS: "the client does not read its answers",
}
"""The log message of each time limit."""

_TLS_HELLOS: Final = range(0x1603_0000, 0x1604_0000)
"""The first four bytes of a TLS client: a handshake record (22), version 3.x. As the length of a
frame they are 369 MB."""
_HTTP_METHODS: Final = frozenset(
    int.from_bytes(word) for word in (b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"DELE")
)


class Endings:
    """The counters of one listener."""

    __slots__ = ("broken", "refused", "timed_out")

    def __init__(self, metrics: Registry) -> None:
        self.refused: dict[str, Counter] = metrics.counters(
            "connections_refused_total",
            "Connections above a limit or a quota, which are not served.",
            "reason",
            (TOO_MANY, TOO_MANY_OF_ADDRESS, TOO_MANY_OF_LISTENER, TOO_SOON, UNPROVEN),
        )
        self.timed_out: dict[str, Counter] = metrics.counters(
            "connections_timed_out_total",
            "Connections ended by a time limit.",
            "reason",
            TIME_LIMITS,
        )
        self.broken: dict[str, Counter] = metrics.counters(
            "protocol_errors_total",
            "Connections closed for bytes not Kafka's.",
            "reason",
            (FRAME_LENGTH, UNSUPPORTED_API, MALFORMED),
        )

    def count_timed_out(self, reason: str, address: str) -> None:
        """A time limit ends a connection."""
        self.timed_out[reason].value += 1
        logger.info("closing the connection from %s: %s", address, TIME_LIMITS[reason])

    def count_broken(self, error: PeerError, address: str) -> None:
        """A peer broke the protocol."""
        logger.info("closing the connection from %s: %s", address, _meaning(error))
        reason = MALFORMED
        if isinstance(error, FrameError):
            reason = FRAME_LENGTH
        elif isinstance(error, UnsupportedApiError):
            reason = UNSUPPORTED_API
        self.broken[reason].value += 1


def _meaning(error: PeerError) -> str:
    """Return what an operator can do about an error of a peer, if its bytes show that."""
    if isinstance(error, FrameError):
        if error.length in _TLS_HELLOS:
            return (
                "the client uses TLS, and this listener does not. Set security.protocol to "
                "PLAINTEXT or SASL_PLAINTEXT in the client, or use the port of a listener with TLS"
            )
        if error.length in _HTTP_METHODS:
            return (
                "the client uses HTTP, and this is a port for Kafka clients. Metrics, health and "
                "the REST API are on the admin port (admin.port)"
            )
    return str(error)


def show_budgets(
    metrics: Registry, handling: RequestBudget, receiving: MemoryBudget, unsent: MemoryBudget
) -> None:
    """Register the use of the budgets, and how often connections waited for those of requests."""
    metrics.gauge("requests_in_flight", "Requests being handled.", lambda: handling.requests)
    metrics.gauge(
        "request_bytes_in_flight",
        "Bytes of requests being received or handled.",
        lambda: handling.reserved_bytes + receiving.reserved_bytes,
    )
    metrics.gauge(
        "unsent_answer_bytes",
        "Bytes of answers that clients are slow to take.",
        lambda: unsent.reserved_bytes,
    )

    def pauses() -> list[Row]:
        return [
            Row(("requests",), handling.request_pauses),
            Row(("request_bytes",), handling.pauses - handling.request_pauses),
            Row(("unfinished_bytes",), receiving.pauses),
        ]

    help_text = "Times a connection was not read from because a budget was spent."
    metrics.family("reads_paused_total", Family(help_text, ("reason",), pauses))


def show_entrances(metrics: Registry, entrances: Sequence[Entrance]) -> None:
    """Register the open connections of each listener."""

    def counts() -> list[Row]:
        return [Row((entrance.name,), entrance.connection_count) for entrance in entrances]

    help_text = "Open connections of each listener."
    metrics.family("listener_connections", Family(help_text, ("listener",), counts))


def show_turns(metrics: Registry, turns: TurnBudget) -> None:
    """Register how often requests had to wait for a later turn of the event loop."""
    help_text = "Times that requests in memory waited for a later turn of the event loop."
    metrics.family("turns_put_off_total", Family(help_text, (), lambda: [Row((), turns.yields)]))
    metrics.gauge(
        "turns_waiting",
        "Connections whose requests wait for a later turn of the event loop.",
        lambda: turns.waiting_count,
    )
