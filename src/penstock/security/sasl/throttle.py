"""`LoginThrottle`: answers to clients that guess passwords are delayed (pure).

Failures are counted by address and by user, each in a token bucket: `FAILURES_FREE` failures, and
as many again in each minute. Above that, answers are delayed, the longer the more failures there
were, and never longer than `DELAY_SECONDS_MAX`.

A failed login is delayed by the worse of its two buckets. A good one is delayed only if both its
address and its user are above the limit, by the better of the two. So a program that guesses the
password of a user learns nothing from the speed of an answer. Two others are never delayed: the
same user at other addresses, and other users at the same address. It never locks a user out.

Addresses count as clients (`core.client_host`). The number of buckets is bounded; the one with the
oldest failure is evicted. It reads no clock.
"""

from collections import OrderedDict
from typing import Final

from penstock.core.client_host import host_of

FAILURES_FREE: Final = 10
REFILL_PER_SECOND: Final = FAILURES_FREE / 60
DEBT_MAX: Final = 10.0
"""Failures above the limit that are remembered: they are forgotten within a minute."""
DELAY_SECONDS_PER_FAILURE: Final = 0.5
DELAY_SECONDS_MAX: Final = 5.0
STATES_MAX: Final = 20_000
"""Buckets in all, half of them for addresses and half for users: 4 MB."""

_NAME_CHARACTERS_MAX: Final = 255


class _Buckets:
    """The buckets of one kind of key: tokens left, and the time of the last change."""

    __slots__ = ("_buckets", "_states_max")

    def __init__(self, states_max: int) -> None:
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._states_max = states_max

    def __len__(self) -> int:
        return len(self._buckets)

    def spend(self, key: str, now_seconds: float) -> None:
        """Count a failure."""
        left = max(self._left(key, now_seconds) - 1, -DEBT_MAX)
        self._buckets[key] = (left, now_seconds)
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._states_max:
            self._buckets.popitem(last=False)

    def delay_seconds(self, key: str, now_seconds: float) -> float:
        """Return the delay that the failures so far have caused."""
        debt = -self._left(key, now_seconds)
        return min(max(debt, 0.0) * DELAY_SECONDS_PER_FAILURE, DELAY_SECONDS_MAX)

    def _left(self, key: str, now_seconds: float) -> float:
        found = self._buckets.get(key)
        if found is None:
            return float(FAILURES_FREE)
        left, changed_at = found
        refilled = left + max(now_seconds - changed_at, 0.0) * REFILL_PER_SECOND
        return min(refilled, float(FAILURES_FREE))


class LoginThrottle:
    """The failed logins of one broker."""

    def __init__(self, states_max: int = STATES_MAX) -> None:
        self._addresses = _Buckets(states_max // 2)
        self._users = _Buckets(states_max // 2)

    @property
    def states(self) -> int:
        """Addresses and users that are remembered."""
        return len(self._addresses) + len(self._users)

    def failed(self, address: str, user: str, now_seconds: float) -> float:
        """Count a failed login; return the seconds to delay its answer.

        `user` is the name that the client claimed; empty if it is not known.
        """
        host = host_of(address)
        self._addresses.spend(host, now_seconds)
        delay = self._addresses.delay_seconds(host, now_seconds)
        if user:
            name = user[:_NAME_CHARACTERS_MAX]
            self._users.spend(name, now_seconds)
            delay = max(delay, self._users.delay_seconds(name, now_seconds))
        return delay

    def succeeded(self, address: str, user: str, now_seconds: float) -> float:
        """Return the seconds to delay the answer to a good login."""
        return min(
            self._addresses.delay_seconds(host_of(address), now_seconds),
            self._users.delay_seconds(user[:_NAME_CHARACTERS_MAX], now_seconds),
        )
