"""Findings of `penstock doctor` about access rules, one by one and by the authorizer as a model."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.security.acls.authorizer import AclAuthorizer, RuleOrigin
from penstock.security.acls.findings import FindingKind, rule_findings
from penstock.security.acls.values import (
    CLUSTER_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.security.principal import user
from tests.security.acls.rule_model import random_rule

RULE = AclBinding(
    ResourceType.TOPIC,
    "orders",
    PatternType.LITERAL,
    "User:alice",
    "*",
    Operation.ALL,
    Permission.ALLOW,
)
DENY = RULE._replace(permission=Permission.DENY)
PREFIXED = PatternType.PREFIXED


def kinds(*rules: AclBinding) -> list[tuple[FindingKind, AclBinding]]:
    return [(found.kind, found.rule) for found in rule_findings(rules, {})]


def is_void(rule: AclBinding, *denials: AclBinding) -> bool:
    return kinds(rule, *denials) == [(FindingKind.VOID_ALLOW, rule)]


def test_good_rules_have_no_finding() -> None:
    assert kinds(RULE, RULE._replace(host="10.0.0.1"), RULE._replace(name="*")) == []
    assert kinds() == []


def test_a_permission_on_the_cluster_for_every_user() -> None:
    cluster = RULE._replace(resource_type=ResourceType.CLUSTER, name=CLUSTER_NAME)
    everyone = cluster._replace(principal="User:*", operation=Operation.DESCRIBE)
    denied = everyone._replace(permission=Permission.DENY, operation=Operation.ALTER)
    assert kinds(cluster, everyone, denied) == [(FindingKind.CLUSTER_FOR_EVERYONE, everyone)]
    (found,) = rule_findings([everyone], {})
    assert found.text == (
        "Every user has a permission on the whole cluster. Name the users that need it instead of"
        " User:*. The rule: allow Describe on Cluster:kafka-cluster for User:* from any host."
    )


@pytest.mark.parametrize(
    "denial",
    [
        DENY,
        DENY._replace(name="*"),
        DENY._replace(name="ord", pattern_type=PREFIXED),
        DENY._replace(name="orders", pattern_type=PREFIXED),
        DENY._replace(principal="User:*"),
    ],
)
def test_an_allow_that_a_wider_deny_takes_is_void(denial: AclBinding) -> None:
    assert is_void(RULE, denial)


@pytest.mark.parametrize(
    "denial",
    [
        DENY._replace(name="orders-1"),
        DENY._replace(name="orders-", pattern_type=PREFIXED),
        DENY._replace(principal="User:bob"),
        DENY._replace(host="10.0.0.1"),
        DENY._replace(operation=Operation.READ),
        DENY._replace(resource_type=ResourceType.GROUP),
    ],
)
def test_an_allow_that_a_deny_takes_in_part_is_not_void(denial: AclBinding) -> None:
    assert kinds(RULE, denial) == []


def test_patterns_of_void_rules() -> None:
    prefix = RULE._replace(name="ord", pattern_type=PREFIXED)
    assert not is_void(prefix, DENY._replace(name="ord"))
    assert is_void(prefix, DENY._replace(name="or", pattern_type=PREFIXED))
    assert is_void(prefix, DENY._replace(name="*"))
    star = RULE._replace(name="*")
    assert is_void(star, DENY._replace(name="*"))
    assert not is_void(star, DENY._replace(name="*", pattern_type=PREFIXED))
    star_prefix = star._replace(pattern_type=PREFIXED)
    assert is_void(star_prefix, DENY._replace(name="*"))
    assert is_void(star_prefix, DENY._replace(name="*", pattern_type=PREFIXED))


def test_void_counts_the_implied_operations_and_several_denials() -> None:
    read = RULE._replace(operation=Operation.READ)
    no_read = DENY._replace(operation=Operation.READ)
    no_describe = DENY._replace(operation=Operation.DESCRIBE, name="*")
    assert not is_void(read, no_read)
    assert not is_void(read, no_describe)
    assert is_void(read, no_read, no_describe)


@pytest.mark.parametrize(
    "changes",
    [{"host": "localhost"}, {"host": "::1"}, {"host": "10.0.0.0/8"}, {"principal": "Group:a"}],
)
def test_a_rule_that_no_client_matches(changes: dict[str, str]) -> None:
    rule = AclBinding(**{**DENY._asdict(), **changes})
    assert kinds(rule) == [(FindingKind.NO_CLIENT, rule)]


@pytest.mark.parametrize(
    ("name", "pattern_type", "is_found"),
    [
        ("orders", PatternType.LITERAL, False),
        ("order", PatternType.LITERAL, True),
        ("zebra", PatternType.LITERAL, True),
        ("*", PatternType.LITERAL, False),
        ("ord", PREFIXED, False),
        ("orders", PREFIXED, False),
        ("ordz", PREFIXED, True),
        ("z", PREFIXED, True),
        ("*", PREFIXED, True),
    ],
)
def test_a_rule_for_a_name_that_does_not_exist(
    name: str, pattern_type: PatternType, is_found: bool
) -> None:
    rule = RULE._replace(name=name, pattern_type=pattern_type)
    existing = {ResourceType.TOPIC: ["payments", "orders", "orders-1"]}
    found = rule_findings([rule], existing)
    assert [one.kind for one in found] == ([FindingKind.NO_RESOURCE] if is_found else [])


def test_types_without_names_are_not_compared() -> None:
    rule = RULE._replace(resource_type=ResourceType.GROUP)
    assert rule_findings([rule], {ResourceType.TOPIC: []}) == ()
    assert len(rule_findings([RULE], {ResourceType.TOPIC: []})) == 1


def test_a_name_cannot_forge_a_line() -> None:
    (found,) = rule_findings([RULE._replace(name="a\nb\x1b[2J")], {ResourceType.TOPIC: []})
    assert found.text.isprintable()


@given(st.integers(0, 2**32 - 1))
def test_a_void_rule_never_decides_and_any_other_does_somewhere(seed: int) -> None:
    """For an ALLOW alone with DENY rules: void means that no client may do anything."""
    chance = random.Random(seed)
    denials = {random_rule(chance)._replace(permission=Permission.DENY) for _ in range(6)}
    grant = random_rule(chance)._replace(
        permission=Permission.ALLOW,
        principal=chance.choice(["User:u", "User:*"]),
        host=chance.choice(["*", "10.0.0.1"]),
    )
    rules = [grant, *denials]
    found = {one.kind for one in rule_findings(rules, {}) if one.rule == grant}
    tested = AclAuthorizer()
    tested.replace(RuleOrigin.API, rules)
    # Names, users and addresses that no DENY has by itself, as well as the ones of the rule.
    names = {grant.name}
    if grant.pattern_type == PatternType.PREFIXED or grant.name == "*":
        names.add(f"{'' if grant.name == '*' else grant.name}\0other")
    if grant.pattern_type == PatternType.PREFIXED and grant.name == "*":
        names = {"*\0other"}
    if grant.pattern_type == PatternType.LITERAL and grant.name == "*":
        names = {"\0other"}
    users = ["u"] if grant.principal == "User:u" else ["other"]
    address = "10.0.0.1" if grant.host == "10.0.0.1" else "10.9.9.9"
    may = any(
        tested.allows(user(one), address, operation, grant.resource_type, name)
        for one in users
        for operation in Operation
        for name in names
    )
    assert may == (FindingKind.VOID_ALLOW not in found), rules
