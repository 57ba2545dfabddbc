"""Prints the results of `penstock bench`: tables, a histogram for terminals, and warnings."""

import shutil

import click

from penstock.bench.comparison import Comparison, summed
from penstock.bench.figures_text import (
    histogram_bars,
    latency_text,
    rate_text,
    rows_of,
    unit_of,
    workload_text,
)
from penstock.bench.measurement import WHAT_BYTES_ARE, Measurement, StorageFigures, latency_meaning
from penstock.cli.output import can_draw, print_colored, print_table

_WIDTH_MAX = 100
_DISAGREE = "rounds disagree"
_COLORS = {"better": "green", "worse": "red", _DISAGREE: "yellow"}


def print_measurement(measured: Measurement) -> None:
    """Print all figures of one run."""
    click.echo(f"{measured.workload.kind}: {workload_text(measured.workload)}")
    print_table(["figure", measured.bootstrap], rows_of(measured))
    _print_histogram(measured)
    _print_notes(measured.notes)


def print_storage(figures: StorageFigures) -> None:
    """Print one row for each figure of the log."""
    first = next(iter(figures.by_name.values()))
    click.echo(f"storage of {first.bootstrap}: {workload_text(first.workload)}")
    rows = [
        [
            name,
            f"{rate_text(one.records_per_second)} {unit_of(one.workload)}/s",
            f"{rate_text(one.megabytes_per_second)} MB/s",
            latency_text(one.latency.percentile(50.0)),
            latency_text(one.latency.percentile(99.0)),
        ]
        for name, one in figures.by_name.items()
    ]
    print_table(["figure", "throughput", "data", "p50 of a request", "p99"], rows)
    _print_notes([*dict.fromkeys(note for one in figures.by_name.values() for note in one.notes)])


def print_comparison(compared: Comparison) -> None:
    """Print the figures of both brokers, and the ratios with their spread."""
    first, second = summed(compared.first), summed(compared.second)
    click.echo(f"{first.workload.kind}: {workload_text(first.workload)}")
    if first.bytes:
        click.echo(f"data: {WHAT_BYTES_ARE[first.workload.kind]}")
    rows = [
        [
            f"{line.name} ({line.unit})",
            rate_text(line.first),
            rate_text(line.second),
            f"{line.ratio:.2f}",
            f"{line.ratio_low:.2f}..{line.ratio_high:.2f}",
            _verdict(line.ratio, is_more_better=line.is_more_better, agree=line.rounds_agree),
        ]
        for line in compared.lines()
    ]
    headings = ["median of rounds", first.bootstrap, second.bootstrap, "ratio", "spread", ""]
    print_table(headings, rows, styles=_COLORS)
    for one in (first, second):
        click.echo(f"\n{one.bootstrap}")
        _print_histogram(one)
    _print_notes(compared.notes())


def _verdict(ratio: float, *, is_more_better: bool, agree: bool) -> str:
    if not agree:
        return _DISAGREE
    return "better" if (ratio > 1) == is_more_better else "worse"


def _print_histogram(measured: Measurement) -> None:
    width = min(shutil.get_terminal_size().columns, _WIDTH_MAX)
    bars = histogram_bars(measured.latency, width, is_plain=not can_draw())
    if bars:
        click.echo(f"\nLatency of {latency_meaning(measured.workload)}")
    for bar in bars:
        print_colored([(bar.label, ""), (bar.bar, "cyan"), (bar.share, "")])


def _print_notes(notes: tuple[str, ...] | list[str]) -> None:
    for one in notes:
        click.echo()
        print_colored([("Note: ", "bold yellow"), (one, "")])
