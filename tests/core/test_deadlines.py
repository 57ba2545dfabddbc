"""The deadline table: nothing fires early or is forgotten, an empty table asks for no timer."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.deadlines import BUCKET_SECONDS, DeadlineTable


def test_an_empty_table_needs_no_timer() -> None:
    table: DeadlineTable[str] = DeadlineTable()
    assert table.next_deadline() is None
    key = table.add("a", 1.0)
    table.discard("a", key)
    assert table.next_deadline() is None
    assert len(table) == 0
    table.validate()


def test_discard_after_expiry_is_harmless() -> None:
    table: DeadlineTable[str] = DeadlineTable()
    key = table.add("a", 1.0)
    assert table.expire(2.0) == ["a"]
    table.discard("a", key)
    table.validate()


@given(
    st.lists(st.tuples(st.floats(0, 10), st.booleans()), max_size=30),
    st.lists(st.floats(0, 11), max_size=5),
)
def test_it_behaves_as_a_sorted_list(
    entries: list[tuple[float, bool]], moments: list[float]
) -> None:
    table: DeadlineTable[int] = DeadlineTable()
    model: dict[int, float] = {}
    for number, (deadline, discarded) in enumerate(entries):
        key = table.add(number, deadline)
        if discarded:
            table.discard(number, key)
        else:
            model[number] = deadline
    for moment in sorted(moments):
        due = table.expire(moment)
        table.validate()
        for number in due:
            assert model.pop(number) <= moment
        assert all(deadline > moment - BUCKET_SECONDS for deadline in model.values())
    assert len(table) == len(model)
    assert sorted(table.expire(20.0)) == sorted(model)
