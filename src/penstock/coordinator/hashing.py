"""Which partition of an internal topic a key belongs to: Kafka's rule, so that its tools agree.

It is Java's hash of a string over its UTF-16 units, made positive, modulo the partitions. Not for
records of users: their partition is the client's to choose.
"""

from functools import lru_cache
from typing import Final

KEYS_REMEMBERED: Final = 65_536
"""Hashing takes a microsecond for each ten characters, and clients ask with few keys again and
again; each costs about 150 bytes."""
KEY_CHARACTERS_REMEMBERED_MAX: Final = 256
"""A key may have 32,767 bytes, and a client may send as many keys as it likes: to remember long
ones would let it fill 2 GB."""

_MASK: Final = 0xFFFF_FFFF
_SIGN: Final = 0x8000_0000


def key_partition(key: str, partition_count: int) -> int:
    """The partition of a group id or a transactional id."""
    if len(key) > KEY_CHARACTERS_REMEMBERED_MAX:
        return _hashed(key, partition_count)
    return _remembered(key, partition_count)


def _hashed(key: str, partition_count: int) -> int:
    units = key.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & _MASK
    # Java's absolute value of the lowest integer is negative; Kafka takes 0 for it.
    if value >= _SIGN:
        value = 0 if value == _SIGN else _MASK + 1 - value
    return value % partition_count


_remembered: Final = lru_cache(maxsize=KEYS_REMEMBERED)(_hashed)
