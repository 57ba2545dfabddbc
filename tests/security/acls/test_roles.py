"""The permissions of each role, asked from the authorizer."""

import pytest

from penstock.security.acls.authorizer import AclAuthorizer, RuleOrigin
from penstock.security.acls.filters import creation_problem
from penstock.security.acls.roles import Role, role_rules
from penstock.security.acls.values import (
    CLUSTER_NAME,
    Operation,
    Permission,
    ResourceType,
)
from penstock.security.principal import user

TYPES = [one for one in ResourceType if one > ResourceType.ANY]
T, G, C, X = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)


def granted(role: Role) -> set[tuple[ResourceType, Operation]]:
    """The pairs that the role allows on some name, which are the same for each name."""
    rules = AclAuthorizer()
    rules.replace(RuleOrigin.API, role_rules(role, "User:alice"))
    found = set()
    for resource_type in TYPES:
        for operation in Operation:
            name = CLUSTER_NAME if resource_type == C else "orders"
            question = (operation, resource_type, name)
            assert not rules.allows(user("bob"), "10.0.0.1", *question)
            if rules.allows(user("alice"), "10.0.0.1", *question):
                found.add((resource_type, operation))
    return found


@pytest.mark.parametrize("role", list(Role))
def test_rules_of_a_role_can_be_created_and_are_for_one_principal(role: Role) -> None:
    rules = role_rules(role, "User:alice", "10.0.0.1")
    assert len(set(rules)) == len(rules)
    for rule in rules:
        assert creation_problem(rule) is None
        assert (rule.principal, rule.host) == ("User:alice", "10.0.0.1")
        assert rule.permission == Permission.ALLOW


def test_each_role_has_the_permissions_of_the_one_before() -> None:
    assert granted(Role.VIEWER) < granted(Role.OPERATOR) < granted(Role.ADMIN)


def test_a_viewer_describes_and_nothing_else() -> None:
    assert granted(Role.VIEWER) == {
        (T, Operation.DESCRIBE),
        (T, Operation.DESCRIBE_CONFIGS),
        (G, Operation.DESCRIBE),
        (G, Operation.DESCRIBE_CONFIGS),
        (C, Operation.DESCRIBE),
        (C, Operation.DESCRIBE_CONFIGS),
        (X, Operation.DESCRIBE),
    }


def test_an_operator_neither_has_the_data_nor_can_become_an_admin() -> None:
    pairs = granted(Role.OPERATOR)
    assert {
        (T, Operation.CREATE),
        (T, Operation.DELETE),
        (T, Operation.ALTER),
        (T, Operation.ALTER_CONFIGS),
        (G, Operation.DELETE),
        (C, Operation.ALTER_CONFIGS),
    } <= pairs
    assert (
        not {
            (T, Operation.READ),
            (T, Operation.WRITE),
            (C, Operation.ALTER),
            (C, Operation.CLUSTER_ACTION),
            (C, Operation.ALL),
            (X, Operation.WRITE),
        }
        & pairs
    )


def test_an_admin_may_do_everything() -> None:
    assert granted(Role.ADMIN) == {(of, operation) for of in TYPES for operation in Operation}
