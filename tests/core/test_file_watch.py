"""A file is read when it has changed and come to rest, once."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.file_watch import FileWatch, Look


def look(number: int) -> Look:
    return Look(1, number, 10, 0, 0)


def read_at(looks: list[Look | None], taken: Look | None) -> list[int]:
    watch = FileWatch(taken)
    return [place for place, one in enumerate(looks) if watch.note(one)]


def test_what_is_the_same_is_not_read() -> None:
    assert read_at([look(1)] * 3, look(1)) == []


def test_a_change_is_read_at_the_second_look_and_once() -> None:
    assert read_at([look(2), look(2), look(2)], look(1)) == [1]


def test_a_writer_at_work_is_let_finish() -> None:
    assert read_at([look(2), look(3), look(4), look(4)], look(1)) == [3]


def test_a_change_that_is_taken_back_in_time_is_none() -> None:
    assert read_at([look(2), look(1), look(1)], look(1)) == []


def test_a_file_that_goes_and_comes_is_read_each_time() -> None:
    assert read_at([None, None, look(2), look(2)], look(1)) == [1, 3]
    assert read_at([None, look(1), look(1)], look(1)) == []


def test_what_was_read_for_another_reason_is_not_read_again() -> None:
    watch = FileWatch(look(1))
    watch.was_read(look(2))
    assert not watch.note(look(2))
    assert not watch.note(look(2))


@given(st.lists(st.integers(0, 3) | st.none(), max_size=30))
def test_what_rests_at_the_end_is_what_was_read_last(numbers: list[int | None]) -> None:
    looks = [None if number is None else look(number) for number in numbers]
    watch = FileWatch(look(0))
    taken: Look | None = look(0)
    for one in [*looks, *looks[-1:]]:
        if watch.note(one):
            taken = one
    if looks:
        assert taken == looks[-1]
