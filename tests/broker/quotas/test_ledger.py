"""The ledger of clients is bounded, and evicts idle ones first."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.quotas.ledger import Ledger

HOUR_MS = 3_600_000


def test_the_same_key_has_the_same_state() -> None:
    ledger: Ledger[str, list[int]] = Ledger(list)
    ledger.use("a", 0).append(1)
    ledger.use("b", 1).append(2)
    assert ledger.use("a", 2) == [1]
    assert len(ledger) == 2


def test_who_was_used_longest_ago_goes_first() -> None:
    ledger: Ledger[str, list[int]] = Ledger(list, states_max=2)
    ledger.use("a", 0).append(1)
    ledger.use("b", 1).append(2)
    ledger.use("a", 2)
    ledger.use("c", 3)
    assert ledger.use("a", 4) == [1]
    assert ledger.use("b", 5) == []


def test_who_was_idle_for_an_hour_goes_when_another_comes() -> None:
    ledger: Ledger[str, list[int]] = Ledger(list)
    for name in "abc":
        ledger.use(name, 0)
    ledger.use("a", HOUR_MS - 1)
    ledger.use("d", HOUR_MS)
    assert len(ledger) == 2


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, HOUR_MS)), max_size=80))
def test_there_are_never_more_than_there_may_be(uses: list[tuple[int, int]]) -> None:
    ledger: Ledger[int, list[int]] = Ledger(list, states_max=5)
    now_ms = 0
    for key, passed_ms in uses:
        now_ms += passed_ms
        ledger.use(key, now_ms)
        assert 1 <= len(ledger) <= 5
