"""A portion is bounded in records and in bytes, and there always is a first one."""

from penstock.coordinator.portions import RECORD_OVERHEAD_BYTES, Portion
from penstock.core.limits import COORDINATOR_PORTION_BYTES_MAX, COORDINATOR_PORTION_RECORDS_MAX


def taken(portion: Portion, *texts: str) -> int:
    """How many records with these strings fit."""
    count = 0
    while portion.take(*texts):
        count += 1
    return count


def test_small_records_are_bounded_by_their_number() -> None:
    assert taken(Portion(), "g", "t") == COORDINATOR_PORTION_RECORDS_MAX
    assert taken(Portion(7), "g", "t") == 7


def test_large_records_are_bounded_by_their_bytes() -> None:
    each = RECORD_OVERHEAD_BYTES + 32_767 + 249
    count = taken(Portion(), "g" * 32_767, "t" * 249)
    assert count == COORDINATOR_PORTION_BYTES_MAX // each


def test_names_in_other_scripts_are_longer_than_their_characters() -> None:
    count = taken(Portion(), "\N{EURO SIGN}" * 10_000)
    assert count * len("\N{EURO SIGN}".encode()) * 10_000 <= COORDINATOR_PORTION_BYTES_MAX


def test_the_first_fits_however_large_it_is() -> None:
    portion = Portion()
    assert portion.take("t", more_bytes=10 * COORDINATOR_PORTION_BYTES_MAX)
    assert not portion.take("t")


def test_several_records_fit_together_or_not_at_all() -> None:
    portion = Portion(3)
    assert portion.take("g")
    assert not portion.take("g", record_count=3)
    assert portion.take("g", record_count=2)
