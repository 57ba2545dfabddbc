"""The text of a query's progress: one line each (pure).

A line has the query, the batch, the rate, the batch's duration, the lag by topic, and the position.
It has no line breaks or control characters, whatever the query's name, and is bounded: topics and
partitions beyond a few are counted, not listed.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import dropwhile, islice, takewhile
from typing import Final

from penstock.core.quantities import printable
from penstock.core.types import TopicPartition
from penstock.spark.progress.reading import QueryProgress, lag_by_topic, positions_of

TOPICS_SHOWN_MAX: Final = 5
PARTITIONS_SHOWN_MAX: Final = 8
"""Enough for a short view; `penstock group lag` shows every partition."""
NAME_CHARACTERS_MAX: Final = 60
REASON_CHARACTERS_MAX: Final = 600
"""An error with its remedies fits; a stack trace does not."""
SHORT_ID_CHARACTERS: Final = 8

_TRACEBACK: Final = "Traceback (most recent call last):"
_CALLING: Final = re.compile(r"An error occurred while calling \S+\.$")
"""The heading of py4j, which only reports that an error occurred in Java."""
_PACKAGES: Final = re.compile(r"^(?:[A-Za-z_$][\w$]*\.)+(?=[A-Z])")


def query_label(query_id: str, name: str | None) -> str:
    """Return a query's label in a line: its name, or the beginning of its id."""
    return printable(name or query_id[:SHORT_ID_CHARACTERS])[:NAME_CHARACTERS_MAX]


def progress_text(label: str, progress: QueryProgress, *, is_idle: bool = False) -> str:
    """Return the live line of a query after one batch."""
    speed = "idle" if is_idle else f"{_number(progress.rows_per_second)} rows/s"
    parts = [label, f"batch {progress.batch_id}", speed, _duration(progress.duration_ms)]
    lags = lag_by_topic(progress)
    if lags:
        parts += [f"lag {_lags(lags)}", f"offsets {_offsets(positions_of(progress))}"]
    offset_count = sum(source.skipped_offset_count for source in progress.sources)
    partition_count = sum(source.skipped_partition_count for source in progress.sources)
    if offset_count or partition_count:
        parts.append(f"lost {offset_count:,} offsets in {partition_count:,} partitions")
    return "  ".join(parts)


def ended_text(label: str, batch_count: int, row_count: int, error: str | None) -> str:
    """Return the last line of a query: stopped, or failed with the reason."""
    work = f"{batch_count:,} {'batch' if batch_count == 1 else 'batches'}, {row_count:,} rows"
    if error is None:
        return f"{label}  stopped after {work}"
    return f"{label}  failed after {work}: {reason_of(error)}"


def reason_of(error: str) -> str:
    """Return the reason in a Java or Python stack trace, in one line.

    An error of a Python source arrives inside a Java error, as the text of its traceback. The error
    itself is in the last lines: the lines after the heading that are not indented.
    """
    lines = error.strip().splitlines() or ["the reason is not known"]
    if _CALLING.match(lines[0]) and len(lines) > 1:
        lines = [lines[1].removeprefix(": "), *lines[2:]]
    reason = lines[0]
    for number, line in enumerate(lines):
        if line.endswith(_TRACEBACK):
            raised = takewhile(_is_text, dropwhile(_is_indented, lines[number + 1 :]))
            reason = " ".join(raised) or reason
    # The package of an exception's class does not help a reader: `a.b.C: text` becomes `C: text`.
    reason = printable(_PACKAGES.sub("", reason.strip()))
    return reason if len(reason) <= REASON_CHARACTERS_MAX else reason[:REASON_CHARACTERS_MAX] + "…"


def _is_indented(line: str) -> bool:
    return line[:1].isspace()


def _is_text(line: str) -> bool:
    return bool(line) and not _is_indented(line)


def _lags(lags: Mapping[str, int | None]) -> str:
    words = (f"{topic} {'unknown' if lag is None else f'{lag:,}'}" for topic, lag in lags.items())
    return _first(words, len(lags), TOPICS_SHOWN_MAX, ", ")


def _offsets(positions: Mapping[TopicPartition, int]) -> str:
    shown: dict[str, list[str]] = {}
    for at, offset in islice(positions.items(), PARTITIONS_SHOWN_MAX):
        shown.setdefault(at.topic, []).append(f"{at.partition}:{offset}")
    words = ", ".join(f"{topic} {' '.join(places)}" for topic, places in shown.items())
    more = len(positions) - PARTITIONS_SHOWN_MAX
    return f"{words} and {more:,} more" if more > 0 else words


def _first(words: Iterable[str], count: int, count_max: int, separator: str) -> str:
    text = separator.join(islice(words, count_max))
    return f"{text} and {count - count_max:,} more" if count > count_max else text


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def _duration(milliseconds: int) -> str:
    return f"{milliseconds:,} ms" if milliseconds < 10_000 else f"{milliseconds / 1000:,.1f} s"
