"""`MemberRotation`: the member that calls are sent to, and when it is another one (pure).

Guarantees: all calls and watches use one member at a time. A failed attempt moves everything to the
next one, once: of many calls that fail on one member, only the first moves. Each move has a
number, and a watch that was opened under an earlier number is opened again, because a member that
hangs keeps its streams open and sends nothing.

It does NOT know whether a member is well. gRPC's own balancing is not used: a member that hangs
would keep its share of the calls.
"""

from typing import NamedTuple

from penstock.cluster.etcd.etcd_limits import PAUSE_SECONDS, PAUSE_SECONDS_MAX


class Place(NamedTuple):
    """A member, and the number of the move that led to it."""

    member: int
    move: int


class MemberRotation:
    """The members in the order of the settings."""

    def __init__(self, count: int, first: int = 0) -> None:
        assert count > 0, count
        self._count = count
        self._place = Place(first % count, 0)

    @property
    def place(self) -> Place:
        """The present member."""
        return self._place

    def leave(self, place: Place) -> bool:
        """Move to the next member, unless another call has moved before."""
        if place.move != self._place.move:
            return False
        self._place = Place((place.member + 1) % self._count, place.move + 1)
        return True

    def pause_seconds(self, failures: int) -> float:
        """Return the time to wait before the next attempt, after this number of failures.

        Within a round of the members there is none. After a round it doubles, so that calls do not
        spin while all members reject connections.
        """
        if failures == 0 or failures % self._count:
            return 0.0
        rounds = min(failures // self._count, 16)
        return min(PAUSE_SECONDS * 2.0 ** (rounds - 1), PAUSE_SECONDS_MAX)
