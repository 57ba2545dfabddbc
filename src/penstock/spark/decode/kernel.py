"""The decode kernel: stored record batches into the buffers of Arrow columns.

Guarantees: it reads nothing outside its input bytes, needs time proportional to them, and creates
no object for a record. Each batch's checksum is verified before its records are read. Offsets rise
strictly, from the first requested offset to before the end of the range, and none is returned
twice. Control batches are skipped; so are batches of aborted transactions with `read_committed`, as
in Kafka's consumer: a producer is aborted from the first offset in the broker's response until its
abort marker.

This is the hot loop of a Spark task, so the file is compiled, and so are its parts,
`decode.record_parser` and `decode.column_writer`: plain Python here, the C types in `kernel.pxd`.
Uncompiled it has the same results, far slower. `COMPILED` is true if the C extension runs. Every
change must hold for 64-bit integers that wrap.

`decode.columns` handles Arrow, topics and the wire.
"""

from typing import Final

from penstock.core.errors import CorruptBatchError, InvalidTimestampError, RecordsError
from penstock.records.compression import decompress
from penstock.records.control import read_marker
from penstock.records.crc32c import checksum
from penstock.spark.decode.column_writer import ColumnWriter
from penstock.spark.decode.record_parser import REASONS, RecordParser

COMPILED: Final = not __file__.endswith(".py")
"""Whether the C extension runs. `decode.columns` logs once if it does not."""

ENDED: Final = 0
"""The result of `run` after the last whole batch; else `FULL` or `GROW` of the columns."""

# The names for the C code are private: they are C integers, which Python cannot import.
_ENDED: Final = 0
_READY: Final = 0
_TIMESTAMP_RANGE: Final = 3
_DAMAGED: Final = 4

_INT64_MAX: Final = 9223372036854775807
_HEADER_BYTES: Final = 61
_LOG_OVERHEAD_BYTES: Final = 12
_MAGIC_END: Final = 17
_CRC_START: Final = 21
_LENGTH_MIN: Final = 49
_MAGIC: Final = 2
_CODEC_MASK: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20


