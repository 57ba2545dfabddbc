"""Filters of access rules and checks of new ones; tests/interop compares both with Kafka's own."""

import pytest

from penstock.security.acls.filters import (
    CHANGED_RULES_MAX,
    TOO_MANY_DELETED,
    AclFilter,
    applies_to,
    creation_problem,
    filter_problem,
    read_binding,
    read_filter,
)
from penstock.security.acls.values import (
    CLUSTER_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

RULE = AclBinding(
    ResourceType.TOPIC,
    "orders",
    PatternType.LITERAL,
    "User:alice",
    "10.0.0.1",
    Operation.READ,
    Permission.ALLOW,
)
STAR = RULE._replace(name="*")
PREFIX = RULE._replace(name="ord", pattern_type=PatternType.PREFIXED)
LONGER = RULE._replace(name="orders-1")
NO_COLON = (
    "Could not parse principal from `alice` (no colon is present separating the principal type"
    " from the principal name)"
)
RULES = (RULE, STAR, PREFIX, LONGER)


def test_an_open_filter_matches_every_rule() -> None:
    assert all(AclFilter().matches(rule) for rule in RULES)


def test_the_filter_of_a_rule_matches_that_rule_alone() -> None:
    for rule in RULES:
        assert [other for other in RULES if AclFilter(*rule).matches(other)] == [rule]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("resource_type", ResourceType.GROUP),
        ("resource_type", ResourceType.UNKNOWN),
        ("name", "order"),
        ("name", ""),
        ("pattern_type", PatternType.PREFIXED),
        ("pattern_type", PatternType.UNKNOWN),
        ("principal", "User:bob"),
        ("principal", "User:*"),
        ("host", "*"),
        ("operation", Operation.ALL),
        ("operation", Operation.DESCRIBE),
        ("operation", Operation.UNKNOWN),
        ("permission", Permission.DENY),
        ("permission", Permission.UNKNOWN),
    ],
)
def test_one_other_field_is_no_match(field: str, value: object) -> None:
    assert AclFilter(*RULE).matches(RULE)
    assert not AclFilter(**{**RULE._asdict(), field: value}).matches(RULE)


@pytest.mark.parametrize(
    ("pattern_type", "name", "expected"),
    [
        (PatternType.ANY, "orders", {RULE}),
        (PatternType.ANY, "*", {STAR}),
        (PatternType.ANY, "ord", {PREFIX}),
        (PatternType.ANY, None, set(RULES)),
        (PatternType.LITERAL, "orders", {RULE}),
        (PatternType.LITERAL, "*", {STAR}),
        (PatternType.LITERAL, None, {RULE, STAR, LONGER}),
        (PatternType.PREFIXED, "ord", {PREFIX}),
        (PatternType.PREFIXED, "orders", set()),
        (PatternType.PREFIXED, None, {PREFIX}),
        (PatternType.MATCH, "orders", {RULE, STAR, PREFIX}),
        (PatternType.MATCH, "orders-1", {STAR, PREFIX, LONGER}),
        (PatternType.MATCH, "payments", {STAR}),
        (PatternType.MATCH, "*", {STAR}),
        (PatternType.MATCH, None, set(RULES)),
    ],
)
def test_pattern_types_of_filters(
    pattern_type: PatternType, name: str | None, expected: set[AclBinding]
) -> None:
    condition = AclFilter(ResourceType.TOPIC, name, pattern_type)
    assert {rule for rule in RULES if condition.matches(rule)} == expected


def test_match_is_the_rules_that_apply_to_a_resource() -> None:
    for name in ("orders", "ord", "or", "*", ""):
        condition = AclFilter(name=name, pattern_type=PatternType.MATCH)
        assert [condition.matches(rule) for rule in RULES] == [
            applies_to(rule, name) for rule in RULES
        ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),
        ({"name": "*"}, None),
        ({"principal": "User:"}, None),
        ({"host": "anything"}, None),
        ({"operation": Operation.ALL}, None),
        ({"name": ""}, "Invalid empty resource name"),
        ({"resource_type": ResourceType.CLUSTER, "name": CLUSTER_NAME}, None),
        (
            {"resource_type": ResourceType.CLUSTER, "name": "*"},
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        ({"resource_type": ResourceType.ANY}, "Invalid resourceType ANY"),
        ({"resource_type": ResourceType.UNKNOWN}, "Invalid resourceType UNKNOWN"),
        ({"pattern_type": PatternType.MATCH}, "Invalid patternType MATCH"),
        ({"pattern_type": PatternType.ANY}, "Invalid patternType ANY"),
        ({"pattern_type": PatternType.UNKNOWN}, "Invalid patternType UNKNOWN"),
        ({"operation": Operation.ANY}, "Invalid operation ANY"),
        ({"operation": Operation.UNKNOWN}, "Invalid operation UNKNOWN"),
        ({"permission": Permission.ANY}, "Invalid permissionType ANY"),
        ({"permission": Permission.UNKNOWN}, "Invalid permissionType UNKNOWN"),
        (
            {"principal": "alice"},
            NO_COLON,
        ),
    ],
)
def test_problems_of_new_rules(changes: dict[str, object], message: str | None) -> None:
    assert creation_problem(AclBinding(**{**RULE._asdict(), **changes})) == message


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (AclFilter(), None),
        (AclFilter(pattern_type=PatternType.MATCH), None),
        (AclFilter(resource_type=ResourceType.UNKNOWN), "Unknown patternFilter."),
        (AclFilter(pattern_type=PatternType.UNKNOWN), "Unknown patternFilter."),
        (AclFilter(operation=Operation.UNKNOWN), "Unknown entryFilter."),
        (AclFilter(permission=Permission.UNKNOWN), "Unknown entryFilter."),
    ],
)
def test_problems_of_filters(condition: AclFilter, message: str | None) -> None:
    assert filter_problem(condition) == message


def test_numbers_of_a_request_become_values_and_unknown_ones_unknown() -> None:
    assert (
        read_binding(
            resource_type=2,
            name="orders",
            pattern_type=3,
            principal="User:alice",
            host="10.0.0.1",
            operation=3,
            permission=3,
        )
        == RULE
    )
    for number in (-1, 99, 127):
        found = read_filter(
            resource_type=number,
            name=None,
            pattern_type=number,
            principal=None,
            host=None,
            operation=number,
            permission=number,
        )
        assert found == AclFilter(
            ResourceType.UNKNOWN,
            None,
            PatternType.UNKNOWN,
            None,
            None,
            Operation.UNKNOWN,
            Permission.UNKNOWN,
        )


def test_the_bound_of_a_request_is_that_of_kafka() -> None:
    assert CHANGED_RULES_MAX == 10_000
    assert TOO_MANY_DELETED == "Cannot remove more than 10000 acls in a single delete operation."
