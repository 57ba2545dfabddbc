"""Each rule on the smallest history that breaks it, and on one that nearly does."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.checker.check import Mode, check
from tests.checker.history import (
    Commit,
    Committed,
    HistoryError,
    Op,
    completions,
    load,
    op_to_json,
    save,
)
from tests.checker.writing import at_once, history, op, poll, send

A, B, C, D = 1, 2, 3, 4
X, Y = 0, 1


def found(entries: Sequence[Op], mode: Mode | None = None) -> dict[str, list[tuple[int, ...]]]:
    """Kinds and their values, without what only says that the history is short."""
    report = check(entries, mode or Mode(is_read_to_the_end=False))
    return {
        name: [case.values for case in cases]
        for name, cases in report.anomalies.items()
        if name != "unseen"
    }


# --- The log ---


def test_two_acknowledged_values_at_one_offset_are_inconsistent() -> None:
    entries = history(op("ok", send(X, 641, 537)), op("ok", send(X, 645, 537)))
    assert found(entries)["inconsistent-offsets"] == [(641, 645)]


def test_an_unknown_send_is_no_evidence_of_its_own_offset() -> None:
    entries = history(op("ok", send(X, A, 5)), op("info", send(X, B, 5)))
    assert found(entries) == {}


def test_an_unknown_send_is_evidence_once_its_value_was_read() -> None:
    entries = history(
        op("ok", send(X, A, 5)), op("info", send(X, B, 5)), op("ok", poll(k0=[(6, B)]), process=1)
    )
    names = found(entries)
    assert names["inconsistent-offsets"] == [(A, B)]
    assert names["duplicate"] == [(B,)]


def test_a_value_at_two_offsets_is_a_duplicate() -> None:
    entries = history(op("ok", send(X, A, 0)), op("ok", poll(k0=[(0, A), (1, A)])))
    assert found(entries)["duplicate"] == [(A,)]


def test_what_lies_before_a_read_value_and_was_not_read_is_lost() -> None:
    entries = history(
        op("ok", send(X, A, 0)),
        op("ok", send(X, B, 1)),
        op("info", send(X, C)),
        op("ok", send(X, D, 3)),
        op("ok", poll(k0=[(2, C)]), process=1),
    )
    assert sorted(found(entries)["lost-write"]) == [(A,), (B,)]


def test_an_overwritten_value_is_lost() -> None:
    entries = history(
        op("ok", send(X, A, 0)),
        op("ok", send(X, B, 0)),
        op("ok", send(X, C, 2)),
        op("ok", poll(k0=[(0, B), (2, C)]), process=1),
    )
    assert found(entries)["lost-write"] == [(A,)]


@pytest.mark.parametrize("is_read", [True, False])
def test_a_torn_transaction_is_lost_only_when_a_part_of_it_was_read(is_read: bool) -> None:
    first = [op("ok", poll(k0=[(0, A)]), process=1)] if is_read else []
    entries = history(
        op("info", send(X, A, 0), send(Y, B, 0), name="txn"),
        op("ok", send(Y, C, 1), process=2),
        *first,
        op("ok", poll(k1=[(1, C)]), process=1),
    )
    assert found(entries).get("lost-write") == ([(B,)] if is_read else None)


def test_sends_without_a_transaction_stand_for_themselves() -> None:
    entries = history(
        op("info", send(X, A, 0), send(X, B, 1)),
        op("ok", send(X, C, 2)),
        op("ok", poll(k0=[(0, A), (2, C)]), process=1),
    )
    assert "lost-write" not in found(entries)


def test_what_no_poll_returned_is_unseen_at_the_tail_too() -> None:
    entries = history(op("ok", send(X, A, 0)), op("ok", send(X, B, 1)), op("ok", poll(k0=[(0, A)])))
    report = check(entries)
    assert [case.values for case in report.forbidden["unseen"]] == [(B,)]
    assert check(entries, Mode(is_read_to_the_end=False)).is_valid


def test_the_rest_of_a_transaction_that_was_seen_is_unseen() -> None:
    entries = history(
        op("info", send(X, A), send(Y, B), name="txn"), op("ok", poll(k0=[(0, A)]), process=1)
    )
    assert [case.values for case in check(entries).forbidden["unseen"]] == [(B,)]


def test_a_value_of_a_failed_operation_must_not_be_read() -> None:
    entries = history(op("fail", send(X, A, 0), name="txn"), op("ok", poll(k0=[(0, A)]), process=1))
    assert found(entries) == {"G1a": [(A,)]}
    unknown = history(op("info", send(X, A, 0)), op("ok", poll(k0=[(0, A)]), process=1))
    assert found(unknown) == {}


def test_an_operation_must_not_read_its_own_writes() -> None:
    entries = history(op("ok", send(X, A, 0), poll(k0=[(0, A)])))
    assert found(entries) == {"precommitted-read": [(A,)]}


def test_a_value_that_nobody_sent_is_garbage() -> None:
    assert found(history(op("ok", poll(k0=[(0, A)])))) == {"unwritten-read": [(A,)]}


# --- Order ---

SENT = tuple(op("ok", send(X, value, value), process=9) for value in (A, B, C, D))


def test_polls_inside_an_operation_neither_skip_nor_go_back() -> None:
    skipping = history(*SENT, op("ok", poll(k0=[(A, A)]), poll(k0=[(C, C)])))
    assert found(skipping)["int-poll-skip"] == [(A, C)]
    going_back = history(*SENT, op("ok", poll(k0=[(A, A), (B, B)]), poll(k0=[(A, A)])))
    assert found(going_back) == {"int-nonmonotonic-poll": [(B, A)]}


def test_a_rebalance_inside_an_operation_may_move_its_polls() -> None:
    moved = op("ok", poll(k0=[(A, A), (B, B)]), poll(k0=[(A, A)]), rebalanced=[X])
    assert found(history(*SENT, moved)) == {}


def test_gaps_between_offsets_are_no_skip() -> None:
    entries = history(
        op("ok", send(X, A, 0), process=9),
        op("ok", send(X, B, 7), process=9),
        op("ok", poll(k0=[(0, A), (7, B)])),
    )
    assert found(entries) == {}


def test_polls_of_a_process_neither_skip_nor_go_back() -> None:
    everything = op("ok", poll(k0=[(v, v) for v in (A, B, C, D)]), process=5)
    first = op("ok", poll(k0=[(A, A)]))
    skip = history(*SENT, everything, first, op("ok", poll(k0=[(C, C)])))
    assert found(skip) == {"poll-skip": [(A, C)]}
    back = history(*SENT, first, op("ok", poll(k0=[(A, A)])))
    assert found(back) == {"nonmonotonic-poll": [(A, A)]}
    others = history(*SENT, first, op("ok", poll(k0=[(A, A)]), process=1))
    assert found(others) == {}


def test_in_a_group_a_rebalance_may_move_a_process() -> None:
    entries = history(*SENT, op("ok", poll(k0=[(A, A)])), op("ok", poll(k0=[(A, A)])))
    mode = Mode(with_subscribe=True, is_read_to_the_end=False)
    assert check(entries, mode).is_valid
    assert not check(entries, Mode(is_read_to_the_end=False)).is_valid


def test_an_aborted_poll_may_be_repeated_and_not_continued() -> None:
    aborted = op("fail", poll(k0=[(A, A), (B, B)]), name="txn")
    again = history(*SENT, aborted, op("ok", poll(k0=[(A, A), (B, B), (C, C)])))
    assert found(again) == {}
    first = op("ok", poll(k0=[(A, A)]))
    aborted = op("fail", poll(k0=[(B, B)]), name="txn")
    reader = op("ok", poll(k0=[(v, v) for v in (A, B, C, D)]), process=5)
    onward = history(*SENT, reader, first, aborted, op("ok", poll(k0=[(C, C)])))
    assert found(onward) == {"poll-skip": [(A, C)]}


def test_an_assignment_keeps_positions_only_of_keys_that_stay() -> None:
    first, again = op("ok", poll(k0=[(A, A)])), op("ok", poll(k0=[(A, A)]))
    kept = history(*SENT, first, op("ok", name="assign", keys=[X, Y]), again)
    assert found(kept) == {"nonmonotonic-poll": [(A, A)]}
    away = op("ok", name="assign", keys=[Y])
    assert found(history(*SENT, first, away, again)) == {}
    fresh = op("ok", name="assign", keys=[X], is_from_beginning=True)
    assert found(history(*SENT, first, fresh, again)) == {}


def test_sends_inside_an_operation_keep_their_order() -> None:
    entries = history(op("ok", send(X, A, 1), send(X, B, 0)))
    assert found(entries) == {"int-nonmonotonic-send": [(A, B)]}


def test_others_may_send_between_two_sends() -> None:
    entries = at_once(op("ok", send(X, A, 0), send(X, C, 2)), op("ok", send(X, B, 1), process=1))
    assert found(entries) == {"int-send-skip": [(A, C)]}
    assert check(entries, Mode(is_read_to_the_end=False)).is_valid


def test_sends_of_a_process_go_forward() -> None:
    entries = history(op("ok", send(X, A, 5)), op("ok", send(X, B, 4)))
    assert found(entries) == {"nonmonotonic-send": [(A, B)]}
    assert found(history(op("ok", send(X, A, 5)), op("ok", send(X, B, 4), process=1))) == {}


# --- Circles ---


def test_information_must_not_flow_in_a_circle() -> None:
    first = op("ok", send(X, A, 0), poll(k1=[(0, B)]), process=0)
    second = op("ok", send(Y, B, 0), poll(k0=[(0, A)]), process=1)
    report = check(at_once(first, second), Mode(is_read_to_the_end=False))
    assert list(report.forbidden) == ["G1c"]
    assert len(report.forbidden["G1c"][0].ops) == 2


def test_writes_in_a_circle_are_allowed_and_seen_only_when_asked_for() -> None:
    first = op("ok", send(X, A, 0), send(Y, B, 1), name="txn", process=0)
    second = op("ok", send(X, C, 1), send(Y, D, 0), name="txn", process=1)
    entries = at_once(first, second)
    assert found(entries) == {}
    mode = Mode(with_ww=True, is_read_to_the_end=False)
    assert list(check(entries, mode).anomalies) == ["unseen", "G0"]
    assert check(entries, mode).is_valid


def test_writes_and_reads_in_a_circle_are_allowed_only_with_edges_between_writes() -> None:
    first = op("ok", send(X, A, 0), poll(k1=[(0, C)]), process=0)
    second = op("ok", send(Y, C, 0), send(X, B, -1), name="txn", process=1)
    entries = at_once(first, second)
    assert "G1c" not in found(entries)
    third = op("ok", send(X, D, 1), send(Y, C, 0), name="txn", process=1)
    entries = at_once(first, third)
    mode = Mode(with_ww=True, is_read_to_the_end=False)
    assert "G1c" in check(entries, mode).anomalies
    assert check(entries, mode).is_valid


def test_a_circle_through_the_order_of_a_process_is_found() -> None:
    # Process 0 reads a value before the same process has sent its cause.
    entries = history(
        op("ok", poll(k1=[(0, B)]), process=0),
        op("ok", send(X, A, 0), process=0),
        op("ok", send(Y, B, 0), poll(k0=[(0, A)]), process=1),
    )
    assert "G1c-process" in found(entries)


def test_a_circle_through_real_time_is_found() -> None:
    entries = history(op("ok", poll(k0=[(0, A)]), process=0), op("ok", send(X, A, 0), process=1))
    assert list(found(entries)) == ["G1c-realtime"]
    assert found(at_once(*[one for one in entries if one.type == "ok"])) == {}


# --- Groups ---


def commit(position: int, type_: str = "ok", process: int = 0) -> Op:
    assert type_ in ("ok", "fail", "info")
    return op(type_, Commit({X: position}), name="commit", process=process)  # type: ignore[arg-type]


def committed(position: int | None) -> Op:
    return op("ok", Committed({X: position}), name="committed", process=1)


def test_a_committed_position_must_not_go_back_by_itself() -> None:
    entries = history(commit(3), commit(7), committed(3))
    assert list(found(entries)) == ["impossible-position"]
    assert list(found(history(commit(3), committed(None)))) == ["impossible-position"]
    assert found(history(commit(7), commit(3), committed(3))) == {}
    assert found(history(committed(None), commit(3), commit(7), committed(7))) == {}


def test_a_position_that_nobody_committed_is_impossible() -> None:
    assert list(found(history(committed(5)))) == ["impossible-position"]
    assert list(found(history(commit(5, "fail"), committed(5)))) == ["impossible-position"]


def test_an_unknown_commit_may_happen_late_or_never() -> None:
    assert found(history(commit(3, "info"), commit(7), committed(3))) == {}
    assert found(history(commit(3, "info"), commit(7), committed(7))) == {}


def test_commits_at_once_may_end_in_either_order() -> None:
    entries = [*at_once(commit(3), commit(7, process=2))]
    for position in (3, 7):
        read = history(committed(position))
        assert found(entries + [_later(one, entries[-1]) for one in read]) == {}


def _later(one: Op, last: Op) -> Op:
    index = last.index + 1 + one.index
    return dataclasses.replace(one, index=index, time_ns=last.time_ns + 1 + one.time_ns)


def test_two_transactions_must_not_consume_one_value() -> None:
    taken = op("ok", poll(k0=[(A, A)]), Commit({X: A + 1}), name="txn", process=0)
    again = op("ok", poll(k0=[(A, A)]), Commit({X: A + 1}), name="txn", process=1)
    assert found(history(*SENT, taken, again))["consumed-twice"] == [(A,)]
    failed = op("fail", poll(k0=[(A, A)]), Commit({X: A + 1}), name="txn", process=0)
    assert found(history(*SENT, failed, again)) == {}
    assigned = op("ok", poll(k0=[(A, A)]), name="txn", process=0)
    assert found(history(*SENT, assigned, again)) == {}


def test_a_position_must_not_pass_what_no_member_got() -> None:
    member = op("ok", name="subscribe", keys=[X])
    got = [op("ok", poll(k0=[(value, value)])) for value in (A, C)]
    other = op("ok", poll(k0=[(B, B), (C, C)]), process=5)
    entries = history(*SENT, member, *got, other, commit(D), committed(D))
    mode = Mode(with_subscribe=True, is_read_to_the_end=False)
    assert found(entries, mode)["unconsumed"] == [(B,)]
    failed = op("fail", poll(k0=[(B, B)]), name="txn")
    assert "unconsumed" in found(history(*SENT, member, *got, failed, commit(D), committed(D)))
    rest = op("ok", poll(k0=[(B, B), (C, C)]))
    whole = history(*SENT, member, got[0], rest, commit(D), committed(D))
    assert "unconsumed" not in found(whole, mode)


# --- Histories ---


def test_a_history_is_saved_and_read_again(tmp_path: Path) -> None:
    entries = history(
        op("ok", name="assign", keys=[X, Y], is_from_beginning=True),
        op("info", send(X, A), send(Y, B, 0), poll(k0=[(0, C)], k1=[]), Commit({X: 1})),
        op("ok", Committed({X: 1, Y: None}), name="committed", rebalanced=[X]),
    )
    save(entries, tmp_path / "history.jsonl")
    again = load(tmp_path / "history.jsonl")
    assert [op_to_json(one) for one in again] == [op_to_json(one) for one in entries]
    assert [one.short() for one in again] == [one.short() for one in entries]


def test_what_never_completed_is_unknown() -> None:
    invoked = history(op("ok", send(X, A, 0)))[:1]
    (only,) = completions(invoked)
    assert (only.op.type, only.op.writes()) == ("info", {X: [A]})


def test_a_wrong_history_is_refused() -> None:
    invoke, ok = history(op("ok", send(X, A, 0)))
    with pytest.raises(HistoryError, match="two operations"):
        completions([invoke, invoke])
    with pytest.raises(HistoryError, match="nobody invoked"):
        completions([ok])
    with pytest.raises(HistoryError, match="sent twice"):
        check(history(op("ok", send(X, A, 0)), op("ok", send(X, A, 1))))


def test_a_report_shows_the_operations_behind_an_anomaly() -> None:
    entries = history(op("fail", send(X, A, 0), name="txn"), op("ok", poll(k0=[(0, A)]), process=1))
    text = check(entries).text()
    assert "NOT VALID" in text
    assert "#1 1.000 s process 0 fail txn: send 0: 1@0" in text
    assert "#3 3.000 s process 1 ok poll: poll {0: 1@0}" in text
