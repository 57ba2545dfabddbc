"""Counters and gauges; knows nothing of how they are exported.

A counter is an attribute that somebody adds to; a gauge is a function that is asked when somebody
looks. `snapshot()` gives both by name. Names follow Prometheus: a unit at the end, `_total` for
what only grows. The number of metrics is fixed when the broker is wired: no name comes from a
client.
"""

from collections.abc import Callable


class Counter:
    """A number that only grows. Add to `value` directly: the hot path has no time for a call."""

    __slots__ = ("help", "name", "value")

    def __init__(self, name: str, help_text: str) -> None:
        self.name = name
        self.help = help_text
        self.value = 0


class Registry:
    """All metrics of one node."""

    def __init__(self) -> None:
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def counter(self, name: str, help_text: str) -> Counter:
        """The counter of this name, made if it is new."""
        if name not in self._counters:
            assert name not in self._gauges, name
            self._counters[name] = Counter(name, help_text)
        return self._counters[name]

    def gauge(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """Register a function that tells a current value."""
        assert name not in self._counters, name
        assert name not in self._gauges, name
        self._gauges[name] = (help_text, read)

    def snapshot(self) -> dict[str, float]:
        """Every value now, by name."""
        values: dict[str, float] = {name: c.value for name, c in self._counters.items()}
        for name, (_, read) in self._gauges.items():
            values[name] = read()
        return dict(sorted(values.items()))
