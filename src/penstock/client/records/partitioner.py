"""The partition of a record by Kafka's own rule, so keys land where Java puts them (pure).

A key goes to `(murmur2(key) & 0x7fffffff) % partitions`. The hash is the 32-bit MurmurHash2 with
the seed of Kafka's Java client; librdkafka calls this partitioner `murmur2`. Records without a key
change the partition batch by batch, not record by record, because larger batches cost less.
"""

from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the hash as an unsigned 32-bit number."""
    length = len(data)
    value = (_SEED ^ length) & _MASK
    whole = length & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little")
        k = (k * _M) & _MASK
        k ^= k >> _R
        k = (k * _M) & _MASK
        value = ((value * _M) & _MASK) ^ k
    rest = data[whole:]
    if rest:
        value ^= int.from_bytes(rest, "little")
        value = (value * _M) & _MASK
    value ^= value >> 13
    value = (value * _M) & _MASK
    return value ^ (value >> 15)


def partition_of_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a record with this key."""
    assert partition_count > 0
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
