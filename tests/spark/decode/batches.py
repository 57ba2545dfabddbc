"""Stored batches for the decoder's tests: valid ones of every kind, and invalid ones."""

import random
from collections.abc import Sequence
from typing import NamedTuple

from penstock.records import batch as layout
from penstock.records.batch import BatchHeader
from penstock.records.builder import assemble
from penstock.records.control import Marker, build_marker
from penstock.records.record import Header, Record, encode_record

NOW = 1_700_000_000_000


class Aborted(NamedTuple):
    """As `client` names an aborted transaction."""

    producer_id: int
    first_offset: int


def stored_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    deltas: Sequence[int] | None = None,
    last_offset_delta: int | None = None,
    codec: int = 0,
    append_time_ms: int | None = None,
    producer_id: int = -1,
    transactional: bool = False,
    delete_horizon: bool = False,
    record_count: int | None = None,
    trailing: bytes = b"",
) -> bytes:
    """A batch as a log holds it, compacted if deltas are given; it may lie about itself."""
    deltas = range(len(records)) if deltas is None else deltas
    base_timestamp_ms = records[0].timestamp_ms if records else -1
    section = bytearray()
    for record, delta in zip(records, deltas, strict=True):
        encode_record(
            section,
            record,
            timestamp_delta_ms=record.timestamp_ms - base_timestamp_ms,
            offset_delta=delta,
        )
    section += trailing
    attributes = layout.attributes(
        codec=codec,
        log_append_time=append_time_ms is not None,
        transactional=transactional,
        control=False,
    )
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=attributes | (layout.DELETE_HORIZON if delete_horizon else 0),
        last_offset_delta=(max([*deltas, 0]) if last_offset_delta is None else last_offset_delta),
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=(
            max([record.timestamp_ms for record in records], default=-1)
            if append_time_ms is None
            else append_time_ms
        ),
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        record_count=len(records) if record_count is None else record_count,
    )
    return bytes(assemble(header, section))


def marker(base_offset: int, producer_id: int, *, is_commit: bool) -> bytes:
    """The batch that ends a transaction."""
    return bytes(
        build_marker(
            Marker(is_commit, 0),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp_ms=NOW,
            base_offset=base_offset,
        )
    )


def sealed(data: bytes) -> bytes:
    """The same with the checksum of the first batch made right, so that the walk is reached."""
    if len(data) < layout.HEADER_BYTES:
        return data
    batch = bytearray(data)
    header = layout.read_header(batch)
    if layout.HEADER_BYTES <= header.size_bytes <= len(batch):
        layout.patch_max_timestamp(batch, 0, header, header.max_timestamp_ms)
    return bytes(batch)


def _field(chance: random.Random) -> bytes | None:
    kind = chance.randrange(10)
    if kind == 0:
        return None
    if kind == 1:
        return chance.randbytes(chance.randrange(2_000, 5_000))
    return chance.randbytes(chance.randrange(0, 80))


def _header(chance: random.Random) -> Header:
    key = chance.choice(["", "trace", "trace", "größe", "k" * 70, "日本"])
    return Header(key, _field(chance))


def random_record(chance: random.Random) -> Record:
    """A record with anything in it."""
    return Record(
        _field(chance),
        _field(chance),
        tuple(_header(chance) for _ in range(chance.choice([0, 0, 0, 1, 2, 5]))),
        chance.choice([NOW, NOW, NOW, 0, -1, NOW - 86_400_000, -NOW]) + chance.randrange(100),
    )


class RandomLog(NamedTuple):
    """Batches one after another, and the aborted transactions that a broker would name."""

    data: bytes
    aborted: list[Aborted]
    end_offset: int


def random_log(chance: random.Random, batch_count: int) -> RandomLog:
    """A log with every codec, gaps, empty batches, transactions that commit, abort and stay open.

    Some markers end a transaction that has no record, as a log whose start was deleted has them.
    """
    output = bytearray()
    aborted: list[Aborted] = []
    open_since: dict[int, int] = {}
    offset = chance.randrange(5)
    for _ in range(batch_count):
        kind = chance.randrange(10)
        if kind == 0:
            producer_id = chance.randrange(3)
            is_commit = bool(chance.randrange(2))
            if producer_id in open_since and not is_commit:
                aborted.append(Aborted(producer_id, open_since[producer_id]))
            open_since.pop(producer_id, None)
            output += marker(offset, producer_id, is_commit=is_commit)
            offset += 1
            continue
        records = [random_record(chance) for _ in range(chance.choice([0, 1, 1, 3, 20]))]
        span = max(len(records), 1) + chance.choice([0, 0, 3])
        producer_id = chance.choice([-1, -1, 0, 1, 2])
        transactional = producer_id >= 0 and bool(chance.randrange(3))
        if transactional:
            open_since.setdefault(producer_id, offset)
        output += stored_batch(
            records,
            base_offset=offset,
            deltas=sorted(chance.sample(range(span), len(records))),
            last_offset_delta=span - 1,
            codec=chance.choice([0, 0, 1, 2, 3, 4]),
            append_time_ms=chance.choice([None, None, NOW + 5]),
            producer_id=producer_id,
            transactional=transactional,
            delete_horizon=not chance.randrange(8),
        )
        offset += span + chance.choice([0, 0, 0, 2])
    return RandomLog(bytes(output), aborted, offset)
