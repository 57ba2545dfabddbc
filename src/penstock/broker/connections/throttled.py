"""Writes the throttle time into an answer that is already built."""

from dataclasses import replace
from typing import Any, Final, cast

from penstock.broker.answers import Answer, EncodedAnswer, NoAnswer

_FLEXIBLE_PRODUCE_VERSION: Final = 9
"""Starting at this version an answer to Produce ends with a byte for the number of tagged
fields."""
_THROTTLE_TIME_BYTES: Final = 4


def throttled(answer: Answer, api_version: int, throttle_ms: int) -> Answer:
    """The answer with the throttle time; some old ones have no place for it."""
    if isinstance(answer, NoAnswer):
        return answer
    if isinstance(answer, EncodedAnswer):
        return EncodedAnswer(_produce_frame(answer.frame, api_version, throttle_ms))
    if not hasattr(answer, "throttle_time_ms"):
        return answer
    # An answer may be shared with other requests, so it is not changed.
    return cast("Answer", replace(cast("Any", answer), throttle_time_ms=throttle_ms))


def _produce_frame(frame: bytes, api_version: int, throttle_ms: int) -> bytes:
    """The throttle time is the last field of an answer to Produce, which has no tagged fields."""
    stop = len(frame) - (1 if api_version >= _FLEXIBLE_PRODUCE_VERSION else 0)
    start = stop - _THROTTLE_TIME_BYTES
    return frame[:start] + throttle_ms.to_bytes(_THROTTLE_TIME_BYTES) + frame[stop:]
