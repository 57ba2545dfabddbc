"""A task's judgement of records: whole keys, and rejects without rules."""

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.spark.tables.definition.model import Action, Expectation
from penstock.spark.tables.tasks.judging import Judge
from tests.spark.tables.value_world import ValueWorld, records

FORMATS = ("delta", "iceberg")


@pytest.mark.parametrize("format_", FORMATS)
def test_the_key_of_the_record_may_be_the_key_of_the_table(tmp_path: Path, format_: str) -> None:
    keyed = {"mode": "upsert", "key": ["_kafka_key"], "metadata": "flat"}
    world = ValueWorld(tmp_path, format_, "n int", keyed)
    values = [{"n": 1}, {"n": 2}, {"n": 3}, None, {"n": 4}, None]
    world.commit(values, None, [b"a", b"b", b"a", b"b", None, None])
    assert world.held("_kafka_key", "n") == [(b"a", 3)]
    reasons = world.reasons()
    assert reasons.pop(4) == "column '_kafka_key' of the key has no value"
    assert list(reasons) == [5]


@pytest.mark.parametrize("format_", FORMATS)
def test_values_that_lost_a_column_of_the_key_are_rejects(tmp_path: Path, format_: str) -> None:
    world = ValueWorld(tmp_path, format_, "id bigint, n int", {"mode": "upsert", "key": ["id"]})
    world.commit([{"id": 1, "n": 1}])
    world.ddl = "n int"
    world.commit([{"n": 2}, {"n": 3}])
    assert world.held("id", "n") == [(1, 1)]
    assert world.reasons() == dict.fromkeys((1, 2), "column 'id' of the key has no value")


def test_a_reject_is_asked_no_rule(tmp_path: Path) -> None:
    """As after Spark SQL: see the test of the same name there."""
    world = ValueWorld(tmp_path, "delta", "id bigint, n int", {"mode": "upsert", "key": ["id"]})
    for action in (Action.DROP, Action.FAIL, Action.QUARANTINE):
        rules = (Expectation("rule", "n > 0", action),)
        judge = Judge(replace(world.prepared().plans.task, expectations=rules))
        judged = judge.judge(records([{"n": -1}, {"id": 1, "n": 1}]))
        assert (judged.rows.num_rows, judged.broken, judged.failed) == (1, {"rule": 0}, ())
        [rejects] = judged.rejects
        assert rejects.column("error_class").to_pylist() == ["missing_value"]