class Kernel:
    """Reads fetched bytes batch by batch into columns; stops when they are full."""

    def __init__(
        self,
        columns: ColumnWriter,
        from_offset: int,
        until_offset: int,
        is_read_committed: bool,  # noqa: FBT001 - a C class has no keyword arguments to speak of
        decompressed_bytes_max: int,
    ) -> None:
        assert 0 <= from_offset <= until_offset
        self.columns = columns
        self.record = RecordParser()
        self.next_offset = from_offset
        """The end of the read offsets: rows, gaps and skipped records."""
        self.until_offset = until_offset
        self.is_read_committed = is_read_committed
        self.decompressed_bytes_max = decompressed_bytes_max
        self.control_records = 0
        """The number of skipped records of control batches."""
        self.aborted_records = 0
        """The number of skipped records of aborted transactions."""
        self.batch_offset = from_offset
        """The base offset of the current batch."""
        self.last_offset_delta = 0
        self.record_count = 0
        self.forget()

    def forget(self) -> None:
        """Release the fetched bytes."""
        self.record.forget()
        self.fetched = memoryview(b"")
        self.fetched_bytes = self.fetched
        self.fetched_end = 0
        self.batch_position = 0
        self.records_left = 0
        self.is_open = False
        self.aborted: list[tuple[int, int]] = []
        self.aborted_index = 0
        self.aborted_producers: set[int] = set()

    def begin(self, data: memoryview, aborted: list[tuple[int, int]]) -> None:
        """Start with fetched bytes; `aborted` is (first offset, producer id) in order of offsets.

        The aborted transactions of a fetch apply to its bytes alone: the next fetch names them
        again.
        """
        self.forget()
        self.fetched = data
        self.fetched_bytes = data
        self.fetched_end = len(data)
        self.aborted = aborted

    def run(self) -> int:
        """Continue until the bytes end (ENDED), the rows are enough (FULL) or do not fit (GROW)."""
        assert self.columns.is_attached
        while True:
            while self.records_left > 0:
                code = self.read_record()
                if code >= _TIMESTAMP_RANGE:
                    raise self.record_error(code)
                if code != _READY:
                    return code
            if self.is_open:
                self.close_batch()
            if self.next_offset >= self.until_offset or not self.open_batch():
                return _ENDED

    def read_record(self) -> int:
        """Read one record, and write it if it is in the range and there is room."""
        start = self.record.position
        if self.record.parse() != 0:
            return _DAMAGED
        offset = self.batch_offset + self.record.offset_delta
        if offset >= self.until_offset:
            self.next_offset = self.until_offset
            self.records_left = 0
            return _READY
        if offset >= self.next_offset:
            code = self.columns.room(self.record)
            if code != _READY:
                # The record is parsed again when there is room.
                self.record.position = start
                return code
            self.columns.write(self.record, offset)
            self.next_offset = offset + 1
        self.record.previous_delta = self.record.offset_delta
        self.records_left -= 1
        return _READY

    def record_error(self, code: int) -> RecordsError:
        """Return the error for an unreadable record."""
        place = f"record {self.record_count - self.records_left} of {self.record_count}"
        if code == _TIMESTAMP_RANGE:
            return InvalidTimestampError(
                f"{place}: its timestamp of {self.record.timestamp_ms} ms is beyond what Spark can "
                "hold, 64 bits of microseconds"
            )
        return CorruptBatchError(f"{place}: {REASONS[self.record.fault]}")

    def open_batch(self) -> bool:
        """Begin the next batch; return False if no whole batch is left or it is past the range."""
        start = self.batch_position
        available = self.fetched_end - start
        if available < _MAGIC_END:
            return False
        self.batch_offset = self.integer(start, 8)
        length = self.integer(start + 8, 4)
        magic = self.integer(start + 16, 1)
        if magic != _MAGIC or length < _LENGTH_MIN:
            raise format_error(magic, length)
        if available - _LOG_OVERHEAD_BYTES < length:
            return False
        if self.batch_offset >= self.until_offset:
            # Offsets between the last batch and the end of the range do not exist.
            self.next_offset = self.until_offset
            return False
        end = start + _LOG_OVERHEAD_BYTES + length
        self.check(start, end)
        self.batch_position = end
        attributes = self.integer(start + 21, 2)
        if self.is_passed_over(start, attributes):
            self.pass_batch()
            return True
        self.record.start_batch(
            self.integer(start + 27, 8),
            self.last_offset_delta,
            self.integer(start + 35, 8) if attributes & _LOG_APPEND_TIME else None,
        )
        codec = attributes & _CODEC_MASK
        if codec == 0:
            self.record.open_section(self.fetched_bytes, start + _HEADER_BYTES, end)
        else:
            self.unfold(start + _HEADER_BYTES, end, codec)
        self.is_open = True
        self.records_left = self.record_count
        return True

    def check(self, start: int, end: int) -> None:
        """Verify the checksum of a batch, and the ranges of the numbers in its header."""
        stored = self.integer(start + 17, 4) & 0xFFFFFFFF
        if checksum(self.fetched[start + _CRC_START : end]) != stored:
            raise CorruptBatchError("its checksum is wrong, the bytes were damaged")
        self.last_offset_delta = self.integer(start + 23, 4)
        self.record_count = self.integer(start + 57, 4)
        if (
            self.batch_offset < 0
            or self.last_offset_delta < 0
            or self.batch_offset > _INT64_MAX - 1 - self.last_offset_delta
            or self.record_count < 0
        ):
            raise CorruptBatchError(
                f"its last offset delta is {self.last_offset_delta} and its record count "
                f"{self.record_count}, which cannot be"
            )

    def unfold(self, start: int, end: int, codec: int) -> None:
        """Decompress the records of a compressed batch."""
        section = memoryview(
            decompress(codec, self.fetched[start:end], self.decompressed_bytes_max)
        )
        self.record.open_section(section, 0, len(section))

    def is_passed_over(self, start: int, attributes: int) -> bool:
        """Return whether the batch has no rows: a marker, aborted, or before the first offset."""
        if self.is_read_committed and self.is_aborted(start, attributes):
            self.aborted_records += self.record_count
            return True
        if attributes & _CONTROL:
            self.control_records += self.record_count
            return True
        return self.batch_offset + self.last_offset_delta < self.next_offset

    def is_aborted(self, start: int, attributes: int) -> bool:
        """Return whether the batch is of an aborted transaction; an abort marker ends it."""
        last_offset = self.batch_offset + self.last_offset_delta
        while self.aborted_index < len(self.aborted):
            first_offset, producer_id = self.aborted[self.aborted_index]
            if first_offset > last_offset:
                break
            self.aborted_producers.add(producer_id)
            self.aborted_index += 1
        if not self.aborted_producers:
            return False
        producer_id = self.integer(start + 43, 8)
        if producer_id not in self.aborted_producers:
            return False
        if attributes & _CONTROL == 0:
            return attributes & _TRANSACTIONAL != 0
        marker = read_marker(self.fetched, start)
        if marker is not None and not marker.is_commit:
            self.aborted_producers.discard(producer_id)
        return False

    def close_batch(self) -> None:
        """Close a batch after its last requested record."""
        self.is_open = False
        if self.next_offset < self.until_offset:
            if self.record.position != self.record.section_end:
                raise CorruptBatchError("bytes follow after its last record")
            self.pass_batch()

    def pass_batch(self) -> None:
        """Continue after the batch; compaction may have removed its last offsets."""
        batch_end = self.batch_offset + self.last_offset_delta + 1
        self.next_offset = min(max(self.next_offset, batch_end), self.until_offset)

    def integer(self, position: int, size: int) -> int:
        """Return a big-endian signed number of `size` bytes; the caller has checked the bounds."""
        value = self.fetched_bytes[position]
        if value > 0x7F:
            value -= 0x100
        index = 1
        while index < size:
            # Multiply, because a shift of a negative number is undefined in C.
            value = value * 256 + self.fetched_bytes[position + index]
            index += 1
        return value


def format_error(magic: int, length: int) -> CorruptBatchError:
    """Return the error for bytes that are not a batch of the current format."""
    if 0 <= magic < _MAGIC:
        return CorruptBatchError(
            f"its message format {magic} is from before Kafka 0.11, and neither Kafka 4 nor "
            "Penstock has such. Copy the topic into a new one with tools of Kafka 3"
        )
    return CorruptBatchError(f"its magic is {magic} and its length {length}: this is no batch")
