"""The rules of calls, against a simulated etcd that loses requests and answers at will."""

from dataclasses import dataclass, field
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.etcd.answer_guard import AnswerGuard
from penstock.cluster.etcd.etcd_calls import (
    END_SESSION,
    KEEP_ALIVE,
    OPEN_SESSION,
    READ,
    TRANSACT,
    Accept,
    AnswerTooLargeError,
    Authenticate,
    CallRules,
    CallSteps,
    Fail,
    Send,
)
from penstock.cluster.etcd.etcd_faults import Fault, StatusCode, Verdict, classify
from penstock.cluster.etcd.etcd_messages import Header
from penstock.cluster.etcd.member_rotation import MemberRotation, Place
from penstock.cluster.stores.port import CompactedError, SessionLostError
from penstock.core.errors import AmbiguousStoreError, StoreError

RULES = (READ, TRANSACT, OPEN_SESSION, END_SESSION, KEEP_ALIVE)


class Outcome(Enum):
    """What happens to one attempt: applied or not, and the answer or fault the client gets."""

    ANSWERED = "answered"
    NOT_CONNECTED = "not connected"
    NO_LEADER = "no leader"
    BUSY = "too many requests"
    TOKEN_EXPIRED = "token expired"
    REQUEST_LOST = "request lost"
    ANSWER_LOST = "answer lost"
    LATE = "applied late"
    STOPPED = "server stopped"
    STALE = "stale"


