"""Judge a siege. Pure: figures in, sentences out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.core import limits

DEFECTS_METRIC: Final = "handler_failures_total"
MIX: Final = "mix"
SAMPLES_MIN: Final = 50
"""Requests of the neighbour in a phase, below which a p99 says nothing."""

WIDE_REQUEST_MB: Final = 100
MEMORY_MB_MAX: Final = limits.WIDE_REQUESTS_MAX * WIDE_REQUEST_MB + round(
    (
        limits.REQUEST_BYTES_IN_FLIGHT_MAX_DEFAULT
        + limits.GROUPS_METADATA_BYTES_MAX
        + (limits.BATCH_THREADS + limits.LOOKUP_THREADS) * limits.DECOMPRESSED_BATCH_BYTES_MAX
    )
    / 1e6
)
"""The sum of the broker's own bounds on memory: an attack may reach each of them."""


@dataclass(frozen=True)
class Bounds:
    """The limits for a neighbour."""

    pause_ms: float = 50.0
    """CPU time of one turn of the event loop."""
    times_slower: float = 3.0
    """Of a p99, in multiples of its unloaded value."""
    slack_ms: float = 0.0
    """Added to the bound of a p99 on machines that other work shares."""
    disturbed_share: float = 0.01
    """Of the requests of a phase: with more of them left out, the host decides the p99, and it is
    not judged."""
    memory_mb: float = MEMORY_MB_MAX
    stop_seconds: float = 5.0


@dataclass
class Phase:
    """One attack, or one mix of attacks."""

    longest_pause_ms: float = 0.0
    memory_mb: float = 0.0
    sent: dict[str, int] = field(default_factory=dict)
    """Requests that each attack got answered or left waiting."""
    errors: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass
class Findings:
    """Everything that a siege measured."""

    phases: dict[str, Phase] = field(default_factory=dict)
    produce: dict[str, Any] = field(default_factory=dict)
    fetch: dict[str, Any] = field(default_factory=dict)
    ledger: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    stop_seconds: float = 0.0
    """From SIGTERM, in the middle of an attack, to the end of the process."""
    exit_code: int = 0


def broken(found: Findings, bounds: Bounds) -> list[str]:
    """Return a sentence for each promise that was not kept."""
    problems = [
        *_pauses(found, bounds),
        *_latencies("produce", found.produce, found, bounds),
        *_latencies("fetch", found.fetch, found, bounds),
    ]
    if found.ledger["violations"]:
        problems.append(f"acknowledged records: {found.ledger['told']}")
    if not found.ledger["acknowledged"]:
        problems.append("the well-behaved producer had nothing acknowledged")
    if found.metrics.get(DEFECTS_METRIC, 0):
        problems.append(f"{found.metrics[DEFECTS_METRIC]:.0f} requests met a defect of the broker")
    if found.stop_seconds > bounds.stop_seconds:
        problems.append(
            f"SIGTERM took {found.stop_seconds:.1f} s, more than {bounds.stop_seconds:g} s"
        )
    if found.exit_code:
        problems.append(f"the broker ended with {found.exit_code}")
    return problems


def _pauses(found: Findings, bounds: Bounds) -> list[str]:
    problems = []
    for name, phase in found.phases.items():
        if phase.longest_pause_ms > bounds.pause_ms:
            problems.append(
                f"{name}: the loop paused for {phase.longest_pause_ms:.0f} ms of CPU, "
                f"more than {bounds.pause_ms:g} ms"
            )
        if phase.memory_mb > bounds.memory_mb:
            problems.append(
                f"{name}: memory of {phase.memory_mb:.0f} MB, more than {bounds.memory_mb:g} MB"
            )
        problems += [
            f"{attack}: sent nothing"
            for attack, sent in phase.sent.items()
            if not sent and not _is_held_back(phase.errors.get(attack, {}))
        ]
    return problems


def _is_held_back(errors: Mapping[str, int]) -> bool:
    """Whether requests were sent that the broker did not answer in time, as it may."""
    return any(error.startswith("TimeoutError") for error in errors)


def _latencies(role: str, report: Mapping[str, Any], found: Findings, bounds: Bounds) -> list[str]:
    problems = [f"{role}: {text}" for text in report["unexpected"][:5]]
    spreads = report["phases"]
    unloaded = spreads.get("unloaded", {"p99_ms": math.inf})
    bound_ms = bounds.times_slower * unloaded["p99_ms"] + bounds.slack_ms
    for name in found.phases:
        spread = spreads.get(name, {"count": 0, "p99_ms": 0.0})
        disturbed = _disturbed(report, name)
        if spread["count"] + disturbed < SAMPLES_MIN:
            problems.append(f"{role}, {name}: the neighbour was hardly served: {spread}")
        elif _is_measured(report, name, bounds) and spread["p99_ms"] > bound_ms:
            problems.append(
                f"{role}, {name}: p99 of {spread['p99_ms']:.1f} ms, more than {bound_ms:.1f} ms"
            )
    return problems


