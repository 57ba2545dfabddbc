"""`WatchState`: where a watch stands, and what to do with its messages and faults (pure).

Guarantees:

- **Every change once, in order, one batch for each revision**, whatever streams the messages come
  from. A watch resumes after the last *delivered* revision. A change that comes after its revision
  was delivered raises `CompactedError`, so the reader loads everything again.
- **A refused watch is never taken for an open one.** etcd answers `created` and `canceled` in one
  message; `canceled` is looked at first.
- **Progress is not a place to resume at.** etcd before 3.4.25 and 3.5.8 can answer a progress
  request ahead of changes that it has not sent yet. Such an answer shows only that the member is
  alive.
"""

from collections.abc import Sequence
from enum import Enum
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from penstock.cluster.etcd.etcd_faults import Fault, Verdict, classify, classify_text
from penstock.cluster.etcd.etcd_limits import AUTHENTICATIONS_MAX
from penstock.cluster.etcd.etcd_messages import Revised, WatchMessage
from penstock.cluster.stores.port import CompactedError, EventBatch
from penstock.core.errors import StoreError

_revision_of = attrgetter("revision")


class WatchAction(Enum):
    """What to do after a message or a fault."""

    READ = "read"
    """Read the next message."""
    MOVE = "move"
    """Open the watch at another member."""
    AUTHENTICATE = "authenticate"
    """Get a new token and open the watch again."""


class WatchStep(NamedTuple):
    """Batches to deliver, and the next action."""

    batches: Sequence[EventBatch]
    action: WatchAction


class WatchState:
    """One watch of a prefix, over all its streams."""

    def __init__(self, from_revision: int, *, has_credentials: bool) -> None:
        self.next_revision = max(1, from_revision)
        """Where the next stream starts. For etcd, 0 would mean "now"."""
        self._has_credentials = has_credentials
        self._tokens = 0
        """New ones since a stream was open."""
        self._fragments: list[Revised] = []
        self.failures = 0
        """Streams in a row that ended before they were open."""

    def opening(self) -> None:
        """Begin a stream: the parts of an unfinished message are dropped."""
        self._fragments = []

    def take(self, message: WatchMessage) -> WatchStep:
        """Take a message of the present stream."""
        if message.is_canceled:
            return WatchStep((), self._canceled(message))
        self.failures = 0
        self._tokens = 0
        self._fragments.extend(message.events)
        if message.is_fragment:
            return WatchStep((), WatchAction.READ)
        events, self._fragments = self._fragments, []
        return WatchStep(self._batches(events), WatchAction.READ)

    def failed(self, fault: Fault) -> WatchAction:
        """Take the end of the present stream; raise the error if no other stream can help."""
        self.failures += 1
        verdict = classify(fault)
        if verdict in (Verdict.NOT_APPLIED, Verdict.AMBIGUOUS):
            return WatchAction.MOVE
        if verdict is Verdict.ANSWER_TOO_LARGE:
            raise CompactedError(f"more changes wait than one message may have ({fault})")
        if verdict is Verdict.COMPACTED:
            raise self._compacted(0)
        return self._refused(verdict, str(fault))

    def authenticated(self) -> None:
        """Take note of a new token: the next stream has it."""
        self._tokens += 1

    def authentication_failed(self, fault: Fault) -> WatchAction:
        """Return what to do without a token; raise the error if etcd rejects the user."""
        self.failures += 1
        verdict = classify(fault)
        if verdict in (Verdict.DENIED, Verdict.REFUSED, Verdict.UNAUTHENTICATED):
            raise self._refusal(str(fault))
        return WatchAction.MOVE

    def _canceled(self, message: WatchMessage) -> WatchAction:
        self.failures += 1
        reason = message.cancel_reason
        verdict = classify_text(reason)
        if message.compact_revision > 0 or verdict is Verdict.COMPACTED:
            raise self._compacted(message.compact_revision)
        if verdict is None or verdict is Verdict.NOT_APPLIED:
            return WatchAction.MOVE
        return self._refused(verdict, reason)

    def _refused(self, verdict: Verdict, text: str) -> WatchAction:
        # Releases of etcd 3.4 say "permission denied" also for a token that has expired.
        is_about_the_user = verdict in (Verdict.UNAUTHENTICATED, Verdict.DENIED)
        if is_about_the_user and self._has_credentials and self._tokens < AUTHENTICATIONS_MAX:
            return WatchAction.AUTHENTICATE
        raise self._refusal(text)

    def _refusal(self, text: str) -> StoreError:
        return StoreError(
            f"etcd refused to watch ({text}): check the user in `cluster`, and grant its role "
            "`read` on the cluster's prefix"
        )

    def _compacted(self, compact_revision: int) -> CompactedError:
        return CompactedError(
            f"changes since revision {self.next_revision} are no longer kept (compacted up to "
            f"{compact_revision or 'a later one'}): load everything again"
        )

    def _batches(self, events: Sequence[Revised]) -> Sequence[EventBatch]:
        batches = []
        for revision, group in groupby(events, key=_revision_of):
            if revision < self.next_revision:
                raise CompactedError(
                    f"a change of revision {revision} came when {self.next_revision} was expected: "
                    "load everything again"
                )
            self.next_revision = revision + 1
            changed = sorted((revised.event for revised in group), key=lambda event: event.key)
            batches.append(EventBatch(revision, tuple(changed)))
        return batches
