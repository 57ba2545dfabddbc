"""`penstock.bench`: measures any Kafka broker from separate processes, and compares two.

    from penstock.bench import Workload, run

    if __name__ == "__main__":
        measured = run(Workload(kind="produce", duration_seconds=5.0), "localhost:9092")
        print(measured.records_per_second, measured.latency.percentile(99))

Clients are new processes (`spawn`), so a script needs the usual guard. A request that a broker
rejects ends the run with an error; a failed run has no figures. Penstock is NOT compared with
Apache Kafka in this way in docs/proofs.md: a compiled program generates that load (the folder
`benchmarks` of the repository).

The names are imported at their first use.
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.bench.comparison import Comparison
    from penstock.bench.histogram import Histogram
    from penstock.bench.html_page import page
    from penstock.bench.measurement import Measurement
    from penstock.bench.runner import compare, run
    from penstock.bench.workload import Workload

__all__ = ["Comparison", "Histogram", "Measurement", "Workload", "compare", "page", "run"]

_PLACES: Final = {
    "Comparison": "comparison",
    "Histogram": "histogram",
    "Measurement": "measurement",
    "Workload": "workload",
    "compare": "runner",
    "page": "html_page",
    "run": "runner",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'penstock.bench' has no attribute {name!r}")
    return getattr(importlib.import_module(f"penstock.bench.{_PLACES[name]}"), name)