def not_measured(found: Findings, bounds: Bounds) -> list[str]:
    """Return a sentence for each p99 that says more about the host than about the broker."""
    return [
        f"{role}, {name}: the host took the processor in {_disturbed(report, name)} requests"
        for role, report in (("produce", found.produce), ("fetch", found.fetch))
        for name in ("unloaded", *found.phases)
        if _is_disturbed(report, name, bounds)
    ]


def _is_disturbed(report: Mapping[str, Any], phase: str, bounds: Bounds) -> bool:
    disturbed = _disturbed(report, phase)
    served = report["phases"].get(phase, {"count": 0})["count"]
    return bool(disturbed > bounds.disturbed_share * (disturbed + served))


def _is_measured(report: Mapping[str, Any], phase: str, bounds: Bounds) -> bool:
    return all(
        name in report["phases"] and not _is_disturbed(report, name, bounds)
        for name in ("unloaded", phase)
    )


def _disturbed(report: Mapping[str, Any], phase: str) -> int:
    """Requests of a phase that were left out."""
    return int(report.get("disturbed", {}).get(phase, 0))


def figures(found: Findings) -> list[str]:
    """Return a line for each phase, and one for the end."""
    unloaded = {
        role: report["phases"].get("unloaded", {"p99_ms": math.nan})["p99_ms"]
        for role, report in (("produce", found.produce), ("fetch", found.fetch))
    }
    lines = [f"unloaded: p99 {unloaded['produce']:.1f} ms produce, {unloaded['fetch']:.1f} fetch"]
    for name, phase in found.phases.items():
        produce = found.produce["phases"].get(name, {"p99_ms": 0.0, "max_ms": 0.0})
        fetch = found.fetch["phases"].get(name, {"p99_ms": 0.0, "max_ms": 0.0})
        lines.append(
            f"{name}: longest pause {phase.longest_pause_ms:.0f} ms CPU; p99 "
            f"{produce['p99_ms']:.1f} ms produce ({produce['p99_ms'] / unloaded['produce']:.1f} "
            f"times), {fetch['p99_ms']:.1f} ms fetch ({fetch['p99_ms'] / unloaded['fetch']:.1f} "
            f"times); longest "
            f"{produce['max_ms']:.0f} and {fetch['max_ms']:.0f} ms; memory "
            f"{phase.memory_mb:.0f} MB; sent {sum(phase.sent.values())}; left out "
            f"{_disturbed(found.produce, name) + _disturbed(found.fetch, name)}, in which the host "
            f"took the processor"
        )
    acknowledged = found.ledger["acknowledged"]
    lines.append(
        f"{acknowledged} records acknowledged, none lost; SIGTERM {found.stop_seconds:.1f} s"
    )
    return lines


def table(measured: Mapping[str, Findings], bounds: Bounds) -> list[str]:
    """Return the rows of docs/internals/limits.md."""
    return [
        f"| {name} | {phase.longest_pause_ms:.0f} | {_cell(found.produce, name, bounds)} "
        f"| {_cell(found.fetch, name, bounds)} | {phase.memory_mb:.0f} | {found.stop_seconds:.1f} |"
        for found in measured.values()
        for name, phase in found.phases.items()
    ]


def _cell(report: Mapping[str, Any], name: str, bounds: Bounds) -> str:
    if not _is_measured(report, name, bounds):
        return "not measured"
    spreads = report["phases"]
    return f"{spreads[name]['p99_ms']:.1f} ({spreads['unloaded']['p99_ms']:.1f})"


def summary(build: str, sieges: Sequence[Findings], bounds: Bounds) -> str:
    """Return one sentence over all sieges of a build."""
    phases = [phase for found in sieges for phase in found.phases.values()]
    factors = [
        report["phases"][name]["p99_ms"] / report["phases"]["unloaded"]["p99_ms"]
        for found in sieges
        for report in (found.produce, found.fetch)
        for name in found.phases
        if _is_measured(report, name, bounds)
    ]
    kept = sum(factor <= bounds.times_slower for factor in factors)
    p99 = "no p99 was measured, the host was busy"
    if factors:
        p99 = (
            f"{kept} of {len(factors)} measured p99 at most {bounds.times_slower:g} times the "
            f"unloaded value, the highest {max(factors):.1f} times"
        )
    return (
        f"summary of {build}: {len(sieges)} sieges, longest pause "
        f"{max(phase.longest_pause_ms for phase in phases):.0f} ms of CPU, memory at most "
        f"{max(phase.memory_mb for phase in phases):.0f} MB, SIGTERM at most "
        f"{max(found.stop_seconds for found in sieges):.1f} s, "
        f"{sum(found.ledger['acknowledged'] for found in sieges)} records acknowledged and "
        f"{sum(found.ledger['violations'] for found in sieges)} lost; {p99}"
    )
