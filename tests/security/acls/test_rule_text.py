"""Texts of rules, and addresses as Kafka writes them."""

import pytest

from penstock.security.acls.host_text import can_equal_an_address, kafka_host, read_host
from penstock.security.acls.rule_text import (
    OPERATION_NAMES,
    RESOURCE_TYPE_NAMES,
    is_pattern_text_ambiguous,
    pattern_text,
    read_operation,
    read_pattern,
    read_resource_type,
    rule_text,
)
from penstock.security.acls.values import (
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

RULE = AclBinding(
    ResourceType.TRANSACTIONAL_ID,
    "a",
    PatternType.PREFIXED,
    "User:alice",
    "*",
    Operation.TWO_PHASE_COMMIT,
    Permission.DENY,
)


def test_names_are_read_back() -> None:
    for operation, name in OPERATION_NAMES.items():
        assert read_operation(name) == read_operation(operation.name) == operation
    for resource_type, name in RESOURCE_TYPE_NAMES.items():
        assert read_resource_type(name) == read_resource_type(resource_type.name) == resource_type
    assert read_operation("ANY") is read_operation("") is read_operation("De_scribe") is None
    assert read_resource_type("ANY") is read_resource_type("UNKNOWN") is None


@pytest.mark.parametrize("name", ["a", "*", "a*", "**", "*a"])
@pytest.mark.parametrize("pattern_type", [PatternType.LITERAL, PatternType.PREFIXED])
def test_a_pattern_is_read_back_unless_it_is_ambiguous(
    name: str, pattern_type: PatternType
) -> None:
    is_same = read_pattern(pattern_text(name, pattern_type)) == (name, pattern_type)
    assert is_same != is_pattern_text_ambiguous(name, pattern_type)
    assert is_same == (pattern_type == PatternType.PREFIXED or name in ("a", "*", "*a"))


def test_the_text_of_a_rule() -> None:
    assert rule_text(RULE) == (
        "deny TwoPhaseCommit on TransactionalId:a* for User:alice from any host"
    )
    literal = RULE._replace(name="a*", pattern_type=PatternType.LITERAL, host="10.0.0.1")
    assert rule_text(literal) == (
        "deny TwoPhaseCommit on TransactionalId:a* (literal) for User:alice from host 10.0.0.1"
    )
    assert rule_text(RULE._replace(name="a\n\u202eb")).isprintable()


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("::", "0:0:0:0:0:0:0:0"),
        ("2001:DB8::00ff", "2001:db8:0:0:0:0:0:ff"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("", ""),
        ("not:an:address", "not:an:address"),
    ],
)
def test_addresses_as_kafka_writes_them(address: str, text: str) -> None:
    assert kafka_host(address) == text
    assert kafka_host(text) == text


def test_hosts_of_rules() -> None:
    assert read_host("*") == "*"
    assert read_host("::1") == "0:0:0:0:0:0:0:1"
    assert read_host("10.0.0.1") == "10.0.0.1"
    for text in ("", "localhost", "10.0.0.0/8", "10.0.0.01", "10.0.0", "**"):
        assert read_host(text) is None
    assert can_equal_an_address("0:0:0:0:0:0:0:1")
    assert not can_equal_an_address("::1")
