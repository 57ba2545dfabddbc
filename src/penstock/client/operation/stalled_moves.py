"""Moves that make no progress: when to give up the wait, and the words about it (pure).

Progress is a move that begins or ends, or a new replica that is not in sync and whose size changes.
A new replica that is in sync makes none: it grows as long as producers write, also while another
new replica of the same partition is on a broker that stopped. The moves themselves go on.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.client.operation.cluster_state import NO_LEADER
from penstock.core.errors import RequestTimedOutError
from penstock.core.types import TopicPartition

STALL_SECONDS: Final = 30.0
"""Without progress, until the wait ends."""
DOUBT_SECONDS: Final = 5.0
"""Without a move that begins or ends, until the new replicas are looked at."""
PARTITIONS_NAMED_MAX: Final = 3


class AddedReplica(NamedTuple):
    """A new replica that is not in sync."""

    broker_id: int
    size_bytes: int | None
    """None if its broker does not report it."""


class MovingPartition(NamedTuple):
    """A partition that moves, as the cluster describes it."""

    at: TopicPartition
    leader: int
    behind: tuple[AddedReplica, ...]
    """Without new replicas that are in sync."""


class StallWatch:
    """The time since the last progress of a run. The caller has the clock."""

    def __init__(self, now: float, stall_seconds: float) -> None:
        self._stall_seconds = stall_seconds
        self._progress_at = now
        self._seen: Mapping[TopicPartition, MovingPartition] | None = None

    def progressed(self, now: float) -> None:
        """A move has begun or ended."""
        self._progress_at = now

    def is_doubtful(self, now: float) -> bool:
        """Return whether the new replicas must be looked at."""
        return now - self._progress_at >= DOUBT_SECONDS

    def look(
        self, moving: Sequence[MovingPartition], registered: Collection[int], now: float
    ) -> None:
        """Compare with the last look; raise an error if there was no progress for too long."""
        seen = {one.at: one for one in moving}
        if self._seen is not None and seen != self._seen:
            self._progress_at = now
        self._seen = seen
        if now - self._progress_at >= self._stall_seconds:
            raise stalled(moving, registered, self._stall_seconds)


def stalled(
    moving: Sequence[MovingPartition], registered: Collection[int], seconds: float
) -> RequestTimedOutError:
    """Return the error about moves without progress: the first ones, each with its reason."""
    named = [f"{one.at} ({_reason(one, registered)})" for one in moving[:PARTITIONS_NAMED_MAX]]
    more = len(moving) - PARTITIONS_NAMED_MAX
    rest = f" and {more} more" if more > 0 else ""
    topics = {one.at.topic for one in moving}
    topic = topics.pop() if len(topics) == 1 else "TOPIC"
    return RequestTimedOutError(
        f"no progress for {seconds:.0f} s: {', '.join(named)}{rest}. The wait has ended, but the "
        "moves go on in the cluster.",
        hint=f"`penstock cluster status` shows brokers and moves. `penstock topic replicas {topic} "
        "--cancel` moves the replicas back.",
    )


def _reason(moving: MovingPartition, registered: Collection[int]) -> str:
    stopped = [one.broker_id for one in moving.behind if one.broker_id not in registered]
    if stopped:
        return f"broker {stopped[0]} is not registered: it does not run"
    if moving.leader == NO_LEADER:
        return "no broker leads it"
    if moving.behind:
        return f"the replica on broker {moving.behind[0].broker_id} does not catch up"
    return "its new replicas are in sync, and the controller does not complete the move"
