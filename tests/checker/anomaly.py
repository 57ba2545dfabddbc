"""One thing that must not be, and the operations that show it."""

import dataclasses

from tests.checker.history import Op


@dataclasses.dataclass(frozen=True)
class Anomaly:
    """`name` is its kind; `text` describes it; `ops` show it."""

    name: str
    text: str
    ops: tuple[Op, ...]
    key: int | None = None
    values: tuple[int, ...] = ()
