"""`AnswerGuard`: an answer of another etcd, or of a member that is behind, is not taken (pure).

Guarantees, for reads and transactions: an accepted answer is at least as new as everything this
process had seen when it asked, by revision and by raft term. etcd before 3.5.28 and 3.6.9 can
answer a read from a member that was paused with old state; such an answer is refused. An answer of
another etcd cluster is refused for every call: the addresses are mixed up, or etcd was created
again.

Expectations are taken when a request is sent, not when its answer comes: of two concurrent calls
the older answer may come second, and is right.
"""

from enum import Enum
from typing import NamedTuple

from penstock.cluster.etcd.etcd_messages import Header


class Judgement(Enum):
    """Whether an answer is taken."""

    ACCEPTED = "accepted"
    STALE = "stale"
    FOREIGN = "foreign"


class Expectation(NamedTuple):
    """The newest term and revision that were known when a request was sent."""

    raft_term: int
    revision: int


class AnswerGuard:
    """What the answers so far have shown."""

    def __init__(self) -> None:
        self._cluster_id = 0
        self._raft_term = 0
        self._revision = 0

    @property
    def cluster_id(self) -> int:
        """The etcd cluster of the first answer; 0 before it."""
        return self._cluster_id

    def expectation(self) -> Expectation:
        """Return what an answer to a request sent now must reach."""
        return Expectation(self._raft_term, self._revision)

    def saw_revision(self, revision: int) -> None:
        """Take note of a watched change: later reads must be as new."""
        self._revision = max(self._revision, revision)

    def judge(
        self, header: Header, expectation: Expectation, *, is_linearizable: bool
    ) -> Judgement:
        """Judge an answer, and remember an accepted one."""
        if self.is_foreign(header):
            return Judgement.FOREIGN
        self._cluster_id = self._cluster_id or header.cluster_id
        if not is_linearizable:
            return Judgement.ACCEPTED
        is_behind = header.raft_term < expectation.raft_term
        if is_behind or header.revision < expectation.revision:
            return Judgement.STALE
        self._raft_term = max(self._raft_term, header.raft_term)
        self._revision = max(self._revision, header.revision)
        return Judgement.ACCEPTED

    def is_foreign(self, header: Header) -> bool:
        """Return whether an answer comes from another etcd cluster than the first one."""
        return self._cluster_id not in (0, header.cluster_id)
