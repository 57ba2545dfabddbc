"""`HandmadeSender`: TLS 1.3 records of a client, encrypted without OpenSSL.

Python's `ssl` sends no message about keys. This sender takes the client's traffic secret from the
key log of its context and continues in its place: the client of the connection must send nothing
afterwards.
"""

import hashlib
import hmac
import ssl
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.broker.tls.tls_stage import Connection, Stage, identities

CONTENT: Final = 0x17
HANDSHAKE: Final = 0x16
KEY_UPDATE: Final = 0x18
_SECRET_NAME: Final = "CLIENT_TRAFFIC_SECRET_0"


def logged_context(folder: Path) -> ssl.SSLContext:
    """A client's context of TLS 1.3 whose secrets are written to a file."""
    context = ssl.create_default_context(cafile=str(identities().authority.certificate))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.keylog_filename = str(folder / "keys.log")
    return context


class HandmadeSender:
    """Sends for the client of one connection after its handshake."""

    def __init__(self, connection: Connection, folder: Path) -> None:
        cipher = connection.client.cipher()
        assert cipher is not None
        name, _, bits = cipher
        assert "AES" in name, name
        self._hash = "sha384" if name.endswith("384") else "sha256"
        self._key_bytes = bits // 8
        lines = (folder / "keys.log").read_text().splitlines()
        words = [line.split() for line in lines if line.startswith(_SECRET_NAME)]
        assert len(words) == 1
        self._use(bytes.fromhex(words[0][2]))

    def record(self, content: bytes, kind: int = CONTENT) -> bytes:
        """Encrypt one record."""
        inner = content + bytes([kind])
        head = bytes([CONTENT, 3, 3]) + (len(inner) + 16).to_bytes(2)
        number = self._number.to_bytes(12)
        nonce = bytes(one ^ other for one, other in zip(self._nonce, number, strict=True))
        self._number += 1
        return head + self._cipher.encrypt(nonce, inner, head)

    def key_update(self, *, is_answered: bool = False) -> bytes:
        """Encrypt a message that the client uses new keys from now on, and use them."""
        record = self.record(bytes([KEY_UPDATE, 0, 0, 1, is_answered]), HANDSHAKE)
        self._use(self._derive(b"traffic upd", self._secret_bytes))
        return record

    def _use(self, secret: bytes) -> None:
        self._secret = secret
        self._secret_bytes = len(secret)
        self._cipher = AESGCM(self._derive(b"key", self._key_bytes))
        self._nonce = self._derive(b"iv", 12)
        self._number = 0

    def _derive(self, label: bytes, size: int) -> bytes:
        """HKDF-Expand-Label of RFC 8446; one block of the hash is always enough."""
        full = b"tls13 " + label
        message = size.to_bytes(2) + bytes([len(full)]) + full + b"\0" + b"\x01"
        return hmac.new(self._secret, message, getattr(hashlib, self._hash)).digest()[:size]


def handmade(stage: Stage, folder: Path) -> tuple[Connection, HandmadeSender]:
    """A connection with a complete handshake, and the sender that takes its client's place."""
    connection = stage.secured(logged_context(folder))
    assert connection.receive() == b"", "only the ticket"
    return connection, HandmadeSender(connection, folder)
