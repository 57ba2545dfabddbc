"""How much of the listener's limits is used, for operators. It reads; it decides nothing."""

from penstock.broker.connections import endings
from penstock.broker.connections.listener_state import ListenerState
from penstock.core.limit_use import LimitUse


def listener_limits(state: ListenerState) -> list[LimitUse]:
    """Every limit of one listener; iterates over all connected addresses."""
    settings, why = state.settings, state.endings
    handling, receiving, unsent = state.handling, state.receiving, state.unsent
    refused, timed_out = why.refused, why.timed_out
    most = max(state.by_address.values(), default=0)
    too_many, of_address = endings.TOO_MANY, endings.TOO_MANY_OF_ADDRESS
    unread, unfinished = endings.UNREAD_ANSWERS, endings.UNFINISHED_REQUEST
    byte_pauses = handling.pauses - handling.request_pauses
    return [
        LimitUse(
            "connections",
            len(state.connections),
            settings.connections_max,
            refused[too_many].value,
            "connections",
        ),
        LimitUse(
            "connections_of_one_address",
            most,
            settings.connections_per_address_max,
            refused[of_address].value,
            "connections",
        ),
        LimitUse(
            "requests_in_flight",
            handling.requests,
            handling.requests_max,
            handling.request_pauses,
            "requests",
        ),
        LimitUse(
            "request_bytes_handled",
            handling.reserved_bytes,
            handling.bytes_max,
            byte_pauses,
            "bytes",
        ),
        LimitUse(
            "request_bytes_arriving",
            receiving.reserved_bytes,
            receiving.bytes_max,
            receiving.pauses,
            "bytes",
        ),
        LimitUse("unsent_answer_bytes", unsent.reserved_bytes, unsent.bytes_max, None, "bytes"),
        _time_limit("slow_reader", settings.slow_reader_seconds_max, timed_out[unread].value),
        _time_limit(
            "request_completion", settings.frame_completion_seconds_max, timed_out[unfinished].value
        ),
        _time_limit(
            "connection_idle", settings.connection_idle_seconds_max, timed_out[endings.IDLE].value
        ),
    ]


def _time_limit(name: str, seconds: float, ended: int) -> LimitUse:
    return LimitUse(name, None, seconds, ended, "seconds")
