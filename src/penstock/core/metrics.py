"""Counters, gauges, histograms and tables of them; does not know the export formats.

A counter is an attribute that code adds to. A gauge is a function that is called when metrics are
read. A family has a value for each set of labels, and a table has several families that are read in
one pass. `collect()` returns all metrics with kind, help and labels; `snapshot()` returns the
values by name. Names follow Prometheus: a unit at the end, `_total` for values that only grow, and
a metric with that name is a counter. The number of metrics is fixed when the broker is wired:
clients cannot add names. Clients can add labels, so a family has at most `METRIC_FAMILY_ROWS_MAX`
rows and a label at most `METRIC_LABEL_CHARACTERS_MAX` characters; `metric_rows_left_out` names the
families with omitted rows. Reading may be slow, adding may not: `Histogram.observe` allocates
nothing.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, Literal, NamedTuple

from penstock.core.limits import METRIC_FAMILY_ROWS_MAX, METRIC_LABEL_CHARACTERS_MAX

Kind = Literal["counter", "gauge", "histogram"]

# fmt: off
SECONDS_BOUNDS: Final[tuple[float, ...]] = (
    0.000_1, 0.000_25, 0.000_5,
    0.001, 0.002_5, 0.005,
    0.01, 0.025, 0.05,
    0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0,
)
# fmt: on
"""Bounds of durations: from a cached request to a request that waits for a timeout."""

LEFT_OUT: Final = "metric_rows_left_out"
_LEFT_OUT_HELP: Final = "Whether rows of a metric are left out because it has too many: 1 is yes."
_DIGEST_BYTES: Final = 8


class Row(NamedTuple):
    """One value of a family, in the order of its labels' names."""

    labels: tuple[str, ...]
    value: float


class Family(NamedTuple):
    """A value for each set of labels, read when metrics are read."""

    help: str
    label_names: tuple[str, ...]
    read: Callable[[], Iterable[Row]]


class TableRow(NamedTuple):
    """One set of labels with a value for each column of a table."""

    labels: tuple[str, ...]
    values: tuple[float, ...]


class Table(NamedTuple):
    """Several families that have the same labels and are read together."""

    columns: tuple[tuple[str, str], ...]
    """Name and help of each column."""
    label_names: tuple[str, ...]
    read: Callable[[], Iterable[TableRow]]


class HistogramRow(NamedTuple):
    """The state of a histogram at one read."""

    labels: tuple[str, ...]
    buckets: tuple[tuple[float, int], ...]
    """The number of observations up to each bound; the last bound is infinite."""
    sum: float


class Collected(NamedTuple):
    """One metric with all its values, for a renderer."""

    name: str
    kind: Kind
    help: str
    label_names: tuple[str, ...]
    rows: list[Row]
    histograms: list[HistogramRow]
    """The values if it is a histogram, which has no rows."""
    is_cut: bool = False
    """Whether it had more rows than allowed."""


class Counter:
    """A number that only grows. Add to `value` directly: a call is too slow for the hot path."""

    __slots__ = ("help", "name", "value")

    def __init__(self, name: str, help_text: str) -> None:
        self.name = name
        self.help = help_text
        self.value = 0


