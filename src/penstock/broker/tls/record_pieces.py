"""`piece_end`: how many received bytes OpenSSL gets at a time (pure).

A peer chooses the size of its records, and each record costs some microseconds: 256 KiB in records
of one byte are 11,000 records and 50 ms. Messages about keys are small records too, and OpenSSL
handles all that it has in one call. Guarantees of a piece:

- it has the content of `PIECE_RECORDS_MAX` records at most, so its price is bounded;
- it does not end within the header of a record, so the next piece begins at a known place. It may
  end within a record; OpenSSL keeps that part.

It does NOT check records: OpenSSL refuses damaged ones.
"""

from typing import Final

from penstock.broker.tls.tls_limits import (
    PIECE_RECORDS_MAX,
    RECORD_BYTES_MAX,
    RECORD_HEADER_BYTES,
)

PIECE_BYTES_MIN: Final = RECORD_HEADER_BYTES + RECORD_BYTES_MAX
"""Fewer bytes may be a part of a record only, which OpenSSL cannot decrypt."""


def piece_end(
    received: bytes | memoryview, position: int, size_max: int, record_left: int
) -> tuple[int, int]:
    """Return the end of the piece at `position`, and the bytes that its last record still lacks.

    `record_left` is that number for the piece before. The piece is empty if only a part of a header
    is there.
    """
    received_bytes = len(received)
    limit = min(received_bytes, position + size_max)
    record_end = position + record_left
    for _ in range(PIECE_RECORDS_MAX):
        if record_end >= limit:
            break
        content = record_end + RECORD_HEADER_BYTES
        if content > limit and (content > received_bytes or record_end > position):
            return record_end, 0
        size = received[content - 2] << 8 | received[content - 1]
        if size > RECORD_BYTES_MAX:
            return limit, 0  # OpenSSL refuses it
        record_end = content + size
    end = min(record_end, limit)
    return end, record_end - end
