"""`page`: a measurement or a comparison as one self-contained HTML file (pure).

Styles and charts are inside; it loads nothing, runs no script, follows the reader's light or dark
setting and can be printed. The time of its creation is an argument.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from penstock.bench import charts
from penstock.bench.comparison import Comparison, Line, summed
from penstock.bench.figures_text import (
    latency_text,
    rate_text,
    rows_of,
    unit_of,
    workload_text,
)
from penstock.bench.measurement import WHAT_BYTES_ARE, Measurement, latency_meaning
from penstock.bench.workload import Workload

_STYLE: Final = """
:root{--ground:#fbfbfd;--card:#fff;--ink:#16181d;--soft:#5f6673;--edge:#e3e6ec;--first:#2f6fde;
--second:#d9822b;--good:#1a8f5a;--bad:#c8373c;--note:#fff7e6;--note-edge:#f0c36d}
@media (prefers-color-scheme:dark){:root{--ground:#111318;--card:#191c23;--ink:#e9ebf0;
--soft:#9aa2b1;--edge:#2b303a;--first:#6ea0ff;--second:#f0a95b;--good:#4cc38a;--bad:#ff7b7b;
--note:#2a2413;--note-edge:#7a6128}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:820px;margin:0 auto;padding:40px 20px 64px}
h1{font-size:26px;line-height:1.2;margin:0 0 4px;letter-spacing:-.01em}
h2{font-size:16px;margin:0 0 2px}
p{margin:0 0 12px}.soft{color:var(--soft)}.small{font-size:13px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(118px,1fr));gap:12px;margin:24px 0}
.tile,.card{background:var(--card);border:1px solid var(--edge);border-radius:10px}
.tile{padding:12px 14px}.tile b{display:block;font-size:21px;font-weight:650;
font-variant-numeric:tabular-nums;white-space:nowrap}
.tile span{color:var(--soft);font-size:13px}
.card{padding:18px 20px;margin:0 0 16px}
.note{background:var(--note);border:1px solid var(--note-edge);border-radius:10px;
padding:12px 16px;margin:0 0 16px}.note p:last-child{margin:0}
svg{display:block;width:100%;height:auto;margin-top:10px}
svg text{fill:var(--soft);font-size:12px;font-family:inherit}
svg .name{fill:var(--ink);font-size:13px}svg .mark-name{fill:var(--ink);font-weight:600}
.grid{stroke:var(--edge)}.tick{stroke:var(--soft)}
.mark,.equal{stroke:var(--soft);stroke-dasharray:3 3}
.bar.series1{fill:var(--first)}.bar.series2{fill:var(--second)}
.line{fill:none;stroke-width:2;stroke-linejoin:round}.line.series1{stroke:var(--first)}
.line.series2{stroke:var(--second)}.area{stroke:none;opacity:.16}.area.series1{fill:var(--first)}
.spread{stroke-width:3;stroke-linecap:round;opacity:.45}
.spread.better{stroke:var(--good)}.spread.worse{stroke:var(--bad)}.spread.unclear{stroke:var(--soft)}
.dot.better{fill:var(--good)}.dot.worse{fill:var(--bad)}.dot.unclear{fill:var(--soft)}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:6px 10px 6px 0;border-bottom:1px solid var(--edge);font-weight:400}
thead th{color:var(--soft);font-size:13px}td.n,th.n{text-align:right}tr:last-child>*{border:0}
.key{display:inline-flex;align-items:center;gap:6px;margin-right:16px}
.key i{width:12px;height:12px;border-radius:3px;display:inline-block}
.key .one{background:var(--first)}.key .two{background:var(--second)}
footer{color:var(--soft);font-size:13px;margin-top:28px}
@media print{.card,.tile{break-inside:avoid}}
"""


def page(result: Measurement | Comparison, made_at: str) -> str:
    """Return the report as one document."""
    if isinstance(result, Comparison):
        return _document(
            f"{_title(result.first[0].workload)}: {result.first[0].bootstrap} beside "
            f"{result.second[0].bootstrap}",
            _comparison(result),
            made_at,
        )
    return _document(
        f"{_title(result.workload)}: {result.bootstrap}", _measurement(result), made_at
    )


def _document(title: str, parts: Iterable[str], made_at: str) -> str:
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style></head>\n<body><main>\n"
        f"{body}\n<footer>Created by <code>penstock bench</code>, {escape(made_at)}. Figures are "
        "of this machine, at that time, under this load; the parameters above repeat the run."
        "</footer>\n</main></body></html>\n"
    )


def _title(workload: Workload) -> str:
    return {
        "produce": "Producing",
        "consume": "Consuming",
        "end-to-end": "From producer to consumer",
        "groups": "Groups and commits",
        "lookup": "Lookups by offset",
    }[workload.kind]


def _measurement(measured: Measurement) -> Iterable[str]:
    workload = measured.workload
    yield f"<h1>{escape(_title(workload))}</h1>"
    yield f'<p class="soft">{escape(measured.bootstrap)} · {escape(workload_text(workload))}</p>'
    yield _tiles(measured)
    yield _notes(measured.notes)
    named = [("", measured.latency)]
    yield from _latency_cards(named, workload)
    yield _card(
        "Over time",
        f"{unit_of(workload).capitalize()} each second since the warm-up was over.",
        charts.throughput([measured.timeline.rates()], unit_of(workload)),
    )
    yield _table(["figure", "value"], rows_of(measured), "All figures")
    yield _parameters(workload)


def _comparison(compared: Comparison) -> Iterable[str]:
    first, second = summed(compared.first), summed(compared.second)
    workload = first.workload
    lines = compared.lines()
    rounds = len(compared.first)
    yield f"<h1>{escape(_title(workload))}, two brokers in turns</h1>"
    yield f'<p class="soft">{escape(workload_text(workload))} · {rounds} rounds of each</p>'
    yield f"<p>{_keys(first, second)}</p>"
    yield _notes(compared.notes())
    yield _card(
        "Ratios",
        f"{first.bootstrap} divided by {second.bootstrap}: the dot is the median of the rounds, "
        "the bar reaches from the lowest to the highest. Green is better, red is worse, grey "
        "means that the rounds do not agree.",
        charts.ratios(lines),
    )
    yield _ratio_table(lines, first, second)
    named = [(first.bootstrap, first.latency), (second.bootstrap, second.latency)]
    yield from _latency_cards(named, workload, _keys(first, second))
    yield _card(
        "Over time",
        f"{unit_of(workload).capitalize()} each second, first round of each.",
        charts.throughput(
            [compared.first[0].timeline.rates(), compared.second[0].timeline.rates()],
            unit_of(workload),
        ),
        _keys(first, second),
    )
    yield _parameters(workload)


def _keys(first: Measurement, second: Measurement) -> str:
    return (
        f'<span class="key"><i class="one"></i>{escape(first.bootstrap)}</span>'
        f'<span class="key"><i class="two"></i>{escape(second.bootstrap)}</span>'
    )


def _latency_cards(
    named: Sequence[charts.Named], workload: Workload, keys: str = ""
) -> Iterable[str]:
    if not all(histogram.count for _, histogram in named):
        return
    what = latency_meaning(workload)
    yield _card(
        "Latency, how often",
        f"{what[:1].upper()}{what[1:]}. The axis grows by factors, not by steps.",
        charts.distribution(named),
        keys,
    )
    yield _card(
        "Latency, by percentile",
        "How long the slowest took: from mark to mark ten times fewer are slower.",
        charts.percentiles(named),
        keys,
    )


def _tiles(measured: Measurement) -> str:
    tiles = [(f"{unit_of(measured.workload)}/s", rate_text(measured.records_per_second))]
    if measured.bytes:
        what, _, _ = WHAT_BYTES_ARE[measured.workload.kind].partition(",")
        tiles.append((f"MB/s of {what}", rate_text(measured.megabytes_per_second)))
    tiles += [
        (f"p{percent:g}", latency_text(measured.latency.percentile(percent)))
        for percent in (50, 99, 99.9)
    ]
    tiles.append(("slowest", latency_text(measured.latency.max_us)))
    tiles += [(name, latency_text(value * 1e6)) for name, value in measured.figures.items()]
    inside = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for name, value in tiles
    )
    return f'<div class="tiles">{inside}</div>'


def _notes(notes: Iterable[str]) -> str:
    inside = "".join(f"<p>{escape(one)}</p>" for one in notes)
    return f'<div class="note">{inside}</div>' if inside else ""


def _card(title: str, words: str, chart: str, keys: str = "") -> str:
    legend = f'<p class="small">{keys}</p>' if keys else ""
    return (
        f'<section class="card"><h2>{escape(title)}</h2>'
        f'<p class="soft small">{escape(words)}</p>{legend}{chart}</section>'
    )


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]], title: str) -> str:
    head = "".join(
        f"<th{' class=n' if number else ''}>{escape(one)}</th>"
        for number, one in enumerate(headings)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{' class=n' if number else ''}>{escape(cell)}</td>"
            for number, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<section class="card"><h2>{escape(title)}</h2><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></section>"
    )


def _ratio_table(lines: Sequence[Line], first: Measurement, second: Measurement) -> str:
    rows = [
        (
            f"{one.name}, {one.unit}",
            rate_text(one.first),
            rate_text(one.second),
            f"{one.ratio:.2f}",
            f"{one.ratio_low:.2f} to {one.ratio_high:.2f}",
        )
        for one in lines
    ]
    headings = ["medians of the rounds", first.bootstrap, second.bootstrap, "ratio", "spread"]
    return _table(headings, rows, "Figures")


def _parameters(workload: Workload) -> str:
    rows = [
        (name.replace("_", " "), str(value))
        for name, value in workload.document().items()
        if value not in (None, {}, "")
    ]
    return _table(["parameter", "value"], rows, "Parameters")
