"""`StrictBuffer`: rejects requests whose framing two HTTP parsers could parse differently.

h11 parses HTTP for uvicorn. It accepts some framing that RFC 9112 lets a server accept for old
clients, and that a proxy in front of the port may parse differently. Request smuggling past the
proxy uses this difference. This module rejects, with 400 and a closed connection:

- `Transfer-Encoding` together with `Content-Length`, with HTTP/1.0, twice, or with any other value
  than `chunked` (RFC 9112, sections 6.1 and 6.3);
- `Content-Length` twice, also with equal values, or anything but digits;
- lines that end without CR LF, a CR inside a line, and headers folded over several lines
  (sections 2.2 and 5.2);
- more headers, longer heads, longer chunk extensions or more chunks than the bounds below.

h11 extracts bytes from its receive buffer in three ways: a head or trailers, the line before a
chunk, and part of a body. `StrictBuffer` is that buffer; it checks the first two. No IO.
"""

import re
from typing import Final, NoReturn

from h11 import RemoteProtocolError
from h11._receivebuffer import ReceiveBuffer

HEAD_BYTES_MAX: Final = 131_072
"""Request line and headers together. The longest name that a page can end with has 32,767 bytes,
and in a URL each may take three."""
HEADERS_MAX: Final = 100
"""Headers or trailers of one request; browsers send about 20. nginx and Apache httpd allow 100."""
CHUNK_LINE_BYTES_MAX: Final = 256
"""Size and extensions of one chunk. A size has 16 bytes at most, and extensions are ignored;
section 7.1.1 requires a bound."""
CHUNKS_MAX: Final = 4_096
"""Chunks of one request. Each costs about 20 microseconds of the broker's event loop, whatever its
size; a body of 1 MiB in chunks of 1 KiB has 1,024."""

_CHUNKED: Final = b"chunked"
_DIGITS: Final = re.compile(rb"[0-9]+")


class StrictBuffer(ReceiveBuffer):
    """h11's receive buffer with the checks of this module."""

    def __init__(self) -> None:
        super().__init__()
        self.problem = ""
        """Why the request was rejected; empty if it was not."""
        self._extracted = bytearray()
        self._chunks = 0

    def _extract(self, count: int) -> bytearray:
        self._extracted = super()._extract(count)
        return self._extracted

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """Extract a head or trailers, and check them."""
        lines = super().maybe_extract_lines()
        if lines is None:
            return None
        head = bytes(self._extracted)
        self._chunks = 0
        if len(head) > HEAD_BYTES_MAX:
            self._refuse(f"the head has {len(head)} bytes (at most {HEAD_BYTES_MAX})")
        if not head.count(b"\r\n") == head.count(b"\n") == head.count(b"\r"):
            self._refuse("a line does not end with CR LF")
        if len(lines) > HEADERS_MAX + 1:
            self._refuse(f"the request has {len(lines) - 1} headers (at most {HEADERS_MAX})")
        if any(line.startswith((b" ", b"\t")) for line in lines):
            self._refuse("a header is folded over several lines")
        self._check_framing(lines)
        return lines

    def maybe_extract_next_line(self) -> bytearray | None:
        """Extract and check the line before a chunk, or the end of one."""
        line = super().maybe_extract_next_line()
        size = len(self) if line is None else len(line)
        if size > CHUNK_LINE_BYTES_MAX:
            self._refuse(f"a chunk begins with more than {CHUNK_LINE_BYTES_MAX} bytes")
        if line is not None:
            self._chunks += 1
            if self._chunks > CHUNKS_MAX:
                self._refuse(f"the body has more than {CHUNKS_MAX} chunks")
            if b"\n" in line[:-2] or b"\r" in line[:-2]:
                self._refuse("a line does not end with CR LF")
        return line

    def _check_framing(self, lines: list[bytearray]) -> None:
        lengths, encodings = [], []
        for line in lines:
            name, _, value = bytes(line).partition(b":")
            if name.lower() == b"content-length":
                lengths.append(value.strip(b" \t"))
            elif name.lower() == b"transfer-encoding":
                encodings.append(value.strip(b" \t").lower())
        if lengths and encodings:
            self._refuse("Transfer-Encoding and Content-Length are both given")
        if len(lengths) > 1:
            self._refuse("Content-Length is given more than once")
        if lengths and not _DIGITS.fullmatch(lengths[0]):
            self._refuse("Content-Length is not a number")
        if encodings and encodings != [_CHUNKED]:
            self._refuse("Transfer-Encoding is not 'chunked'")
        if encodings and not lines[0].endswith(b" HTTP/1.1"):
            self._refuse("Transfer-Encoding needs HTTP/1.1")

    def _refuse(self, problem: str) -> NoReturn:
        self.problem = problem
        raise RemoteProtocolError(problem)
