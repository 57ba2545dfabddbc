"""The verdicts about Kafka's verifiable clients; none of them is run here."""

from compat.bounces.tools import Event
from compat.bounces.verdicts import (
    Verdict,
    acknowledged,
    assignments,
    consumed,
    failures,
    held,
    is_shared,
    judge_copy,
    judge_group,
)

SENT: list[Event] = [
    {"name": "startup_complete"},
    {"name": "producer_send_success", "partition": 0, "offset": 0, "value": "0"},
    {"name": "producer_send_success", "partition": 1, "offset": 0, "value": "1"},
    {"name": "producer_send_error", "value": "2"},
]
FIRST: list[Event] = [
    {"name": "partitions_assigned", "partitions": []},
    {"name": "record_data", "partition": 0, "offset": 0, "value": "0"},
]
SECOND: list[Event] = [{"name": "record_data", "partition": 1, "offset": 0, "value": "1"}]


def test_documents_of_the_clients_are_read() -> None:
    assert acknowledged(SENT) == {(0, 0): "0", (1, 0): "1"}
    assert failures(SENT) == 1
    assert dict(consumed(FIRST)) == {((0, 0), "0"): 1}
    assert (assignments(FIRST), assignments(SECOND)) == (1, 0)


def test_each_record_once_is_right() -> None:
    verdict = judge_group(SENT, [FIRST, SECOND])
    assert (verdict.records, verdict.lost, verdict.doubled) == (2, 0, 0)
    assert verdict.is_right
    assert str(verdict) == "2 records, 0 lost, 0 doubled, 1 given up by the producer"


def test_a_record_that_no_consumer_got_is_lost() -> None:
    verdict = judge_group(SENT, [FIRST])
    assert (verdict.lost, verdict.doubled) == (1, 0)
    assert not verdict.is_right


def test_another_value_at_the_place_of_a_record_is_a_loss() -> None:
    other: list[Event] = [{"name": "record_data", "partition": 1, "offset": 0, "value": "7"}]
    assert judge_group(SENT, [FIRST, other]).lost == 1


def test_a_record_that_the_group_got_twice_is_doubled() -> None:
    assert judge_group(SENT, [FIRST, SECOND, SECOND]).doubled == 1


def test_a_value_at_two_places_is_doubled() -> None:
    again: list[Event] = [{"name": "record_data", "partition": 1, "offset": 1, "value": "1"}]
    assert judge_group(SENT, [FIRST, SECOND, again]).doubled == 1


def test_nothing_at_all_is_not_right() -> None:
    assert not judge_group([], []).is_right


def test_a_copy_has_each_committed_record_once() -> None:
    assert judge_copy(["a", "b"], ["b", "a"]) == Verdict(2, 0, 0)
    assert judge_copy(["a", "b"], ["a"]) == Verdict(2, 1, 0)
    assert judge_copy(["a", "b"], ["a", "b", "b"]) == Verdict(2, 0, 1)


def taken(name: str, *numbers: int) -> Event:
    return {"name": name, "partitions": [{"topic": "t", "partition": one} for one in numbers]}


def test_partitions_of_a_consumer_are_those_it_was_given_and_not_those_it_gave_back() -> None:
    events = [taken("partitions_assigned", 0, 1), taken("partitions_revoked", 1)]
    assert held(events) == {0}
    assert held([*events, taken("partitions_assigned", 2)]) == {0, 2}


def test_partitions_are_shared_when_each_is_with_one_consumer() -> None:
    one, other = [taken("partitions_assigned", 0)], [taken("partitions_assigned", 1, 2)]
    assert is_shared([one, other], 3)
    assert not is_shared([one, other], 4)
    assert not is_shared([[*one, *other], []], 3)
    assert not is_shared([[*one, *other], other], 3)


def test_a_rebalance_by_a_clean_restart_is_not_right() -> None:
    assert not Verdict(1, 0, 0, rebalances=1).is_right
