"""The lag in seconds, beside the age of every single record."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.types import TopicPartition
from penstock.spark.tables.operation.lag_times import SEEN_MAX, LagTimes, Place

AT = TopicPartition("orders", 0)
STEPS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 4_000)), max_size=200
)


@given(STEPS)
def test_it_is_the_age_of_the_oldest_missing_record(steps: list[tuple[int, int, int]]) -> None:
    """Up to the interval of the looks; a long history may only make it older."""
    lags, now_ms, held, seen_ms = LagTimes(), 1_000_000, 0, list[int]()
    for looks, (added, committed, wait_ms) in enumerate(steps):
        now_ms += wait_ms
        seen_ms += [now_ms] * added
        held = min(len(seen_ms), held + committed)
        lags.looked({AT: Place(held, len(seen_ms))}, now_ms)
        age = (now_ms - seen_ms[held]) / 1000 if held < len(seen_ms) else 0.0
        found = lags.seconds(AT, held, now_ms)
        if looks < SEEN_MAX:
            assert found == age
        assert found >= age
        assert (found == 0) == (held == len(seen_ms)) or age == 0


def test_a_backlog_of_before_counts_from_the_newest_row() -> None:
    lags = LagTimes()
    lags.looked({AT: Place(10, 30)}, 100_000, newest_ms=40_000)
    assert lags.seconds(AT, 10, 100_000) == 60.0
    lags.looked({AT: Place(30, 35)}, 110_000, newest_ms=105_000)
    assert lags.seconds(AT, 30, 111_000) == 1.0


def test_the_history_is_bounded_and_a_partition_that_is_gone_has_none() -> None:
    lags = LagTimes()
    for number in range(1, 1_000):
        lags.looked({AT: Place(0, number)}, number * 1_000)
    assert len(lags._seen[AT]) <= SEEN_MAX
    assert lags.seconds(AT, 0, 1_000_000) == 999.0
    lags.looked({}, 1_000_000)
    assert not lags._seen
