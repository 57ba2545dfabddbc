"""Which partition a key belongs to: Kafka's rule, in bounded memory and time."""

import time
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

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


def unit_by_unit(key: str) -> int:
    """Java's definition, word for word."""
    units = key.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFF_FFFF
    return value


@given(st.text(st.characters(exclude_categories=()), max_size=300))
@example("\uffff" * 32_767)
@example("\U0010ffff" * 8_191)
@example("a\udc00")
def test_the_hash_is_that_of_java(key: str) -> None:
    assert hashing._java_hash(key) == unit_by_unit(key)


def cpu_seconds(hash_of: Callable[[str], int], key: str) -> float:
    """The best of some runs: others use the machine too."""
    best = float("inf")
    for _ in range(5):
        begun = time.thread_time()
        hash_of(key)
        best = min(best, time.thread_time() - begun)
    return best


def test_a_long_key_takes_a_fraction_of_a_walk_over_its_characters() -> None:
    key = "k" * 32_767
    assert cpu_seconds(hashing._java_hash, key) < cpu_seconds(unit_by_unit, key) / 3
