"""`MoveRunner`: carries out moves of replicas, a few at a time, and reports their progress.

The brokers copy; this only begins moves and waits. So a runner that ends early leaves the moves
that it began: they go on, and a new plan contains the rest. A partition that was
deleted meanwhile counts as moved.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.client.cluster import Cluster
from penstock.client.operation.replica_moves import ReplicaMove
from penstock.client.operation.state_reading import read_disks
from penstock.client.reassignment_calls import (
    alter_reassignments,
    elect_preferred,
    list_reassignments,
)
from penstock.client.transport.call import raise_error
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode

LOOK_SECONDS: Final = 0.5
"""Between two looks at the progress."""
ELECTIONS_PER_REQUEST: Final = 500

_GONE: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_NO_ELECTION: Final = frozenset(
    {ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, _GONE}
)
"""The first replica leads already, or cannot lead now."""


class MoveProgress(NamedTuple):
    """The state of all moves of a run."""

    moved: int
    total: int
    copied_bytes: int
    total_bytes: int


Report = Callable[[MoveProgress], None]


class MoveRunner:
    """Moves replicas of one cluster."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        at_once: int,
        report: Report = lambda _: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`at_once`: partitions that move at the same time."""
        self._cluster = cluster
        self._at_once = at_once
        self._report = report
        self._sleep = sleep

    def run(self, moves: Iterable[ReplicaMove], begun: Iterable[ReplicaMove] = ()) -> None:
        """Carry out the moves; return when all are done. `begun`: moves that are under way.

        Raises the first error of a partition; the moves that began go on.
        """
        waiting = list(moves)
        running = {move.at: move for move in begun}
        total = len(waiting) + len(running)
        total_bytes = sum(move.copied_bytes for move in (*waiting, *running.values()))
        moved = copied = 0
        while True:
            few = waiting[: max(0, self._at_once - len(running))]
            del waiting[: len(few)]
            running |= self._begun(few)
            under_way = self._cluster.repeat(
                lambda: self._cluster.anywhere(list_reassignments(self._cluster.timeout_ms)),
                repeatable=True,
            )
            for at in [at for at in running if at not in under_way]:
                copied += running.pop(at).copied_bytes
                moved += 1
            parts = copied + self._copied_parts(running)
            self._report(MoveProgress(moved, total, parts, total_bytes))
            if not running and not waiting:
                return
            if running:
                self._sleep(LOOK_SECONDS)

    def _begun(self, moves: Sequence[ReplicaMove]) -> dict[TopicPartition, ReplicaMove]:
        if not moves:
            return {}
        call = alter_reassignments(
            {move.at: move.after for move in moves}, self._cluster.timeout_ms
        )
        # The same target twice is the same reassignment.
        outcomes = self._cluster.repeat(lambda: self._cluster.anywhere(call), repeatable=True)
        begun: dict[TopicPartition, ReplicaMove] = {}
        for move in moves:
            code, message = outcomes[move.at]
            if code != _GONE:
                raise_error(code, message, str(move.at))
            begun[move.at] = move
        return begun

    def _copied_parts(self, running: Mapping[TopicPartition, ReplicaMove]) -> int:
        """Return the bytes that the new replicas have so far."""
        wanted = {one for move in running.values() for one in move.added}
        disks = read_disks(self._cluster, wanted) if wanted else {}
        return sum(
            min(disks[one].sizes.get(move.at, 0), move.size_bytes)
            for move in running.values()
            for one in move.added
            if one in disks
        )

    def let_first_lead(self, partitions: Iterable[TopicPartition]) -> int:
        """Let the first replica of each partition lead, if it is in sync; return how many do."""
        wanted = list(partitions)
        elected = 0
        for start in range(0, len(wanted), ELECTIONS_PER_REQUEST):
            elected += self._led_by_first(wanted[start : start + ELECTIONS_PER_REQUEST])
        return elected

    def _led_by_first(self, partitions: Sequence[TopicPartition]) -> int:
        call = elect_preferred(partitions, self._cluster.timeout_ms)
        outcomes = self._cluster.repeat(lambda: self._cluster.anywhere(call), repeatable=True)
        for at, (code, message) in outcomes.items():
            if code not in _NO_ELECTION:
                raise_error(code, message, str(at))
        return sum(code == ErrorCode.NONE for code, _ in outcomes.values())
