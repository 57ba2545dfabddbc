"""Batches with fewer records than they had: what compaction leaves of them.

Guarantees: a record that is kept is kept byte for byte: `rewritten_batch` copies spans, and writes
only the small numbers at their beginning anew when the base timestamp changes.

What `rewritten_batch` and `empty_batch` keep of the original, as Apache Kafka does: base offset,
last offset, leader epoch, producer id, epoch and sequence, codec, timestamp type, transactional and
control. So offsets and sequence numbers stay what they were when records between them go.

It is for compaction, and decides nothing (`storage.compaction`). `span_scan` finds the records.
"""

from collections.abc import Sequence
from typing import Final

from penstock.records.batch import CODEC_MASK, DELETE_HORIZON, BatchHeader
from penstock.records.builder import assemble
from penstock.records.record import append_varint
from penstock.records.span_scan import RecordSpan

_NO_TIMESTAMP: Final = -1


def rewritten_batch(
    header: BatchHeader, section: bytes, kept: Sequence[RecordSpan], delete_horizon_ms: int | None
) -> bytearray:
    """The batch with only the records in `kept`; with a delete horizon, if one is given.

    The horizon takes the place of the base timestamp (KIP-534), so every delta is written anew.
    """
    assert kept, "a batch without records is `empty_batch`"
    base_ms, bits = header.base_timestamp_ms, header.attributes
    output = bytearray()
    if delete_horizon_ms is None:
        for span in kept:
            output += section[span.start : span.end]
    else:
        shift_ms = base_ms - delete_horizon_ms
        for span in kept:
            _append_shifted(output, section, span, shift_ms)
        base_ms, bits = delete_horizon_ms, bits | DELETE_HORIZON
    max_ms = header.max_timestamp_ms
    if not header.is_log_append_time:
        max_ms = header.base_timestamp_ms + max(span.timestamp_delta_ms for span in kept)
    return assemble(_header(header, bits, base_ms, max_ms, len(kept)), output)


def _append_shifted(output: bytearray, section: bytes, span: RecordSpan, shift_ms: int) -> None:
    """One record whose timestamp is told from another base."""
    body = bytearray(1)
    append_varint(body, span.timestamp_delta_ms + shift_ms)
    append_varint(body, span.offset_delta)
    body += section[span.rest : span.end]
    append_varint(output, len(body))
    output += body


def empty_batch(header: BatchHeader) -> bytearray:
    """The batch without records: what is left of a producer's last sequence, or of an offset."""
    bits = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    return assemble(_header(header, bits, _NO_TIMESTAMP, header.max_timestamp_ms, 0), b"")


def _header(
    header: BatchHeader, attributes: int, base_ms: int, max_ms: int, count: int
) -> BatchHeader:
    """The same header for other records."""
    changed = BatchHeader(*header.values())
    changed.attributes = attributes
    changed.base_timestamp_ms = base_ms
    changed.max_timestamp_ms = max_ms
    changed.record_count = count
    return changed
