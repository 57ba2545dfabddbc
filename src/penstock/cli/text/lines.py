"""Lines of a file or of standard input, in bursts: what is there now is handed on now.

A burst ends when nothing more can be read without waiting, or when it is large. So lines that come
slowly through a pipe are sent at once, and a large file is sent in large batches, without a timer.
"""

import os
import select
from collections.abc import Iterator
from typing import Final

from penstock.core.errors import InvalidRequestError
from penstock.core.limits import FRAME_BYTES_MAX

BURST_BYTES_MAX: Final = 524_288
"""As much as `TopicWriter` puts into one batch."""

LINE_BYTES_MAX: Final = FRAME_BYTES_MAX - 65_536
"""A record must fit into one request, with its batch, its headers and the names of both."""

_READ_BYTES: Final = 131_072


def bursts_of_lines(descriptor: int) -> Iterator[list[bytes]]:
    """Lists of lines without their newlines; the last line needs none.

    A line is joined once, when its end has come, so a long one costs time by its length alone.
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
    """What can be read without waiting, but at least something; nothing at the end."""
    parts = [os.read(descriptor, _READ_BYTES)]
    size = len(parts[0])
    while parts[-1] and size < BURST_BYTES_MAX and select.select([descriptor], [], [], 0)[0]:
        parts.append(os.read(descriptor, _READ_BYTES))
        size += len(parts[-1])
    return b"".join(parts)
