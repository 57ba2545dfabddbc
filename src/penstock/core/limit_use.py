"""`LimitUse`: the use of one limit. A plain value; the owner of the limit creates it."""

from typing import NamedTuple


class LimitUse(NamedTuple):
    """The present use of one limit."""

    name: str
    """The name of the limit, such as `connections`; a label of metrics, so it never changes."""
    current: float | None
    """None for a time limit: each client has its own time."""
    limit: float
    refused: int | None
    """Count of rejections, drops or waits for this limit since the start; None: not counted."""
    unit: str
