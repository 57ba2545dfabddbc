"""Writes parsed records into the buffers of Arrow columns.

Guarantees: nothing is written outside the attached buffers, if `room` returned READY for the
record. The buffers follow Arrow's layout: data one after another, 32-bit offsets, one more than the
rows, and bitmaps with a set bit for each value that is not null.

The header list of a record without headers is null, as in Spark's own connector; a header key that
is not UTF-8 gets replacement characters, as in Kafka's consumer.

It is a part of the decode kernel, so the file is compiled: plain Python here, the C types in
`column_writer.pxd`. Every change must hold for 64-bit integers that wrap. It allocates nothing:
`decode.buffers` sets the buffers and turns them into Arrow arrays.
"""

from typing import Final

from penstock.spark.decode.record_parser import RecordParser

READY: Final = 0
FULL: Final = 1
"""The caller must take the rows out before the next one fits."""
GROW: Final = 2
"""The next row needs larger buffers: see `ColumnWriter.needs`."""
TIMESTAMP_RANGE: Final = 3
"""The next row has a time that does not fit a 64-bit number of microseconds."""

# The names for the C code are private: they are C integers, which Python cannot import.
_READY: Final = 0
_FULL: Final = 1
_GROW: Final = 2
_TIMESTAMP_RANGE: Final = 3

_MILLISECONDS_MAX: Final = 9223372036854775
"""The largest time in milliseconds that fits 64 bits in microseconds; the smallest is its
negative."""
_HEADER_ENTRY_BYTES: Final = 8
"""The size of a header without its key and value: two offsets."""


