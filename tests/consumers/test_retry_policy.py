"""Attempts and pauses: doubling windows, bounds, jitter by a given draw."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.consumers.limits import ATTEMPTS_MAX
from penstock.consumers.retry_policy import RetryPolicy, parse_duration
from penstock.core.errors import ConfigError


def test_windows_double_up_to_the_longest_pause() -> None:
    policy = RetryPolicy(attempts=12, backoff="100ms..30s", jitter=False)
    windows = [policy.pause_seconds(failed, 0.7) for failed in range(1, 12)]
    assert windows == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


def test_jitter_is_between_half_a_window_and_the_window() -> None:
    policy = RetryPolicy(backoff="2s")
    assert policy.pause_seconds(1, 0.0) == 1.0
    assert policy.pause_seconds(1, 0.5) == 1.5
    assert policy.pause_seconds(1, 1.0) == 2.0


@given(st.integers(1, ATTEMPTS_MAX), st.integers(1, 5_000), st.floats(0, 1), st.booleans())
def test_a_pause_is_never_above_its_window(
    attempts: int, failed: int, draw: float, jitter: bool
) -> None:
    policy = RetryPolicy(attempts=attempts, backoff="5ms..2m", jitter=jitter)
    assert 0 <= policy.pause_seconds(failed, draw) <= policy.window_seconds(failed) <= 120


def test_a_retry_topic_is_needed_for_long_pauses_only() -> None:
    assert not RetryPolicy().needs_topic  # 100, 200, 400, 800 ms
    assert RetryPolicy(attempts=6).needs_topic  # 1.6 s
    assert not RetryPolicy(attempts=6, in_place="2s").needs_topic
    assert not RetryPolicy(attempts=1, backoff="1h").needs_topic


@pytest.mark.parametrize(
    ("text", "seconds"), [("100ms", 0.1), ("30s", 30.0), ("1.5m", 90.0), ("1h", 3600.0), ("0s", 0)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text, "backoff") == seconds


@pytest.mark.parametrize("text", ["", "5", "ms", "-1s", "1d", "25h", "1s2", "nan s", "1e3s"])
def test_wrong_durations_name_value_and_form(text: str) -> None:
    with pytest.raises(ConfigError, match="not a duration between 0s and 24h") as raised:
        parse_duration(text, "backoff")
    assert "100ms" in raised.value.hint


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"attempts": 0}, "attempts is 0, it must be 1 to 1000"),
        ({"attempts": ATTEMPTS_MAX + 1}, "attempts is 1001"),
        ({"backoff": "30s..100ms"}, "begins above its end"),
        ({"backoff": "1s..2s..3s"}, "not a duration"),
        ({"in_place": "later"}, "in_place: 'later'"),
    ],
)
def test_wrong_policies(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        RetryPolicy(**wrong)  # type: ignore[arg-type]
