"""`OffsetMap`: the last offset of each key in a range of a log, in bounded memory. Pure.

A key of up to 15 bytes is stored itself; a longer one as 16 bytes of its BLAKE2b, so an entry costs
about 150 bytes whatever the keys are. Two long keys with one hash would lose the older record; with
2^128 hashes that will not happen, and Apache Kafka accepts the same risk with MD5.

`is_full` says when to stop adding, within a batch too; the rest of the log waits for the next pass.
It is not a cache and evicts no key.
"""

from hashlib import blake2b
from typing import Final

from penstock.core.limits import COMPACTION_KEYS_MAX

_HASH_BYTES: Final = 16


class OffsetMap:
    """Key to offset, and how far the log was read."""

    __slots__ = ("_keys_max", "_offsets", "latest_offset")

    def __init__(self, keys_max: int = COMPACTION_KEYS_MAX) -> None:
        assert keys_max > 0
        self._keys_max = keys_max
        self._offsets: dict[bytes, int] = {}
        self.latest_offset = -1
        """Every record at or below this offset was read."""

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        """Whether no further key should be added."""
        return len(self._offsets) >= self._keys_max

    def put(self, key: bytes | memoryview, offset: int) -> None:
        """The key was written at `offset`; call it in the order of offsets."""
        self._offsets[_token(key)] = offset

    def latest(self, key: bytes | memoryview) -> int:
        """The last offset of the key, or -1."""
        return self._offsets.get(_token(key), -1)


def _token(key: bytes | memoryview) -> bytes:
    if len(key) < _HASH_BYTES:
        return bytes(key)
    return blake2b(key, digest_size=_HASH_BYTES).digest()
