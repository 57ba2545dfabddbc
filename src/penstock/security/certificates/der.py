"""Reads ASN.1 in DER (pure).

Guarantees: malformed input is a `CertificateError`, in time linear in its size; nothing is copied.
Only the definite, shortest form of lengths is accepted, so an element has exactly one encoding.
It does NOT verify a certificate: OpenSSL has done that before.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.core.errors import PeerError

SEQUENCE: Final = 0x30
SET: Final = 0x31
OBJECT_IDENTIFIER: Final = 0x06
OCTET_STRING: Final = 0x04

_LONG_TAG: Final = 0x1F
_LENGTH_BYTES_MAX: Final = 4
_ARC_BITS_MAX: Final = 128
"""UUIDs are the largest arcs in use (2.25)."""


class CertificateError(PeerError):
    """A client's certificate that cannot be used as an identity; its connection is closed."""


class Element(NamedTuple):
    """One element: its tag, its content, and all of its bytes."""

    tag: int
    content: memoryview
    encoded: memoryview

    def children(self) -> Iterator["Element"]:
        """Yield the elements in the content."""
        return elements(self.content)


def elements(data: memoryview) -> Iterator[Element]:
    """Yield all elements of the data; raise `CertificateError` if it does not consist of them."""
    while data:
        if len(data) < 2:
            raise _malformed("an element is cut short")
        if data[0] & _LONG_TAG == _LONG_TAG:
            raise _malformed("a tag has several bytes")
        length, start = data[1], 2
        if length > 0x7F:
            count = length & 0x7F
            start += count
            if not 0 < count <= _LENGTH_BYTES_MAX or len(data) < start:
                raise _malformed("a length is not definite")
            length = int.from_bytes(data[2:start], "big")
            if length < 0x80 or data[2] == 0:
                raise _malformed("a length is not in its shortest form")
        end = start + length
        if len(data) < end:
            raise _malformed("an element is cut short")
        yield Element(data[0], data[start:end], data[:end])
        data = data[end:]


def single(data: memoryview | bytes, tag: int) -> Element:
    """Return the only element of the data, which must have this tag."""
    found = list(elements(memoryview(data)))
    if len(found) != 1:
        raise _malformed(f"it has {len(found)} elements instead of one")
    return expect(found[0], tag)


def expect(element: Element, tag: int) -> Element:
    """Return the element, which must have this tag."""
    if element.tag != tag:
        raise _malformed(f"a tag is 0x{element.tag:02x} instead of 0x{tag:02x}")
    return element


def object_identifier(content: memoryview) -> str:
    """Return an object identifier as numbers with dots."""
    if not content or content[-1] & 0x80:
        raise _malformed("an object identifier is cut short")
    arcs: list[int] = []
    value = 0
    is_first_byte = True
    for byte in content:
        if is_first_byte and byte == 0x80:
            raise _malformed("an object identifier is not in its shortest form")
        value = value << 7 | byte & 0x7F
        if value.bit_length() > _ARC_BITS_MAX:
            raise _malformed("an object identifier is too large")
        is_first_byte = byte < 0x80
        if is_first_byte:
            arcs.append(value)
            value = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))


def _malformed(problem: str) -> CertificateError:
    return CertificateError(f"the certificate is malformed: {problem}")
