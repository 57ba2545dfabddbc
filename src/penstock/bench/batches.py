"""Batches built before the measurement, and stamped when they are sent (pure).

In Python, building a batch record by record costs more than a broker needs to store it. So a client
builds a bounded number of batches beforehand, with the requested keys and sizes, and sends them
repeatedly. Only header, numbers and checksum are written again and, for end-to-end latency, a stamp
in the first record. With a stamp a compressed batch is compressed again.

Values are half random letters and half repeated text: they compress to about half, like typical
records. A broker with deduplicating storage would have an advantage; no broker has it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Final

from penstock.bench.keys import Draw, key_source
from penstock.bench.workload import END_TO_END, NO_KEYS, STAMP_BYTES, Workload
from penstock.client.records.partitioner import partition_of_key
from penstock.core.errors import RecordsError
from penstock.records import batch as layout
from penstock.records.batch import BatchHeader
from penstock.records.builder import BatchBuilder, assemble, records_section
from penstock.records.crc32c import checksum
from penstock.records.record import Record, decode_records

TEMPLATE_BYTES_MAX: Final = 33_554_432
"""Memory limit of a client for its batches."""
TEMPLATES_MAX: Final = 256

_STAMP: Final = Struct(">QQ")
_LETTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_TEXT: Final = b'{"customer":"4711","amount":12.50,"currency":"EUR","state":"shipped"} '

assert _STAMP.size == STAMP_BYTES


@dataclass(frozen=True, slots=True)
class Template:
    """A batch for one partition, to be sent many times."""

    partition: int
    header: BatchHeader
    section: bytes
    """The records as sent; uncompressed where a stamp is written later."""
    record_count: int
    stamp_position: int | None
    """Position of the first record's value in the section."""

    def stamped(
        self,
        *,
        now_ms: int,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        run: int = 0,
        due_ns: int = 0,
    ) -> bytearray:
        """Return the batch to send now."""
        header = self.header
        values = (
            header.attributes,
            self.record_count - 1,
            now_ms,
            now_ms,
            producer_id,
            producer_epoch,
            sequence,
            self.record_count,
        )
        if self.stamp_position is None:
            return _whole(values, self.section)
        section = bytearray(self.section)
        _STAMP.pack_into(section, self.stamp_position, run, due_ns)
        if not header.codec:
            return _whole(values, section)
        return assemble(BatchHeader(0, 0, -1, layout.MAGIC, 0, *values), section)


def _whole(values: tuple[int, ...], section: bytes | bytearray) -> bytearray:
    """Return a batch of header and compressed records."""
    data = bytearray(layout.HEADER_BYTES)
    data += section
    length = len(data) - layout.LOG_OVERHEAD_BYTES
    layout.HEADER.pack_into(data, 0, 0, length, -1, layout.MAGIC, 0, *values)
    layout.patch_checksum(data, 0, checksum(memoryview(data)[layout.CRC_START :]))
    return data


def read_stamp(batch: memoryview, position: int, header: BatchHeader, run: int) -> int | None:
    """Return the due time of the batch at `position`; None when it is not of this run."""
    try:
        section = records_section(batch, header, position=position)
        first = next(
            decode_records(section, header.record_count, base_offset=0, base_timestamp_ms=0)
        )
    except (RecordsError, StopIteration):
        return None
    if first.value is None or len(first.value) < STAMP_BYTES:
        return None
    found, due_ns = _STAMP.unpack_from(first.value)
    return int(due_ns) if found == run else None


def value_of(size_bytes: int, draw: Draw) -> bytes:
    """Return a value of this size: half random letters, half text."""
    letters = bytes(_LETTERS[int(draw() * len(_LETTERS))] for _ in range(size_bytes // 2))
    text = _TEXT * (size_bytes // len(_TEXT) + 1)
    return letters + text[: size_bytes - len(letters)]


def make_templates(
    workload: Workload, partitions: tuple[int, ...], client: int, draw: Draw
) -> list[Template]:
    """Return the batches of a client in sending order; the client sends them cyclically."""
    batch_bytes = workload.batch_records * (workload.size_bytes + 16)
    wanted = max(1, min(TEMPLATES_MAX, TEMPLATE_BYTES_MAX // batch_bytes))
    values = [value_of(workload.size_bytes, draw) for _ in range(min(64, workload.batch_records))]
    if workload.keys == NO_KEYS:
        return _in_turns(workload, partitions, client, values)
    next_key = key_source(workload.keys, workload.key_count, draw)
    return _by_key(workload, partitions, next_key, values, wanted)


def _in_turns(
    workload: Workload, partitions: tuple[int, ...], client: int, values: list[bytes]
) -> list[Template]:
    """Return the same batch for each partition; each client begins with another partition."""
    builder = BatchBuilder()
    for number in range(workload.batch_records):
        builder.append(Record(None, values[number % len(values)], (), 0))
    first = _template(workload, partitions[0], builder, values[0])
    start = client % len(partitions)
    return [
        Template(at, first.header, first.section, first.record_count, first.stamp_position)
        for at in partitions[start:] + partitions[:start]
    ]


def _by_key(
    workload: Workload,
    partitions: tuple[int, ...],
    next_key: Callable[[], bytes | None],
    values: list[bytes],
    wanted: int,
) -> list[Template]:
    """Return batches in the order in which a producer would have filled them."""
    made: list[Template] = []
    open_batches: dict[int, BatchBuilder] = {}
    number = 0
    while len(made) < wanted:
        key = next_key()
        assert key is not None
        partition = partitions[partition_of_key(key, len(partitions))]
        builder = open_batches.setdefault(partition, BatchBuilder())
        # The stamp is written into the first record's value, so that value is always the same one.
        value = values[number % len(values)] if builder.record_count else values[0]
        builder.append(Record(key, value, (), 0))
        number += 1
        if builder.record_count == workload.batch_records:
            made.append(_template(workload, partition, open_batches.pop(partition), values[0]))
    return made


def _template(
    workload: Workload, partition: int, builder: BatchBuilder, first_value: bytes
) -> Template:
    has_stamp = workload.kind == END_TO_END
    count = builder.record_count
    plain = builder.build()
    if has_stamp:
        section = bytes(plain[layout.HEADER_BYTES :])
        header = layout.with_codec(layout.read_header(plain), workload.codec)
        return Template(partition, header, section, count, section.index(first_value))
    header = layout.with_codec(layout.read_header(plain), workload.codec)
    packed = assemble(header, memoryview(plain)[layout.HEADER_BYTES :])
    return Template(
        partition, layout.read_header(packed), bytes(packed[layout.HEADER_BYTES :]), count, None
    )
