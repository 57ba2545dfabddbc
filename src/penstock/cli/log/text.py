"""Batches and records of a log file as lines and as JSON (pure)."""

from penstock.cli.log.segment_dump import Batch
from penstock.cli.text.record_text import bytes_fields, timestamp_text
from penstock.records.compression import CODEC_NAMES, is_known
from penstock.records.record import Record


def batch_document(found: Batch) -> dict[str, object]:
    """Return a batch as a JSON document."""
    header = found.header
    return {
        "type": "batch",
        "position": found.position,
        "size_bytes": header.size_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "leader_epoch": header.leader_epoch,
        "codec": _codec_name(header.codec),
        "base_timestamp_ms": header.base_timestamp_ms,
        "max_timestamp_ms": header.max_timestamp_ms,
        "timestamp_type": "append" if header.is_log_append_time else "create",
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": _control_name(found),
        "crc": header.crc,
    }


def batch_line(found: Batch) -> str:
    """Return a batch as one line."""
    header = found.header
    words = [
        f"batch at {found.position}: offsets {header.base_offset}-{header.last_offset}",
        f"{header.record_count} records",
        f"{header.size_bytes} bytes",
        _codec_name(header.codec),
        f"epoch {header.leader_epoch}",
        f"crc {header.crc:#010x}",
    ]
    if header.has_producer:
        words.append(
            f"producer {header.producer_id} epoch {header.producer_epoch} "
            f"sequence {header.base_sequence}"
        )
    if header.is_transactional:
        words.append("transactional")
    if header.is_control:
        words.append(f"{_control_name(found)} marker")
    return ", ".join(words)


def record_document(record: Record) -> dict[str, object]:
    """Return a record as a JSON document."""
    return {
        "type": "record",
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **bytes_fields("key", record.key),
        **bytes_fields("value", record.value),
        "headers": [
            {"name": header.key, **bytes_fields("value", header.value)} for header in record.headers
        ],
    }


def record_line(record: Record) -> str:
    """Return a record as one line."""
    words = [f"  {record.offset}", timestamp_text(record.timestamp_ms)]
    if record.key is not None:
        words.append(f"key {_readable(record.key)}")
    words.append("null" if record.value is None else _readable(record.value))
    if record.headers:
        shown = ", ".join(f"{name}={_readable(value or b'')}" for name, value in record.headers)
        words.append(f"headers {shown}")
    return "  ".join(words)


def _codec_name(codec: int) -> str:
    return CODEC_NAMES[codec] if is_known(codec) else f"codec {codec}"


def _control_name(found: Batch) -> str | None:
    if not found.header.is_control:
        return None
    key = found.records[0].key if found.records else None
    # Two bytes of version, then two bytes of type.
    return {b"\x00\x00": "abort", b"\x00\x01": "commit"}.get((key or b"")[2:4], "control")


def _readable(data: bytes) -> str:
    """Return printable text unchanged, other text with escapes, to protect the terminal."""
    text = data.decode(errors="backslashreplace")
    return text if text.isprintable() else ascii(text)[1:-1]
