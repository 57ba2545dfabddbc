"""Counters, gauges and families of either; knows nothing of how they are exported.

A counter is an attribute that somebody adds to; a gauge is a function that is asked when somebody
looks; a family has a value for each set of labels. `snapshot()` gives all by name. Names follow
Prometheus: a unit at the end, `_total` for what only grows, and what is named so is a counter. The
number of metrics is fixed when the broker is wired: no name comes from a client. Labels may, so a
family has at most `METRIC_FAMILY_ROWS_MAX` rows; the rest is left out.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple

from penstock.core.limits import METRIC_FAMILY_ROWS_MAX


class Row(NamedTuple):
    """One value of a family, in the order of its labels' names."""

    labels: tuple[str, ...]
    value: float


class Family(NamedTuple):
    """A value for each set of labels, asked when somebody looks."""

    help: str
    label_names: tuple[str, ...]
    read: Callable[[], Iterable[Row]]


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
        self._families: dict[str, Family] = {}

    def counter(self, name: str, help_text: str) -> Counter:
        """The counter of this name, made if it is new."""
        if name not in self._counters:
            assert name not in self._gauges, name
            self._counters[name] = Counter(name, help_text)
        return self._counters[name]

    def counters(
        self, name: str, help_text: str, label_name: str, values: Iterable[str]
    ) -> dict[str, Counter]:
        """A counter for each value of one label; the values are fixed from now on."""
        made = {value: Counter(name, help_text) for value in values}

        def read() -> list[Row]:
            return [Row((value,), counter.value) for value, counter in made.items()]

        self.family(name, Family(help_text, (label_name,), read))
        return made

    def gauge(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """Register a function that tells a current value."""
        assert name not in self._counters, name
        assert name not in self._gauges, name
        self._gauges[name] = (help_text, read)

    def family(self, name: str, family: Family) -> None:
        """Register a function that tells a value for each set of labels."""
        assert name not in self._counters, name
        assert name not in self._gauges, name
        assert name not in self._families, name
        self._families[name] = family

    def snapshot(self) -> dict[str, float]:
        """Every value now, by name; a family's names carry their labels, as Prometheus writes."""
        values: dict[str, float] = {name: c.value for name, c in self._counters.items()}
        for name, (_, read) in self._gauges.items():
            values[name] = read()
        for name, family in self._families.items():
            for row in islice(family.read(), METRIC_FAMILY_ROWS_MAX):
                values[_labelled(name, family.label_names, row.labels)] = row.value
        return dict(sorted(values.items()))


def _labelled(name: str, label_names: tuple[str, ...], labels: tuple[str, ...]) -> str:
    told = ",".join(
        f'{label}="{_escaped(value)}"' for label, value in zip(label_names, labels, strict=True)
    )
    return f"{name}{{{told}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
