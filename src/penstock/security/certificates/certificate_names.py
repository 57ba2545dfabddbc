"""Subject, issuer and alternative names of a certificate, from its DER bytes (pure).

Guarantees: a certificate of any content ends in names or in a `CertificateError`. A name with a NUL
or another control character is an error: such a name can look like another one in a log, and
programs that stop at a NUL see another one. It does NOT verify signatures or dates.
"""

from typing import Final, NamedTuple

from penstock.security.certificates.der import (
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    SEQUENCE,
    CertificateError,
    Element,
    elements,
    expect,
    object_identifier,
    single,
)

ALTERNATIVE_NAMES_MAX: Final = 256
"""Alternative names that are read. Certificates of large sites have about a hundred."""
NAME_BYTES_MAX: Final = 4_096
"""Largest name of a certificate that becomes a principal."""

_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_DNS_NAME: Final = 0x82
_URI: Final = 0x86
_SUBJECT_ALTERNATIVE_NAME: Final = "2.5.29.17"


class CertificateFields(NamedTuple):
    """Fields of a certificate, still encoded."""

    issuer: Element
    subject: Element
    extensions: Element | None


def certificate_fields(certificate: bytes) -> CertificateFields:
    """Return the fields of a certificate in DER."""
    parts = list(single(certificate, SEQUENCE).children())
    if not parts:
        raise CertificateError("the certificate is malformed: it is empty")
    fields = list(expect(parts[0], SEQUENCE).children())
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    # Serial number, algorithm, issuer, dates, subject, public key.
    if len(fields) < 6:
        raise CertificateError(
            f"the certificate is malformed: it has {len(fields)} fields instead of 6"
        )
    extensions = [field for field in fields[6:] if field.tag == _EXTENSIONS]
    if len(extensions) > 1:
        raise CertificateError("the certificate is malformed: it has two lists of extensions")
    return CertificateFields(
        expect(fields[2], SEQUENCE),
        expect(fields[4], SEQUENCE),
        single(extensions[0].content, SEQUENCE) if extensions else None,
    )


def alternative_uris(certificate: bytes) -> list[str]:
    """Return the URIs among the alternative names of the subject, in their order."""
    return _alternative_names(certificate, _URI)


def alternative_hosts(certificate: bytes) -> list[str]:
    """Return the DNS names among the alternative names of the subject, in their order."""
    return _alternative_names(certificate, _DNS_NAME)


def check_name(name: str) -> str:
    """Return the name; raise `CertificateError` if it is too long or has a control character."""
    size = len(name.encode("utf-8", "surrogatepass"))
    if size > NAME_BYTES_MAX:
        raise CertificateError(
            f"a name in the certificate has {size} bytes (limit {NAME_BYTES_MAX})"
        )
    for character in name:
        if character < " " or "\x7f" <= character < "\xa0" or character in "\u2028\u2029":
            raise CertificateError(
                f"a name in the certificate has a control character (U+{ord(character):04X})"
            )
    return name


def _alternative_names(certificate: bytes, tag: int) -> list[str]:
    extensions = certificate_fields(certificate).extensions
    found = [] if extensions is None else [*extensions.children()]
    values = [value for one in found if (value := _value_of(one)) is not None]
    if len(values) > 1:
        raise CertificateError("the certificate is malformed: it has two lists of names")
    names: list[str] = []
    for value in values:
        for number, name in enumerate(single(value, SEQUENCE).children()):
            if number >= ALTERNATIVE_NAMES_MAX:
                raise CertificateError(
                    f"the certificate has more than {ALTERNATIVE_NAMES_MAX} alternative names"
                )
            if name.tag == tag:
                names.append(check_name(_ascii(name.content)))
    return names


def _value_of(extension: Element) -> memoryview | None:
    """Return the value of an extension, if it has the alternative names of the subject."""
    parts = list(elements(expect(extension, SEQUENCE).content))
    if len(parts) < 2:
        raise CertificateError("the certificate is malformed: an extension has no value")
    if object_identifier(expect(parts[0], OBJECT_IDENTIFIER).content) != _SUBJECT_ALTERNATIVE_NAME:
        return None
    return expect(parts[-1], OCTET_STRING).content


def _ascii(content: memoryview) -> str:
    try:
        return str(content, "ascii")
    except UnicodeDecodeError:
        raise CertificateError("an alternative name of the certificate is not ASCII") from None
