"""Logins that fail are delayed, others are not; the memory is bounded."""

import pytest

from penstock.security.sasl.throttle import (
    DELAY_SECONDS_MAX,
    FAILURES_FREE,
    STATES_MAX,
    LoginThrottle,
)


def failing(throttle: LoginThrottle, count: int, address: str, user: str, now: float) -> float:
    """The delay of the last of these failures."""
    return [throttle.failed(address, user, now) for _ in range(count)][-1]


def test_ten_failures_are_free_then_delays_grow_to_five_seconds() -> None:
    throttle = LoginThrottle()
    delays = [throttle.failed("10.0.0.1", "alice", 0.0) for _ in range(40)]
    assert delays[:FAILURES_FREE] == [0.0] * FAILURES_FREE
    assert delays[FAILURES_FREE] == 0.5
    assert delays == sorted(delays)
    assert delays[-1] == DELAY_SECONDS_MAX == 5.0


def test_the_rate_is_ten_a_minute() -> None:
    throttle = LoginThrottle()
    # One failure each six seconds is allowed for ever, one each five seconds is not.
    assert all(throttle.failed("a", "alice", 6.0 * number) == 0 for number in range(1_000))
    delays = [throttle.failed("b", "bob", 5.0 * number) for number in range(1_000)]
    assert delays[-1] > 0


def test_failures_are_forgotten() -> None:
    throttle = LoginThrottle()
    assert failing(throttle, 1_000, "10.0.0.1", "alice", 0.0) == 5.0
    assert throttle.succeeded("10.0.0.1", "alice", 59.0) > 0
    assert throttle.succeeded("10.0.0.1", "alice", 60.0) == 0
    assert throttle.failed("10.0.0.1", "alice", 121.0) == 0


def test_a_guess_is_as_slow_when_it_is_right() -> None:
    throttle = LoginThrottle()
    failing(throttle, 100, "10.0.0.1", "alice", 0.0)
    assert throttle.succeeded("10.0.0.1", "alice", 0.0) == 5.0


def test_the_user_is_not_delayed_elsewhere_and_neighbours_are_not_delayed() -> None:
    throttle = LoginThrottle()
    failing(throttle, 100, "10.0.0.1", "alice", 0.0)
    assert throttle.succeeded("10.0.0.2", "alice", 0.0) == 0
    assert throttle.succeeded("10.0.0.1", "bob", 0.0) == 0
    # A failure is: of the user from anywhere, and from the address for anyone.
    assert throttle.failed("10.0.0.2", "alice", 0.0) == 5.0
    assert throttle.failed("10.0.0.1", "bob", 0.0) == 5.0
    assert throttle.failed("10.0.0.3", "carol", 0.0) == 0


def test_a_failure_without_a_name_counts_for_the_address() -> None:
    throttle = LoginThrottle()
    assert failing(throttle, 100, "10.0.0.1", "", 0.0) == 5.0
    assert throttle.states == 1


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("unknown", "unknown", True),
        ("unknown", "another", False),
    ],
)
def test_a_host_counts_once(one: str, other: str, is_same: bool) -> None:
    throttle = LoginThrottle()
    failing(throttle, 100, one, "", 0.0)
    assert (throttle.failed(other, "", 0.0) > 0) is is_same


def test_the_memory_is_bounded_and_the_latest_stay() -> None:
    throttle = LoginThrottle()
    for number in range(STATES_MAX + 1_000):
        throttle.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", f"u{number}", 0.0)
    assert throttle.states == STATES_MAX
    throttle.failed("x" * 100_000, "y" * 100_000, 0.0)
    assert throttle.failed("x" * 100_000, "y" * 100_000, 0.0) == 0


def test_names_in_floods_do_not_evict_addresses() -> None:
    throttle = LoginThrottle(states_max=100)
    failing(throttle, 20, "10.0.0.1", "alice", 0.0)
    for number in range(1_000):
        throttle.failed("10.0.0.1", f"user-{number}", 0.0)
    assert throttle.failed("10.0.0.1", "another", 0.0) == 5.0


def test_a_clock_that_goes_back_gives_nothing() -> None:
    throttle = LoginThrottle()
    failing(throttle, 20, "10.0.0.1", "alice", 100.0)
    assert throttle.failed("10.0.0.1", "alice", 0.0) > 0
