"""Charts as inline SVG (pure), without scripts, fonts and external addresses.

Colours are CSS variables of the page, so that charts fit light and dark mode. Every chart has a
title for screen readers, and its numbers are in the page's tables too.
"""

from collections.abc import Iterable, Sequence
from html import escape
from math import ceil, log10
from typing import Final

from penstock.bench.comparison import Line
from penstock.bench.figures_text import edge_text, rate_text
from penstock.bench.histogram import Histogram

WIDTH: Final = 720
HEIGHT: Final = 260
_LEFT: Final = 64
_RIGHT: Final = 16
_TOP: Final = 26
TIMES: Final = "\N{MULTIPLICATION SIGN}"
_BOTTOM: Final = 36
_PER_DECADE: Final = 12
"""Bars for each factor of ten in a distribution."""
_MARKS: Final = (50.0, 99.0, 99.9)
_TAILS: Final = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99)
_TAILS_MAX: Final = 5.0
"""99.999 %: no run has enough requests for a higher percentile."""
_ROW_HEIGHT: Final = 34

Named = tuple[str, Histogram]
Points = Sequence[tuple[float, float]]


class _Frame:
    """A plot area: maps values to positions."""

    def __init__(
        self, x: tuple[float, float], y: tuple[float, float], height: int = HEIGHT
    ) -> None:
        self._x, self._y, self.height = x, y, height

    def x(self, value: float) -> float:
        low, high = self._x
        share = (value - low) / (high - low) if high > low else 0.5
        return _LEFT + share * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        low, high = self._y
        share = (value - low) / (high - low) if high > low else 0.0
        return self.height - _BOTTOM - share * (self.height - _TOP - _BOTTOM)


