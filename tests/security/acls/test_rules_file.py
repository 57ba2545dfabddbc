"""The rules file: accepted whole or refused whole, with the place and the remedy."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.security.acls.filters import creation_problem
from penstock.security.acls.rules_file import (
    FILE_BYTES_MAX,
    RULES_MAX,
    format_rules,
    parse_rules,
)
from penstock.security.acls.values import (
    CLUSTER_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from tests.security.acls.rule_model import random_rule

ENTRY = {"principal": "User:alice", "operation": "Read", "resource": "Topic:orders"}
RULE = AclBinding(
    ResourceType.TOPIC,
    "orders",
    PatternType.LITERAL,
    "User:alice",
    "*",
    Operation.READ,
    Permission.ALLOW,
)


def rules_of(*entries: object) -> tuple[AclBinding, ...]:
    return parse_rules(json.dumps({"rules": entries}).encode())


def problem_of(data: bytes) -> ConfigError | None:
    try:
        parse_rules(data)
    except ConfigError as error:
        return error
    return None


def rule_with(**changes: object) -> AclBinding:
    (rule,) = rules_of({**ENTRY, **changes})
    return rule


def test_an_entry_without_options_allows_from_any_host() -> None:
    assert rules_of(ENTRY) == (RULE,)
    assert rules_of() == ()


@pytest.mark.parametrize(
    ("resource", "resource_type", "name", "pattern_type"),
    [
        ("Topic:orders", ResourceType.TOPIC, "orders", PatternType.LITERAL),
        ("Topic:orders-*", ResourceType.TOPIC, "orders-", PatternType.PREFIXED),
        ("Topic:*", ResourceType.TOPIC, "*", PatternType.LITERAL),
        ("Topic:**", ResourceType.TOPIC, "*", PatternType.PREFIXED),
        ("topic:a", ResourceType.TOPIC, "a", PatternType.LITERAL),
        ("GROUP:a:b", ResourceType.GROUP, "a:b", PatternType.LITERAL),
        ("TransactionalId:a", ResourceType.TRANSACTIONAL_ID, "a", PatternType.LITERAL),
        ("TRANSACTIONAL_ID:a", ResourceType.TRANSACTIONAL_ID, "a", PatternType.LITERAL),
        ("User:alice", ResourceType.USER, "alice", PatternType.LITERAL),
        (f"Cluster:{CLUSTER_NAME}", ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL),
    ],
)
def test_resources(
    resource: str, resource_type: ResourceType, name: str, pattern_type: PatternType
) -> None:
    assert rule_with(resource=resource)[:3] == (resource_type, name, pattern_type)


def test_the_key_pattern_takes_the_name_as_it_is() -> None:
    literal = rule_with(resource="Group:a*", pattern="literal")
    assert literal[:3] == (ResourceType.GROUP, "a*", PatternType.LITERAL)
    prefixed = rule_with(resource="Group:a*", pattern="prefixed")
    assert prefixed[:3] == (ResourceType.GROUP, "a*", PatternType.PREFIXED)


@pytest.mark.parametrize("text", ["DescribeConfigs", "DESCRIBE_CONFIGS", "describe_configs"])
def test_operations_have_the_names_of_kafka_in_any_case(text: str) -> None:
    assert rule_with(operation=text).operation == Operation.DESCRIBE_CONFIGS


def test_every_operation_and_resource_type_can_be_written() -> None:
    for operation in Operation:
        if operation > Operation.ANY:
            assert rule_with(operation=operation.name).operation == operation
    for resource_type in ResourceType:
        if resource_type > ResourceType.ANY:
            resource = f"{resource_type.name}:{CLUSTER_NAME}"
            assert rule_with(resource=resource).resource_type == resource_type


def test_hosts_are_written_as_kafka_compares_them() -> None:
    assert rule_with(host="10.0.0.7").host == "10.0.0.7"
    assert rule_with(host="::1").host == "0:0:0:0:0:0:0:1"
    assert rule_with(host="0:0:0:0:0:0:0:1").host == "0:0:0:0:0:0:0:1"
    assert rule_with(host="::ffff:10.0.0.7").host == "10.0.0.7"


def test_allow_false_is_a_deny() -> None:
    assert rule_with(allow=False).permission == Permission.DENY
    assert rule_with(allow=True).permission == Permission.ALLOW


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        ({"hosts": "*"}, "unknown key 'hosts'", "Keys are principal, operation, resource, host"),
        ({"principal": 7}, ".principal must be a text", "quotes"),
        ({"principal": "alice"}, ".principal 'alice' is not a user", "User:alice"),
        ({"principal": "user:alice"}, ".principal 'user:alice' is not a user", "User:alice"),
        ({"principal": "User:"}, ".principal 'User:' is not a user", "User:*"),
        ({"principal": "User:\ud800"}, ".principal has half of a surrogate pair", "character"),
        ({"operation": "Reed"}, ".operation 'Reed' is unknown", "DescribeConfigs"),
        ({"operation": "Any"}, ".operation 'Any' is unknown", "DescribeConfigs"),
        ({"operation": "UNKNOWN"}, ".operation 'UNKNOWN' is unknown", "DescribeConfigs"),
        ({"operation": None}, ".operation must be a text", "quotes"),
        ({"resource": "Topics:a"}, ".resource 'Topics:a' has an unknown type", "TransactionalId"),
        ({"resource": "orders"}, ".resource 'orders' has an unknown type", "a colon"),
        ({"resource": "Any:a"}, ".resource 'Any:a' has an unknown type", "a colon"),
        ({"resource": "Topic:"}, ".resource: Invalid empty resource name", "name after the colon"),
        ({"resource": "Topic"}, ".resource: Invalid empty resource name", "name after the colon"),
        ({"resource": "Cluster:*"}, ".resource: The only valid name", "Cluster:kafka-cluster"),
        ({"resource": ["Topic:a"]}, ".resource must be a text", "quotes"),
        ({"host": "localhost"}, ".host 'localhost' is not an address", "10.0.0.7"),
        ({"host": "10.0.0.0/24"}, ".host '10.0.0.0/24' is not an address", "10.0.0.7"),
        ({"host": ""}, ".host '' is not an address", "10.0.0.7"),
        ({"host": None}, ".host must be a text", "quotes"),
        ({"allow": "true"}, ".allow must be true or false", "without quotes"),
        ({"allow": 1}, ".allow must be true or false", "without quotes"),
        ({"allow": None}, ".allow must be true or false", "without quotes"),
        ({"pattern": "match"}, ".pattern must be 'literal' or 'prefixed'", "Leave it out"),
        ({"pattern": 3}, ".pattern must be a text", "quotes"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_place(
    changes: dict[str, object], message: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        rules_of(ENTRY, {**ENTRY, **changes})
    assert str(raised.value).startswith("rules[1]")
    assert message in str(raised.value)
    assert hint in raised.value.hint


@pytest.mark.parametrize("key", list(ENTRY))
def test_a_missing_key_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"rules\[0\] has no key '{key}'"):
        rules_of({other: value for other, value in ENTRY.items() if other != key})


def test_the_same_rule_twice_is_refused_with_both_places() -> None:
    again = {**ENTRY, "operation": "READ", "host": "*", "allow": True}
    with pytest.raises(ConfigError, match=r"rules\[2\] is the same rule as rules\[0\]"):
        rules_of(ENTRY, {**ENTRY, "allow": False}, again)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "not JSON: line 1, column 1"),
        (b'{"rules": [\n  {]}', "not JSON: line 2, column 4"),
        (b"[]", "must be an object with the key 'rules' alone; it has no object"),
        (b"{}", "must be an object with the key 'rules' alone; it has the keys []"),
        (b'{"rules": [], "version": 1}', "it has the keys ['rules', 'version']"),
        (b'{"rules": {}}', "'rules' must be a list"),
        (b'{"rules": ["User:alice"]}', "rules[0] must be an object"),
        (b'{"rules": [], "rules": []}', "the key 'rules' twice"),
        (b'{"rules": [{"principal": "a", "principal": "b"}]}', "the key 'principal' twice"),
        (b'{"rules": [NaN]}', "has NaN, which is not JSON"),
        (b'{"rules": [' + b"9" * 5000 + b"]}", "a number with too many digits"),
        (b'{"rules": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"rules": "\xff"}', "not UTF-8: byte 11"),
    ],
)
def test_another_form_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_rules(text)
    assert message in str(raised.value)
    assert raised.value.hint


def test_bounds() -> None:
    entries = [{**ENTRY, "resource": f"Topic:t{number}"} for number in range(RULES_MAX + 1)]
    assert len(rules_of(*entries[:-1])) == RULES_MAX
    with pytest.raises(ConfigError, match="has 10,001 rules, at most 10,000 are read"):
        rules_of(*entries)
    text = b'{"rules": []}'
    assert parse_rules(text.ljust(FILE_BYTES_MAX)) == ()
    with pytest.raises(ConfigError, match=r"has 4,194,305 bytes, at most 4,194,304 are read"):
        parse_rules(text.ljust(FILE_BYTES_MAX + 1))


def test_a_message_is_bounded() -> None:
    for key in ("principal", "operation", "resource", "host", "x" * 100_000):
        with pytest.raises(ConfigError) as raised:
            rule_with(**{key: "x" * 100_000})
        assert len(str(raised.value)) < 400
    twice = '"' + "x" * 100_000 + '": 1'
    for text in (
        json.dumps({f"key {number}": 1 for number in range(1000)}),
        f"{{{twice}, {twice}}}",
    ):
        error = problem_of(text.encode())
        assert error is not None
        assert len(str(error)) < 400


# --- Writing ---


def test_the_text_is_sorted_with_a_rule_on_each_line() -> None:
    star = RULE._replace(resource_type=ResourceType.GROUP, name="a*", permission=Permission.DENY)
    assert format_rules([star, RULE, RULE]) == (
        '{\n  "rules": [\n'
        '    {"principal": "User:alice", "operation": "Read", "resource": "Topic:orders",'
        ' "host": "*", "allow": true},\n'
        '    {"principal": "User:alice", "operation": "Read", "resource": "Group:a*",'
        ' "pattern": "literal", "host": "*", "allow": false}\n'
        "  ]\n}\n"
    )
    assert parse_rules(format_rules([]).encode()) == ()


@given(st.integers(0, 2**32 - 1))
def test_written_rules_are_parsed_as_the_same(seed: int) -> None:
    chance = random.Random(seed)
    rules = {random_rule(chance) for _ in range(30)}
    possible = {rule for rule in rules if creation_problem(rule) is None}
    assert possible
    text = format_rules(possible)
    assert set(parse_rules(text.encode())) == possible
    assert format_rules(parse_rules(text.encode())) == text


texts = st.text(st.characters(codec="utf-8"), max_size=20)
rules_of_a_broker = st.builds(
    AclBinding,
    st.sampled_from([one for one in ResourceType if one > ResourceType.ANY]),
    texts.filter(bool) | st.just(CLUSTER_NAME),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.builds(":".join, st.tuples(st.just("User") | texts, texts)),
    st.sampled_from(["*", "::1", "10.0.0.7", "010.0.0.7", "localhost", ""]) | texts,
    st.sampled_from([one for one in Operation if one > Operation.ANY]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
).filter(lambda rule: creation_problem(rule) is None)


@given(st.sets(rules_of_a_broker, max_size=10))
def test_each_rule_that_a_broker_can_hold_is_read_again(rules: set[AclBinding]) -> None:
    """An export with a rule for `Group:devs`, or for a host name, could not be imported."""
    assert set(parse_rules(format_rules(rules).encode())) == rules


def test_only_rules_that_need_it_are_verbatim() -> None:
    unusual = RULE._replace(principal="Group:devs")
    assert '"verbatim": true' in format_rules([unusual])
    assert "verbatim" not in format_rules([RULE, RULE._replace(host="0:0:0:0:0:0:0:1")])
    assert rule_with(principal="Group:devs", host="a host", verbatim=True)[3:5] == (
        "Group:devs",
        "a host",
    )
    with pytest.raises(ConfigError, match=r"\.principal 'alice' is not a user"):
        rule_with(principal="alice", verbatim=True)
    with pytest.raises(ConfigError, match=r"\.verbatim must be true or false"):
        rule_with(verbatim="yes")


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
keys = st.sampled_from(
    ["principal", "operation", "resource", "host", "allow", "pattern", "verbatim", "x"]
)


@given(st.lists(st.dictionaries(keys, json_values | st.sampled_from(list(ENTRY.values())))))
def test_any_entries_are_accepted_or_refused_by_the_one_error(entries: list[Any]) -> None:
    error = problem_of(json.dumps({"rules": entries}).encode())
    assert error is None or error.hint


@given(st.binary(max_size=200))
def test_any_bytes_are_accepted_or_refused_by_the_one_error(data: bytes) -> None:
    error = problem_of(data)
    assert error is None or error.hint