class ColumnWriter:
    """The columns of the rows that are not taken out yet. Call `attach` after setting buffers."""

    def __init__(self, rows_max: int, bytes_max: int, include_headers: bool) -> None:  # noqa: FBT001
        assert rows_max > 0
        self.rows_max = rows_max
        self.bytes_max = bytes_max
        self.include_headers = include_headers
        # An assertion in Kernel.run fails before anything is written into these buffers.
        nothing = memoryview(bytearray())
        no_numbers, no_longs = nothing.cast("i"), nothing.cast("q")
        self.keys = self.values = self.header_keys = self.header_values = nothing
        self.key_validity = self.value_validity = nothing
        self.headers_validity = self.header_value_validity = nothing
        self.key_offsets = self.value_offsets = self.headers_offsets = no_numbers
        self.header_key_offsets = self.header_value_offsets = no_numbers
        self.timestamp_types = no_numbers
        self.offsets = self.timestamps = no_longs
        self.key_bytes_max = self.value_bytes_max = 0
        self.headers_max = self.header_key_bytes_max = self.header_value_bytes_max = 0
        self.clear()

    def clear(self) -> None:
        """Restart at row 0; setting other buffers releases the previous ones."""
        self.is_attached = False
        self.rows = 0
        self.key_bytes = 0
        self.value_bytes = 0
        self.headers = 0
        self.header_key_bytes = 0
        self.header_value_bytes = 0
        self.key_nulls = 0
        self.value_nulls = 0
        self.headers_nulls = 0
        self.header_value_nulls = 0

    def attach(self) -> None:
        """Use the new buffers, starting at the next row."""
        assert min(len(self.offsets), len(self.timestamps), len(self.timestamp_types)) >= (
            self.rows_max
        )
        assert min(len(self.key_offsets), len(self.value_offsets)) > self.rows_max
        assert 8 * min(len(self.key_validity), len(self.value_validity)) >= self.rows_max
        self.key_bytes_max = len(self.keys)
        self.value_bytes_max = len(self.values)
        if self.include_headers:
            assert len(self.headers_offsets) > self.rows_max
            assert 8 * len(self.headers_validity) >= self.rows_max
            self.headers_max = min(
                len(self.header_key_offsets) - 1,
                len(self.header_value_offsets) - 1,
                8 * len(self.header_value_validity),
            )
            self.header_key_bytes_max = len(self.header_keys)
            self.header_value_bytes_max = len(self.header_values)
            self.headers_offsets[self.rows] = self.headers
            self.header_key_offsets[self.headers] = self.header_key_bytes
            self.header_value_offsets[self.headers] = self.header_value_bytes
        self.key_offsets[self.rows] = self.key_bytes
        self.value_offsets[self.rows] = self.value_bytes
        self.is_attached = True

    def needs(self, record: RecordParser) -> tuple[int, int, int, int, int]:
        """Return the sizes with this record: keys, values, headers, header keys and values."""
        return (
            self.key_bytes + max(record.key_length, 0),
            self.value_bytes + max(record.value_length, 0),
            self.headers + record.headers,
            self.header_key_bytes + record.header_key_bytes,
            self.header_value_bytes + record.header_value_bytes,
        )

    def room(self, record: RecordParser) -> int:
        """Return READY if the record may be written, else FULL, GROW or TIMESTAMP_RANGE."""
        if record.timestamp_ms > _MILLISECONDS_MAX or record.timestamp_ms < -_MILLISECONDS_MAX:
            return _TIMESTAMP_RANGE
        key_end = self.key_bytes + max(record.key_length, 0)
        value_end = self.value_bytes + max(record.value_length, 0)
        size = key_end + value_end
        is_enough = key_end <= self.key_bytes_max and value_end <= self.value_bytes_max
        if self.include_headers:
            headers = self.headers + record.headers
            header_key_end = self.header_key_bytes + record.header_key_bytes
            header_value_end = self.header_value_bytes + record.header_value_bytes
            size += header_key_end + header_value_end + headers * _HEADER_ENTRY_BYTES
            is_enough = (
                is_enough
                and headers <= self.headers_max
                and header_key_end <= self.header_key_bytes_max
                and header_value_end <= self.header_value_bytes_max
            )
        if self.rows > 0 and (self.rows >= self.rows_max or size > self.bytes_max):
            return _FULL
        return _READY if is_enough else _GROW

    def write(self, record: RecordParser, offset: int) -> None:
        """Write the record, for which `room` returned READY, as the next row."""
        row = self.rows
        if record.key_length >= 0:
            self.copy(self.keys, self.key_bytes, record.data, record.key_start, record.key_length)
            self.key_bytes += record.key_length
        else:
            self.key_nulls += 1
        self.set_bit(self.key_validity, row, record.key_length >= 0)
        if record.value_length >= 0:
            self.copy(
                self.values, self.value_bytes, record.data, record.value_start, record.value_length
            )
            self.value_bytes += record.value_length
        else:
            self.value_nulls += 1
        self.set_bit(self.value_validity, row, record.value_length >= 0)
        self.offsets[row] = offset
        self.timestamps[row] = record.timestamp_ms * 1000
        self.timestamp_types[row] = record.is_log_append_time
        self.rows = row + 1
        self.key_offsets[row + 1] = self.key_bytes
        self.value_offsets[row + 1] = self.value_bytes
        if self.include_headers:
            self.write_headers(record, row)

    def write_headers(self, record: RecordParser, row: int) -> None:
        """Write the headers of a record; `parse` has checked them."""
        count = record.headers
        self.set_bit(self.headers_validity, row, count > 0)
        if count == 0:
            self.headers_nulls += 1
        else:
            record.position = record.headers_start
        while count > 0:
            count -= 1
            record.parse_header()
            if record.is_plain:
                self.copy(
                    self.header_keys,
                    self.header_key_bytes,
                    record.data,
                    record.header_key_start,
                    record.header_key_length,
                )
                self.header_key_bytes += record.header_key_length
            else:
                self.write_text(record)
            self.write_header_value(record)
            self.headers += 1
            self.header_key_offsets[self.headers] = self.header_key_bytes
            self.header_value_offsets[self.headers] = self.header_value_bytes
        self.headers_offsets[row + 1] = self.headers

    def write_text(self, record: RecordParser) -> None:
        """Write a header key, with replacement characters for bytes that are not UTF-8."""
        start = record.header_key_start
        key = bytes(record.data[start : start + record.header_key_length])
        text = memoryview(key.decode(errors="replace").encode())
        self.copy(self.header_keys, self.header_key_bytes, text, 0, len(text))
        self.header_key_bytes += len(text)

    def write_header_value(self, record: RecordParser) -> None:
        """Write a header value or null."""
        length = record.header_value_length
        self.set_bit(self.header_value_validity, self.headers, length >= 0)
        if length >= 0:
            self.copy(
                self.header_values,
                self.header_value_bytes,
                record.data,
                record.header_value_start,
                length,
            )
            self.header_value_bytes += length
        else:
            self.header_value_nulls += 1

    def copy(self, target: memoryview, at: int, source: memoryview, start: int, count: int) -> None:
        """Copy `count` bytes from `source` to `target`; the caller has checked that they fit."""
        index = 0
        # A C compiler turns this loop into wide moves, without a call; see below for Python.
        while index < count:
            target[at + index] = source[start + index]
            index += 1

    def set_bit(self, bitmap: memoryview, index: int, is_set: bool) -> None:  # noqa: FBT001
        """Write bit `index` of a bitmap that is filled from the front, lowest bit first."""
        if index & 7 == 0:
            bitmap[index >> 3] = 0
        if is_set:
            bitmap[index >> 3] |= 1 << (index & 7)


def _copy_slice(
    self: ColumnWriter,  # noqa: ARG001 - it stands in for a method
    target: memoryview,
    at: int,
    source: memoryview,
    start: int,
    count: int,
) -> None:
    target[at : at + count] = source[start : start + count]


if __file__.endswith(".py"):
    # Uncompiled, a slice moves all bytes at once.
    ColumnWriter.copy = _copy_slice  # type: ignore[method-assign]
