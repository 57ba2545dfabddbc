"""Which quota applies: Kafka's eight levels, and the clients that share one."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.quotas import limit_table
from penstock.broker.quotas.limit_table import ABSENT, Bound, EntityKey, LimitTable, QuotaClient

ORDER: list[tuple[EntityKey, tuple[str, str]]] = [
    (("u", "c"), ("u", "c")),
    (("u", None), ("u", "c")),
    (("u", ABSENT), ("u", ABSENT)),
    ((None, "c"), ("u", "c")),
    ((None, None), ("u", "c")),
    ((None, ABSENT), ("u", ABSENT)),
    ((ABSENT, "c"), (ABSENT, "c")),
    ((ABSENT, None), (ABSENT, "c")),
]
"""From Kafka's documentation: entity, and whose use is counted together."""
NAMES = ["u", "c", "other", None]
ENTITIES = [pair for pair in product([*NAMES, ABSENT], repeat=2) if pair != (ABSENT, ABSENT)]


@pytest.mark.parametrize("level", range(len(ORDER)))
def test_the_most_specific_counts(level: int) -> None:
    table = LimitTable()
    for number, (entity, _) in enumerate(ORDER[level:], level):
        table.put(entity, float(number + 1))
    assert table.bound_of(QuotaClient("u", "c")) == Bound(ORDER[level][1], level + 1.0)


def plain(limits: dict[EntityKey, float], user: str, client: str) -> Bound | None:
    """The first row of Kafka's table that exists, one row after the other."""
    rows: list[tuple[EntityKey, tuple[str, str]]] = [
        ((user, client), (user, client)),
        ((user, None), (user, client)),
        ((user, ABSENT), (user, ABSENT)),
        ((None, client), (user, client)),
        ((None, None), (user, client)),
        ((None, ABSENT), (user, ABSENT)),
        ((ABSENT, client), (ABSENT, client)),
        ((ABSENT, None), (ABSENT, client)),
    ]
    for entity, sharers in rows:
        if entity in limits and (client or entity[1] == ABSENT) and entity != (ABSENT, ABSENT):
            return Bound(sharers, limits[entity])
    return None


@given(
    st.lists(st.tuples(st.sampled_from(ENTITIES), st.none() | st.floats(1, 9)), max_size=30),
    st.lists(st.tuples(st.sampled_from(["u", "x"]), st.sampled_from(["c", "d", ""])), max_size=8),
)
def test_a_table_is_the_plain_model(
    changes: list[tuple[EntityKey, float | None]], clients: list[tuple[str, str]]
) -> None:
    table, limits = LimitTable(), dict[EntityKey, float]()
    for entity, limit in changes:
        table.put(entity, limit)
        limits.pop(entity, None)
        if limit is not None:
            limits[entity] = limit
        assert len(table) == len(limits)
        for user, client in clients:
            assert table.bound_of(QuotaClient(user, client)) == plain(limits, user, client)


def test_a_client_without_an_id_has_what_its_user_has() -> None:
    table = LimitTable()
    table.put((ABSENT, None), 1.0)
    table.put((None, None), 2.0)
    assert table.bound_of(QuotaClient("u", "")) is None
    table.put((None, ABSENT), 3.0)
    assert table.bound_of(QuotaClient("u", "")) == Bound(("u", ABSENT), 3.0)


@pytest.mark.uncompiled
def test_names_that_clients_invent_are_not_kept_without_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limit_table, "QUOTA_STATES_MAX", 10)
    table = LimitTable()
    table.put((ABSENT, None), 1.0)
    for number in range(100):
        assert table.bound_of(QuotaClient("u", f"c{number}")) == Bound((ABSENT, f"c{number}"), 1.0)
        assert len(table._known) <= 10
    table.put((ABSENT, None), None)
    assert table.bound_of(QuotaClient("u", "c")) is None
    assert not table._known
