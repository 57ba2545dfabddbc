"""Each time limit of a connection is found when it is used up, and not looked at much later."""

import pytest

from penstock.broker.connections import endings
from penstock.broker.connections.time_limits import TimeLimits
from penstock.core.settings.tree import ListenerSettings

SETTINGS = ListenerSettings(
    frame_completion_seconds_max=10.0,
    slow_reader_seconds_max=20.0,
    connection_idle_seconds_max=100.0,
)


@pytest.mark.parametrize(("now", "expected"), [(9.9, ""), (10.0, endings.UNFINISHED_REQUEST)])
def test_a_request_that_is_not_finished(now: float, expected: str) -> None:
    times = TimeLimits()
    times.frame_since = 0.0
    assert times.used_up(now, SETTINGS, None, is_answered=False) == expected


@pytest.mark.parametrize(("now", "expected"), [(99.9, ""), (100.0, endings.IDLE)])
def test_a_connection_without_requests(now: float, expected: str) -> None:
    times = TimeLimits()
    assert times.used_up(now, SETTINGS, None, is_answered=True) == expected
    assert times.used_up(now, SETTINGS, None, is_answered=False) == ""


def test_a_client_that_takes_no_answers() -> None:
    times = TimeLimits()
    times.frame_since = 0.0
    assert times.begin_stall(1.0, SETTINGS) == 6.0
    # It is the broker that does not read: the request does not count as unfinished.
    assert times.used_up(20.9, SETTINGS, 500, is_answered=False) == ""
    assert times.used_up(21.0, SETTINGS, 500, is_answered=False) == endings.UNREAD_ANSWERS
    assert times.used_up(22.0, SETTINGS, 499, is_answered=False) == "", "it took some"


def test_the_next_look_is_at_the_earliest_limit() -> None:
    times = TimeLimits()
    times.last_request_at = 5.0

    def next_check(*, answered: bool = True, muted: bool = False, stalled: bool = False) -> float:
        return times.next_check(
            50.0, SETTINGS, is_answered=answered, is_muted=muted, is_stalled=stalled
        )

    assert next_check() == 105.0
    assert next_check(answered=False) == 150.0
    assert next_check(stalled=True) == 55.0
    times.frame_since = 49.0
    assert next_check() == 59.0
    times.muted_until = 52.0
    assert next_check() == 59.0
    assert next_check(muted=True) == 52.0
