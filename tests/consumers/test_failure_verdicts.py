"""The table of verdicts: error handler, attempts, mode and dead-letter topic."""

import pytest

from penstock.consumers.delivery.failure_verdicts import Verdict, VerdictKind, judge
from penstock.consumers.handling import ErrorAction
from penstock.consumers.options import ConsumerOptions, Mode
from penstock.consumers.retry_policy import RetryPolicy

FANOUT, QUEUE = Mode.FANOUT, Mode.QUEUE
RETRY = ErrorAction.RETRY
POLICY = RetryPolicy(attempts=3, backoff="1s..4s", in_place="1s", jitter=False)


def options(mode: Mode, dead_letter: str | None) -> ConsumerOptions:
    return ConsumerOptions(topic="t", group="g", mode=mode, retry=POLICY, dead_letter=dead_letter)


@pytest.mark.parametrize("dead_letter", [None, "dlq.t"])
@pytest.mark.parametrize("mode", [FANOUT, QUEUE])
@pytest.mark.parametrize("attempt", [1, 3, 99])
def test_skip_and_stop_do_not_depend_on_attempts(
    mode: Mode, dead_letter: str | None, attempt: int
) -> None:
    chosen = options(mode, dead_letter)
    assert judge(chosen, attempt, ErrorAction.SKIP, 0.5) == Verdict(VerdictKind.SKIP)
    assert judge(chosen, attempt, ErrorAction.STOP, 0.5) == Verdict(VerdictKind.STOP)


@pytest.mark.parametrize("action", [None, RETRY])
def test_short_pauses_stay_in_place_and_long_ones_go_to_the_retry_topic(
    action: ErrorAction | None,
) -> None:
    chosen = options(FANOUT, None)
    assert judge(chosen, 1, action, 0.5) == Verdict(VerdictKind.RETRY_IN_PLACE, 1.0)
    assert judge(chosen, 2, action, 0.5) == Verdict(VerdictKind.RETRY_TOPIC, 2.0)


def test_a_queue_releases_after_a_bounded_pause() -> None:
    assert judge(options(QUEUE, None), 2, None, 0.5) == Verdict(VerdictKind.RELEASE, 1.0)


@pytest.mark.parametrize(
    ("mode", "dead_letter", "kind"),
    [
        (FANOUT, "dlq.t", VerdictKind.DEAD_LETTER),
        (QUEUE, "dlq.t", VerdictKind.DEAD_LETTER),
        (FANOUT, None, VerdictKind.STOP),
        (QUEUE, None, VerdictKind.REJECT),
    ],
)
@pytest.mark.parametrize("action", [None, RETRY, ErrorAction.DEAD_LETTER])
@pytest.mark.parametrize("attempt", [3, 4, 1_000])
def test_no_action_goes_beyond_the_attempts(
    mode: Mode,
    dead_letter: str | None,
    kind: VerdictKind,
    action: ErrorAction | None,
    attempt: int,
) -> None:
    assert judge(options(mode, dead_letter), attempt, action, 0.5) == Verdict(kind)


def test_a_dead_letter_can_be_chosen_at_once() -> None:
    chosen = judge(options(FANOUT, "dlq.t"), 1, ErrorAction.DEAD_LETTER, 0.5)
    assert chosen == Verdict(VerdictKind.DEAD_LETTER)
