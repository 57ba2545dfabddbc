"""The metrics of a `Registry` as a page that Prometheus reads.

Text or OpenMetrics, as the scraper asks for; what a metric means is told with it. It computes
nothing and keeps nothing between two scrapes.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from penstock.core.metrics import Registry

PREFIX = "penstock_"


class _Snapshot(Collector):
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for name, value in self._registry.snapshot().items():
            if "{" not in name:
                yield GaugeMetricFamily(f"{PREFIX}{name}", name, value)


def render(registry: Registry, accept: str) -> tuple[bytes, str]:
    """The page, and its content type."""
    collectors = CollectorRegistry(auto_describe=False)
    collectors.register(_Snapshot(registry))
    encode, content_type = choose_encoder(accept)
    return encode(collectors), content_type
