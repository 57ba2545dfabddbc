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

_READ_BYTES: Final = 131_072


def bursts_of_lines(descriptor: int) -> Iterator[list[bytes]]:
    """Lists of lines without their newlines; the last line needs none."""
    rest = b""
    while chunk := _read_burst(descriptor):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > FRAME_BYTES_MAX:
            raise InvalidRequestError(f"a line is longer than {FRAME_BYTES_MAX} bytes.")
        if lines:
            yield lines
    if rest:
        yield [rest]


def _read_burst(descriptor: int) -> bytes:
    """What can be read without waiting, but at least something; nothing at the end."""
    parts = [os.read(descriptor, _READ_BYTES)]
    size = len(parts[0])
    while parts[-1] and size < BURST_BYTES_MAX and select.select([descriptor], [], [], 0)[0]:
        parts.append(os.read(descriptor, _READ_BYTES))
        size += len(parts[-1])
    return b"".join(parts)
