"""Which partition of an internal topic a key belongs to: Kafka's rule, so that its tools agree.

It is Java's hash of a string over its UTF-16 units, as a positive number, modulo the partitions.
Not for records of users: the client chooses their partition.
"""

from functools import lru_cache
from typing import Final

KEYS_REMEMBERED: Final = 65_536
"""Hashing takes some microseconds, and clients repeat few keys; each costs about 150 bytes."""
KEY_CHARACTERS_REMEMBERED_MAX: Final = 256
"""A key may have 32,767 bytes, and a client may send as many keys as it likes: to remember long
ones would let it fill 2 GB."""

_SIGN: Final = 0x8000_0000
_LANE_BITS: Final = 64
_UNIT_OF_LANE: Final = bytes.fromhex("000000000000ffff")
_HASH_OF_LANE: Final = bytes.fromhex("00000000ffffffff")


def key_partition(key: str, partition_count: int) -> int:
    """The partition of a group id or a transactional id."""
    if len(key) > KEY_CHARACTERS_REMEMBERED_MAX:
        return _hashed(key, partition_count)
    return _remembered(key, partition_count)


def _hashed(key: str, partition_count: int) -> int:
    value = _java_hash(key)
    # Java's absolute value of the lowest integer is negative; Kafka takes 0 for it.
    if value >= _SIGN:
        value = 0 if value == _SIGN else 2 * _SIGN - value
    return value % partition_count


def _java_hash(key: str) -> int:
    """31 times the hash so far plus the next UTF-16 unit, for all units, modulo 2^32.

    Unit by unit the longest key would hold the loop for five milliseconds. So the whole key is one
    large integer in lanes of 64 bits: first each lane becomes the hash of its own four units, then
    the upper half of the lanes is moved over the lower one, again and again, until one is left. A
    product of two 32-bit numbers plus another stays within its lane.
    """
    units = key.encode("utf-16-be", "surrogatepass")
    lane_count = 1
    while lane_count * _LANE_BITS < len(units) * 8:
        lane_count *= 2
    whole = int.from_bytes(units, "big")
    mask = int.from_bytes(_UNIT_OF_LANE * lane_count, "big")
    lanes = 0
    for shift in (48, 32, 16, 0):
        lanes = 31 * lanes + (whole >> shift & mask)
    while lane_count > 1:
        lane_count //= 2
        upper = lanes >> lane_count * _LANE_BITS
        lower = lanes - (upper << lane_count * _LANE_BITS)
        mask = int.from_bytes(_HASH_OF_LANE * lane_count, "big")
        lanes = upper * pow(31, 4 * lane_count, 2 * _SIGN) + lower & mask
    return lanes


_remembered: Final = lru_cache(maxsize=KEYS_REMEMBERED)(_hashed)
