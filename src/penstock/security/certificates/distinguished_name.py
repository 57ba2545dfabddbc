r"""`distinguished_name`: the subject of a certificate as Apache Kafka writes it (pure).

Kafka's principal of a client certificate is Java's `X500Principal.getName()`, its form of RFC 2253.
It differs from RFC 4514 and from `cryptography`, and access rules compare it byte for byte:

- attributes outside of CN, C, L, ST, O, OU, STREET, DC and UID are `oid=#hex` of the encoded value,
  and so are values that are not text;
- `,`, `=`, `+`, `<`, `>`, `#`, `;`, `"` and `\` have a backslash before them, wherever they are,
  and so have all spaces at the beginning and at the end;
- the bytes of a text are read as UTF-8, whatever the type of the text.

Tests compare it with Java. Unlike Java it refuses a subject without attributes, a text that is not
UTF-8 (Java replaces the wrong bytes, so that two subjects look alike), and a subject with a NUL or
another control character (see `certificate_names`).
"""

from typing import Final

from penstock.security.certificates.certificate_names import certificate_fields, check_name
from penstock.security.certificates.der import (
    OBJECT_IDENTIFIER,
    SEQUENCE,
    SET,
    CertificateError,
    Element,
    expect,
    object_identifier,
)

ATTRIBUTES_MAX: Final = 256
"""Attributes of one subject; usual ones have five."""

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString."""
_ESCAPED: Final = str.maketrans({character: f"\\{character}" for character in ',=+<>#;"\\'})


def distinguished_name(certificate: bytes) -> str:
    """Return the subject of a certificate in DER; raise `CertificateError` if it has none."""
    subject = certificate_fields(certificate).subject
    names = list(subject.children())
    if not names:
        raise CertificateError("the certificate has no subject")
    if sum(len(list(name.children())) for name in names) > ATTRIBUTES_MAX:
        raise CertificateError(f"the subject has more than {ATTRIBUTES_MAX} attributes")
    return check_name(",".join(_relative_name(name) for name in reversed(names)))


def _relative_name(name: Element) -> str:
    attributes = list(expect(name, SET).children())
    if not attributes:
        raise CertificateError("the certificate is malformed: a part of the subject is empty")
    return "+".join(map(_attribute, attributes))


def _attribute(attribute: Element) -> str:
    parts = list(expect(attribute, SEQUENCE).children())
    if len(parts) != 2:
        raise CertificateError("the certificate is malformed: an attribute has no value")
    kind = object_identifier(expect(parts[0], OBJECT_IDENTIFIER).content)
    value = parts[1]
    keyword = _KEYWORDS.get(kind)
    if keyword is None or value.tag not in _TEXTS:
        return f"{keyword or kind}=#{value.encoded.hex()}"
    try:
        text = str(value.content, "utf-8")
    except UnicodeDecodeError:
        raise CertificateError(f"{keyword} in the subject is not UTF-8") from None
    return f"{keyword}={_escaped(text)}"


def _escaped(text: str) -> str:
    escaped = text.translate(_ESCAPED)
    inside = escaped.strip(" ")
    if not inside:
        return "\\ " * len(escaped)
    lead = len(escaped) - len(escaped.lstrip(" "))
    trail = len(escaped) - lead - len(inside)
    return "\\ " * lead + inside + "\\ " * trail
