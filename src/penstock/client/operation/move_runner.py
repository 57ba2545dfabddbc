"""`MoveRunner`: carries out moves of replicas, a few at a time, and reports their progress.

The brokers copy; this only begins moves and waits. So a runner that ends early leaves the moves
that it began: they go on, and a new plan contains the rest. So does one whose moves make no
progress (`stalled_moves`): it ends with an error. A partition that was deleted meanwhile counts as
moved.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.client import calls
from penstock.client.cluster import Cluster
from penstock.client.operation.replica_moves import ReplicaMove
from penstock.client.operation.stalled_moves import (
    STALL_SECONDS,
    AddedReplica,
    MovingPartition,
    StallWatch,
)
from penstock.client.operation.state_reading import Disk, read_disks
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
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        """`at_once`: partitions that move at the same time.

        `stall_seconds`: the longest wait without progress; a throttle needs more.
        """
        self._cluster = cluster
        self._at_once = at_once
        self._report = report
        self._sleep = sleep
        self._stall_seconds = stall_seconds

    def run(self, moves: Iterable[ReplicaMove], begun: Iterable[ReplicaMove] = ()) -> None:
        """Carry out the moves; return when all are done. `begun`: moves that are under way.

        Raises the first error of a partition, or an error if there is no progress for too long;
        the moves that began go on.
        """
        clock = self._cluster.clock
        watch = StallWatch(clock.monotonic(), self._stall_seconds)
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
            ended = [at for at in running if at not in under_way]
            for at in ended:
                copied += running.pop(at).copied_bytes
                moved += 1
            disks = self._disks(running)
            parts = copied + _copied_parts(running, disks)
            self._report(MoveProgress(moved, total, parts, total_bytes))
            if not running and not waiting:
                return
            if few or ended:
                watch.progressed(clock.monotonic())
            if running:
                if watch.is_doubtful(clock.monotonic()):
                    self._look(watch, running, disks)
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

    def _disks(self, running: Mapping[TopicPartition, ReplicaMove]) -> dict[int, Disk]:
        """Return the disks with new replicas; a broker that is not reached is absent."""
        wanted = {one for move in running.values() for one in move.added}
        return read_disks(self._cluster, wanted) if wanted else {}

    def _look(
        self,
        watch: StallWatch,
        running: Mapping[TopicPartition, ReplicaMove],
        disks: Mapping[int, Disk],
    ) -> None:
        """Look whether new replicas come nearer; raise an error if they do not."""
        call = calls.describe_brokers(sorted({at.topic for at in running}))
        answer = self._cluster.repeat(lambda: self._cluster.anywhere(call), repeatable=True)
        moving: list[MovingPartition] = []
        for topic in answer.topics:
            for part in topic.partitions:
                at = TopicPartition(topic.name or "", part.partition_index)
                if at not in running:
                    continue
                behind = tuple(
                    AddedReplica(one, disks[one].sizes.get(at) if one in disks else None)
                    for one in running[at].added
                    if one not in part.isr_nodes
                )
                moving.append(MovingPartition(at, part.leader_id, behind))
        registered = {one.node_id for one in answer.brokers}
        watch.look(moving, registered, self._cluster.clock.monotonic())

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


def _copied_parts(running: Mapping[TopicPartition, ReplicaMove], disks: Mapping[int, Disk]) -> int:
    """Return the bytes that the new replicas have so far."""
    return sum(
        min(disks[one].sizes.get(move.at, 0), move.size_bytes)
        for move in running.values()
        for one in move.added
        if one in disks
    )
