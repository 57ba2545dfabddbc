"""Sampled rates and token buckets, beside plain models of Kafka's documentation."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.quotas.rates import SampledRate, TokenBucket, Windows
from penstock.core.limits import THROTTLE_MS_MAX

WINDOWS = Windows()
STEPS = st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 5_000)), min_size=1, max_size=60)
"""Time that passes, and what is used then."""
SHAPES = st.builds(Windows, st.integers(2, 12), st.integers(100, 2_000))


class PlainRate:
    """All samples since the start, added up again each time."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: list[list[float]] = []
        """When it began, when it was last added to, how much."""

    def charge(self, amount: float, limit: float, now_ms: int) -> int:
        windows = self._windows
        if not self._samples or now_ms - self._samples[-1][0] >= windows.size_ms:
            self._samples.append([now_ms, now_ms, 0.0])
        self._samples[-1][1] = now_ms
        self._samples[-1][2] += amount
        counted = [
            sample
            for sample in self._samples
            if now_ms - sample[1] < windows.number * windows.size_ms
        ]
        elapsed_ms = now_ms - min(sample[0] for sample in counted)
        missing = max(0, windows.number - 1 - math.floor(elapsed_ms / windows.size_ms))
        span_ms = max(1, elapsed_ms + missing * windows.size_ms)
        rate = sum(sample[2] for sample in counted) * 1000 / span_ms
        return math.floor((rate - limit) / limit * span_ms + 0.5) if rate > limit else 0


@given(SHAPES, STEPS, st.integers(1, 3_000))
def test_a_rate_is_that_of_the_plain_model(
    windows: Windows, steps: list[tuple[int, int]], limit: int
) -> None:
    rate, plain = SampledRate(), PlainRate(windows)
    now_ms = 0
    for passed_ms, amount in steps:
        now_ms += passed_ms
        wait_ms = rate.charge(amount, limit, now_ms, windows)
        assert wait_ms == plain.charge(amount, limit, now_ms)
        assert len(rate) <= windows.number + 1


@pytest.mark.parametrize("amount", [100, 500, 1_000, 5_000])
def test_who_waits_as_told_uses_what_the_limit_allows(amount: int) -> None:
    """Over a minute, but for the ten seconds that may be used at once."""
    rate, now_ms, used = SampledRate(), 0, 0
    while now_ms < 60_000:
        used += amount
        # A client needs a moment for each.
        now_ms += 1 + rate.charge(amount, 1_000, now_ms, WINDOWS)
    assert 0.9 < used / (now_ms + WINDOWS.full_ms) < 1.1


def test_what_windows_allow_may_be_used_at_once() -> None:
    assert SampledRate().charge(10_000, 1_000, 5, WINDOWS) == 0
    assert SampledRate().charge(10_100, 1_000, 5, WINDOWS) == 100
    assert SampledRate().charge(2e18, 0.5, 5, WINDOWS) == THROTTLE_MS_MAX


def test_what_was_taken_back_was_never_used() -> None:
    rate = SampledRate()
    assert rate.charge(50_000, 1_000, 0, WINDOWS) > 0
    rate.record(-50_000, 0, WINDOWS)
    assert rate.charge(10_000, 1_000, 0, WINDOWS) == 0


def test_use_is_forgotten_after_all_windows() -> None:
    rate = SampledRate()
    assert rate.charge(50_000, 1_000, 0, WINDOWS) == 40_000
    assert rate.charge(1, 1_000, 10_999, WINDOWS) > 0
    fresh = SampledRate()
    assert fresh.charge(50_000, 1_000, 0, WINDOWS) == 40_000
    assert fresh.charge(1, 1_000, 11_000, WINDOWS) == 0


@given(SHAPES, STEPS, st.floats(0.1, 1_000))
def test_a_bucket_is_that_of_the_plain_model(
    windows: Windows, steps: list[tuple[int, int]], limit: float
) -> None:
    bucket = TokenBucket()
    burst = windows.number * windows.size_ms / 1000 * limit
    tokens, now_ms = burst, 0
    for passed_ms, amount in steps:
        now_ms += passed_ms
        tokens = min(burst, tokens + limit * passed_ms / 1000)
        expected_ms = 0 if tokens >= 0 else math.floor(-tokens / limit * 1000 + 0.5)
        assert abs(bucket.wait_ms(limit, now_ms, windows) - expected_ms) <= 1
        bucket.take(amount, limit, now_ms, windows)
        tokens -= amount


def test_a_new_bucket_is_full_and_may_be_overdrawn_once() -> None:
    bucket = TokenBucket()
    assert bucket.wait_ms(2.0, 1_000, WINDOWS) == 0
    bucket.take(30, 2.0, 1_000, WINDOWS)
    assert bucket.wait_ms(2.0, 1_000, WINDOWS) == 4_000
    assert bucket.wait_ms(2.0, 4_999, WINDOWS) == 1
    assert bucket.wait_ms(2.0, 5_000, WINDOWS) == 0


def test_a_new_limit_counts_from_now_on() -> None:
    bucket = TokenBucket()
    bucket.take(30, 2.0, 0, WINDOWS)
    assert bucket.wait_ms(4.0, 0, WINDOWS) == 2_000
    assert bucket.wait_ms(4.0, 100_000, WINDOWS) == 0
    bucket.take(45, 4.0, 100_000, WINDOWS)
    assert bucket.wait_ms(4.0, 100_000, WINDOWS) == 250
