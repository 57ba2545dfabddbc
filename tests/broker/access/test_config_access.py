"""Permissions for settings: on the topic, on the group, and for all others on the cluster.

Outcomes are those of Apache Kafka 4.3.1 with the same rules as ACLs; Kafka leaves the message of
a denied logger out.
"""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import describe_configs, incremental_alter_configs
from penstock.security.acls.values import CLUSTER_NAME, Operation, ResourceType
from tests.broker.access.fakes import Rule, RuleSet
from tests.broker.handlers import configs
from tests.broker.handlers.asker import Asker, fresh_name
from tests.broker.handlers.configs import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    SET,
    TOPIC,
)

NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
INVALID = ErrorCode.INVALID_REQUEST
NODE = "1"
MESSAGES = {
    NO_TOPIC: "Topic authorization failed.",
    NO_GROUP: "Group authorization failed.",
    NO_CLUSTER: "Cluster authorization failed.",
}
RESOURCES = [
    (TOPIC, "orders", NO_TOPIC),
    (TOPIC, "b@d", NO_TOPIC),
    (GROUP, "readers", NO_GROUP),
    (GROUP, "", NO_GROUP),
    (BROKER, "", NO_CLUSTER),
    (BROKER, NODE, NO_CLUSTER),
    (BROKER_LOGGER, NODE, NO_CLUSTER),
    (CLIENT_METRICS, "metrics", NO_CLUSTER),
    (CLIENT_METRICS, "", NO_CLUSTER),
]
KEYS = {TOPIC: "retention.ms", GROUP: "consumer.session.timeout.ms", BROKER: "log.retention.ms"}


def rule_for(kind: int, name: str, operation: Operation) -> Rule:
    if kind == TOPIC:
        return (operation, ResourceType.TOPIC, name)
    if kind == GROUP:
        return (operation, ResourceType.GROUP, name)
    return (operation, ResourceType.CLUSTER, CLUSTER_NAME)


def describe(asker: Asker, kind: int, name: str) -> describe_configs.DescribeConfigsResult:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = describe_configs.DescribeConfigsRequest(resources=(resource,))
    (result,) = asker.ask(request, 4, describe_configs.DescribeConfigsResponse).results
    return result


@pytest.mark.parametrize(("kind", "name", "code"), RESOURCES)
def test_describing_needs_describe_configs(
    asker: Asker, rules: RuleSet, kind: int, name: str, code: ErrorCode
) -> None:
    rule = rule_for(kind, name, Operation.DESCRIBE_CONFIGS)
    rules.all_but(rule)
    denied = describe(asker, kind, name)
    assert (denied.error_code, denied.error_message) == (code, MESSAGES[code])
    assert denied.configs == ()
    assert rules.denials == [rule]
    rules.only(rule)
    assert describe(asker, kind, name).error_code not in MESSAGES


def test_a_missing_topic_is_shown_to_clients_with_permission_only(
    asker: Asker, rules: RuleSet
) -> None:
    rule: Rule = (Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "nothing")
    rules.only()
    assert describe(asker, TOPIC, "nothing").error_code == NO_TOPIC
    rules.only(rule)
    assert describe(asker, TOPIC, "nothing").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("kind", [0, 3, 77])
def test_an_unknown_type_needs_no_permission_to_be_refused(
    asker: Asker, rules: RuleSet, kind: int
) -> None:
    rules.only()
    assert describe(asker, kind, "x").error_code == INVALID
    assert configs.increment(asker, kind, "x").error_code == INVALID
    assert configs.alter(asker, kind, "x").error_code == INVALID
    assert rules.denials == []


