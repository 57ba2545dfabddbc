"""Certificates with any subject and any names, encoded by hand, for readers of names.

They have no valid signature: only what reads names sees them. The encoder writes whatever it is
given, so that a test can also write certificates that no authority would.
"""

from collections.abc import Sequence
from typing import Final

UTF8: Final = 0x0C
PRINTABLE: Final = 0x13
T61: Final = 0x14
IA5: Final = 0x16
VISIBLE: Final = 0x1A
GENERAL: Final = 0x1B
UNIVERSAL: Final = 0x1C
BMP: Final = 0x1E
TEXT_TAGS: Final = (UTF8, PRINTABLE, T61, IA5, VISIBLE, GENERAL, UNIVERSAL, BMP)

COMMON_NAME: Final = "2.5.4.3"
KINDS: Final = (
    COMMON_NAME,
    "2.5.4.4",
    "2.5.4.5",
    "2.5.4.6",
    "2.5.4.7",
    "2.5.4.8",
    "2.5.4.9",
    "2.5.4.10",
    "2.5.4.11",
    "2.5.4.12",
    "2.5.4.17",
    "2.5.4.42",
    "2.5.4.46",
    "0.9.2342.19200300.100.1.1",
    "0.9.2342.19200300.100.1.25",
    "1.2.840.113549.1.9.1",
    "1.3.6.1.4.1.311.60.2.1.3",
    "2.999.1",
)
"""Types of attributes; eleven of them have no short name in Java's form."""

Attribute = tuple[str, int, bytes]
"""Type, tag and content of one attribute of a subject."""


def element(tag: int, content: bytes) -> bytes:
    """One element in DER."""
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def identifier(dotted: str) -> bytes:
    """An object identifier in DER."""
    first, second, *rest = map(int, dotted.split("."))
    content = bytearray()
    for arc in (40 * first + second, *rest):
        digits = [arc & 0x7F]
        while arc := arc >> 7:
            digits.append(arc & 0x7F | 0x80)
        content += bytes(reversed(digits))
    return element(0x06, bytes(content))


def subject_of(names: Sequence[Sequence[Attribute]]) -> bytes:
    """A subject: relative names, each of one or more attributes, in the order of the encoding."""
    return element(
        0x30,
        b"".join(
            element(
                0x31,
                b"".join(
                    element(0x30, identifier(kind) + element(tag, content))
                    for kind, tag, content in attributes
                ),
            )
            for attributes in names
        ),
    )


def text_subject(text: str) -> bytes:
    """A subject with a common name only."""
    return subject_of([[(COMMON_NAME, UTF8, text.encode())]])


def certificate_of(subject: bytes, alternative_names: bytes | None = None) -> bytes:
    """A certificate with this subject; `alternative_names` is the content of its list of names."""
    algorithm = element(0x30, identifier("1.2.840.10045.4.3.2"))
    dates = element(0x30, element(0x17, b"260101000000Z") + element(0x17, b"360101000000Z"))
    point = bytes.fromhex(
        "04"
        "6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"
        "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"
    )
    curve = element(0x30, identifier("1.2.840.10045.2.1") + identifier("1.2.840.10045.3.1.7"))
    key = element(0x30, curve + element(0x03, b"\0" + point))
    issuer = text_subject("authority")
    version = element(0xA0, element(0x02, b"\x02"))
    fields = version + element(0x02, b"\x01") + algorithm + issuer + dates + subject + key
    if alternative_names is not None:
        extension = identifier("2.5.29.17") + element(0x04, element(0x30, alternative_names))
        fields += element(0xA3, element(0x30, element(0x30, extension)))
    signature = element(0x03, b"\0" + element(0x30, element(0x02, b"\x01") * 2))
    return element(0x30, element(0x30, fields) + algorithm + signature)


def uri(name: str) -> bytes:
    """An alternative name: a URI."""
    return element(0x86, name.encode("latin-1"))


def host(name: str) -> bytes:
    """An alternative name: a DNS name."""
    return element(0x82, name.encode("latin-1"))