class Histogram:
    """The number of values within each bound, and the sum of all values."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        """Create it with ascending upper `bounds`; values above the last are counted too."""
        assert list(bounds) == sorted(set(bounds)), bounds
        self._bounds = [float(bound) for bound in bounds]
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value. Buckets are summed only when they are read."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    @property
    def count(self) -> int:
        """All observations."""
        return sum(self._counts)

    def read(self, labels: tuple[str, ...] = ()) -> HistogramRow:
        """Return the counts so far."""
        buckets = []
        total = 0
        for bound, count in zip((*self._bounds, float("inf")), tuple(self._counts), strict=True):
            total += count
            buckets.append((bound, total))
        return HistogramRow(labels, tuple(buckets), self._sum)


class Histograms(NamedTuple):
    """A histogram for each set of labels."""

    help: str
    label_names: tuple[str, ...]
    read: Callable[[], Iterable[HistogramRow]]


class Registry:
    """All metrics of one node."""

    def __init__(self) -> None:
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self._families: dict[str, Family] = {}
        self._histograms: dict[str, Histograms] = {}
        self._tables: list[Table] = []
        self._names: set[str] = {LEFT_OUT}

    def counter(self, name: str, help_text: str) -> Counter:
        """Return the counter of this name, created if it is new."""
        if name not in self._counters:
            self._claim(name, help_text)
            self._counters[name] = Counter(name, help_text)
        return self._counters[name]

    def counters(
        self, name: str, help_text: str, label_name: str, values: Iterable[str]
    ) -> dict[str, Counter]:
        """Return a counter for each value of one label; the values are fixed from now on."""
        made = {value: Counter(name, help_text) for value in values}

        def read() -> list[Row]:
            return [Row((value,), counter.value) for value, counter in made.items()]

        self.family(name, Family(help_text, (label_name,), read))
        return made

    def gauge(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """Register a function that returns a current value; `_total` in its name marks growth."""
        self._claim(name, help_text)
        self._gauges[name] = (help_text, read)

    def family(self, name: str, family: Family) -> None:
        """Register a function that returns a value for each set of labels."""
        self._claim(name, family.help)
        self._families[name] = family

    def table(self, table: Table) -> None:
        """Register a function that returns several values for each set of labels."""
        for name, help_text in table.columns:
            self._claim(name, help_text)
        self._tables.append(table)

    def histogram(self, name: str, help_text: str, bounds: Sequence[float]) -> Histogram:
        """Return a new histogram without labels."""
        histogram = Histogram(bounds)
        self.histograms(name, Histograms(help_text, (), lambda: (histogram.read(),)))
        return histogram

    def histograms(self, name: str, histograms: Histograms) -> None:
        """Register a function that returns a histogram for each set of labels."""
        self._claim(name, histograms.help)
        self._histograms[name] = histograms

    def collect(self) -> list[Collected]:
        """Return all metrics now, by name. Call it on the thread that the metrics belong to."""
        found = [*self._collect_single(), *self._collect_families(), *self._collect_histograms()]
        rows = [Row((metric.name,), float(metric.is_cut)) for metric in found if metric.label_names]
        found.append(Collected(LEFT_OUT, "gauge", _LEFT_OUT_HELP, ("metric",), sorted(rows), []))
        found.sort(key=lambda metric: metric.name)
        return found

    def snapshot(self) -> dict[str, float]:
        """Return every value now, by name, labels as Prometheus writes them; no buckets."""
        values: dict[str, float] = {}
        for metric in self.collect():
            name, label_names = metric.name, metric.label_names
            for row in metric.rows:
                values[_labelled(name, label_names, row.labels)] = row.value
            for read in metric.histograms:
                count = read.buckets[-1][1]
                values[_labelled(f"{name}_count", label_names, read.labels)] = count
                values[_labelled(f"{name}_sum", label_names, read.labels)] = read.sum
        return dict(sorted(values.items()))

    def _claim(self, name: str, help_text: str) -> None:
        assert name not in self._names, f"{name} is a metric already"
        assert help_text, f"{name} has no help"
        self._names.add(name)

    def _collect_single(self) -> Iterable[Collected]:
        for name, counter in self._counters.items():
            rows = [Row((), counter.value)]
            yield Collected(name, "counter", counter.help, (), rows, [])
        for name, (help_text, read) in self._gauges.items():
            yield Collected(name, kind_of(name), help_text, (), [Row((), read())], [])

    def _collect_families(self) -> Iterable[Collected]:
        for name, family in self._families.items():
            found = list(islice(family.read(), METRIC_FAMILY_ROWS_MAX + 1))
            rows = [Row(_bounded(row.labels), row.value) for row in found[:METRIC_FAMILY_ROWS_MAX]]
            is_cut = len(found) > METRIC_FAMILY_ROWS_MAX
            yield Collected(
                name, kind_of(name), family.help, family.label_names, rows, [], is_cut=is_cut
            )
        for table in self._tables:
            read = list(islice(table.read(), METRIC_FAMILY_ROWS_MAX + 1))
            is_cut = len(read) > METRIC_FAMILY_ROWS_MAX
            kept = [(_bounded(row.labels), row.values) for row in read[:METRIC_FAMILY_ROWS_MAX]]
            for number, (name, help_text) in enumerate(table.columns):
                rows = [Row(labels, values[number]) for labels, values in kept]
                yield Collected(
                    name, kind_of(name), help_text, table.label_names, rows, [], is_cut=is_cut
                )

    def _collect_histograms(self) -> Iterable[Collected]:
        for name, histograms in self._histograms.items():
            found = list(islice(histograms.read(), METRIC_FAMILY_ROWS_MAX + 1))
            yield Collected(
                name,
                "histogram",
                histograms.help,
                histograms.label_names,
                [],
                found[:METRIC_FAMILY_ROWS_MAX],
                is_cut=len(found) > METRIC_FAMILY_ROWS_MAX,
            )


def kind_of(name: str) -> Kind:
    """Return the kind of a metric of this name, if it is not a histogram."""
    return "counter" if name.endswith("_total") else "gauge"


def _bounded(labels: tuple[str, ...]) -> tuple[str, ...]:
    """Return the labels within their bounds; a cut label gets a digest, so all stay distinct."""
    for label in labels:
        if len(label) > METRIC_LABEL_CHARACTERS_MAX:
            return tuple(map(_shortened, labels))
    return labels


def _shortened(label: str) -> str:
    if len(label) <= METRIC_LABEL_CHARACTERS_MAX:
        return label
    from hashlib import blake2b  # rarely needed; keeps the start fast

    digest = blake2b(label.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{label[: METRIC_LABEL_CHARACTERS_MAX - len(digest) - 1]}~{digest}"


def _labelled(name: str, label_names: tuple[str, ...], labels: tuple[str, ...]) -> str:
    if not label_names:
        return name
    pairs = ",".join(
        f'{label}="{_escaped(value)}"' for label, value in zip(label_names, labels, strict=True)
    )
    return f"{name}{{{pairs}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