@pytest.mark.parametrize(
    ("kind", "name", "code", "is_incremental"),
    [
        (*resource, is_incremental)
        for resource in RESOURCES
        for is_incremental in (False, True)
        # AlterConfigs does not know loggers.
        if is_incremental or resource[0] != BROKER_LOGGER
    ],
)
def test_altering_needs_alter_configs(
    asker: Asker, rules: RuleSet, kind: int, name: str, code: ErrorCode, is_incremental: bool
) -> None:
    key = KEYS.get(kind, "some.key")

    def change() -> tuple[ErrorCode, str | None]:
        if is_incremental:
            found = configs.increment(asker, kind, name, (key, DELETE, None), validate_only=True)
            return found.error_code, found.error_message
        altered = configs.alter(asker, kind, name, validate_only=True)
        return altered.error_code, altered.error_message

    rule = rule_for(kind, name, Operation.ALTER_CONFIGS)
    rules.all_but(rule)
    assert change() == (code, MESSAGES[code])
    assert rules.denials == [rule]
    rules.only(rule)
    assert change()[0] not in MESSAGES
    assert rules.denials == []


@pytest.mark.parametrize("is_incremental", [False, True])
def test_a_denied_change_changes_nothing(
    asker: Asker, rules: RuleSet, is_incremental: bool
) -> None:
    allowed, denied = fresh_name(), fresh_name()
    asker.create(allowed)
    asker.create(denied)
    rules.only((Operation.ALTER_CONFIGS, ResourceType.TOPIC, allowed))
    if is_incremental:
        edits = (("retention.ms", SET, "77"),)
        request = configs.increment_request((TOPIC, allowed, edits), (TOPIC, denied, edits))
        answer = asker.ask(request, 1, incremental_alter_configs.IncrementalAlterConfigsResponse)
        codes = {found.resource_name: found.error_code for found in answer.responses}
    else:
        setting = ("retention.ms", "77")
        codes = {
            name: configs.alter(asker, TOPIC, name, setting).error_code
            for name in (allowed, denied)
        }
    assert codes == {allowed: ErrorCode.NONE, denied: NO_TOPIC}
    rules.all_but()
    values = {
        name: {one.name: one.value for one in describe(asker, TOPIC, name).configs}
        for name in (allowed, denied)
    }
    assert values[allowed]["retention.ms"] == "77"
    assert values[denied]["retention.ms"] != "77"


def test_what_is_refused_before_the_permission(asker: Asker, rules: RuleSet) -> None:
    """The form of the request; for brokers also their id and the kind of the operation."""
    rules.only()
    twice = (("retention.ms", SET, "1"), ("retention.ms", SET, "1"))
    assert configs.increment(asker, TOPIC, "orders", *twice).error_code == INVALID
    empty = ("retention.ms", SET, None)
    assert configs.increment(asker, TOPIC, "orders", empty).error_code == INVALID
    good = ("log.retention.ms", SET, "1")
    assert configs.increment(asker, BROKER, "77", good).error_code == INVALID
    unknown_operation = ("log.retention.ms", 9, "1")
    assert configs.increment(asker, BROKER, "", unknown_operation).error_code == INVALID
    edits = (good,)
    request = configs.increment_request((BROKER, "", edits), (BROKER, "", edits))
    answer = asker.ask(request, 1, incremental_alter_configs.IncrementalAlterConfigsResponse)
    assert {found.error_code for found in answer.responses} == {INVALID}
    assert rules.denials == []


def test_what_is_refused_after_the_permission(asker: Asker, rules: RuleSet) -> None:
    rules.only()
    assert configs.increment(asker, TOPIC, "nothing", ("retention.ms", SET, "1")).error_code == (
        NO_TOPIC
    )
    assert configs.increment(asker, TOPIC, "nothing", ("bad.key", SET, "1")).error_code == NO_TOPIC
    assert configs.increment(asker, TOPIC, "nothing", ("retention.ms", 9, "1")).error_code == (
        NO_TOPIC
    )
    assert configs.increment(asker, BROKER, "", ("bad.key", SET, "1")).error_code == NO_CLUSTER
    assert configs.increment(asker, BROKER_LOGGER, "77", ("x", SET, "1")).error_code == NO_CLUSTER
