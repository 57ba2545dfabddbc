"""Hostile batches are legal up to the point that they claim, or attacks would test nothing."""

import pytest

from penstock.core.errors import InvalidBatchError
from penstock.records.validation import ProduceRules, validate_produced
from tests.bad_input.batches import NOW_MS
from tests.hostile.payloads import BOMB_BYTES, legal_bomb, tiny_records_batch, zeros_bomb

RULES = ProduceRules(batch_bytes_max=1_048_588)
KEYED = ProduceRules(batch_bytes_max=1_048_588, compacted=True)


def validated_count(batch: bytes, rules: ProduceRules) -> int:
    view = memoryview(bytearray(batch))
    found = validate_produced(view, topic_limits=rules, produce_version=9, now_ms=NOW_MS)
    return found.header.record_count


@pytest.mark.parametrize("count", [1, 63, 64, 65, 8_193])
def test_tiny_records_are_legal(count: int) -> None:
    assert validated_count(tiny_records_batch(count), RULES) == count
    assert validated_count(tiny_records_batch(count, is_keyed=True), KEYED) == count


def test_a_legal_bomb_is_one_record() -> None:
    batch = legal_bomb(2_000_000)
    assert len(batch) < 200_000
    assert validated_count(batch, RULES) == 1


def test_zeros_unfold_before_they_are_refused() -> None:
    batch = zeros_bomb()
    assert len(batch) < 20_000 < BOMB_BYTES
    with pytest.raises(InvalidBatchError):
        validated_count(batch, RULES)
