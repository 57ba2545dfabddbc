"""`PersistentMap` behaves like a dict, and its changed copies leave it as it was."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster.persistent_map import PersistentMap

ENTRIES = st.dictionaries(st.integers(0, 2000), st.integers(), max_size=40)


@settings(max_examples=30)
@given(ENTRIES, st.lists(st.tuples(ENTRIES, st.sets(st.integers(0, 2000))), max_size=5))
def test_it_is_a_dict_that_shares(
    start: dict[int, int], steps: list[tuple[dict[int, int], set[int]]]
) -> None:
    model, found = dict(start), PersistentMap(start)
    for entries, keys in steps:
        before_model, before = dict(model), found
        removed = keys - entries.keys()
        found = found.changed(entries, frozenset(removed))
        model.update(entries)
        for key in removed:
            model.pop(key, None)
        assert dict(before) == before_model
        assert dict(found) == model
        assert len(found) == len(model)
        assert all(found.get(key) == model.get(key) for key in range(0, 2000, 37))


def test_missing_keys() -> None:
    found: PersistentMap[str, int] = PersistentMap({"a": 1})
    assert found.get("b") is None
    assert found.get("b", 5) == 5
    assert "b" not in found
    assert found.changed({}) is found


def test_a_change_copies_little() -> None:
    before = PersistentMap({str(n): n for n in range(20_000)})
    after = before.changed({"new": 1})
    shared = sum(one is other for one, other in zip(before._buckets, after._buckets, strict=True))
    assert shared == len(before._buckets) - 1