FAULTS = {
    Outcome.NOT_CONNECTED: Fault(None, "refused"),
    Outcome.NO_LEADER: Fault(StatusCode.UNAVAILABLE, "etcdserver: no leader"),
    Outcome.BUSY: Fault(StatusCode.RESOURCE_EXHAUSTED, "etcdserver: too many requests"),
    Outcome.TOKEN_EXPIRED: Fault(StatusCode.UNAUTHENTICATED, "etcdserver: invalid auth token"),
    Outcome.REQUEST_LOST: Fault(StatusCode.UNAVAILABLE, "Socket closed"),
    Outcome.ANSWER_LOST: Fault(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"),
    Outcome.LATE: Fault(StatusCode.UNAVAILABLE, "etcdserver: request timed out"),
    Outcome.STOPPED: Fault(StatusCode.UNAVAILABLE, "etcdserver: server stopped"),
}
APPLIES = {Outcome.ANSWERED, Outcome.ANSWER_LOST, Outcome.LATE, Outcome.STALE}


@dataclass
class SimulatedEtcd:
    """Applies requests and answers them as a script says; after the script it is well."""

    script: list[Outcome]
    revision: int = 10
    applied: int = 0
    attempts: int = 0
    members: list[int] = field(default_factory=list)

    def receive(self, place: Place, *, is_write: bool) -> Header | Fault:
        self.attempts += 1
        self.members.append(place.member)
        outcome = self.script.pop(0) if self.script else Outcome.ANSWERED
        if outcome in APPLIES:
            self.applied += 1
            self.revision += is_write
        if outcome is Outcome.ANSWERED:
            return Header(1, place.member, self.revision, 3)
        if outcome is Outcome.STALE:
            return Header(1, place.member, 5, 3)
        return FAULTS[outcome]


@dataclass
class Ended:
    error: StoreError | None
    seconds: float
    authentications: int


def carry_out(rules: CallRules, etcd: SimulatedEtcd, rotation: MemberRotation) -> Ended:
    """Run the steps, as the client does, with every attempt taking all its time."""
    guard = AnswerGuard()
    guard.judge(Header(1, 0, 10, 3), guard.expectation(), is_linearizable=True)
    now = 50.0
    authentications = 0
    steps = CallSteps(rules, rotation, guard, has_credentials=True, now=now)
    step: object = steps.begin()
    while True:
        match step:
            case Accept():
                return Ended(None, now - 50.0, authentications)
            case Fail(error):
                return Ended(error, now - 50.0, authentications)
            case Authenticate():
                authentications += 1
                step = steps.authenticated()
            case Send(place, timeout_seconds, pause_seconds):
                answer = etcd.receive(place, is_write=rules.has_effect)
                now += pause_seconds + timeout_seconds
                if isinstance(answer, Header):
                    step = steps.answered(answer, now)
                else:
                    step = steps.failed(answer, now)
            case _:
                raise AssertionError(step)


scripts = st.lists(st.sampled_from(list(Outcome)), max_size=12)


@given(scripts, st.integers(1, 5))
def test_a_transaction_is_applied_once_or_the_error_says_what_is_known(
    script: list[Outcome], members: int
) -> None:
    etcd = SimulatedEtcd(list(script))
    ended = carry_out(TRANSACT, etcd, MemberRotation(members))
    assert etcd.applied <= 1
    if ended.error is None:
        assert etcd.applied == 1
    elif not isinstance(ended.error, AmbiguousStoreError):
        assert etcd.applied == 0


@given(st.sampled_from(RULES), scripts, st.integers(1, 5))
def test_every_call_ends_and_is_right(
    rules: CallRules, script: list[Outcome], members: int
) -> None:
    etcd = SimulatedEtcd(list(script))
    ended = carry_out(rules, etcd, MemberRotation(members))
    assert ended.seconds <= rules.total_seconds + 2 * rules.attempt_seconds + 3
    assert ended.authentications <= 3
    if ended.error is None:
        assert etcd.applied >= 1
    elif rules.has_effect and etcd.applied:
        assert isinstance(ended.error, AmbiguousStoreError)


@given(scripts, st.integers(2, 5))
def test_a_read_is_never_stale_and_leaves_a_member_that_failed(
    script: list[Outcome], members: int
) -> None:
    etcd = SimulatedEtcd(list(script))
    ended = carry_out(READ, etcd, MemberRotation(members))
    if ended.error is None:
        assert (etcd.attempts - ended.authentications) == 1 + sum(
            outcome not in (Outcome.TOKEN_EXPIRED, Outcome.ANSWERED)
            for outcome in script[: etcd.attempts]
        )
    pairs = zip(etcd.members, etcd.members[1:], script, strict=False)
    for before, after, outcome in pairs:
        is_same = outcome is Outcome.TOKEN_EXPIRED
        assert (before == after) is is_same


def test_many_calls_that_fail_on_one_member_move_once() -> None:
    rotation = MemberRotation(3, first=4)
    assert rotation.place == Place(1, 0)
    place = rotation.place
    assert rotation.leave(place)
    assert not rotation.leave(place)
    assert rotation.place == Place(2, 1)


def test_pauses_are_between_rounds_and_grow_to_a_limit() -> None:
    rotation = MemberRotation(3)
    pauses = [rotation.pause_seconds(failures) for failures in range(13)]
    assert pauses == [0, 0, 0, 0.1, 0, 0, 0.2, 0, 0, 0.4, 0, 0, 0.5]
    assert rotation.pause_seconds(3 * 10**9) == 0.5


@pytest.mark.parametrize(
    ("code", "details", "verdict"),
    [
        (None, "", Verdict.NOT_APPLIED),
        (StatusCode.UNAVAILABLE, "etcdserver: no leader", Verdict.NOT_APPLIED),
        (StatusCode.UNAVAILABLE, "etcdserver: request timed out", Verdict.AMBIGUOUS),
        (
            StatusCode.UNAVAILABLE,
            "etcdserver: request timed out, possibly due to previous leader failure",
            Verdict.AMBIGUOUS,
        ),
        (StatusCode.UNAVAILABLE, "etcdserver: leader changed", Verdict.AMBIGUOUS),
        (StatusCode.UNAVAILABLE, "Socket closed", Verdict.AMBIGUOUS),
        (
            StatusCode.UNAVAILABLE,
            "failed to connect to all addresses; last error: UNKNOWN: Connection refused",
            Verdict.NOT_APPLIED,
        ),
        (StatusCode.UNAVAILABLE, "a proxy says: no leader", Verdict.AMBIGUOUS),
        (StatusCode.UNKNOWN, "not a primary lessor", Verdict.AMBIGUOUS),
        (StatusCode.CANCELLED, "", Verdict.AMBIGUOUS),
        (StatusCode.INTERNAL, "", Verdict.AMBIGUOUS),
        (StatusCode.DATA_LOSS, "etcdserver: corrupt cluster", Verdict.AMBIGUOUS),
        (StatusCode.NOT_FOUND, "etcdserver: requested lease not found", Verdict.SESSION_LOST),
        (
            StatusCode.OUT_OF_RANGE,
            "etcdserver: mvcc: required revision has been compacted",
            Verdict.COMPACTED,
        ),
        (
            StatusCode.OUT_OF_RANGE,
            "etcdserver: mvcc: required revision is a future revision",
            Verdict.FUTURE_REVISION,
        ),
        (StatusCode.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", Verdict.FULL),
        (
            StatusCode.RESOURCE_EXHAUSTED,
            "CLIENT: Received message larger than max (7 vs. 4)",
            Verdict.ANSWER_TOO_LARGE,
        ),
        (StatusCode.INVALID_ARGUMENT, "etcdserver: user name is empty", Verdict.UNAUTHENTICATED),
        (
            StatusCode.INVALID_ARGUMENT,
            "etcdserver: revision of auth store is old",
            Verdict.UNAUTHENTICATED,
        ),
        (StatusCode.INVALID_ARGUMENT, "etcdserver: request is too large", Verdict.REFUSED),
        (StatusCode.PERMISSION_DENIED, "etcdserver: permission denied", Verdict.DENIED),
        (StatusCode.UNIMPLEMENTED, "", Verdict.REFUSED),
    ],
)
def test_the_meaning_of_faults(code: StatusCode | None, details: str, verdict: Verdict) -> None:
    assert classify(Fault(code, details)) is verdict


def call(rules: CallRules, *, has_credentials: bool = False) -> CallSteps:
    return CallSteps(
        rules, MemberRotation(3), AnswerGuard(), has_credentials=has_credentials, now=0.0
    )


@pytest.mark.parametrize(
    ("details", "kind", "advice"),
    [
        ("etcdserver: requested lease not found", SessionLostError, "has ended"),
        ("etcdserver: mvcc: required revision has been compacted", CompactedError, "no longer"),
        ("etcdserver: mvcc: required revision is a future revision", StoreError, "yet to come"),
        ("etcdserver: permission denied", StoreError, "grant the user's role"),
        ("etcdserver: mvcc: database space exceeded", StoreError, "alarm disarm"),
        ("etcdserver: duplicate key given in txn request", StoreError, "refused a transaction"),
        ("etcdserver: invalid auth token", StoreError, "cluster.user"),
    ],
)
def test_refusals_name_the_next_step(details: str, kind: type[StoreError], advice: str) -> None:
    step = call(TRANSACT).failed(Fault(StatusCode.INVALID_ARGUMENT, details), 0.0)
    assert isinstance(step, Fail)
    assert type(step.error) is kind
    assert advice in str(step.error)


def test_a_wrong_password_ends_the_call_and_disabled_authentication_does_not() -> None:
    steps = call(TRANSACT, has_credentials=True)
    wrong = Fault(StatusCode.INVALID_ARGUMENT, "etcdserver: authentication failed, invalid user ID")
    failed = steps.authentication_failed(wrong, 0.0)
    assert isinstance(failed, Fail)
    assert "correct them" in str(failed.error)
    off = Fault(StatusCode.FAILED_PRECONDITION, "etcdserver: authentication is not enabled")
    assert isinstance(steps.authentication_failed(off, 0.0), Send)
    assert isinstance(steps.authentication_failed(Fault(None, ""), 0.0), Send)


def test_an_answer_that_is_too_large_is_an_error_of_its_own() -> None:
    fault = Fault(StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max")
    read, written = call(READ).failed(fault, 0.0), call(TRANSACT).failed(fault, 0.0)
    assert isinstance(read, Fail)
    assert isinstance(written, Fail)
    assert type(read.error) is AnswerTooLargeError
    assert type(written.error) is AmbiguousStoreError


def test_another_etcd_is_refused() -> None:
    for rules, kind in ((READ, StoreError), (TRANSACT, AmbiguousStoreError)):
        guard = AnswerGuard()
        guard.judge(Header(cluster_id=0xA), guard.expectation(), is_linearizable=False)
        steps = CallSteps(rules, MemberRotation(3), guard, has_credentials=False, now=0.0)
        step = steps.answered(Header(cluster_id=0xB, revision=99), 0.0)
        assert isinstance(step, Fail)
        assert type(step.error) is kind
        assert "cluster b, and earlier ones by a" in str(step.error)


def test_of_concurrent_answers_the_older_may_come_second() -> None:
    guard = AnswerGuard()
    steps = [
        CallSteps(READ, MemberRotation(3), guard, has_credentials=False, now=0.0) for _ in range(2)
    ]
    assert isinstance(steps[1].answered(Header(1, 2, 8, 4), 0.0), Accept)
    assert isinstance(steps[0].answered(Header(1, 1, 7, 3), 0.0), Accept)
    later = CallSteps(READ, MemberRotation(3), guard, has_credentials=False, now=0.0)
    assert isinstance(later.answered(Header(1, 1, 7, 4), 0.0), Send)
    assert isinstance(later.answered(Header(1, 1, 8, 3), 0.0), Send)
    assert isinstance(later.answered(Header(1, 1, 8, 4), 0.0), Accept)
    guard.saw_revision(12)
    last = CallSteps(READ, MemberRotation(3), guard, has_credentials=False, now=0.0)
    stale = last.answered(Header(1, 1, 11, 4), 9.0)
    assert isinstance(stale, Fail)
    assert "restored from an old backup" in str(stale.error)
