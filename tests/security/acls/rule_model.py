"""A slow and obvious model of the authorizer, and random rules and questions over small alphabets.

The model reads every rule for every question and has neither an index nor a cache. The alphabets
are small, so that names collide, prefixes nest, and each wildcard and each DENY meets an ALLOW.
"""

import random
from collections.abc import Collection
from typing import NamedTuple

from penstock.security.acls.values import (
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.security.principal import Principal, user

NAMES = (
    "a",
    "ab",
    "abc",
    "abd",
    "b",
    "ba",
    "*",
    "a*",
    "*a",
    "hardcode",
    "hard",
    "hardcodes",
    "ä",
    "\U0001f600x",
)
QUESTION_NAMES = (*NAMES, "", "abcd", "c", "kafka-cluster")
PRINCIPALS = ("User:u", "User:v", "User:*", "User:u:v", "Group:u", "User:")
USERS = ("u", "v", "u:v", "", "ANONYMOUS")
HOSTS = ("*", "10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1", "::1")
ADDRESSES = ("10.0.0.1", "10.0.0.2", "::1", "::ffff:10.0.0.1", "fe80::a")
JAVA_HOSTS = {
    "::1": "0:0:0:0:0:0:0:1",
    "::ffff:10.0.0.1": "10.0.0.1",
    "fe80::a": "fe80:0:0:0:0:0:0:a",
}
"""The addresses whose text differs in Java."""
TYPES = (ResourceType.TOPIC, ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER)
OPERATIONS = tuple(one for one in Operation if one >= Operation.ALL)
FREQUENT_OPERATIONS = (Operation.ALL, Operation.READ, Operation.WRITE, Operation.DESCRIBE)


class Question(NamedTuple):
    """One question; the name None asks for some resource of the type."""

    principal: Principal
    address: str
    operation: Operation
    resource_type: ResourceType
    name: str | None


class Model:
    """The rules in force, and decisions by them."""

    def __init__(
        self, rules: Collection[AclBinding], super_users: Collection[str], *, is_open: bool
    ) -> None:
        self.rules = rules
        self.super_users = super_users
        self.is_open = is_open

    def allows(self, question: Question) -> bool:
        if question.name is None:
            return self._allows_any(question)
        if str(question.principal) in self.super_users:
            return True
        of_resource = [rule for rule in self.rules if _is_of_resource(rule, question)]
        applying = [
            rule
            for rule in of_resource
            if _is_for_client(rule, question) and _fits(rule, question.operation)
        ]
        if any(rule.permission == Permission.DENY for rule in applying):
            return False
        return bool(applying) or (self.is_open and not of_resource)

    def _allows_any(self, question: Question) -> bool:
        if self.allows(question._replace(name="hardcode")):
            return True
        applying = [
            rule
            for rule in self.rules
            if rule.resource_type == question.resource_type
            and _is_for_client(rule, question)
            and rule.operation in (question.operation, Operation.ALL)
        ]
        denials = [rule for rule in applying if rule.permission == Permission.DENY]
        grants = [rule for rule in applying if rule.permission == Permission.ALLOW]
        if any(_is_wildcard(rule) for rule in denials):
            return False
        return any(
            _is_wildcard(rule) or not any(_takes_whole(denial, rule) for denial in denials)
            for rule in grants
        )


def _is_wildcard(rule: AclBinding) -> bool:
    return rule.pattern_type == PatternType.LITERAL and rule.name == "*"


def _takes_whole(denial: AclBinding, grant: AclBinding) -> bool:
    if denial.pattern_type == PatternType.PREFIXED:
        return grant.name.startswith(denial.name)
    return grant.pattern_type == PatternType.LITERAL and grant.name == denial.name


def _is_of_resource(rule: AclBinding, question: Question) -> bool:
    assert question.name is not None
    if rule.resource_type != question.resource_type:
        return False
    if rule.pattern_type == PatternType.PREFIXED:
        return question.name.startswith(rule.name)
    return rule.name in ("*", question.name)


def _is_for_client(rule: AclBinding, question: Question) -> bool:
    host = JAVA_HOSTS.get(question.address, question.address)
    principals = (str(question.principal), "User:*")
    return rule.principal in principals and rule.host in ("*", host)


def _fits(rule: AclBinding, operation: Operation) -> bool:
    if rule.operation in (operation, Operation.ALL):
        return True
    if rule.permission == Permission.DENY:
        return False
    if operation == Operation.DESCRIBE:
        return rule.operation.name in ("READ", "WRITE", "DELETE", "ALTER")
    return operation == Operation.DESCRIBE_CONFIGS and rule.operation == Operation.ALTER_CONFIGS


# --- Random rules and questions ---


def random_rule(chance: random.Random) -> AclBinding:
    pattern_type = chance.choice((PatternType.LITERAL, PatternType.PREFIXED))
    return AclBinding(
        chance.choice(TYPES),
        chance.choice(NAMES),
        pattern_type,
        chance.choice(PRINCIPALS),
        chance.choice(HOSTS) if chance.random() < 0.5 else "*",
        chance.choice(FREQUENT_OPERATIONS if chance.random() < 0.6 else OPERATIONS),
        Permission.DENY if chance.random() < 0.3 else Permission.ALLOW,
    )


def random_question(chance: random.Random) -> Question:
    return Question(
        Principal("Group", "u") if chance.random() < 0.05 else user(chance.choice(USERS)),
        chance.choice(ADDRESSES),
        chance.choice(FREQUENT_OPERATIONS if chance.random() < 0.6 else OPERATIONS),
        chance.choice(TYPES),
        None if chance.random() < 0.25 else chance.choice(QUESTION_NAMES),
    )
