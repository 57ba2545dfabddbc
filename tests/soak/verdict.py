"""The verdict of a soak: its broken promises. Pure: figures in, sentences out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.soak.scene import RELOAD_SECONDS

SECONDS_PER_HOUR: Final = 3_600.0
WINDOW_SECONDS: Final = 20.0
"""Longer than any one abuse lasts: each window has a moment without."""
KNOCKS_PER_ERROR: Final = 20
"""How often a real client may have been turned away before it says so once."""
RELOADS_METRIC: Final = "config_reloads_applied_total"
DEFECTS_METRIC: Final = "handler_failures_total"
COUNTED: Final[Mapping[str, tuple[str, ...]]] = {
    "refused": (
        'connections_refused_total{reason="all"}',
        'connections_refused_total{reason="address"}',
    ),
    "unread_answers": ('connections_timed_out_total{reason="unread_answers"}',),
    "unfinished_request": ('connections_timed_out_total{reason="unfinished_request"}',),
    "idle": ('connections_timed_out_total{reason="idle"}',),
    "frame_length": ('protocol_errors_total{reason="frame_length"}',),
    "malformed": ('protocol_errors_total{reason="malformed"}',),
    "unsupported_api": ('protocol_errors_total{reason="unsupported_api"}',),
    "MESSAGE_TOO_LARGE": ('produce_refused_batches_total{error="MESSAGE_TOO_LARGE"}',),
    "KAFKA_STORAGE_ERROR": ('produce_refused_batches_total{error="KAFKA_STORAGE_ERROR"}',),
}
"""What clients see, and the metrics that must add up to the same number."""
NEVER_SEEN: Final = ("idle",)
"""Limits that this load does not reach: the broker must not count any."""
ALWAYS_THERE: Final = (
    RELOADS_METRIC,
    DEFECTS_METRIC,
    *(name for reason in NEVER_SEEN for name in COUNTED[reason]),
)
"""Metrics that are good when they are small: one that has another name now would be good too."""
PAUSED: Final = 'reads_paused_total{reason="unfinished_bytes"}'


@dataclass(frozen=True)
class Bounds:
    """How much is too much."""

    memory_mb_per_hour: float
    memory_mb: float
    times_slower: float
    slack_ms: float
    """Added to the bound of a p99: one sync of a busy disk."""


@dataclass
class Findings:
    """Everything that a soak measured."""

    minutes: float = 0.0
    rss_samples: list[tuple[float, float]] = field(default_factory=list)
    """Seconds since the start and megabytes, after the warm-up."""
    metrics: dict[str, float] = field(default_factory=dict)
    producer: dict[str, Any] = field(default_factory=dict)
    reader: dict[str, Any] = field(default_factory=dict)
    ledger: dict[str, Any] = field(default_factory=dict)
    real: dict[str, Any] = field(default_factory=dict)
    abuse: dict[str, Any] = field(default_factory=dict)
    full_refusals: list[int] = field(default_factory=list)
    """Batches that were refused in each time that the disk was full."""
    rewrites: int = 0
    exit_code: int = 0

    @property
    def memory_slope(self) -> float:
        """Growth of the broker's memory in MB an hour, by least squares over its low points.

        Slow readers and unfinished requests come and go and take tens of megabytes each time: what
        is left in between is what must not grow.
        """
        return slope(low_points(self.rss_samples)) * SECONDS_PER_HOUR

    @property
    def memory_mb_max(self) -> float:
        """The most that the broker ever took."""
        return max((mb for _, mb in self.rss_samples), default=0.0)

    @property
    def seen(self) -> dict[str, int]:
        """What all clients together saw refused, by reason."""
        total = {name: int(self.abuse["seen"].get(name, 0)) for name in COUNTED}
        for name, count in self.producer["refused"].items():
            total[name] = total.get(name, 0) + count
        return total

    @property
    def unseen_knocks_max(self) -> int:
        """A real client that was turned away says so, but not how often it knocked."""
        errors: dict[str, int] = self.real["errors"]
        return KNOCKS_PER_ERROR * (errors.get("_TRANSPORT", 0) + errors.get("_ALL_BROKERS_DOWN", 0))

    def counted(self, reason: str) -> int:
        """What the broker counted for the same reason."""
        return round(sum(self.metrics.get(name, 0) for name in COUNTED[reason]))

    def p99_ms(self, role: str, phase: str) -> float | None:
        """Of the measured clients, in one phase; None if no request of it was answered."""
        report = self.producer if role == "produce" else self.reader
        measured = report["phases"].get(phase)
        return None if measured is None else float(measured["p99_ms"])


def slope(samples: Sequence[tuple[float, float]]) -> float:
    """The slope of the line that fits best."""
    if len(samples) < 2:
        return 0.0
    mean_x = sum(x for x, _ in samples) / len(samples)
    mean_y = sum(y for _, y in samples) / len(samples)
    spread = sum((x - mean_x) ** 2 for x, _ in samples)
    return sum((x - mean_x) * (y - mean_y) for x, y in samples) / spread


def low_points(samples: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The least of each window, at the moment when it was seen."""
    windows: dict[int, tuple[float, float]] = {}
    for moment, mb in samples:
        number = int(moment // WINDOW_SECONDS)
        if number not in windows or mb < windows[number][1]:
            windows[number] = (moment, mb)
    return list(windows.values())


def broken(found: Findings, bounds: Bounds) -> list[str]:
    """Every promise that was not kept."""
    return [
        *(f"{name}: no such metric" for name in ALWAYS_THERE if name not in found.metrics),
        *_lost(found),
        *_uncounted(found),
        *_slow(found, bounds),
        *_unexpected(found),
        *_memory(found, bounds),
    ]


def _lost(found: Findings) -> list[str]:
    problems = []
    if found.ledger["violations"]:
        problems.append(f"well-behaved producer: {found.ledger['told']}")
    real = found.real
    if real["violations"]:
        problems.append(f"librdkafka: {real['told']}")
    if real["unsettled"] or real["given_up"]:
        problems.append(f"librdkafka gave up: {real['unsettled']} {real['given_up']}")
    if any(real["not_shown"].values()):
        problems.append(f"groups were not shown everything: {real['not_shown']}")
    if real["unseen"] or not real["seen"]:
        seen, unseen = real["seen"], real["unseen"]
        problems.append(f"consumers saw {seen} records and not {unseen} others of the log")
    if real["moves_wrong"]:
        problems.append(f"{real['moves_wrong']} records of transactions are wrong")
    if not real["transactions_committed"] or not found.ledger["acknowledged"]:
        problems.append("nothing was committed: the load did not run")
    return problems


def _uncounted(found: Findings) -> list[str]:
    problems = []
    unsure = found.unseen_knocks_max
    for reason, seen in found.seen.items():
        counted = found.counted(reason)
        allowed = range(seen, seen + (unsure if reason == "refused" else 0) + 1)
        if counted not in allowed:
            problems.append(f"{reason}: clients saw {seen}, the broker counted {counted}")
        if not seen and reason not in NEVER_SEEN:
            problems.append(f"{reason}: never happened, so nothing was shown")
    if not found.metrics.get(PAUSED):
        problems.append("no connection had to wait for the budget of unfinished requests")
    if found.metrics.get(DEFECTS_METRIC):
        problems.append(f"{found.metrics[DEFECTS_METRIC]:.0f} requests met a defect")
    if len(found.full_refusals) != 2 or not all(found.full_refusals):
        problems.append(f"the disk was to refuse twice: {found.full_refusals}")
    reloads = found.metrics.get(RELOADS_METRIC, 0.0)
    if reloads != found.rewrites:
        problems.append(f"{found.rewrites} changes of the settings, {reloads:.0f} reloads")
    if found.minutes * 60 > 2 * RELOAD_SECONDS and not found.rewrites:
        problems.append("the settings were never changed")
    return problems


def _slow(found: Findings, bounds: Bounds) -> list[str]:
    problems = []
    for role in ("produce", "fetch"):
        before, after = found.p99_ms(role, "unloaded"), found.p99_ms(role, "loaded")
        if before is None or after is None:
            phase = "without" if before is None else "under"
            problems.append(f"{role}: no request was answered {phase} load")
            continue
        bound = bounds.times_slower * before + bounds.slack_ms
        if after > bound:
            problems.append(
                f"{role}: p99 was {before:.2f} ms and became {after:.2f} ms, more than {bound:.2f}"
            )
    return problems


def _unexpected(found: Findings) -> list[str]:
    problems = []
    for name, report in (
        ("producer", found.producer),
        ("reader", found.reader),
        ("librdkafka", found.real),
        ("abuse", found.abuse),
    ):
        if report["unexpected"]:
            problems.append(f"{name}: {report['unexpected'][:5]}")
    if found.exit_code:
        problems.append(f"the broker ended with {found.exit_code}")
    return problems


def _memory(found: Findings, bounds: Bounds) -> list[str]:
    problems = []
    if found.memory_slope > bounds.memory_mb_per_hour:
        bound = bounds.memory_mb_per_hour
        problems.append(f"memory: {found.memory_slope:+.1f} MB/h, more than {bound:g}")
    if found.memory_mb_max > bounds.memory_mb:
        problems.append(f"memory: {found.memory_mb_max:.0f} MB, more than {bounds.memory_mb:g}")
    return problems


def figures(found: Findings) -> str:
    """One line for a report."""
    low_mb = min((mb for _, mb in found.rss_samples), default=0.0)
    seen = sum(found.seen.values())
    told = f"{found.metrics[RELOADS_METRIC]:.0f} applied"
    times = ", ".join(
        f"{role} p99 {_shown(found.p99_ms(role, 'unloaded'))} unloaded and "
        f"{_shown(found.p99_ms(role, 'loaded'))} loaded"
        for role in ("produce", "fetch")
    )
    return (
        f"soak of {found.minutes:g} minutes: {found.ledger['acknowledged']} records and "
        f"{found.real['totals']}, {found.real['transactions_committed']} transactions committed "
        f"and {found.real['transactions_aborted']} aborted, nothing lost; memory "
        f"{found.memory_slope:+.1f} MB/h, {low_mb:.0f} to {found.memory_mb_max:.0f} MB; {seen} "
        f"things refused or dropped, all counted (refused connections to within "
        f"{found.unseen_knocks_max}); disk full {len(found.full_refusals)} times; "
        f"{found.rewrites} changes of settings ({told}); {times}"
    )


def _shown(milliseconds: float | None) -> str:
    return "none" if milliseconds is None else f"{milliseconds:.2f} ms"
