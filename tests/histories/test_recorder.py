"""Plans, and the offsets that the final phase must reach."""

from tests.checker.writing import history, op, poll, send
from tests.histories.plan import Plan, key_of, partition_of, plan_from_json
from tests.histories.recorder import highest_offsets


def test_a_plan_is_read_as_it_was_written() -> None:
    plan = Plan(seed=7, via="subscribe", libraries=("aiokafka",), faults=("zombie",))
    assert plan_from_json(plan.to_json()) == plan


def test_every_key_is_a_partition_of_its_own() -> None:
    keys = Plan(topics=3).keys
    places = [partition_of(key) for key in keys]
    assert len(set(places)) == len(keys)
    assert [key_of(*place) for place in places] == list(keys)


def test_the_end_is_what_was_polled_or_certainly_sent() -> None:
    entries = history(
        op("ok", send(0, 1, 4)),
        op("fail", send(0, 2, 9)),
        op("info", send(1, 3, 9)),
        op("fail", poll(k1=[(2, 5), (3, 6)])),
    )
    assert highest_offsets(entries) == {0: 4, 1: 3}
