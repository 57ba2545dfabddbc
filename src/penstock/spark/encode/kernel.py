"""The encode kernel: rows of Arrow columns into the open record batches of a topic's partitions.

Guarantees: the column `partition` chooses each row's partition. Without it, the key chooses by
Kafka's own rule (murmur2, as in `partitioner`). Rows without a key go to the current sticky
partition, which changes when its batch is full. A batch stays within `batch_bytes_max` before
compression, all open ones together within `buffered_bytes_max`, unless one record alone is larger.
No object is created for a row. `digest` is a sum over all rows that were written, so it does not
depend on their order or on which task wrote them.

This is the hot loop of a Spark task that writes, so the file is compiled, and so are its parts,
`encode.binary_column` and `encode.open_batch`: plain Python here, the C types in `kernel.pxd`.
Uncompiled it has the same results, far slower. `COMPILED` is true if the C extension runs. Every
change must hold for 64-bit integers that wrap.

`encode.encoder` handles Arrow's types, headers of batches and the wire.
"""

from typing import Final

from penstock.core.errors import BatchTooLargeError
from penstock.spark.encode.binary_column import BinaryColumn, RowError
from penstock.spark.encode.open_batch import OpenBatch

COMPILED: Final = not __file__.endswith(".py")
"""Whether the C extension runs. `encode.encoder` logs once if it does not."""

ENDED: Final = 0
"""The result of `run` after the last row."""
FULL: Final = 1
"""The batch of `full_partition` must be taken out first."""
FLUSH: Final = 2
"""All batches must be taken out first: together they have reached `buffered_bytes_max`."""

# The names for the C code are private: they are C integers, which Python cannot import.
_ENDED: Final = 0
_FULL: Final = 1
_FLUSH: Final = 2
_READY: Final = 3

_RECORD_BYTES_MAX: Final = 2147483647
"""The length of a record is a 32-bit number."""
_POSITIVE: Final = 0x7FFFFFFF
_MASK_64: Final = 0xFFFFFFFFFFFFFFFF


class Rows:
    """The columns of one call, of equal length. A column that is not set is null in every row."""

    def __init__(self, count: int, timestamp_ms: int) -> None:
        self.count = count
        self.timestamp_ms = timestamp_ms
        self.keys = BinaryColumn(count)
        self.values = BinaryColumn(count)
        self.has_partitions = False
        self.partitions = memoryview(b"").cast("i")
        """The partition of each row; below 0 if the row names no partition."""
        self.has_headers = False
        self.header_ends = memoryview(b"").cast("i")
        """The end of each row's headers; they begin at the end of the previous row's headers."""
        self.header_keys = BinaryColumn(0)
        self.header_values = BinaryColumn(0)

    def set_partitions(self, partitions: memoryview) -> None:
        """Set the column `partition`."""
        assert len(partitions) == self.count
        self.partitions = partitions
        self.has_partitions = True

    def set_headers(self, ends: memoryview, keys: BinaryColumn, values: BinaryColumn) -> None:
        """Set the column `headers`: the items of all rows, one after another."""
        assert len(ends) == self.count
        assert keys.rows == values.rows
        self.header_ends = ends
        self.header_keys = keys
        self.header_values = values
        self.has_headers = True


