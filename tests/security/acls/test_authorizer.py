"""The rules of Apache Kafka's StandardAuthorizer, one by one and by a model; cache and bounds."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.access import Authorizer
from penstock.security.acls.authorizer import (
    CACHED_NAME_CHARACTERS_MAX,
    DECISIONS_MAX,
    AclAuthorizer,
    RuleOrigin,
)
from penstock.security.acls.values import (
    CLUSTER_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.security.principal import Principal, user
from tests.security.acls.rule_model import Model, Question, random_question, random_rule

ALICE = user("alice")
HOST = "10.0.0.1"


def rule(
    name: str = "orders",
    operation: Operation = Operation.READ,
    *,
    pattern: PatternType = PatternType.LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    permission: Permission = Permission.ALLOW,
    of: ResourceType = ResourceType.TOPIC,
) -> AclBinding:
    return AclBinding(of, name, pattern, principal, host, operation, permission)


def deny(
    name: str = "orders",
    operation: Operation = Operation.READ,
    *,
    pattern: PatternType = PatternType.LITERAL,
    principal: str = "User:alice",
    host: str = "*",
) -> AclBinding:
    return rule(
        name,
        operation,
        pattern=pattern,
        principal=principal,
        host=host,
        permission=Permission.DENY,
    )


def authorizer(
    *rules: AclBinding, super_users: frozenset[str] = frozenset(), is_open: bool = False
) -> AclAuthorizer:
    created = AclAuthorizer(super_users, allow_everyone_if_no_acl_found=is_open)
    created.replace(RuleOrigin.API, rules)
    return created


def may(
    rules: AclAuthorizer,
    name: str = "orders",
    operation: Operation = Operation.READ,
    *,
    principal: Principal = ALICE,
    address: str = HOST,
    of: ResourceType = ResourceType.TOPIC,
) -> bool:
    answer = rules.allows(principal, address, operation, of, name)
    decision = rules.decide(principal, address, operation, of, name)
    assert decision.is_allowed == answer
    return answer


def may_any(
    rules: AclAuthorizer,
    operation: Operation = Operation.WRITE,
    of: ResourceType = ResourceType.TOPIC,
) -> bool:
    return rules.allows_any(ALICE, HOST, operation, of)


def test_it_is_an_authorizer_of_the_broker() -> None:
    contract: Authorizer = authorizer()
    assert not contract.allows(ALICE, HOST, Operation.READ, ResourceType.TOPIC, "orders")


# --- Super users and the default ---


def test_a_super_user_may_do_everything_whatever_the_rules_say() -> None:
    rules = authorizer(deny("*", Operation.ALL), super_users=frozenset({"User:alice"}))
    assert may(rules)
    assert may(rules, CLUSTER_NAME, Operation.ALTER, of=ResourceType.CLUSTER)
    assert may_any(rules)
    assert not may(rules, principal=user("Alice"))
    assert not may(rules, principal=Principal("Group", "alice"))


def test_without_a_rule_for_the_resource_the_default_decides() -> None:
    assert not may(authorizer())
    assert may(authorizer(is_open=True))
    other_topic = rule("payments", principal="User:bob")
    assert may(authorizer(other_topic, is_open=True))
    assert may(authorizer(rule(of=ResourceType.GROUP), is_open=True))


@pytest.mark.parametrize(
    "other",
    [
        rule(principal="User:bob"),
        rule(host="10.0.0.2"),
        rule(operation=Operation.WRITE),
        deny(operation=Operation.WRITE),
        rule("*", principal="User:bob"),
        rule("ord", pattern=PatternType.PREFIXED, principal="User:bob"),
    ],
)
def test_a_rule_for_others_on_the_resource_ends_the_default(other: AclBinding) -> None:
    assert not may(authorizer(other, is_open=True))


# --- Patterns ---


def test_a_literal_name_is_equal_and_case_sensitive() -> None:
    rules = authorizer(rule())
    assert may(rules)
    assert not may(rules, "Orders")
    assert not may(rules, "orders-1")
    assert not may(rules, "order")
    assert not may(rules, of=ResourceType.GROUP)


def test_the_literal_star_is_each_name() -> None:
    rules = authorizer(rule("*"))
    assert may(rules)
    assert may(rules, "")
    assert may(rules, "*")


def test_a_prefix_matches_itself_and_longer_names() -> None:
    rules = authorizer(rule("orders-", pattern=PatternType.PREFIXED))
    assert may(rules, "orders-")
    assert may(rules, "orders-1")
    assert not may(rules, "orders")
    assert not may(rules, "Orders-1")


def test_a_prefixed_star_is_the_character() -> None:
    rules = authorizer(rule("*", pattern=PatternType.PREFIXED))
    assert not may(rules)
    assert may(rules, "*")
    assert may(rules, "*orders")


def test_each_of_nested_and_neighbouring_prefixes_is_found() -> None:
    prefixes = ("a", "ab", "abc", "abcz", "abd", "abz", "b", "ac")
    for prefix in prefixes:
        rules = authorizer(
            rule(prefix, pattern=PatternType.PREFIXED),
            *(
                rule(other, pattern=PatternType.PREFIXED, principal="User:bob")
                for other in prefixes
                if other != prefix
            ),
        )
        for name in ("a", "abcd", "abcz9", "abd", "abe", "ac", "b9", "c"):
            assert may(rules, name) == name.startswith(prefix), (prefix, name)


# --- Principals and hosts ---


def test_user_star_is_each_user_and_nothing_else_is_a_wildcard() -> None:
    assert may(authorizer(rule(principal="User:*")))
    assert not may(authorizer(rule(principal="User:al*")))
    assert not may(authorizer(rule(principal="Group:*")))
    assert not may(authorizer(rule(principal="User:ALICE")))


def test_a_principal_is_its_kind_and_its_whole_name() -> None:
    rules = authorizer(rule(principal="User:CN=a:b"))
    assert may(rules, principal=user("CN=a:b"))
    assert not may(rules, principal=user("CN=a"))


@pytest.mark.parametrize(
    ("host", "address", "is_match"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.11", False),
        ("10.0.0.0/24", "10.0.0.1", False),
        ("localhost", "127.0.0.1", False),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("0:0:0:0:0:0:0:1", "::1", True),
        ("::1", "::1", False),
        ("fe80:0:0:0:0:0:0:1%eth0", "fe80::1%eth0", True),
        ("fe80:0:0:0:0:0:0:1", "fe80::1%eth0", False),
        ("*", "", True),
    ],
)
def test_a_host_is_the_text_of_the_address_in_java(host: str, address: str, is_match: bool) -> None:
    assert may(authorizer(rule(host=host)), address=address) == is_match


# --- Operations ---


@pytest.mark.parametrize("operation", [one for one in Operation if one > Operation.ALL])
def test_an_allow_grants_its_operation_and_the_implied_ones(operation: Operation) -> None:
    rules = authorizer(rule(operation=operation))
    allowed = {one for one in Operation if may(rules, operation=one)}
    implied = {
        Operation.READ: {Operation.DESCRIBE},
        Operation.WRITE: {Operation.DESCRIBE},
        Operation.DELETE: {Operation.DESCRIBE},
        Operation.ALTER: {Operation.DESCRIBE},
        Operation.ALTER_CONFIGS: {Operation.DESCRIBE_CONFIGS},
    }
    assert allowed == {operation} | implied.get(operation, set())


@pytest.mark.parametrize("operation", [one for one in Operation if one > Operation.ALL])
def test_a_deny_takes_its_own_operation_only(operation: Operation) -> None:
    rules = authorizer(rule(operation=Operation.ALL), deny(operation=operation))
    assert {one for one in Operation if not may(rules, operation=one)} == {operation}


def test_all_is_each_operation() -> None:
    rules = authorizer(rule(operation=Operation.ALL))
    assert all(may(rules, operation=one) for one in Operation)
    rules = authorizer(rule(operation=Operation.ALL), deny(operation=Operation.ALL))
    assert not any(may(rules, operation=one) for one in Operation)


@pytest.mark.parametrize(
    "denial",
    [
        deny(),
        deny("*"),
        deny("ord", pattern=PatternType.PREFIXED),
        deny(principal="User:*"),
        deny(host=HOST),
        deny(operation=Operation.ALL),
    ],
)
@pytest.mark.parametrize(
    "grant", [rule(), rule("*"), rule("orders", pattern=PatternType.PREFIXED), rule(host=HOST)]
)
def test_a_deny_wins_whatever_is_more_specific(denial: AclBinding, grant: AclBinding) -> None:
    rules = authorizer(grant, denial)
    assert not may(rules)
    assert rules.decide(ALICE, HOST, Operation.READ, ResourceType.TOPIC, "orders").rule == denial


# --- Some resource of the type ---


@pytest.mark.parametrize(
    ("rules", "is_allowed"),
    [
        ([], False),
        ([rule("a", Operation.WRITE)], True),
        ([rule("a", Operation.ALL)], True),
        ([rule("a", Operation.READ)], False),
        ([rule("a", Operation.WRITE), deny("a", Operation.WRITE)], False),
        ([rule("a", Operation.WRITE), deny("b", Operation.WRITE)], True),
        ([rule("a", Operation.WRITE), deny("a", Operation.ALL)], False),
        ([rule("a", Operation.WRITE), deny("a", Operation.READ)], True),
        ([rule("ab", Operation.WRITE), deny("a", Operation.WRITE)], True),
        (
            [rule("ab", Operation.WRITE), deny("a", Operation.WRITE, pattern=PatternType.PREFIXED)],
            False,
        ),
        (
            [rule("a", Operation.WRITE), deny("ab", Operation.WRITE, pattern=PatternType.PREFIXED)],
            True,
        ),
        ([rule("a", Operation.WRITE), deny("*", Operation.WRITE)], False),
        (
            [rule("*", Operation.WRITE), deny("h", Operation.WRITE, pattern=PatternType.PREFIXED)],
            True,
        ),
        (
            [
                rule("a", Operation.WRITE, pattern=PatternType.PREFIXED),
                deny("a", Operation.WRITE),
            ],
            True,
        ),
        (
            [
                rule("a", Operation.WRITE, pattern=PatternType.PREFIXED),
                deny("a", Operation.WRITE, pattern=PatternType.PREFIXED),
            ],
            False,
        ),
        ([rule("a", Operation.WRITE, principal="User:bob")], False),
        ([rule("a", Operation.WRITE, host="10.0.0.2")], False),
        ([rule("a", Operation.WRITE, of=ResourceType.GROUP)], False),
    ],
)
def test_some_resource_of_the_type(rules: list[AclBinding], is_allowed: bool) -> None:
    assert may_any(authorizer(*rules)) == is_allowed


def test_some_resource_counts_no_implied_operation_as_in_kafka() -> None:
    assert not may_any(authorizer(rule("a", Operation.WRITE)), Operation.DESCRIBE)
    assert may_any(authorizer(rule("hard", Operation.WRITE, pattern=PatternType.PREFIXED)))


def test_some_resource_follows_the_default_without_rules() -> None:
    assert may_any(authorizer(is_open=True))
    assert may_any(authorizer(deny("a", Operation.WRITE), is_open=True))
    assert not may_any(authorizer(deny("*", Operation.WRITE), is_open=True))


# --- Reasons ---


def test_a_decision_names_its_reason() -> None:
    def reason(rules: AclAuthorizer) -> str:
        return rules.decide(ALICE, HOST, Operation.READ, ResourceType.TOPIC, "orders").reason

    assert reason(authorizer(super_users=frozenset({"User:alice"}))) == "super user"
    assert reason(authorizer()) == "no rule matches the resource"
    assert reason(authorizer(is_open=True)) == "no rule matches the resource and everyone may"
    assert reason(authorizer(rule(principal="User:bob"))) == "no rule allows it"
    assert reason(authorizer(rule("ord", pattern=PatternType.PREFIXED))) == (
        "allowed by the rule: allow Read on Topic:ord* for User:alice from any host"
    )
    assert reason(authorizer(rule(), deny("*", Operation.ALL, host=HOST))) == (
        "denied by the rule: deny All on Topic:* for User:alice from host 10.0.0.1"
    )


def test_the_most_specific_of_several_rules_is_named() -> None:
    rules = [
        rule(),
        rule(operation=Operation.ALL),
        rule(principal="User:*", host=HOST),
        rule("orders", pattern=PatternType.PREFIXED),
        rule("ord", pattern=PatternType.PREFIXED),
        rule("*"),
    ]
    for position, expected in enumerate(rules):
        created = authorizer(*reversed(rules[position:]))
        decision = created.decide(ALICE, HOST, Operation.READ, ResourceType.TOPIC, "orders")
        assert decision.rule == expected


def test_a_rule_with_an_implied_operation_is_named() -> None:
    decision = authorizer(rule(operation=Operation.ALTER_CONFIGS)).decide(
        ALICE, HOST, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "orders"
    )
    assert decision.rule == rule(operation=Operation.ALTER_CONFIGS)


# --- Origins and changes ---


def test_rules_of_both_origins_are_in_force_and_a_deny_of_either_wins() -> None:
    for grants, denials in ((RuleOrigin.API, RuleOrigin.FILE), (RuleOrigin.FILE, RuleOrigin.API)):
        rules = AclAuthorizer()
        rules.replace(grants, [rule()])
        assert may(rules)
        rules.replace(denials, [deny()])
        assert not may(rules)
        rules.replace(denials, [])
        assert may(rules)


def test_a_rule_of_two_origins_stays_while_one_has_it() -> None:
    rules = AclAuthorizer()
    rules.replace(RuleOrigin.API, [rule()])
    rules.replace(RuleOrigin.FILE, [rule()])
    rules.change(RuleOrigin.API, removed=[rule()])
    assert may(rules)
    assert rules.rules(RuleOrigin.API) == set()
    assert rules.rules(RuleOrigin.FILE) == {rule()}
    rules.replace(RuleOrigin.FILE, [])
    assert not may(rules)


def test_a_change_that_is_in_effect_already_changes_nothing() -> None:
    rules = authorizer(rule())
    rules.change(RuleOrigin.API, added=[rule(), rule()])
    rules.change(RuleOrigin.API, removed=[deny(), rule("payments")])
    assert may(rules)
    rules.change(RuleOrigin.API, removed=[rule(), rule()])
    assert not may(rules)


def test_a_rule_that_is_removed_and_added_at_once_is_there() -> None:
    rules = authorizer(rule())
    rules.change(RuleOrigin.API, added=[rule()], removed=[rule()])
    assert may(rules)


@pytest.mark.parametrize(
    "wrong",
    [
        rule("", Operation.READ),
        rule(operation=Operation.ANY),
        rule(operation=Operation.UNKNOWN),
        rule(pattern=PatternType.MATCH),
        rule(pattern=PatternType.ANY),
        rule(permission=Permission.ANY),
        rule(of=ResourceType.ANY),
        rule(of=ResourceType.UNKNOWN),
    ],
)
def test_rules_with_one_that_is_not_concrete_change_nothing(wrong: AclBinding) -> None:
    rules = authorizer(rule())
    with pytest.raises(ValueError, match="not a rule that can be in force"):
        rules.change(RuleOrigin.API, added=[deny(), wrong], removed=[rule()])
    assert may(rules)
    assert rules.rules(RuleOrigin.API) == {rule()}


# --- The cache ---


def test_a_decision_is_cached_and_each_change_drops_it() -> None:
    rules = authorizer(rule())
    assert rules.cached_decisions == 0
    assert may(rules)
    assert may_any(rules, Operation.READ)
    assert rules.cached_decisions == 2
    assert may(rules, operation=Operation.DESCRIBE)
    assert rules.cached_decisions == 2, "a decision has all operations"
    rules.replace(RuleOrigin.API, [rule()])
    assert rules.cached_decisions == 2, "nothing changed"
    rules.change(RuleOrigin.FILE, added=[deny()])
    assert rules.cached_decisions == 0
    assert not may(rules)
    assert not may_any(rules, Operation.READ)
    rules.change(RuleOrigin.FILE, removed=[deny()])
    assert rules.cached_decisions == 0
    assert may(rules)


def test_the_cache_is_bounded_and_a_decision_in_use_survives_a_scan() -> None:
    rules = authorizer(rule(), rule("n", pattern=PatternType.PREFIXED))
    in_use = (ALICE, HOST, ResourceType.TOPIC, "orders")
    highest = 0
    for number in range(DECISIONS_MAX * 2):
        assert rules.allows(ALICE, HOST, Operation.READ, ResourceType.TOPIC, f"n{number}")
        if number % 100 == 0:
            is_cached = in_use in rules._decisions or in_use in rules._older
            assert is_cached == (number > 0)
            assert rules.allows(ALICE, HOST, Operation.READ, ResourceType.TOPIC, "orders")
            highest = max(highest, rules.cached_decisions)
    assert DECISIONS_MAX * 0.9 < highest <= DECISIONS_MAX


@pytest.mark.uncompiled
def test_a_decision_of_the_older_generation_is_used_again_and_dropped_by_a_change() -> None:
    class Counting(AclAuthorizer):
        """Counts the decisions that are not from the cache."""

        __slots__ = ("evaluations",)

        def __init__(self) -> None:
            super().__init__()
            self.evaluations = 0

        def _evaluate(self, question: tuple[Principal, str, ResourceType, str | None]) -> int:
            self.evaluations += 1
            return super()._evaluate(question)

    rules = Counting()
    rules.replace(RuleOrigin.API, [rule()])
    for name in ("orders", *(f"n{number}" for number in range(DECISIONS_MAX // 2))):
        rules.allows(ALICE, HOST, Operation.READ, ResourceType.TOPIC, name)
    before = rules.evaluations
    assert may(rules)
    assert rules.evaluations == before == DECISIONS_MAX // 2 + 1
    rules.change(RuleOrigin.API, added=[deny("n1")])
    assert rules.cached_decisions == 0
    assert may(rules)
    assert rules.evaluations == before + 1


def test_long_names_are_decided_and_not_cached() -> None:
    rules = authorizer(rule("n", pattern=PatternType.PREFIXED))
    rest = CACHED_NAME_CHARACTERS_MAX - len("alice") - len(HOST)
    assert may(rules, "n" * rest)
    assert rules.cached_decisions == 1
    assert may(rules, "n" * (rest + 1))
    assert may(rules, "n" * 32_000)
    assert not may(rules, "m" * 32_000)
    long = user("a" * CACHED_NAME_CHARACTERS_MAX)
    assert not rules.allows_any(long, HOST, Operation.READ, ResourceType.TOPIC)
    assert rules.cached_decisions == 1


# --- The model ---


@given(st.integers(0, 2**32 - 1), st.integers(0, 12), st.booleans(), st.booleans())
def test_decisions_are_those_of_the_model(
    seed: int, count: int, is_open: bool, has_super_user: bool
) -> None:
    chance = random.Random(seed)
    rules = [random_rule(chance) for _ in range(count)]
    super_users = frozenset({"User:v"}) if has_super_user else frozenset()
    model = Model(rules, super_users, is_open=is_open)
    tested = authorizer(*rules, super_users=super_users, is_open=is_open)
    for _ in range(40):
        question = random_question(chance)
        assert answer(tested, question) == model.allows(question), (question, rules)


@given(st.integers(0, 2**32 - 1))
def test_decisions_follow_every_change_of_the_rules(seed: int) -> None:
    chance = random.Random(seed)
    is_open = chance.random() < 0.5
    tested = AclAuthorizer(allow_everyone_if_no_acl_found=is_open)
    stored: dict[RuleOrigin, set[AclBinding]] = {origin: set() for origin in RuleOrigin}
    questions = [random_question(chance) for _ in range(8)]
    for _ in range(20):
        origin = chance.choice(list(RuleOrigin))
        added = {random_rule(chance) for _ in range(chance.randrange(3))}
        own = sorted(stored[origin])
        removed = set(chance.sample(own, chance.randrange(min(3, len(own)) + 1)))
        if chance.random() < 0.3:
            stored[origin] = added
            tested.replace(origin, added)
        else:
            stored[origin] = stored[origin] - removed | added
            tested.change(origin, added=added, removed=removed)
        assert tested.rules(origin) == stored[origin]
        model = Model(set().union(*stored.values()), (), is_open=is_open)
        for question in questions:
            assert answer(tested, question) == model.allows(question), question
    for origin in RuleOrigin:
        tested.replace(origin, [])
    assert not tested._types, "the index keeps nothing of removed rules"


def answer(tested: AclAuthorizer, question: Question) -> bool:
    principal, address, operation, resource_type, name = question
    if name is None:
        return tested.allows_any(principal, address, operation, resource_type)
    allowed = tested.allows(principal, address, operation, resource_type, name)
    decision = tested.decide(principal, address, operation, resource_type, name)
    assert decision.is_allowed == allowed
    if decision.rule is not None:
        assert any(decision.rule in tested.rules(origin) for origin in RuleOrigin)
        assert (decision.rule.permission == Permission.ALLOW) == allowed
    return allowed
