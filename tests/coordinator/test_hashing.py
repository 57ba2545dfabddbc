"""Which partition a key belongs to: Kafka's rule, in bounded memory."""

import pytest

from penstock.coordinator import hashing
from penstock.coordinator.hashing import key_partition


@pytest.mark.parametrize(
    ("key", "partition"),
    [("", 0), ("a", 47), ("group", 47), ("polygenelubricants", 0), ("a" * 1_000, 34)],
)
def test_a_key_belongs_where_kafka_puts_it(key: str, partition: int) -> None:
    assert key_partition(key, 50) == partition


def test_long_keys_are_not_remembered() -> None:
    hashing._remembered.cache_clear()
    key_partition("k" * 257, 50)
    assert hashing._remembered.cache_info().currsize == 0
    key_partition("k" * 256, 50)
    assert hashing._remembered.cache_info().currsize == 1
