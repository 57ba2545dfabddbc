"""When batches are due: rates kept together, counts shared out, latency from the due time."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bench.pacing import SECOND_NS, Pacing, Shares, pacing_of

BEGIN_NS = 1_000 * SECOND_NS


def all_due(pacing: Pacing, *, now_ns: int = BEGIN_NS, most: int = 10_000) -> list[int]:
    due: list[int] = []
    while len(due) < most and (one := pacing.due_ns(now_ns)) is not None:
        pacing.sent(one)
        due.append(one)
    return due


def made(client: int, clients: int, *, batches: int | None, rate: float | None) -> Pacing:
    return pacing_of(
        Shares(clients, client),
        BEGIN_NS,
        warmup_seconds=1.0,
        duration_seconds=2.0,
        batches=batches,
        batches_per_second=rate,
    )


@given(st.integers(1, 7), st.integers(1, 200))
def test_clients_together_keep_the_rate(clients: int, rate: int) -> None:
    due = sorted(
        one
        for client in range(clients)
        for one in all_due(made(client, clients, batches=None, rate=float(rate)))
    )
    assert due[0] == BEGIN_NS
    assert len(due) == 3 * rate
    steps = [after - before for before, after in pairwise(due)]
    assert all(abs(step - SECOND_NS / rate) <= 1 for step in steps)


def test_what_is_due_does_not_wait_for_a_slow_broker() -> None:
    late = BEGIN_NS + 2 * SECOND_NS
    pacing = made(0, 1, batches=None, rate=10.0)
    due = all_due(pacing, now_ns=late)
    assert due[:3] == [BEGIN_NS, BEGIN_NS + SECOND_NS // 10, BEGIN_NS + SECOND_NS // 5]
    assert len(due) == 30


def test_without_a_rate_a_batch_is_due_now_until_the_end() -> None:
    pacing = made(0, 1, batches=None, rate=None)
    assert pacing.due_ns(BEGIN_NS - 5) == BEGIN_NS
    assert pacing.due_ns(BEGIN_NS + 7) == BEGIN_NS + 7
    assert pacing.due_ns(BEGIN_NS + 3 * SECOND_NS) is None


def test_a_count_is_of_what_comes_after_the_warm_up() -> None:
    pacing = made(0, 1, batches=2, rate=None)
    in_warm_up, after = BEGIN_NS + 1, BEGIN_NS + SECOND_NS
    for _ in range(10):
        pacing.sent(in_warm_up)
    assert pacing.due_ns(after) == after
    pacing.sent(after)
    pacing.sent(after)
    assert pacing.due_ns(after) is None


def test_only_the_measured_part_counts() -> None:
    pacing = made(0, 1, batches=None, rate=None)
    assert not pacing.is_measured(BEGIN_NS)
    assert pacing.is_measured(BEGIN_NS + SECOND_NS)
    assert not pacing.is_measured(BEGIN_NS + 3 * SECOND_NS)


@given(st.integers(1, 20), st.integers(0, 1000))
def test_shares_add_up(clients: int, whole: int) -> None:
    parts = [Shares(clients, client).of_count(whole) for client in range(clients)]
    assert sum(parts) == whole
    assert max(parts) - min(parts) <= 1


@pytest.mark.parametrize("clients", [1, 2, 5])
def test_every_partition_has_one_client(clients: int) -> None:
    partitions = tuple(range(7))
    given_out = [Shares(clients, one).of_list(partitions) for one in range(clients)]
    assert sorted(part for some in given_out for part in some) == list(partitions)
