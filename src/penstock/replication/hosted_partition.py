"""`HostedPartition`: one partition on this broker, while it has one role in one leader epoch.

It joins the log, the role with its watermark, the rules for producers and the waiting requests. A
new role or a new epoch gets a new object over the same log. The old object leads no more, so a
request or a coordinator that holds it neither appends to a later epoch, nor takes the high
watermark of a later epoch for the commit of its own records. It decides nothing.
"""

from collections import deque
from uuid import UUID

from penstock.core.types import INTERNAL_TOPICS, TopicPartition
from penstock.records.validation import ProduceRules
from penstock.replication.partition import PartitionState
from penstock.replication.waits import PartitionWaits
from penstock.storage.log.leader_epochs import EpochEnd
from penstock.storage.log.partition_log import PartitionLog


class HostedPartition:
    """One partition that this node holds: log, role, rules for producers, waiting requests."""

    __slots__ = (
        "appended_bytes",
        "appended_records",
        "fetched_bytes",
        "is_internal",
        "is_mirror",
        "is_refreshing",
        "is_reserved",
        "log",
        "name",
        "refreshes",
        "rules",
        "state",
        "topic_id",
        "unseen",
        "unstable_bytes",
        "waits",
    )

    def __init__(
        self, log: PartitionLog, topic_id: UUID, rules: ProduceRules, state: PartitionState
    ) -> None:
        self.name: TopicPartition = log.topic_partition
        self.is_internal: bool = self.name.topic in INTERNAL_TOPICS
        """Whether a coordinator writes here; clients do not."""
        self.is_mirror: bool = False
        """Whether a pipe writes here; neither clients nor coordinators do."""
        self.is_refreshing: bool = False
        """Whether it has no leader because a snapshot replaces its log."""
        self.refreshes: int = 0
        """How often a snapshot replaced its log since it is served."""
        self.is_reserved: bool = self.is_internal
        """Whether clients do not write here, for one of both reasons."""
        self.topic_id = topic_id
        self.log = log
        self.rules = rules
        self.state = state
        self.waits = PartitionWaits(self.name, is_replicated=state.in_sync is not None)
        self.unseen: deque[tuple[int, int]] = deque()
        """(last offset, bytes) of each batch that the high watermark has not passed yet."""
        self.unstable_bytes = 0
        """Bound of the bytes that came below the high watermark while a transaction was open."""
        self.appended_bytes = self.appended_records = self.fetched_bytes = 0
        """Totals since it is served: appended, and returned by fetches."""

    def with_role(self, state: PartitionState) -> "HostedPartition":
        """Return the object of the next role; this one leads no more."""
        self.state.resign()
        successor = HostedPartition(self.log, self.topic_id, self.rules, state)
        successor.appended_bytes = self.appended_bytes
        successor.appended_records = self.appended_records
        successor.fetched_bytes = self.fetched_bytes
        successor.refreshes = self.refreshes
        successor.mark_mirror(is_mirror=self.is_mirror)
        return successor

    def mark_mirror(self, *, is_mirror: bool) -> None:
        """Let only a pipe write here, or clients again."""
        self.is_mirror = is_mirror
        self.is_reserved = is_mirror or self.is_internal

    @property
    def last_stable_offset(self) -> int:
        """All records below it are committed and their transactions decided."""
        high_watermark = self.state.high_watermark
        if self.log.producers.transactions.is_all_decided:
            return high_watermark
        return self.log.first_undecided(high_watermark)

    def take_visible(self, high_watermark: int) -> int:
        """Return the bytes that became visible; batches appended during the sync count later."""
        new_bytes = 0
        while self.unseen and self.unseen[0][0] < high_watermark:
            new_bytes += self.unseen.popleft()[1]
        return new_bytes

    def require_readable(self) -> None:
        """Raise the reason why the log is not served, if there is one."""
        if self.log.problem is not None:
            raise self.log.problem

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Where the largest epoch that is not above `epoch` ends.

        The current one ends where the log does, also before anything was written in it. So does the
        last one before it while nothing was: an epoch between the two has no records here.
        """
        log, leader_epoch = self.log, self.state.leader_epoch
        if epoch == leader_epoch:
            return EpochEnd(epoch, log.end_offset)
        if log.latest_epoch < epoch < leader_epoch:
            return EpochEnd(log.latest_epoch, log.end_offset)
        return log.end_offset_for_epoch(epoch)
