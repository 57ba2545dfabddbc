"""PEM texts and the dates of X.509 certificates (pure).

`pem_blocks` accepts the forms that Kafka accepts: text between blocks, and blocks in one line, as a
property or an environment variable has them. `validity` reads the two dates of a certificate from
its DER bytes, because Python's `ssl` returns them for some certificates only.

Guarantees: malformed input raises `ValueError` without a part of the input, in time linear in its
size. It does NOT verify certificates: OpenSSL does.
"""

import base64
import binascii
from datetime import UTC, datetime
from typing import Final, NamedTuple

from penstock.security.secret import Secret

CERTIFICATE_LABELS: Final = frozenset({"CERTIFICATE", "X509 CERTIFICATE"})
KEY_LABEL_END: Final = "PRIVATE KEY"
LABEL_CHARACTERS_MAX: Final = 64
_BEGIN: Final = "-----BEGIN "
_DASHES: Final = "-----"
_LINE_CHARACTERS: Final = 64

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_LENGTH_BYTES_MAX: Final = 4


class PemBlock(NamedTuple):
    """One block: its label, and the text between its first and its last line."""

    label: str
    body: Secret

    @property
    def is_certificate(self) -> bool:
        """Whether the block is a certificate."""
        return self.label in CERTIFICATE_LABELS

    @property
    def is_key(self) -> bool:
        """Whether the block is a private key."""
        return self.label.endswith(KEY_LABEL_END)

    @property
    def is_encrypted(self) -> bool:
        """Whether the block is a private key with a password, in PKCS #8 or the older form."""
        body = self.body.reveal()
        return self.is_key and (self.label.startswith("ENCRYPTED") or "Proc-Type:" in body)

    def der(self) -> bytes:
        """Return the decoded bytes."""
        try:
            return base64.b64decode("".join(self.body.reveal().split()), validate=True)
        except (binascii.Error, ValueError):
            # Without its cause: the cause can have the text of a key.
            raise ValueError("a PEM block is not base64") from None

    def text(self) -> Secret:
        """Return the block with lines of the usual length."""
        body = self.body.reveal()
        if ":" not in body:  # headers of an encrypted key in the older form keep their lines
            joined = "".join(body.split())
            lines = range(0, len(joined), _LINE_CHARACTERS)
            body = "\n".join(joined[at : at + _LINE_CHARACTERS] for at in lines)
        return Secret(
            f"{_BEGIN}{self.label}{_DASHES}\n{body.strip()}\n{_DASHES}END {self.label}{_DASHES}\n"
        )


def pem_blocks(text: Secret) -> list[PemBlock]:
    """Return all blocks in their order; raise `ValueError` for a block without its end."""
    whole = text.reveal()
    blocks = []
    at = whole.find(_BEGIN)
    while at >= 0:
        label_at = at + len(_BEGIN)
        label_end = whole.find(_DASHES, label_at, label_at + LABEL_CHARACTERS_MAX)
        label = whole[label_at:label_end]
        last_line = f"{_DASHES}END {label}{_DASHES}"
        end = whole.find(last_line, label_end)
        if label_end < 0 or end < 0:
            raise ValueError("a PEM block has no last line")
        blocks.append(PemBlock(label, Secret(whole[label_end + len(_DASHES) : end])))
        at = whole.find(_BEGIN, end + len(last_line))
    return blocks


def certificate_text(der: bytes) -> str:
    """Return a certificate in PEM."""
    return PemBlock("CERTIFICATE", Secret(base64.b64encode(der).decode())).text().reveal()


def validity(der: bytes) -> tuple[datetime, datetime]:
    """Return the first and the last moment in which a certificate is valid."""
    _, certificate, rest = _element(memoryview(der), _SEQUENCE)
    if rest:
        raise ValueError("bytes follow the certificate")
    _, fields, _ = _element(certificate, _SEQUENCE)
    tag, _, after = _element(fields)
    if tag == _VERSION:
        _, _, after = _element(after)  # the serial number
    _, _, after = _element(after, _SEQUENCE)  # the algorithm
    _, _, after = _element(after, _SEQUENCE)  # the issuer
    _, dates, _ = _element(after, _SEQUENCE)
    first_tag, first, after = _element(dates)
    last_tag, last, _ = _element(after)
    return _time(first_tag, first), _time(last_tag, last)


def _element(data: memoryview, wanted: int | None = None) -> tuple[int, memoryview, memoryview]:
    """Return tag and content of the first DER element, and the bytes after it."""
    if len(data) < 2 or (wanted is not None and data[0] != wanted):
        raise ValueError("the certificate is not DER")
    length, start = data[1], 2
    if length > 0x7F:
        start += length & 0x7F
        if not 0 < length & 0x7F <= _LENGTH_BYTES_MAX:
            raise ValueError("the certificate is not DER")
        length = int.from_bytes(data[2:start], "big")
    if len(data) < start + length:
        raise ValueError("the certificate is cut short")
    return data[0], data[start : start + length], data[start + length :]


def _time(tag: int, content: memoryview) -> datetime:
    text = content.tobytes().decode("ascii", "replace")
    digits = text.removesuffix("Z")
    if tag == _UTC_TIME and len(digits) == 12 and digits.isdecimal():
        digits = ("19" if int(digits[:2]) >= 50 else "20") + digits  # RFC 5280, 4.1.2.5.1
    elif tag != _GENERALIZED_TIME:
        raise ValueError("the certificate has no dates")
    if len(digits) != 14 or not digits.isdecimal() or not text.endswith("Z"):
        raise ValueError("the certificate has no dates")
    parts = [int(digits[at : at + 2]) for at in range(4, 14, 2)]
    return datetime(int(digits[:4]), *parts, tzinfo=UTC)  # type: ignore[arg-type, misc]
