"""`CallSteps`: what to do next for one call to etcd, after each fault and answer (pure).

Guarantees:

- **A transaction is applied at most once.** It is sent again only after a fault that says it was
  not applied. After any other fault the call ends with `AmbiguousStoreError`, and the next call
  goes to another member.
- **An error that is not ambiguous means not applied.** Calls that may be sent twice (reads, ends of
  sessions, keep-alives) are sent to the next member after every fault that another member may not
  have.
- **A call ends**: no attempt begins after the total time, and a token is asked for at most three
  times.

It reads no clock: the caller passes the time. It sends nothing: `etcd_client` does.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.cluster.etcd import etcd_limits as limits
from penstock.cluster.etcd.answer_guard import AnswerGuard, Judgement
from penstock.cluster.etcd.etcd_faults import Fault, Verdict, classify
from penstock.cluster.etcd.etcd_messages import Header
from penstock.cluster.etcd.member_rotation import MemberRotation, Place
from penstock.cluster.stores.port import CompactedError, SessionLostError
from penstock.core.errors import AmbiguousStoreError, StoreError


@dataclass(frozen=True, slots=True)
class CallRules:
    """How one kind of call is sent."""

    name: str
    """For messages."""
    is_repeatable: bool
    """Whether twice is as good as once."""
    has_effect: bool
    """Whether a lost answer leaves the caller in doubt."""
    is_linearizable: bool
    """Whether its answer shows the newest state."""
    attempt_seconds: float = limits.ATTEMPT_SECONDS
    total_seconds: float = limits.TOTAL_SECONDS


READ: Final = CallRules("a read", is_repeatable=True, has_effect=False, is_linearizable=True)
TRANSACT: Final = CallRules(
    "a transaction", is_repeatable=False, has_effect=True, is_linearizable=True
)
OPEN_SESSION: Final = CallRules(
    # A lease whose answer was lost has no keys, and ends by itself.
    "the start of a session",
    is_repeatable=True,
    has_effect=False,
    is_linearizable=False,
)
END_SESSION: Final = CallRules(
    "the end of a session", is_repeatable=True, has_effect=True, is_linearizable=False
)
KEEP_ALIVE: Final = CallRules(
    "a keep-alive",
    is_repeatable=True,
    has_effect=False,
    is_linearizable=False,
    attempt_seconds=limits.KEEP_ALIVE_ATTEMPT_SECONDS,
    total_seconds=limits.KEEP_ALIVE_TOTAL_SECONDS,
)


class Send(NamedTuple):
    """Wait for the pause, then send the request to this member."""

    place: Place
    timeout_seconds: float
    pause_seconds: float


class Authenticate(NamedTuple):
    """Ask this member for a token."""

    place: Place
    timeout_seconds: float


class Fail(NamedTuple):
    """The call ends with this error."""

    error: StoreError


class Accept(NamedTuple):
    """The call ends with the answer."""


Step = Send | Authenticate | Fail | Accept


class AnswerTooLargeError(StoreError):
    """The answer to a read is above the limit: ask for fewer keys."""


class CallSteps:
    """One call."""

    def __init__(
        self,
        rules: CallRules,
        rotation: MemberRotation,
        guard: AnswerGuard,
        *,
        has_credentials: bool,
        now: float,
    ) -> None:
        self._rules = rules
        self._rotation = rotation
        self._guard = guard
        self._has_credentials = has_credentials
        self._deadline = now + rules.total_seconds
        self._place = rotation.place
        self._expectation = guard.expectation()
        self._failures = 0
        self._tokens = 0
        self._may_be_applied = False

    def begin(self) -> Send:
        """Return the first step."""
        return self._send()

    def answered(self, header: Header, now: float) -> Step:
        """Return what to do with an answer."""
        judgement = self._guard.judge(
            header, self._expectation, is_linearizable=self._rules.is_linearizable
        )
        if judgement is Judgement.ACCEPTED:
            return Accept()
        if judgement is Judgement.FOREIGN:
            self._rotation.leave(self._place)
            text = (
                f"{self._rules.name} was answered by the etcd cluster {header.cluster_id:x}, and "
                f"earlier ones by {self._guard.cluster_id:x}: check that all addresses in "
                "`cluster.etcd` belong to one etcd, and that it was not created again"
            )
            return Fail(AmbiguousStoreError(text) if self._rules.has_effect else StoreError(text))
        seen = self._expectation
        text = (
            f"etcd answered at revision {header.revision}, term {header.raft_term}, after revision "
            f"{seen.revision}, term {seen.raft_term} had been seen. The member is behind; if all "
            "members say so, etcd was restored from an old backup: restart the brokers"
        )
        return self._next(Verdict.STALE, text, now)

    def failed(self, fault: Fault, now: float) -> Step:
        """Return what to do after a failed attempt."""
        return self._next(classify(fault), str(fault), now)

    def authenticated(self) -> Send:
        """Return what to do with a new token: send again."""
        self._tokens += 1
        return self._send()

    def authentication_failed(self, fault: Fault, now: float) -> Step:
        """Return what to do without a token."""
        verdict = classify(fault)
        if verdict is Verdict.AUTHENTICATION_IS_OFF:
            return self._send()
        if verdict in (Verdict.DENIED, Verdict.REFUSED, Verdict.UNAUTHENTICATED):
            text = f"etcd rejected the user or the password in `cluster` ({fault}): correct them"
            return Fail(self._error(text))
        return self._retry(str(fault), now)

    def _next(self, verdict: Verdict, text: str, now: float) -> Step:
        if verdict is Verdict.UNAUTHENTICATED:
            return self._authenticate(text)
        if verdict is Verdict.NOT_APPLIED:
            return self._retry(text, now)
        if verdict in (Verdict.AMBIGUOUS, Verdict.STALE):
            self._may_be_applied = True
            if self._rules.is_repeatable:
                return self._retry(text, now)
            self._rotation.leave(self._place)
            return Fail(self._error(f"{self._rules.name} has no certain answer ({text})"))
        if verdict is Verdict.ANSWER_TOO_LARGE:
            self._may_be_applied = True
            return Fail(
                AmbiguousStoreError(f"the answer to {self._rules.name} is too large ({text})")
                if self._rules.has_effect
                else AnswerTooLargeError(text)
            )
        return Fail(self._refusal(verdict, text))

    def _authenticate(self, text: str) -> Step:
        if not self._has_credentials:
            return Fail(
                self._error(
                    f"etcd asks for a user ({text}): set `cluster.user` and a password, or a "
                    "client certificate whose common name is a user"
                )
            )
        if self._tokens == limits.AUTHENTICATIONS_MAX:
            return Fail(
                self._error(
                    f"etcd rejected {limits.AUTHENTICATIONS_MAX} new tokens ({text}): check its "
                    "`--auth-token` and that its members have the same time"
                )
            )
        return Authenticate(self._place, self._rules.attempt_seconds)

    def _retry(self, text: str, now: float) -> Step:
        self._rotation.leave(self._place)
        self._failures += 1
        if now >= self._deadline:
            return Fail(
                self._error(
                    f"{self._rules.name} failed {self._failures} times in "
                    f"{self._rules.total_seconds:g} s, last with: {text}. Check that most etcd "
                    "members run, are reachable and accept the certificates"
                )
            )
        return self._send()

    def _send(self) -> Send:
        self._place = self._rotation.place
        self._expectation = self._guard.expectation()
        pause = self._rotation.pause_seconds(self._failures)
        return Send(self._place, self._rules.attempt_seconds, pause)

    def _error(self, text: str) -> StoreError:
        """Return the error of a call that ends without an answer."""
        is_in_doubt = self._may_be_applied and self._rules.has_effect
        return AmbiguousStoreError(text) if is_in_doubt else StoreError(text)

    def _refusal(self, verdict: Verdict, text: str) -> StoreError:
        match verdict:
            case Verdict.SESSION_LOST:
                return SessionLostError(f"the session has ended ({text})")
            case Verdict.COMPACTED:
                return CompactedError(f"the revision is no longer kept ({text}): read at a newer")
            case Verdict.FUTURE_REVISION:
                return StoreError(f"the revision is yet to come ({text}): read it later")
            case Verdict.DENIED:
                return self._error(
                    f"etcd denied {self._rules.name} ({text}): grant the user's role `readwrite` "
                    "on the cluster's prefix"
                )
            case Verdict.FULL:
                return self._error(
                    f"etcd's database is full ({text}): compact and defragment it, then "
                    "`etcdctl alarm disarm`; enable automatic compaction"
                )
        return self._error(f"etcd refused {self._rules.name} ({text})")
