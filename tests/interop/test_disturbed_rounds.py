"""A round in which the machine stood still is judged by lost and repeated records only."""

import time

import pytest

from tests.interop.session_rounds import DISTURBED_SECONDS, ClockWatch, Reading, Round
from tests.interop.test_secured_sessions import check_values

CLIENT = "java"
LATE = DISTURBED_SECONDS + 1


def of(*values: int, error: str = "", disturbed_seconds: float = 0.0) -> Round:
    return Round(3, {CLIENT: Reading(values, error, 0)}, disturbed_seconds)


def test_a_late_step_disturbs_a_round() -> None:
    clock = ClockWatch()
    clock.note(time.monotonic() + 1)
    assert clock.disturbed_seconds() < DISTURBED_SECONDS
    clock.note(time.monotonic() - LATE)
    assert of(disturbed_seconds=clock.disturbed_seconds()).is_disturbed


def test_a_clock_that_was_set_disturbs_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ClockWatch()
    now = time.clock_gettime(time.CLOCK_REALTIME)
    monkeypatch.setattr(time, "clock_gettime", lambda _clock: now - LATE)
    assert of(disturbed_seconds=clock.disturbed_seconds()).is_disturbed


def test_an_undisturbed_round_must_be_whole() -> None:
    whole = of(0, 1, 2)
    assert check_values([of(0, error="lost", disturbed_seconds=LATE), whole], CLIENT) == [whole]
    for broken in (of(0, 1), of(0, 1, 2, error="lost")):
        with pytest.raises(AssertionError):
            check_values([broken], CLIENT)


@pytest.mark.parametrize("values", [(0, 2), (0, 1, 1), (1, 0)])
def test_loss_order_and_repetition_are_judged_in_a_disturbed_round(values: tuple[int, ...]) -> None:
    with pytest.raises(AssertionError):
        check_values([of(*values, disturbed_seconds=LATE), of(0, 1, 2)], CLIENT)


def test_disturbed_rounds_alone_are_no_pass() -> None:
    with pytest.raises(AssertionError):
        check_values([of(0, 1, 2, disturbed_seconds=LATE)], CLIENT)
