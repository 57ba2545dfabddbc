"""Removals: allowed removals are no anomaly, and each rule fails on the smallest bad history."""

from collections.abc import Sequence

import pytest

from tests.checker.check import check
from tests.checker.history import Cut, Op, op_from_json, op_to_json
from tests.checker.vanishing import RECORD_KEYS
from tests.checker.writing import history, op, poll, send

X = 0
READER = 9
ADMIN = 1
SENT = [op("ok", send(X, value, value)) for value in range(5)]
"""Values 0 to 4 at the offsets 0 to 4."""
SEEN = op("ok", poll(k0=[(value, value) for value in range(5)]), process=2)
SAME = RECORD_KEYS
"""Added to a value, it is another one with the same record key."""


def reads(*values: int, process: int = READER) -> list[Op]:
    """A reader of the final phase gets these, each at the offset of its value."""
    begin = op("ok", name="assign", keys=[X], is_from_beginning=True, process=process)
    return [begin, op("ok", poll(k0=[(value % SAME, value) for value in values]), process=process)]


def delete_below(offset: int, type_: str = "ok") -> Op:
    assert type_ in ("ok", "fail", "info")
    return op(type_, Cut({X: offset}), process=ADMIN, name="delete-records")  # type: ignore[arg-type]


RETAIN = op("ok", process=ADMIN, name="retain", keys=[X])
COMPACT = op("ok", process=ADMIN, name="compact", keys=[X])
RECREATE = op("ok", process=ADMIN, name="recreate", keys=[X])


def found(*ops: Op) -> set[str]:
    return set(check(history(*ops)).forbidden)


def test_nothing_vanishes_by_itself() -> None:
    assert found(*SENT, SEEN, *reads(0, 1, 2, 3, 4)) == set()
    assert found(*SENT, SEEN, *reads(3, 4)) == {"vanished"}
    assert found(*SENT, SEEN, *reads(0, 1, 3, 4)) == {"vanished", "int-poll-skip"}


@pytest.mark.parametrize("type_", ["ok", "info"])
def test_what_delete_records_removed_may_be_gone(type_: str) -> None:
    assert found(*SENT, SEEN, delete_below(3, type_), *reads(3, 4)) == set()


def test_what_it_did_not_remove_may_not() -> None:
    assert found(*SENT, SEEN, delete_below(3), *reads(4)) == {"vanished"}
    assert found(*SENT, SEEN, delete_below(3, "fail"), *reads(3, 4)) == {"vanished"}


def test_a_hole_behind_the_start_is_no_deletion() -> None:
    """DeleteRecords and retention remove from the start only."""
    assert found(*SENT, SEEN, delete_below(3), *reads(0, 2, 3, 4)) == {
        "deleted-read",
        "int-poll-skip",
    }
    assert found(*SENT, SEEN, RETAIN, *reads(0, 3, 4)) == {"int-poll-skip"}


def test_deleted_records_do_not_come_back() -> None:
    assert found(*SENT, SEEN, delete_below(3), *reads(2, 3, 4)) == {"deleted-read"}
    assert found(*SENT, SEEN, delete_below(3, "info"), *reads(2, 3, 4)) == set(), "nobody knows"


def test_a_client_of_before_may_have_them_in_memory() -> None:
    later = op("ok", poll(k0=[(1, 1), (2, 2)]), process=2)
    first = op("ok", poll(k0=[(0, 0)]), process=2)
    assert found(*SENT, first, delete_below(3), later, *reads(3, 4)) == set()


def test_a_running_consumer_jumps_to_the_new_start() -> None:
    first = op("ok", poll(k0=[(0, 0)]), process=2)
    jump = op("ok", poll(k0=[(3, 3), (4, 4)]), process=2)
    assert found(*SENT, first, delete_below(3), jump, *reads(3, 4)) == set()
    assert found(*SENT, first, delete_below(2), jump, *reads(2, 3, 4)) == {"poll-skip"}


def test_retention_takes_what_was_written_before_its_end() -> None:
    later = op("ok", send(X, 5, 5))
    assert found(*SENT, SEEN, RETAIN, later, *reads(5)) == set()
    last = op("ok", send(X, 6, 6))
    assert found(*SENT, SEEN, RETAIN, later, last, *reads(6)) == {
        "vanished",
        "unseen",
        "lost-write",
    }


def compacted(*values: int) -> Sequence[Op]:
    """0, 1, 2 and then again 0 and 1 by their record keys, at the offsets 0 to 4."""
    sent = [0, 1, 2, SAME, SAME + 1]
    writes = [op("ok", send(X, value, place)) for place, value in enumerate(sent)]
    everything = op("ok", poll(k0=list(enumerate(sent))), process=2)
    begin = op("ok", name="assign", keys=[X], is_from_beginning=True, process=READER)
    read = op("ok", poll(k0=[(sent.index(value), value) for value in values]), process=READER)
    return [*writes, everything, COMPACT, begin, read]


def test_compaction_leaves_the_last_value_of_each_record_key() -> None:
    assert found(*compacted(0, 1, 2, SAME, SAME + 1)) == set()
    assert found(*compacted(2, SAME, SAME + 1)) == set()
    assert found(*compacted(1, 2, SAME, SAME + 1)) == set()
    assert found(*compacted(0, 1, SAME, SAME + 1)) == {"vanished", "int-poll-skip"}, "2 is the last"
    assert found(*compacted(2, SAME + 1)) == {"vanished", "int-poll-skip"}


def test_a_topic_that_was_created_again_is_another_one() -> None:
    again = op("ok", send(X, 7, 0))
    read = op("ok", poll(k0=[(0, 7)]), process=READER)
    begin = op("ok", name="assign", keys=[X], is_from_beginning=True, process=READER)
    assert found(*SENT, SEEN, RECREATE, again, begin, read) == set()
    assert found(*SENT, SEEN, RECREATE, again, begin) == {"unseen"}
    old = op("ok", poll(k0=[(0, 0), (1, 7)]), process=READER)
    assert found(*SENT, SEEN, RECREATE, again, begin, old) == {"resurrected"}
    garbage = op("ok", poll(k0=[(0, 7), (1, 99)]), process=READER)
    assert found(*SENT, SEEN, RECREATE, again, begin, garbage) == {"unwritten-read"}


def test_removals_are_saved() -> None:
    for one in (delete_below(3), RETAIN, COMPACT, RECREATE):
        assert op_from_json(op_to_json(one)) == one or op_to_json(
            op_from_json(op_to_json(one))
        ) == op_to_json(one)
