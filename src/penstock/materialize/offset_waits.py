"""`?at_least=partition:offset`: the condition of a request that waits for its own writes (pure).

The condition holds when the position of each partition is beyond the offset: then the record with
this offset is in the table, or was replaced by a later one. The time and number of waits are
bounded by the caller. It does NOT wait.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.core.errors import InvalidRequestError

CONDITIONS_MAX: Final = 1_024
WAIT_SECONDS_DEFAULT: Final = 5.0
WAIT_SECONDS_MAX: Final = 30.0

_CONDITION: Final = re.compile(r"(\d{1,9}):(\d{1,18})", re.ASCII)


def parse_at_least(texts: Sequence[str]) -> dict[int, int]:
    """Return the offset for each partition; a value may have several, with commas."""
    parts = [part for text in texts for part in text.split(",")]
    if len(parts) > CONDITIONS_MAX:
        raise InvalidRequestError(f"at_least has {len(parts)} parts, at most {CONDITIONS_MAX}.")
    wanted: dict[int, int] = {}
    for part in parts:
        found = _CONDITION.fullmatch(part.strip())
        if found is None:
            raise InvalidRequestError(
                f"at_least={part[:64]!r} is not partition:offset.", hint="Write at_least=0:42."
            )
        partition, offset = int(found[1]), int(found[2])
        wanted[partition] = max(offset, wanted.get(partition, -1))
    return wanted


def parse_wait_seconds(text: str | None) -> float:
    """Return the bound of a wait, or raise `InvalidRequestError`."""
    if text is None:
        return WAIT_SECONDS_DEFAULT
    if not re.fullmatch(r"\d{1,4}(\.\d{1,3})?", text, re.ASCII) or float(text) > WAIT_SECONDS_MAX:
        raise InvalidRequestError(
            f"wait={text[:64]!r} is not a number of seconds.",
            hint=f"Write 0 to {WAIT_SECONDS_MAX:g}.",
        )
    return float(text)


def missing(wanted: Mapping[int, int], positions: Mapping[int, int]) -> dict[int, int]:
    """Return the conditions that do not hold yet; empty when the request can be answered."""
    return {
        partition: offset
        for partition, offset in wanted.items()
        if positions.get(partition, 0) <= offset
    }
