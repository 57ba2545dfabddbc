"""The memory of Arrow columns: allocated for the kernel's output, then returned as arrays.

Guarantees: no byte is copied from the kernel's buffers to Arrow; a buffer grows to the size that
the next row needs and at least to twice its own, so that all copies together cost no more than the
rows. Columns begin with the sizes of the last ones, or with an estimate from the fetched bytes. No
buffer exceeds the range of Arrow's 32-bit offsets.

`decode.kernel` writes the records; this module only allocates the memory.
"""

from typing import Final, Literal, TypeAlias

import pyarrow as pa

from penstock.core.errors import BatchTooLargeError
from penstock.spark.decode.column_writer import ColumnWriter
from penstock.spark.decode.record_parser import RecordParser

Kind: TypeAlias = Literal["B", "i", "q"]
"""The number format of a buffer, as `memoryview` names it: 8, 32 and 64 bits."""

_BYTES_MIN: Final = 65_536
"""The initial size of keys, values and the parts of headers."""
_KEY_SHARE: Final = 8
"""The usual maximum share of keys in the bytes."""
_HEADERS_MIN: Final = 1_024
_OFFSET_MAX: Final = 2_147_483_647
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS: Final = pa.list_(pa.field("element", _HEADER))
"""The type of the column `headers`; Spark calls the items of a list `element`."""


def _allocated(size: int) -> pa.Buffer:
    return pa.allocate_buffer(max(size, 1))


def _view(buffer: pa.Buffer, kind: Kind) -> memoryview:
    """Return the buffer as numbers of the given kind; Arrow returns it as signed bytes."""
    return memoryview(buffer).cast("B").cast(kind)


