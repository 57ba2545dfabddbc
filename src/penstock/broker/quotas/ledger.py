"""`Ledger`: the use of each client, for a bounded number of clients. Pure.

Clients choose the names, so both bounds are needed: an entry that was not used for an hour is
evicted when another one is added, and when the ledger is full the one that was used longest ago is
evicted. An evicted client starts anew, which is never to its disadvantage.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.core.limits import QUOTA_STATE_IDLE_SECONDS_MAX, QUOTA_STATES_MAX

Key = TypeVar("Key")
State = TypeVar("State")


class Ledger(Generic[Key, State]):
    """States by key, least recently used first."""

    __slots__ = ("_entries", "_make", "_states_max")

    def __init__(self, make: Callable[[], State], states_max: int = QUOTA_STATES_MAX) -> None:
        self._make = make
        self._states_max = states_max
        self._entries: OrderedDict[Key, tuple[State, int]] = OrderedDict()
        """The state, and when it was last used."""

    def __len__(self) -> int:
        return len(self._entries)

    def use(self, key: Key, now_ms: int) -> State:
        """The state of `key`, created if it is new."""
        entry = self._entries.get(key)
        if entry is None:
            self._make_room(now_ms)
            state = self._make()
        else:
            state = entry[0]
        self._entries[key] = (state, now_ms)
        self._entries.move_to_end(key)
        return state

    def clear(self) -> None:
        """Forget all clients."""
        self._entries.clear()

    def _make_room(self, now_ms: int) -> None:
        idle_ms_max = QUOTA_STATE_IDLE_SECONDS_MAX * 1000
        # At most two for each new entry: idle ones are evicted in the end, and never many at once.
        for _ in range(2):
            oldest = next(iter(self._entries.values()), None)
            if oldest is None or (
                now_ms - oldest[1] < idle_ms_max and len(self._entries) < self._states_max
            ):
                return
            self._entries.popitem(last=False)