class Kernel:
    """Writes rows until a batch must be taken out; the next call continues where it stopped."""

    def __init__(
        self,
        partition_count: int,
        batch_bytes_max: int,
        buffered_bytes_max: int,
        sticky_partition: int,
    ) -> None:
        assert partition_count > 0
        assert 0 <= sticky_partition < partition_count
        self.partition_count = partition_count
        self.batches = [OpenBatch(batch_bytes_max) for _ in range(partition_count)]
        self.batch_bytes_max = batch_bytes_max
        self.buffered_bytes_max = buffered_bytes_max
        self.buffered_bytes = 0
        """Bytes of records in all open batches."""
        self.sticky_partition = sticky_partition
        """The current partition for rows without a key."""
        self.full_partition = -1
        self.digest = 0
        """The sum of `BinaryColumn.digest` over all rows that were written, modulo 2^64."""
        self.rows = Rows(0, 0)
        self.row = 0

    def begin(self, rows: Rows) -> None:
        """Start encoding a new batch of rows; the previous one must be fully written."""
        assert self.row == self.rows.count
        self.rows = rows
        self.row = 0

    def taken(self, partition: int) -> bytearray:
        """Remove and return a batch, with a zero header."""
        content: bytearray = self.batches[partition].take()
        self.buffered_bytes -= len(content)
        return content

    def pass_turn(self) -> None:
        """Send rows without a key to the next partition, starting now."""
        self.sticky_partition = (self.sticky_partition + 1) % self.partition_count

    def run(self) -> int:
        """Write rows until all are written (ENDED) or there must be room first (FULL, FLUSH)."""
        while self.row < self.rows.count:
            code = self.write_row(self.row)
            if code != _READY:
                return code
            self.row += 1
        return _ENDED

    def write_row(self, row: int) -> int:
        """Write one row into the batch of its partition, if there is room."""
        rows = self.rows
        key_length = rows.keys.locate(row)
        value_length = rows.values.locate(row)
        key_hash = rows.keys.murmur2(key_length) if key_length >= 0 else 0
        partition = self.partition_of(row, key_length, key_hash)
        batch: OpenBatch = self.batches[partition]
        fields_size = (
            batch.size(key_length)
            + max(key_length, 0)
            + batch.size(value_length)
            + max(value_length, 0)
            + self.headers_size(row)
        )
        body_size = batch.body_size(rows.timestamp_ms, fields_size)
        if body_size > _RECORD_BYTES_MAX:
            raise BatchTooLargeError(f"row {row} makes a record of {body_size} bytes")
        record_size = batch.size(body_size) + body_size
        if batch.records > 0 and batch.position + record_size > self.batch_bytes_max:
            self.full_partition = partition
            return _FULL
        if self.buffered_bytes > 0 and self.buffered_bytes + record_size > self.buffered_bytes_max:
            return _FLUSH
        before = batch.position if batch.records > 0 else 0
        batch.begin_record(body_size, rows.timestamp_ms)
        batch.write_field(rows.keys.data, rows.keys.start, key_length)
        batch.write_field(rows.values.data, rows.values.start, value_length)
        self.write_headers(row, batch)
        self.buffered_bytes += batch.position - before
        self.digest = (self.digest + rows.values.digest(key_hash, value_length)) & _MASK_64
        return _READY

    def partition_of(self, row: int, key_length: int, key_hash: int) -> int:
        """Return the partition of the row."""
        rows = self.rows
        if rows.has_partitions and rows.partitions[row] >= 0:
            partition = rows.partitions[row]
            if partition >= self.partition_count:
                raise RowError(
                    f"row {row} wants partition {partition}, and the topic has "
                    f"{self.partition_count}. Correct the column `partition`, or leave it out"
                )
            return partition
        if key_length >= 0:
            return (key_hash & _POSITIVE) % self.partition_count
        return self.sticky_partition

    def headers_size(self, row: int) -> int:
        """Return the size of the header count and all headers, in bytes."""
        rows = self.rows
        batch: OpenBatch = self.batches[0]
        if not rows.has_headers:
            return 1
        index = rows.header_ends[row - 1] if row > 0 else 0
        end = rows.header_ends[row]
        size = batch.size(end - index)
        while index < end:
            key_length = rows.header_keys.locate(index)
            if key_length < 0:
                raise RowError(
                    f"row {row} has a header without a key. Filter such headers out, or give "
                    "them one"
                )
            value_length = rows.header_values.locate(index)
            size += batch.size(key_length) + key_length
            size += batch.size(value_length) + max(value_length, 0)
            index += 1
        return size

    def write_headers(self, row: int, batch: OpenBatch) -> None:
        """Write the header count and all headers; their size was computed before."""
        rows = self.rows
        index = rows.header_ends[row - 1] if rows.has_headers and row > 0 else 0
        end = rows.header_ends[row] if rows.has_headers else 0
        batch.write_number(end - index)
        while index < end:
            length = rows.header_keys.locate(index)
            batch.write_field(rows.header_keys.data, rows.header_keys.start, length)
            length = rows.header_values.locate(index)
            batch.write_field(rows.header_values.data, rows.header_values.start, length)
            index += 1


def digest_of_rows(rows: Rows) -> int:
    """Return a kernel's digest after these rows."""
    total = 0
    row = 0
    while row < rows.count:
        key_length = rows.keys.locate(row)
        key_hash = rows.keys.murmur2(key_length) if key_length >= 0 else 0
        value_length = rows.values.locate(row)
        total = (total + rows.values.digest(key_hash, value_length)) & _MASK_64
        row += 1
    return total
