"""Builds the batches that compaction leaves, with fewer records.

Guarantees: a record that is kept is kept byte for byte: `BatchRewriter` copies spans, and writes
only the small numbers at their beginning anew when the base timestamp changes.

`BatchRewriter` and `empty_batch` keep these fields, as Apache Kafka does: base offset, last offset,
leader epoch, producer id, epoch and sequence, codec, timestamp type, transactional and control. So
offsets and sequence numbers stay the same when records between them are removed.

It is for compaction, and decides nothing (`compaction.decisions`). `span_walk` finds the records.
"""

from collections.abc import Generator, Iterator
from typing import Final

from penstock.core.limits import COMPACTION_PIECE_BYTES
from penstock.records.batch import CODEC_MASK, DELETE_HORIZON, BatchHeader
from penstock.records.builder import assemble, assemble_pieces
from penstock.records.record import append_varint
from penstock.records.span_walk import RecordSpan

_NO_TIMESTAMP: Final = -1


class BatchRewriter:
    """Collects the remaining records of a batch; then builds the batch.

    A delete horizon replaces the base timestamp (KIP-534), so every delta is written anew.
    """

    def __init__(self, header: BatchHeader, delete_horizon_ms: int | None) -> None:
        self._header = header
        self._horizon_ms = delete_horizon_ms
        self._output = bytearray()
        self._count = 0
        self._max_delta_ms = 0

    def add(self, window: bytes | memoryview, span: RecordSpan) -> None:
        """Keep one record; its positions count in `window`."""
        self._output += window[self._begin(span) : span.end]

    def add_large(self, section: memoryview, span: RecordSpan) -> Iterator[None]:
        """Keep one large record, in steps."""
        for start in range(self._begin(span), span.end, COMPACTION_PIECE_BYTES):
            self._output += section[start : min(start + COMPACTION_PIECE_BYTES, span.end)]
            yield None

    def _begin(self, span: RecordSpan) -> int:
        """Count a record and write its changed part; return where the unchanged part begins."""
        if self._count == 0 or span.timestamp_delta_ms > self._max_delta_ms:
            self._max_delta_ms = span.timestamp_delta_ms
        self._count += 1
        if self._horizon_ms is None:
            return span.start
        head = bytearray(1)
        shift_ms = self._header.base_timestamp_ms - self._horizon_ms
        append_varint(head, span.timestamp_delta_ms + shift_ms)
        append_varint(head, span.offset_delta)
        append_varint(self._output, len(head) + span.end - span.rest)
        self._output += head
        return span.rest

    def build(self) -> Generator[None, None, bytearray]:
        """The batch, in steps."""
        assert self._count, "a batch without records is `empty_batch`"
        header = self._header
        base_ms, bits, max_ms = header.base_timestamp_ms, header.attributes, header.max_timestamp_ms
        if not header.is_log_append_time:
            max_ms = base_ms + self._max_delta_ms
        if self._horizon_ms is not None:
            base_ms, bits = self._horizon_ms, bits | DELETE_HORIZON
        changed = _header(header, bits, base_ms, max_ms, self._count)
        return (yield from assemble_pieces(changed, self._output))


def empty_batch(header: BatchHeader) -> bytearray:
    """The batch without records: it keeps a producer's last sequence, or an offset."""
    bits = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    return assemble(_header(header, bits, _NO_TIMESTAMP, header.max_timestamp_ms, 0), b"")


def _header(
    header: BatchHeader, attributes: int, base_ms: int, max_ms: int, count: int
) -> BatchHeader:
    """The header with the fields of other records."""
    changed = BatchHeader(*header.values())
    changed.attributes = attributes
    changed.base_timestamp_ms = base_ms
    changed.max_timestamp_ms = max_ms
    changed.record_count = count
    return changed
