"""The reference decoder: the kernel's specification, record by record, in few lines.

Guarantees: for any bytes it returns the rows that `decode.columns` returns, and the same next
offset, or raises an error of the same class. Tests compare the kernel with it; it uses `records`
wherever possible and shares no code with the kernel. It is slow, and no Spark task runs it.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from penstock.core.errors import CorruptBatchError, InvalidTimestampError
from penstock.records import batch as layout
from penstock.records.batch import BatchHeader
from penstock.records.builder import records_section
from penstock.records.control import read_marker
from penstock.records.record import Record, decode_records

_INT64_MAX: Final = 2**63 - 1


class Row(NamedTuple):
    """One row; the fields are those of the Spark schema."""

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp_us: int
    timestamp_type: int
    headers: list[tuple[str, bytes | None]] | None


class ReferenceDecoder:
    """Decodes the fetches of one partition, one after another."""

    def __init__(
        self,
        topic: str,
        partition: int,
        from_offset: int,
        until_offset: int,
        *,
        is_read_committed: bool,
        decompressed_bytes_max: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.next_offset = from_offset
        self.until_offset = until_offset
        self.is_read_committed = is_read_committed
        self.decompressed_bytes_max = decompressed_bytes_max

    def rows(self, data: bytes, aborted: Iterable[tuple[int, int]] = ()) -> Iterator[Row]:
        """Return the rows of one fetch; `aborted` is (producer id, first offset)."""
        waiting = sorted(aborted, key=lambda one: one[1])
        active: set[int] = set()
        batches = _whole_batches(data)
        while self.next_offset < self.until_offset and (found := next(batches, None)) is not None:
            position, header = found
            if header.base_offset >= self.until_offset:
                self.next_offset = self.until_offset
                return
            _check(data, position, header)
            while waiting and waiting[0][1] <= header.last_offset:
                active.add(waiting.pop(0)[0])
            is_aborted = self.is_read_committed and header.producer_id in active
            if is_aborted and header.is_control:
                marker = read_marker(data, position)
                if marker is not None and not marker.is_commit:
                    active.discard(header.producer_id)
            is_hidden = header.is_control or (is_aborted and header.is_transactional)
            if not is_hidden and header.last_offset >= self.next_offset:
                yield from self._rows_of(data, position, header)
            self.next_offset = min(max(self.next_offset, header.next_offset), self.until_offset)

    def _rows_of(self, data: bytes, position: int, header: BatchHeader) -> Iterator[Row]:
        section = records_section(
            data, header, position=position, output_bytes_max=self.decompressed_bytes_max
        )
        previous = header.base_offset - 1
        for record in decode_records(
            section,
            header.record_count,
            base_offset=header.base_offset,
            base_timestamp_ms=header.base_timestamp_ms,
        ):
            if not previous < record.offset <= header.last_offset:
                raise CorruptBatchError(f"offset {record.offset} after {previous}")
            previous = record.offset
            if record.offset >= self.until_offset:
                self.next_offset = self.until_offset
                return
            if record.offset >= self.next_offset:
                yield self._row(record, header)
                self.next_offset = record.offset + 1

    def _row(self, record: Record, header: BatchHeader) -> Row:
        timestamp_ms = header.max_timestamp_ms if header.is_log_append_time else record.timestamp_ms
        timestamp_us = timestamp_ms * 1000
        if abs(timestamp_us) > _INT64_MAX:
            raise InvalidTimestampError(f"{timestamp_ms} ms do not fit 64 bits of microseconds")
        return Row(
            record.key,
            record.value,
            self.topic,
            self.partition,
            record.offset,
            timestamp_us,
            int(header.is_log_append_time),
            [(key, value) for key, value in record.headers] or None,
        )


def _whole_batches(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Return position and header of each batch, up to an incomplete one."""
    position = 0
    while len(data) - position > layout.MAGIC_POSITION:
        length = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
        magic = data[position + layout.MAGIC_POSITION]
        if magic != layout.MAGIC or length < layout.HEADER_BYTES - layout.LOG_OVERHEAD_BYTES:
            raise CorruptBatchError(f"magic {magic}, length {length}")
        if length > len(data) - position - layout.LOG_OVERHEAD_BYTES:
            return
        yield position, layout.read_header(data, position)
        position += layout.LOG_OVERHEAD_BYTES + length


def _check(data: bytes, position: int, header: BatchHeader) -> None:
    if not layout.checksum_matches(data, position, header):
        raise CorruptBatchError("the checksum is wrong")
    is_possible = (
        header.base_offset >= 0
        and header.last_offset_delta >= 0
        and header.next_offset <= _INT64_MAX
        and header.record_count >= 0
    )
    if not is_possible:
        raise CorruptBatchError(f"impossible numbers in {header}")