class ColumnBuffers:
    """The buffers of one record batch after another, attached to a `ColumnWriter`."""

    def __init__(self, columns: ColumnWriter) -> None:
        self._columns = columns
        self._key_bytes = self._value_bytes = _BYTES_MIN
        self._headers = _HEADERS_MIN
        self._header_key_bytes = self._header_value_bytes = _BYTES_MIN
        self._buffers: dict[str, pa.Buffer] = {}

    def attach(self, fetched_bytes: int) -> None:
        """Attach new buffers to a writer without buffers, for the rows of `fetched_bytes` bytes."""
        if self._columns.is_attached:
            return
        columns, rows = self._columns, self._columns.rows_max
        # Uncompressed, the values are most of the bytes. Unwritten memory costs nothing.
        likely = min(fetched_bytes, columns.bytes_max)
        self._value_bytes = max(self._value_bytes, likely)
        self._key_bytes = max(self._key_bytes, likely // _KEY_SHARE)
        columns.offsets = self._new("offsets", 8 * rows, "q")
        columns.timestamps = self._new("timestamps", 8 * rows, "q")
        columns.timestamp_types = self._new("timestamp_types", 4 * rows, "i")
        columns.key_offsets = self._new("key_offsets", 4 * (rows + 1), "i")
        columns.value_offsets = self._new("value_offsets", 4 * (rows + 1), "i")
        columns.key_validity = self._new("key_validity", _bitmap_bytes(rows), "B")
        columns.value_validity = self._new("value_validity", _bitmap_bytes(rows), "B")
        columns.keys = self._new("keys", self._key_bytes, "B")
        columns.values = self._new("values", self._value_bytes, "B")
        if columns.include_headers:
            columns.headers_offsets = self._new("headers_offsets", 4 * (rows + 1), "i")
            columns.headers_validity = self._new("headers_validity", _bitmap_bytes(rows), "B")
            self._new_header_columns()
        columns.attach()

    def _new_header_columns(self) -> None:
        columns, count = self._columns, self._headers
        columns.header_key_offsets = self._new("header_key_offsets", 4 * (count + 1), "i")
        columns.header_value_offsets = self._new("header_value_offsets", 4 * (count + 1), "i")
        columns.header_value_validity = self._new(
            "header_value_validity", _bitmap_bytes(count), "B"
        )
        columns.header_keys = self._new("header_keys", self._header_key_bytes, "B")
        columns.header_values = self._new("header_values", self._header_value_bytes, "B")

    def _new(self, name: str, size: int, kind: Kind) -> memoryview:
        buffer = self._buffers[name] = _allocated(size)
        return _view(buffer, kind)

    def grow(self, record: RecordParser) -> None:
        """Enlarge the buffers for one more record."""
        columns = self._columns
        keys, values, headers, header_keys, header_values = columns.needs(record)
        if max(keys, values, headers, header_keys, header_values) > _OFFSET_MAX:
            raise BatchTooLargeError(
                f"a record with {max(keys, values, header_keys, header_values)} bytes in one "
                "column is beyond Arrow's 2 GiB. Read the topic without such records"
            )
        self._key_bytes = _larger(self._key_bytes, keys)
        self._value_bytes = _larger(self._value_bytes, values)
        columns.keys = self._moved("keys", self._key_bytes, "B")
        columns.values = self._moved("values", self._value_bytes, "B")
        if columns.include_headers:
            self._headers = _larger(self._headers, headers)
            self._header_key_bytes = _larger(self._header_key_bytes, header_keys)
            self._header_value_bytes = _larger(self._header_value_bytes, header_values)
            columns.header_key_offsets = self._moved(
                "header_key_offsets", 4 * (self._headers + 1), "i"
            )
            columns.header_value_offsets = self._moved(
                "header_value_offsets", 4 * (self._headers + 1), "i"
            )
            columns.header_value_validity = self._moved(
                "header_value_validity", _bitmap_bytes(self._headers), "B"
            )
            columns.header_keys = self._moved("header_keys", self._header_key_bytes, "B")
            columns.header_values = self._moved("header_values", self._header_value_bytes, "B")
        columns.attach()

    def _moved(self, name: str, size: int, kind: Kind) -> memoryview:
        """Return the content in a larger buffer; the same buffer if it has the size."""
        old = self._buffers[name]
        if old.size >= size:
            return _view(old, kind)
        new = self._buffers[name] = _allocated(size)
        memoryview(new)[: old.size] = memoryview(old)
        return _view(new, kind)

    def take(self) -> list[pa.Array]:
        """Return key, value, offset, timestamp, timestamp type and, if wanted, headers of all rows.

        The arrays then own the buffers, and the writer has none.
        """
        columns, rows = self._columns, self._columns.rows
        arrays = [
            self._binary("key", rows, columns.key_nulls, columns.key_bytes),
            self._binary("value", rows, columns.value_nulls, columns.value_bytes),
            self._numbers("offsets", pa.int64(), rows),
            self._numbers("timestamps", _TIMESTAMP, rows),
            self._numbers("timestamp_types", pa.int32(), rows),
        ]
        if columns.include_headers:
            arrays.append(self._header_lists(rows))
        self._buffers = {}
        self._remember_sizes()
        columns.clear()
        return arrays

    def _remember_sizes(self) -> None:
        """Begin the next columns with slightly more than the sizes of these."""
        columns = self._columns
        self._key_bytes = _start_size(columns.key_bytes, _BYTES_MIN)
        self._value_bytes = _start_size(columns.value_bytes, _BYTES_MIN)
        self._headers = _start_size(columns.headers, _HEADERS_MIN)
        self._header_key_bytes = _start_size(columns.header_key_bytes, _BYTES_MIN)
        self._header_value_bytes = _start_size(columns.header_value_bytes, _BYTES_MIN)

    def _validity(self, name: str, count: int, nulls: int) -> pa.Buffer | None:
        return self._buffers[name].slice(0, _bitmap_bytes(count)) if nulls else None

    def _numbers(self, name: str, kind: pa.DataType, rows: int) -> pa.Array:
        return pa.Array.from_buffers(kind, rows, [None, self._buffers[name]], null_count=0)

    def _binary(self, name: str, count: int, nulls: int, size: int) -> pa.Array:
        return pa.Array.from_buffers(
            pa.binary(),
            count,
            [
                self._validity(f"{name}_validity", count, nulls),
                self._buffers[f"{name}_offsets"],
                self._buffers[f"{name}s"].slice(0, size),
            ],
            null_count=nulls,
        )

    def _header_lists(self, rows: int) -> pa.Array:
        columns, count = self._columns, self._columns.headers
        keys = pa.Array.from_buffers(
            pa.string(),
            count,
            [
                None,
                self._buffers["header_key_offsets"],
                self._buffers["header_keys"].slice(0, columns.header_key_bytes),
            ],
            null_count=0,
        )
        values = self._binary(
            "header_value", count, columns.header_value_nulls, columns.header_value_bytes
        )
        items = pa.Array.from_buffers(_HEADER, count, [None], null_count=0, children=[keys, values])
        return pa.Array.from_buffers(
            HEADERS,
            rows,
            [
                self._validity("headers_validity", rows, columns.headers_nulls),
                self._buffers["headers_offsets"],
            ],
            null_count=columns.headers_nulls,
            children=[items],
        )


def _bitmap_bytes(count: int) -> int:
    return (count + 7) // 8


def _start_size(used: int, least: int) -> int:
    return max(least, min(used + used // 8, _OFFSET_MAX))


def _larger(size: int, needed: int) -> int:
    return size if needed <= size else min(max(needed, 2 * size), _OFFSET_MAX)
