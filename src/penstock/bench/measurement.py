"""`Measurement`: the results of all clients, added up, with notes on their limits (pure).

`ClientResult` is the report of one process. A measurement adds records, merges histograms and has
notes for the reader: the load generator and not the broker was the limit, a rate was not kept, or
clients and broker shared the machine's cores.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.bench.histogram import Histogram
from penstock.bench.pacing import SECOND_NS
from penstock.bench.timeline import Timeline
from penstock.bench.workload import CONSUME, END_TO_END, GROUPS, LOOKUP, PRODUCE, Workload

WAITING_SHARE: Final = 0.1
"""A process that waits for a processor for this share of the time measures other work."""
BUSY_SHARE: Final = 0.85
"""A process that computes for this share of the time is itself a limit."""
RATE_KEPT_SHARE: Final = 0.98

PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)

WHAT_LATENCY_IS: Final[Mapping[str, str]] = {
    PRODUCE: "one request: from sending it until its answer",
    CONSUME: "one fetch: from asking until its answer",
    END_TO_END: "one batch: from sending it until a reader has it",
    GROUPS: "one commit: from sending it until its answer",
    LOOKUP: "one lookup: from asking for an offset until its batch is there",
}
WHAT_BYTES_ARE: Final[Mapping[str, str]] = {
    PRODUCE: "values, before compression",
    CONSUME: "whole batches, as they are stored",
    END_TO_END: "values, before compression",
    GROUPS: "none, for commits carry no records",
    LOOKUP: "whole batches, as they are stored",
}
"""A reader does not decode: its bytes include headers and keys, and are compressed."""


def latency_meaning(workload: Workload) -> str:
    """Return the definition of a latency."""
    text = WHAT_LATENCY_IS[workload.kind]
    return text if workload.rate is None else text.replace("sending it", "the time it was due")


@dataclass(slots=True)
class ClientResult:
    """The result of one client for the measured part; times are of the monotonic clock."""

    records: int = 0
    bytes: int = 0
    requests: int = 0
    begin_ns: int = 0
    end_ns: int = 0
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    waiting_seconds: float = 0.0
    """Time ready to run without a free processor; 0 where the system does not report it."""
    latency: Histogram = field(default_factory=Histogram)
    timeline: Timeline = field(default_factory=Timeline)
    records_in_all: int = 0
    """Records, warm-up included."""
    figures: dict[str, float] = field(default_factory=dict)
    """Figures of only this kind of workload, in seconds."""

    @property
    def busy_share(self) -> float:
        """Return the share of the time that this process computed."""
        return self.cpu_seconds / self.wall_seconds if self.wall_seconds else 0.0

    @property
    def waiting_share(self) -> float:
        """Return the share of the time that this process waited for a processor."""
        return self.waiting_seconds / self.wall_seconds if self.wall_seconds else 0.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run against one broker."""

    workload: Workload
    bootstrap: str
    records: int
    bytes: int
    requests: int
    seconds: float
    latency: Histogram
    timeline: Timeline
    busy_shares: tuple[float, ...]
    """The share of computing time of each client process."""
    figures: Mapping[str, float]
    notes: tuple[str, ...]

    @property
    def records_per_second(self) -> float:
        """Return records, or commits, per second."""
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def megabytes_per_second(self) -> float:
        """Return millions of bytes per second; `WHAT_BYTES_ARE` defines the counted bytes."""
        return self.bytes / self.seconds / 1e6 if self.seconds else 0.0

    def document(self) -> dict[str, object]:
        """Return the measurement for JSON; fields are only added."""
        return {
            "bootstrap_server": self.bootstrap,
            "workload": self.workload.document(),
            "records": self.records,
            "bytes": self.bytes,
            "bytes_are": WHAT_BYTES_ARE[self.workload.kind],
            "requests": self.requests,
            "seconds": round(self.seconds, 6),
            "records_per_second": round(self.records_per_second, 3),
            "megabytes_per_second": round(self.megabytes_per_second, 6),
            "latency_is": latency_meaning(self.workload),
            "latency_microseconds": {
                "mean": round(self.latency.mean_us, 1),
                **{f"p{percent:g}": self.latency.percentile(percent) for percent in PERCENTILES},
                "max": self.latency.max_us,
            },
            "histogram": self.latency.document(),
            "timeline": self.timeline.document(),
            "client_busy_shares": [round(share, 3) for share in self.busy_shares],
            "figures": {name: round(value, 6) for name, value in self.figures.items()},
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class StorageFigures:
    """The measurements by their names: `write`, `read active`, `read sealed`, `lookup`."""

    by_name: Mapping[str, Measurement]

    def document(self) -> dict[str, object]:
        """Return all measurements for JSON."""
        return {name: one.document() for name, one in self.by_name.items()}


def joined(
    workload: Workload,
    bootstrap: str,
    results: Sequence[ClientResult],
    *,
    loaders: Sequence[ClientResult] = (),
    cores: int,
    notes: Sequence[str] = (),
) -> Measurement:
    """Return one measurement of the results of all clients.

    `loaders` are clients whose records other clients counted: they create the load and are included
    in the notes. `notes` are put before the notes from the figures.
    """
    latency, timeline = Histogram(), Timeline()
    figures: dict[str, float] = {}
    for one in results:
        latency.merge(one.latency)
        timeline.merge(one.timeline)
        for name, value in one.figures.items():
            figures[name] = max(value, figures.get(name, 0.0))
    everybody = (*loaders, *results)
    busy_shares = tuple(one.busy_share for one in everybody)
    waiting_share = max(one.waiting_share for one in everybody)
    records = sum(one.records for one in results)
    # Clients begin together. A group begins by itself, after its members have joined.
    seconds = max(one.end_ns - one.begin_ns for one in results) / SECOND_NS
    rate = records / seconds if seconds else 0.0
    return Measurement(
        workload,
        bootstrap,
        records,
        sum(one.bytes for one in results),
        sum(one.requests for one in results),
        seconds,
        latency,
        timeline,
        busy_shares,
        figures,
        (*notes, *_notes(workload, busy_shares, waiting_share, rate, cores)),
    )


def _notes(
    workload: Workload,
    busy_shares: Sequence[float],
    waiting_share: float,
    rate: float,
    cores: int,
) -> Iterator[str]:
    busiest = max(busy_shares, default=0.0)
    if busiest >= BUSY_SHARE:
        yield (
            f"The load generator was the limit: a client process computed {busiest:.0%} of the "
            "time. The broker can do more than this; use more clients or larger batches."
        )
    if sum(busy_shares) >= BUSY_SHARE * cores:
        yield (
            f"The clients used {sum(busy_shares):.1f} of this machine's {cores} cores. If the "
            "broker runs here too, it did not get what it could use."
        )
    if waiting_share >= WAITING_SHARE:
        yield (
            f"The machine was overloaded: a client waited {waiting_share:.0%} of the time for a "
            "processor. Throughput and latencies contain that; run it again on a quiet machine."
        )
    if workload.rate is not None and rate < RATE_KEPT_SHARE * workload.rate:
        yield (
            f"The rate was not kept: {rate:,.0f} of {workload.rate:,.0f} a second. Latencies count "
            "the wait since each batch was due, so they grow for as long as the run lasts."
        )
    if workload.acks == 0 and workload.kind == PRODUCE:
        yield (
            "With acks=0 nothing is acknowledged: latency is the time until the kernel has the "
            "request, and it is unknown whether the records were stored."
        )
