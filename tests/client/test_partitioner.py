"""Keys land where Kafka's Java client puts them."""

import pytest

from penstock.client.records.partitioner import murmur2, partition_of_key


@pytest.mark.parametrize(
    ("key", "java_hash"),
    [
        # The vectors of Kafka's own test of its hash, as Java's signed integers.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_javas(key: bytes, java_hash: int) -> None:
    assert murmur2(key) == java_hash & 0xFFFFFFFF


def test_the_partition_ignores_the_sign() -> None:
    assert partition_of_key(b"21", 10) == (-973932308 & 0x7FFFFFFF) % 10
    assert partition_of_key(b"", 1) == 0
