"""Changes that are allowed are in the audit log, with the resource, whichever rule allows them."""

import pytest

from penstock.security.acls.values import CLUSTER_NAME, Operation, ResourceType
from tests.broker.access.fakes import Rule, RuleSet
from tests.broker.access.test_topic_access import (
    NOBODY,
    ask_create,
    ask_delete,
    ask_metadata,
    describe,
    exists,
)
from tests.broker.handlers.asker import Asker, fresh_name

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER


def granted(operation: Operation, kind: ResourceType, name: str) -> Rule:
    return (operation, kind, CLUSTER_NAME if kind is CLUSTER else name)


@pytest.mark.parametrize("kind", [TOPIC, CLUSTER])
def test_a_created_topic_is_recorded(asker: Asker, rules: RuleSet, kind: ResourceType) -> None:
    name, double = fresh_name(), fresh_name()
    rules.only(granted(Operation.CREATE, kind, name))
    ask_create(asker, name, double, double)
    assert rules.changes == [(Operation.CREATE, TOPIC, name)]


@pytest.mark.parametrize("kind", [TOPIC, CLUSTER])
def test_a_topic_created_by_metadata_is_recorded(
    asker: Asker, rules: RuleSet, kind: ResourceType
) -> None:
    name = fresh_name()
    rules.only(describe(name), granted(Operation.CREATE, kind, name))
    for _ in range(2):
        ask_metadata(asker, name, creates=True)
        assert rules.changes == [(Operation.CREATE, TOPIC, name)]
    assert exists(asker, rules, name)


@pytest.mark.parametrize("kind", [TOPIC, CLUSTER])
def test_a_topic_that_is_only_looked_at_is_not_recorded(
    asker: Asker, rules: RuleSet, kind: ResourceType
) -> None:
    name = fresh_name()
    rules.only(describe(name), granted(Operation.CREATE, kind, name))
    ask_metadata(asker, name, creates=False)
    assert rules.changes == []


@pytest.mark.parametrize("kind", [TOPIC, CLUSTER])
def test_a_deleted_topic_is_recorded(asker: Asker, rules: RuleSet, kind: ResourceType) -> None:
    name, by_id = fresh_name(), fresh_name()
    asker.create(name)
    topic_id = asker.create(by_id)
    rules.only(*(granted(Operation.DELETE, kind, one) for one in (name, by_id)))
    ask_delete(asker, name, topic_id, "nothing", NOBODY)
    expected = [(Operation.DELETE, TOPIC, by_id)]
    if kind is CLUSTER:
        expected.insert(0, (Operation.DELETE, TOPIC, name))
    assert rules.changes == expected
