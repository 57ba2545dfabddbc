"""Declared topics: the changes of a plan; it never deletes anything, and one plan is enough."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.configs.setting_changes import EditKind
from penstock.cluster.declared_topics import (
    ExistingTopic,
    TopicsPlan,
    check_declaration,
    plan_lines,
    plan_topics,
)
from penstock.cluster.topic_rules import DEFAULT
from penstock.cluster.values import SetByFile
from penstock.core.settings.topic_declarations import TopicDeclaration

ONE, TWO = UUID(int=1), UUID(int=2)


def existing(partitions: int = 3, **settings: str) -> dict[str, ExistingTopic]:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return {"a": ExistingTopic(ONE, partitions, named)}


def declared(partitions: int | None = None, **settings: str) -> list[TopicDeclaration]:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return [TopicDeclaration("a", partitions, named, "p.toml line 1")]


def test_a_missing_topic_is_created() -> None:
    plan = plan_topics(declared(4, retention_ms="5"), {}, {})
    (creation,) = plan.creations
    assert (creation.name, creation.partition_count) == ("a", 4)
    assert creation.settings == {"retention.ms": "5"}
    assert plan_topics(declared(), {}, {}).creations[0].partition_count == DEFAULT
    assert list(plan_lines(plan)) == ["create topic a with 4 partitions, retention.ms=5"]


def test_partitions_grow() -> None:
    plan = plan_topics(declared(5), existing(3), {})
    assert [(one.name, one.count) for one in plan.growths] == [("a", 5)]
    assert list(plan_lines(plan)) == ["grow topic a to 5 partitions"]


def test_fewer_partitions_are_a_problem_and_nothing_else_waits() -> None:
    plan = plan_topics(declared(2, retention_ms="5"), existing(3), {})
    assert not plan.growths
    (problem,) = plan.problems
    assert "has 3 partitions and 2 are declared" in problem
    assert [change.name for change in plan.changes] == ["a"]


def test_a_setting_is_set_only_when_it_differs() -> None:
    assert plan_topics(declared(retention_ms="5"), existing(retention_ms="5"), {}).is_empty
    (change,) = plan_topics(declared(retention_ms="5"), existing(), {}).changes
    assert [(edit.name, edit.kind, edit.value) for edit in change.edits] == [
        ("retention.ms", EditKind.SET, "5")
    ]
    assert not change.replaces_all


def test_what_the_file_set_and_declares_no_more_is_taken_back() -> None:
    before = {"a": SetByFile(ONE, {"retention.ms": "5"})}
    plan = plan_topics(declared(), existing(retention_ms="5", segment_ms="9"), before)
    assert list(plan_lines(plan)) == [
        "topic a: take back retention.ms, which is no longer declared"
    ]


@pytest.mark.parametrize(
    "before",
    [
        {},
        {"a": SetByFile(ONE, {"retention.ms": "6"})},
        {"a": SetByFile(TWO, {"retention.ms": "5"})},
        {"b": SetByFile(ONE, {"retention.ms": "5"})},
    ],
    ids=["never set", "changed by somebody since", "another topic of the name", "another topic"],
)
def test_what_somebody_else_set_stays(before: dict[str, SetByFile]) -> None:
    assert plan_topics(declared(), existing(retention_ms="5"), before).is_empty


def test_a_topic_that_is_no_longer_declared_is_left_alone() -> None:
    before = {"a": SetByFile(ONE, {"retention.ms": "5"})}
    assert plan_topics([], existing(retention_ms="5"), before) == TopicsPlan()


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("a b", {}, "contains one or more characters"),
        ("__cluster_metadata", {}, "prohibited"),
        ("__consumer_offsets", {}, "the broker's own topic"),
        ("a", {"retention.mss": "5"}, "Unknown topic config name: retention.mss"),
        ("a", {"retention.ms": "soon"}, "Invalid value soon"),
        ("a", {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "5"}, "conflict"),
    ],
)
def test_kafkas_rules_are_asked(name: str, settings: dict[str, str], words: str) -> None:
    (problem,) = check_declaration(TopicDeclaration(name, 1, settings))
    assert words in problem


def test_a_right_declaration_has_no_problem() -> None:
    right = TopicDeclaration("a", 1, {"retention.ms": "5", "cleanup.policy": "compact"})
    assert list(check_declaration(right)) == []


# --- Properties, over a cluster that applies a plan ---

NAMES = st.sampled_from(["a", "b", "c"])
SETTINGS = st.dictionaries(st.sampled_from(["x", "y", "z"]), st.sampled_from("12"), max_size=3)
DECLARATIONS = st.lists(
    st.builds(TopicDeclaration, NAMES, st.none() | st.integers(1, 5), SETTINGS),
    unique_by=lambda one: one.name,
)
TOPICS = st.dictionaries(
    NAMES, st.builds(ExistingTopic, st.sampled_from([ONE, TWO]), st.integers(1, 5), SETTINGS)
)
MEMORY = st.dictionaries(NAMES, st.builds(SetByFile, st.sampled_from([ONE, TWO]), SETTINGS))


def carried_out(plan: TopicsPlan, topics: dict[str, ExistingTopic]) -> dict[str, ExistingTopic]:
    after = dict(topics)
    for creation in plan.creations:
        assert creation.name not in after
        settings = {name: value for name, value in creation.settings.items() if value is not None}
        after[creation.name] = ExistingTopic(TWO, max(1, creation.partition_count), settings)
    for growth in plan.growths:
        after[growth.name] = after[growth.name]._replace(partition_count=growth.count)
    for change in plan.changes:
        settings = dict(after[change.name].settings)
        for edit in change.edits:
            if edit.kind is EditKind.SET:
                settings[edit.name] = edit.value
            else:
                del settings[edit.name]
        after[change.name] = after[change.name]._replace(settings=settings)
    return after


def remembered(
    wanted: list[TopicDeclaration], topics: dict[str, ExistingTopic]
) -> dict[str, SetByFile]:
    return {one.name: SetByFile(topics[one.name].id, one.settings) for one in wanted}


@given(DECLARATIONS, TOPICS, MEMORY)
def test_reconciling_is_idempotent(
    wanted: list[TopicDeclaration],
    topics: dict[str, ExistingTopic],
    memory: dict[str, SetByFile],
) -> None:
    plan = plan_topics(wanted, topics, memory)
    after = carried_out(plan, topics)
    again = plan_topics(wanted, after, remembered(wanted, after))
    assert again.is_empty
    assert again.problems == plan.problems


@given(DECLARATIONS, TOPICS, MEMORY)
def test_nothing_shrinks_and_nothing_goes(
    wanted: list[TopicDeclaration],
    topics: dict[str, ExistingTopic],
    memory: dict[str, SetByFile],
) -> None:
    after = carried_out(plan_topics(wanted, topics, memory), topics)
    by_name = {one.name: one for one in wanted}
    assert after.keys() == topics.keys() | by_name.keys()
    for name, topic in topics.items():
        assert after[name].id == topic.id
        assert after[name].partition_count >= topic.partition_count
        mine = memory[name].settings if name in memory else {}
        lost = topic.settings.keys() - after[name].settings.keys()
        assert all(mine.get(one) == topic.settings[one] for one in lost)
        assert not lost or name in by_name


@given(DECLARATIONS, TOPICS, MEMORY)
def test_what_is_declared_is_so_or_told(
    wanted: list[TopicDeclaration],
    topics: dict[str, ExistingTopic],
    memory: dict[str, SetByFile],
) -> None:
    plan = plan_topics(wanted, topics, memory)
    after = carried_out(plan, topics)
    too_many = 0
    for one in wanted:
        assert one.settings.items() <= after[one.name].settings.items()
        if one.partitions is not None and after[one.name].partition_count != one.partitions:
            assert after[one.name].partition_count > one.partitions
            too_many += 1
    assert len(plan.problems) == too_many
