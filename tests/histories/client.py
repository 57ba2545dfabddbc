"""The port between a worker and a client library, and the reports of outcomes.

Guarantees that every adapter keeps: a call returns when its effect is certain; it raises `Refused`
when the effect certainly did not and will not happen, and `Unknown` in every other case. When in
doubt it is `Unknown`: a wrong `Refused` would make the checker accuse a correct broker.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from tests.checker.history import Send

Polled = dict[int, list[tuple[int, int]]]

DELIVERY_TIMEOUT_MS = 6_000
"""A record that is not acknowledged by then has an unknown outcome. Not above the shortest
transaction timeout: librdkafka refuses that."""
CALL_TIMEOUT_SECONDS = 10.0
"""For commits and questions: longer than a restart of the broker."""
BACKOFF_MS = 50
"""Between tries; the usual second would be most of a fault."""


class Refused(Exception):  # noqa: N818  an outcome, not a fault of the caller
    """It did not happen, and never will."""


class Unknown(Exception):  # noqa: N818
    """It may have happened, or may still happen."""


class SendsIncomplete(Exception):  # noqa: N818
    """Some sends were not acknowledged; `done` has the offsets that are known."""

    def __init__(self, reason: str, done: Sequence[Send], *, is_refused: bool) -> None:
        super().__init__(reason)
        self.done = list(done)
        self.is_refused = is_refused


class Moves:
    """Keys that the group gave and took."""

    def __init__(self) -> None:
        self.given: set[int] = set()
        self.taken: set[int] = set()

    def take(self) -> "Moves":
        """Everything noted so far; what comes later is noted anew."""
        noted = Moves()
        noted.given, self.given = self.given, set()
        noted.taken, self.taken = self.taken, set()
        return noted

    def add(self, other: "Moves") -> None:
        """Both together."""
        self.given |= other.given
        self.taken |= other.taken

    @property
    def keys(self) -> frozenset[int]:
        """Given or taken."""
        return frozenset(self.given | self.taken)


class Client(Protocol):
    """A producer and a consumer of one library."""

    def begin(self) -> None:
        """Begin a transaction."""
        ...

    def send(self, sends: Sequence[Send]) -> list[Send]:
        """Send all at once, wait for all; the same with offsets, or `SendsIncomplete`."""
        ...

    def poll(self, seconds: float, records_max: int) -> Polled:
        """What comes within this time; empty when nothing does, also without a broker."""
        ...

    def add_positions(self, positions: Mapping[int, int]) -> None:
        """Put the group's positions into the transaction."""
        ...

    def commit(self) -> None:
        """Commit the transaction; `Refused` when it is certainly aborted."""
        ...

    def abort(self) -> None:
        """Abort the transaction; any error means that the client is of no more use."""
        ...

    def commit_positions(self, positions: Mapping[int, int]) -> None:
        """Commit the group's positions, outside of a transaction."""
        ...

    def committed(self, keys: Sequence[int]) -> dict[int, int | None]:
        """The group's positions."""
        ...

    def assign(self, positions: Mapping[int, int]) -> None:
        """Read these keys from these offsets on, and no others."""
        ...

    def subscribe(self, keys: Sequence[int]) -> None:
        """Share the topics of these keys with the group."""
        ...

    def seek(self, key: int, offset: int) -> None:
        """Go back; any error means that the client is of no more use."""
        ...

    def take_moves(self) -> Moves:
        """What the group gave and took since the last asking."""
        ...

    def close(self) -> None:
        """Throw the client away; never raises."""
        ...
