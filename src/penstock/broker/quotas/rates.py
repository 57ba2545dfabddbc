"""How much of a quota was used: sampled rates and token buckets, as Kafka computes them. Pure.

A rate is what was recorded in the last windows, divided by their time. Windows that have not passed
yet count as if they had, so a client may use ten seconds' worth at once and is asked to wait only
when its mean would be above the bound: X = (O - T) / T * W for an observed rate O, a bound T and a
time W lowers it to T.

A token bucket fills at the rate of the bound, up to what all windows together allow, and may be
overdrawn once. It is for changes that come in bursts: a large one does not block until it leaves
the windows, only until the bucket is full again.

Time is given in milliseconds and never goes back.
"""

from collections import deque
from typing import Final, NamedTuple

from penstock.core.limits import THROTTLE_MS_MAX

_MS: Final = 1000.0


class Windows(NamedTuple):
    """How long use is remembered."""

    number: int = 11
    """Windows, the one that has begun included."""
    size_ms: int = 1000

    @property
    def full_ms(self) -> int:
        """The time of the windows that are over."""
        return (self.number - 1) * self.size_ms


class _Sample:
    """The use in one window."""

    __slots__ = ("amount", "begun_ms", "last_ms")

    def __init__(self, now_ms: int) -> None:
        self.begun_ms = now_ms
        self.last_ms = now_ms
        self.amount = 0.0


class SampledRate:
    """The use of one client in the last windows."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()

    def record(self, amount: float, now_ms: int, windows: Windows) -> None:
        """Count an amount; a negative one undoes an earlier count."""
        samples = self._samples
        # A window begins with the first amount in it, so one without use takes no memory.
        if not samples or now_ms - samples[-1].begun_ms >= windows.size_ms:
            samples.append(_Sample(now_ms))
        sample = samples[-1]
        sample.amount += amount
        sample.last_ms = now_ms
        kept_ms = windows.number * windows.size_ms
        while now_ms - samples[0].last_ms >= kept_ms:
            samples.popleft()

    def charge(self, amount: float, limit: float, now_ms: int, windows: Windows) -> int:
        """Count something; how many milliseconds to wait until the rate is at the limit again."""
        self.record(amount, now_ms, windows)
        span_ms = self._span_ms(now_ms, windows)
        rate = sum(sample.amount for sample in self._samples) * _MS / span_ms
        if rate <= limit:
            return 0
        return _rounded((rate - limit) / limit * span_ms)

    def _span_ms(self, now_ms: int, windows: Windows) -> int:
        elapsed_ms = now_ms - self._samples[0].begun_ms
        missing = windows.number - 1 - elapsed_ms // windows.size_ms
        if missing > 0:
            elapsed_ms += missing * windows.size_ms
        return max(elapsed_ms, 1)

    def __len__(self) -> int:
        """Samples that are kept: at most one more than there are windows."""
        return len(self._samples)


class TokenBucket:
    """The tokens that one client has left."""

    __slots__ = ("_filled_ms", "_is_new", "_tokens")

    def __init__(self) -> None:
        self._tokens = 0.0
        self._filled_ms = 0
        self._is_new = True

    def wait_ms(self, limit: float, now_ms: int, windows: Windows) -> int:
        """How long until the bucket is no longer overdrawn."""
        self._fill(limit, now_ms, windows)
        return 0 if self._tokens >= 0 else _rounded(-self._tokens / limit * _MS)

    def take(self, amount: float, limit: float, now_ms: int, windows: Windows) -> None:
        """Use tokens, more than there are if need be."""
        self._fill(limit, now_ms, windows)
        self._tokens -= amount

    def _fill(self, limit: float, now_ms: int, windows: Windows) -> None:
        burst = windows.number * windows.size_ms / _MS * limit
        if self._is_new:
            self._tokens, self._is_new = burst, False
        else:
            self._tokens = min(burst, self._tokens + limit * (now_ms - self._filled_ms) / _MS)
        self._filled_ms = now_ms


def _rounded(wait_ms: float) -> int:
    return THROTTLE_MS_MAX if wait_ms >= THROTTLE_MS_MAX else int(wait_ms + 0.5)
