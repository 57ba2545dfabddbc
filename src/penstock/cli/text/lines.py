"""Reads lines of a file or of standard input in bursts, without waiting for more input.

A burst ends when a read would block, or when the burst is large. So lines from a slow pipe are sent
at once, and a large file is sent in large batches, without a timer.
"""

import os
import select
from collections.abc import Iterator
from typing import Final

from penstock.core.errors import InvalidRequestError
from penstock.core.limits import FRAME_BYTES_MAX

BURST_BYTES_MAX: Final = 524_288
"""The size of one batch of `TopicWriter`."""

LINE_BYTES_MAX: Final = FRAME_BYTES_MAX - 65_536
"""A record must fit into one request, with its batch, its headers and the names of both."""

_READ_BYTES: Final = 131_072


def bursts_of_lines(descriptor: int) -> Iterator[list[bytes]]:
    """Yield lists of lines without their newlines; the last line needs no newline.

    A line is joined once, at its end, so the time for a long line is linear in its length.
    """
    parts: list[bytes] = []
    size_bytes = 0
    line_number = 1
    while chunk := _read_burst(descriptor):
        first, *others = chunk.split(b"\n")
        parts.append(first)
        size_bytes += len(first)
        if size_bytes > LINE_BYTES_MAX:
            raise InvalidRequestError(
                f"line {line_number} is longer than {LINE_BYTES_MAX:,} bytes, the largest record "
                "that fits into a request. Earlier lines were sent; this line and the rest were "
                "not.",
                hint="Check that the input is lines of text: each line becomes one record.",
            )
        if others:
            line = b"".join(parts)
            parts = [others.pop()]
            size_bytes = len(parts[0])
            line_number += 1 + len(others)
            yield [line, *others]
    if size_bytes:
        yield [b"".join(parts)]


def _read_burst(descriptor: int) -> bytes:
    """Read at least one byte, and more without blocking; return empty bytes at the end."""
    parts = [os.read(descriptor, _READ_BYTES)]
    size = len(parts[0])
    while parts[-1] and size < BURST_BYTES_MAX and select.select([descriptor], [], [], 0)[0]:
        parts.append(os.read(descriptor, _READ_BYTES))
        size += len(parts[-1])
    return b"".join(parts)
