"""`LimitUse`: how much of one limit is used. A plain value; whoever has the limit makes it."""

from typing import NamedTuple


class LimitUse(NamedTuple):
    """One limit now."""

    name: str
    """What is limited, such as `connections`; the same for ever, since metrics carry it."""
    current: float | None
    """None for a time limit: each client has its own time."""
    limit: float
    refused: int | None
    """What was refused, dropped or made to wait for this limit since the start; None: uncounted."""
    unit: str
