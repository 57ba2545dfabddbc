"""`LimitUse`: how much of one limit is used. A plain value; the owner of the limit creates it."""

from typing import NamedTuple


class LimitUse(NamedTuple):
    """One limit now."""

    name: str
    """The name of the limit, such as `connections`; a label of metrics, so it never changes."""
    current: float | None
    """None for a time limit: each client has its own time."""
    limit: float
    refused: int | None
    """Count of refusals, drops or waits for this limit since the start; None: uncounted."""
    unit: str
