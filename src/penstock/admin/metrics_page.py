"""`render`: all metrics of a broker as the page that Prometheus reads.

Two formats, chosen by the client's `Accept` header: OpenMetrics on request, else the plain text
that every scraper reads. Names get the prefix `penstock_`; metrics that every process has
(`process_`, `python_`) keep their names, so that common dashboards find them.

Metrics are collected on the event loop, at once, and are consistent. Writing the page takes most of
the time (a millisecond for each three hundred lines or so) and may be done on another thread: that
is why `write` is a step of its own. It has no state and serves no requests: `admin` does.
"""

from collections.abc import Iterator, Sequence
from math import inf
from typing import Final

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from penstock.core.metrics import Collected, Registry

PREFIX: Final = "penstock_"
_COMMON_PREFIXES: Final = ("process_", "python_")
_OPENMETRICS: Final = "application/openmetrics-text"


def render(registry: Registry, accept: str) -> tuple[bytes, str]:
    """Return the page and its content type for a client's `Accept` header."""
    return write(registry.collect(), accept)


def write(metrics: Sequence[Collected], accept: str) -> tuple[bytes, str]:
    """Return the page of collected metrics; on any thread."""
    page = _Page(metrics)
    if _OPENMETRICS in accept:
        opened: bytes = openmetrics.generate_latest(page)  # type: ignore[no-untyped-call]
        return opened, openmetrics.CONTENT_TYPE_LATEST
    return generate_latest(page), CONTENT_TYPE_PLAIN_0_0_4


def exported_name(name: str) -> str:
    """Return the exported name of a metric."""
    return name if name.startswith(_COMMON_PREFIXES) else PREFIX + name


class _Page(Collector):
    """Adapts our metrics to prometheus-client."""

    def __init__(self, metrics: Sequence[Collected]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Return each metric with its samples."""
        for metric in self._metrics:
            name = exported_name(metric.name)
            if metric.kind == "histogram":
                yield _histogram(name, metric)
                continue
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(name, metric.help, labels=metric.label_names)
            for row in metric.rows:
                family.add_metric(row.labels, row.value)
            yield family


def _histogram(name: str, metric: Collected) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, metric.help, labels=metric.label_names)
    for row in metric.histograms:
        buckets = [
            ("+Inf" if bound == inf else str(bound), float(count)) for bound, count in row.buckets
        ]
        family.add_metric(row.labels, buckets, row.sum)
    return family