def _svg(title: str, height: int, parts: Iterable[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>\n{body}\n</svg>"
    )


def _text(x: float, y: float, text: str, kind: str = "label", anchor: str = "middle") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _path(frame: _Frame, points: Points, kind: str) -> str:
    places = " ".join(
        f"{'M' if number == 0 else 'L'}{frame.x(x):.1f},{frame.y(y):.1f}"
        for number, (x, y) in enumerate(points)
    )
    return f'<path d="{places}" class="{kind}"/>'


def _decades(low: float, high: float) -> list[int]:
    """Return the exponents of the powers of ten between two values."""
    return list(range(int(low), int(high) + 1))


def round_steps(high: float, wanted: int = 4) -> list[float]:
    """Return 0 and steps of 1, 2 or 5 times a power of ten, up to the first at or above `high`."""
    rough = high / wanted
    scale = 10.0 ** (ceil(log10(rough)) - 1)
    step = next(factor * scale for factor in (1, 2, 5, 10) if factor * scale >= rough * 0.999)
    return [number * step for number in range(ceil(high / step * 0.999) + 1)]


def _log_bounds(histograms: Iterable[Histogram]) -> tuple[float, float]:
    """Return exponents that enclose all latencies: at least one factor of ten."""
    filled = [one for one in histograms if one.count]
    low = min(log10(max(1, one.min_us)) for one in filled)
    high = max(log10(max(1, one.max_us)) for one in filled)
    return low, max(high, low + 1)


def distribution(series: Sequence[Named]) -> str:
    """Return the distribution of latencies: a logarithmic axis, bars are shares of all."""
    low, high = _log_bounds(histogram for _, histogram in series)
    slots = max(1, round((high - low) * _PER_DECADE)) + 1
    shares = [_shares(histogram, low, slots) for _, histogram in series]
    most = max(max(one) for one in shares)
    steps = round_steps(most)
    frame = _Frame((low, low + slots / _PER_DECADE), (0.0, steps[-1]))
    parts = [*_share_axis(frame, steps), *_latency_axis(frame, low, low + slots / _PER_DECADE)]
    width = (frame.x(low + 1 / _PER_DECADE) - frame.x(low) - 1) / len(series)
    for number, one in enumerate(shares):
        for slot, share in enumerate(one):
            if share:
                x = frame.x(low + slot / _PER_DECADE) + 0.5 + number * width
                top = frame.y(share)
                parts.append(
                    f'<rect x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" '
                    f'height="{max(1.0, frame.y(0) - top):.1f}" class="bar series{number + 1}"/>'
                )
    if len(series) == 1:
        parts += _marks(frame, series[0][1])
    return _svg("How often each latency occurred", HEIGHT, parts)


def _shares(histogram: Histogram, low: float, slots: int) -> list[float]:
    counts = [0] * slots
    for slot in histogram.slots():
        middle = (slot.low_us + slot.high_us) / 2
        number = int((log10(max(1.0, middle)) - low) * _PER_DECADE)
        counts[min(max(number, 0), slots - 1)] += slot.times
    return [count / max(1, histogram.count) for count in counts]


def _share_axis(frame: _Frame, steps: Iterable[float]) -> Iterable[str]:
    for share in steps:
        y = frame.y(share)
        yield _line(_LEFT, y, WIDTH - _RIGHT, y, "grid")
        yield _text(_LEFT - 8, y + 4, f"{share * 100:.3g} %", anchor="end")


def _latency_axis(frame: _Frame, low: float, high: float) -> Iterable[str]:
    for exponent in _decades(low - 1, high):
        for step in (1, 2, 5):
            at = log10(step * 10.0**exponent)
            if low <= at <= high:
                x = frame.x(at)
                yield _line(x, frame.y(0), x, frame.y(0) + 5, "tick")
                yield _text(x, frame.y(0) + 20, edge_text(step * 10**exponent))


def _marks(frame: _Frame, histogram: Histogram) -> Iterable[str]:
    """Return the positions of the percentiles, named above the bars; neighbours share a label."""
    places: list[tuple[float, str]] = []
    for percent in _MARKS:
        x = frame.x(log10(max(1, histogram.percentile(percent))))
        yield _line(x, _TOP - 4, x, frame.y(0), "mark")
        if places and x - places[-1][0] < 48:
            places[-1] = (places[-1][0], f"{places[-1][1]}, p{percent:g}")
        else:
            places.append((x, f"p{percent:g}"))
    for x, name in places:
        is_at_end = x > WIDTH - 120
        yield _text(x, _TOP - 9, name, "mark-name", "end" if is_at_end else "middle")


def percentiles(series: Sequence[Named]) -> str:
    """Return latency by percentile: each step to the right leaves ten times fewer requests."""
    low, high = _log_bounds(histogram for _, histogram in series)
    low, high = float(int(low)), high * 1.02
    ends = [log10(max(10, histogram.count)) for _, histogram in series]
    last = min(_TAILS_MAX, max(ends))
    frame = _Frame((0.0, last), (low, high))
    parts = []
    for exponent in _decades(low, high):
        y = frame.y(exponent)
        parts += [
            _line(_LEFT, y, WIDTH - _RIGHT, y, "grid"),
            _text(_LEFT - 8, y + 4, edge_text(10**exponent), anchor="end"),
        ]
    for percent in (one for one in _TAILS if _tail(one) <= last):
        x = frame.x(_tail(percent))
        parts += [
            _line(x, frame.y(low), x, frame.y(low) + 5, "tick"),
            _text(x, frame.y(low) + 20, f"{percent:g} %"),
        ]
    for number, (_, histogram) in enumerate(series):
        parts.append(_path(frame, _tail_points(histogram, last), f"line series{number + 1}"))
    return _svg("Latency by percentile", HEIGHT, parts)


def _tail(percent: float) -> float:
    """Return a position on the axis: 0 % at 0, 90 % at 1, 99 % at 2 ..."""
    return -log10(max(1e-9, 1 - percent / 100))


def _tail_points(histogram: Histogram, last: float) -> list[tuple[float, float]]:
    """Return the curve, up to the last percentile that the number of latencies allows."""
    steps = 120
    end = min(last, log10(max(10, histogram.count)))
    return [
        (
            end * step / steps,
            log10(max(1, histogram.percentile(100 * (1 - 10 ** (-end * step / steps))))),
        )
        for step in range(steps + 1)
    ]


def throughput(series: Sequence[Points], unit: str) -> str:
    """Return the throughput over the time of the run."""
    most = max((rate for points in series for _, rate in points), default=0.0) or 1.0
    longest = max((at for points in series for at, _ in points), default=0.0) or 1.0
    rates = round_steps(most)
    frame = _Frame((0.0, longest), (0.0, rates[-1]))
    parts = []
    for rate in rates:
        y = frame.y(rate)
        parts += [
            _line(_LEFT, y, WIDTH - _RIGHT, y, "grid"),
            _text(_LEFT - 8, y + 4, _short(rate), anchor="end"),
        ]
    for at in round_steps(longest, 5):
        if at <= longest:
            x = frame.x(at)
            parts += [
                _line(x, frame.y(0), x, frame.y(0) + 5, "tick"),
                _text(min(x, WIDTH - _RIGHT - 8), frame.y(0) + 20, f"{at:.4g} s"),
            ]
    for number, points in enumerate(series):
        if len(series) == 1 and points:
            area = [(points[0][0], 0.0), *points, (points[-1][0], 0.0)]
            parts.append(_path(frame, area, f"area series{number + 1}"))
        parts.append(_path(frame, points, f"line series{number + 1}"))
    return _svg(f"{unit} a second over time", HEIGHT, parts)


def _short(value: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"


def ratios(lines: Sequence[Line]) -> str:
    """Return each ratio as a dot with its spread; the middle line is 1, factors to both sides."""
    reach = max(
        [
            0.30103,
            *(abs(log10(value)) for one in lines for value in (one.ratio_low, one.ratio_high)),
        ]
    )
    height = _TOP + _BOTTOM + _ROW_HEIGHT * len(lines)
    left = 150
    frame = _Frame((-reach * 1.08, reach * 1.08), (0.0, 1.0), height)

    def place(ratio: float) -> float:
        share = (frame.x(log10(ratio)) - _LEFT) / (WIDTH - _LEFT - _RIGHT)
        return left + share * (WIDTH - left - 90)

    bottom = height - _BOTTOM
    parts = [
        _line(place(1), _TOP, place(1), bottom, "equal"),
        _text(place(1), bottom + 20, "equal"),
    ]
    parts += [
        _text(place(factor), bottom + 20, f"{TIMES} {factor:.2g}")
        for factor in (10**-reach, 10**reach)
    ]
    for number, one in enumerate(lines):
        y = _TOP + _ROW_HEIGHT * (number + 0.5)
        kind = "unclear"
        if one.rounds_agree:
            kind = "better" if (one.ratio > 1) == one.is_more_better else "worse"
        parts += [
            _text(left - 14, y + 4, one.name, "name", "end"),
            _line(place(one.ratio_low), y, place(one.ratio_high), y, f"spread {kind}"),
            f'<circle cx="{place(one.ratio):.1f}" cy="{y:.1f}" r="5" class="dot {kind}"/>',
            _text(WIDTH - _RIGHT, y + 4, f"{TIMES} {rate_text(one.ratio)}", "name", "end"),
        ]
    return _svg("Ratios of the two brokers", height, parts)
