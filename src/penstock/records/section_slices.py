"""`span_slices`: the records of a decompressed batch, a few at a time, in bounded memory.

A batch may hold a million records, and one record 128 MiB. Each slice has at most
`SCAN_SLICE_RECORDS` spans over a window of `SCAN_WINDOW_BYTES` that is copied from the section, so
that keys can be cut from it fast; a record that is larger than a window is a slice of its own, over
the section itself, and is not copied. Between two slices the caller may rest or stop.

Raises `CorruptBatchError` when the bytes are not exactly the records that the header counts. It
decides nothing (`storage.compaction.decisions`).
"""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.core.errors import CorruptBatchError
from penstock.core.limits import SCAN_SLICE_RECORDS, SCAN_WINDOW_BYTES
from penstock.records.span_walk import RecordSpan, large_span, span_slice


class SpanSlice(NamedTuple):
    """Some records, one after the other."""

    window: bytes | memoryview
    """The bytes that the positions of the spans refer to; a view for a single large record."""
    spans: list[RecordSpan]


def span_slices(section: memoryview, count: int) -> Iterator[SpanSlice]:
    """The `count` records of a decompressed section, in order."""
    start = place = 0
    window = b""
    left = count
    while left > 0:
        spans, place = span_slice(window, place, min(left, SCAN_SLICE_RECORDS))
        if spans:
            yield SpanSlice(window, spans)
            left -= len(spans)
            continue
        is_new = place == 0 and window
        start, place = start + place, 0
        if not is_new:
            window = bytes(section[start : start + SCAN_WINDOW_BYTES])
            if window:
                continue
        span = large_span(section, start)
        if span is None:
            break
        yield SpanSlice(section, [span])
        left -= 1
        start, window = span.end, b""
    if left > 0 or start + place != len(section):
        raise CorruptBatchError(
            f"record {count - left} of {count} is damaged, or bytes follow the last"
        )
