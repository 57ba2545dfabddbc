"""`penstock acl` against a broker in this process, with an authorizer and without one."""

import io
import json
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.cli.acl import checking
from penstock.cli.acl.command import rules_of_file
from penstock.client.acl_calls import create_rules
from penstock.client.transport.addresses import parse_addresses
from penstock.client.transport.blocking import connect
from penstock.core.settings.tree import settings_of
from penstock.security.acls.roles import Role, role_rules
from penstock.security.acls.rules_file import RULES_MAX
from penstock.security.acls.values import (
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.testing import Broker
from tests.cli.conftest import Penstock

GUARDED = {
    "listener.port": 0,
    "node.storage": "memory",
    "security.authorizer": "acl",
    "security.super_users": "User:ANONYMOUS",
}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(settings_of(GUARDED)) as running:
        yield running


@pytest.fixture
def acl(penstock: Penstock, broker: Broker) -> Penstock:
    return lambda *words: penstock("acl", *words, "--bootstrap-server", broker.bootstrap_server)


def listed(acl: Penstock, *words: str) -> set[tuple[str, ...]]:
    """The rules as tuples: principal, permission, operation, type, pattern, name, host."""
    found = json.loads(acl("list", "--json", *words).output)
    keys = ("principal", "permission", "operation", "resource_type", "pattern_type", "name", "host")
    return {tuple(one[key] for key in keys) for one in found}


def test_add_list_and_remove(acl: Penstock) -> None:
    assert acl("list").output == "no rules; create one with `penstock acl add`\n"
    done = acl("add", "--principal", "User:alice", "--operation", "read", "--topic", "orders")
    text = "allow Read on Topic:orders for User:alice from any host"
    assert done == (0, f"created: {text}\n", "")
    acl("add", "--deny", "--principal", "User:eve", "--operation", "all", "--topic", "ord*")
    first, *rows = [line.split() for line in acl("list").output.splitlines()]
    assert first == ["resource", "name", "pattern", "principal", "host", "permission", "operation"]
    assert rows == [
        ["TOPIC", "ord", "PREFIXED", "User:eve", "*", "DENY", "ALL"],
        ["TOPIC", "orders", "LITERAL", "User:alice", "*", "ALLOW", "READ"],
    ]
    assert listed(acl, "--principal", "User:eve") == {
        ("User:eve", "DENY", "ALL", "TOPIC", "PREFIXED", "ord", "*")
    }
    assert listed(acl, "--permission", "allow") == {
        ("User:alice", "ALLOW", "READ", "TOPIC", "LITERAL", "orders", "*")
    }
    assert len(listed(acl, "--topic", "orders")) == 1
    assert len(listed(acl, "--topic", "orders", "--applying")) == 2
    gone = acl("remove", "--principal", "User:alice", "--yes")
    assert gone == (0, f"deleted: {text}\n", "")
    assert acl("remove", "--principal", "User:alice", "--yes").output == "no rule matches\n"
    deleted = json.loads(acl("remove", "--all", "--yes", "--json").output)
    assert [one["principal"] for one in deleted["deleted"]] == ["User:eve"]
    assert deleted["kept"] == []
    assert listed(acl) == set()


def test_each_combination_of_the_options_is_a_rule(acl: Penstock) -> None:
    done = acl(
        *("add", "--principal", "User:a", "--principal", "User:b"),
        *("--operation", "Describe", "--operation", "ALTER_CONFIGS"),
        *("--topic", "t", "--group", "g*", "--transactional-id", "*", "--cluster"),
        *("--resource", "DelegationToken:d", "--host", "10.0.0.7", "--host", "::1", "--json"),
    )
    assert len(json.loads(done.output)) == 2 * 2 * 5 * 2
    rules = listed(acl)
    assert len(rules) == 40
    assert {rule[3:6] for rule in rules} == {
        ("TOPIC", "LITERAL", "t"),
        ("GROUP", "PREFIXED", "g"),
        ("TRANSACTIONAL_ID", "LITERAL", "*"),
        ("CLUSTER", "LITERAL", "kafka-cluster"),
        ("DELEGATION_TOKEN", "LITERAL", "d"),
    }
    assert {rule[6] for rule in rules} == {"10.0.0.7", "0:0:0:0:0:0:0:1"}


def test_a_pattern_takes_names_as_they_are(acl: Penstock) -> None:
    words = ("--principal", "User:a", "--operation", "read", "--topic", "a*")
    acl("add", *words, "--pattern", "literal")
    acl("add", *words, "--pattern", "prefixed")
    assert {rule[4:6] for rule in listed(acl)} == {("LITERAL", "a*"), ("PREFIXED", "a*")}


def test_mistakes_are_reported(acl: Penstock) -> None:
    topic = ("--topic", "t")
    who = ("--principal", "User:a")
    what = ("--operation", "read")
    for words, text in [
        (("add", *who, *what), "Missing option --topic"),
        (("add", *what, *topic), "Missing option --principal"),
        (("add", *who, *topic), "Missing option --operation"),
        (("add", "--principal", "alice", *what, *topic), "'alice' is not a principal"),
        (("add", *who, "--operation", "eat", *topic), "'eat' is unknown"),
        (("add", *who, *what, *topic, "--host", "localhost"), "is not an address"),
        (("add", *who, *what, "--resource", "Table:t"), "is not TYPE:NAME"),
        (("add", *who, *what, "--topic", ""), "name of a resource is empty"),
        (("remove", "--yes"), "Select rules"),
        (("remove", "--all", *topic, "--yes"), "not both"),
        (("remove", "--all"), "cannot ask for confirmation"),
        (("list", "--topic", "t*", "--applying"), "not prefixes"),
        (("check", "--as", "User:a", *what), "Name one resource"),
        (("check", "--as", "User:a", "--operation", "all", *topic), "Name one operation"),
        (("import",), "Name a FILE"),
        (("import", "--role", "viewer"), "Missing option --principal"),
        (("import", "f", *who), "--principal is for a --role"),
        (("import", "no such file"), "cannot read no such file"),
    ]:
        outcome = acl(*words)
        assert (outcome.code, outcome.output) == (2, ""), words
        assert text in outcome.errors


def test_a_rule_that_the_broker_rejects(acl: Penstock) -> None:
    words = ("--principal", "User:a", "--operation", "read")
    done = acl("add", *words, "--topic", "good", "--topic", "x" * 1025)
    assert done.code == 1
    assert "1 of 2 rules rejected" in done.errors
    assert "1024 bytes at most" in done.errors
    assert len(listed(acl)) == 1


# --- check ---


def check(acl: Penstock, *words: str) -> tuple[int, str]:
    outcome = acl("check", *words)
    return outcome.code, outcome.output


def test_a_check_names_the_deciding_rule(acl: Penstock) -> None:
    asked = ("--as", "User:alice", "--operation", "read", "--topic", "orders")
    assert check(acl, *asked) == (1, "deny: no rule matches the resource\n")
    acl("add", "--principal", "User:alice", "--operation", "read", "--topic", "ord*")
    allowed = "allow: allowed by the rule: allow Read on Topic:ord* for User:alice from any host\n"
    assert check(acl, *asked) == (0, allowed)
    assert check(acl, "--as", "User:alice", "--operation", "describe", *asked[4:]) == (0, allowed)
    assert check(acl, *asked[:3], "write", *asked[4:]) == (1, "deny: no rule allows it\n")
    acl(
        "add",
        "--deny",
        *("--principal", "User:*", "--operation", "all", "--topic", "orders"),
        "--host",
        "10.0.0.7",
    )
    assert check(acl, *asked) == (0, allowed)
    code, text = check(acl, *asked, "--host", "10.0.0.7")
    assert code == 1
    assert text == (
        "deny: denied by the rule: deny All on Topic:orders for User:* from host 10.0.0.7\n"
    )
    document = json.loads(acl("check", *asked, "--host", "10.0.0.7", "--json").output)
    assert document["allowed"] is False
    assert document["rule"]["host"] == "10.0.0.7"
    assert (document["resource_type"], document["name"]) == ("TOPIC", "orders")


def test_a_check_knows_super_users_where_the_broker_shows_them(
    acl: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("--as", "User:root", "--operation", "alter", "--cluster")
    monkeypatch.setattr(checking, "_given_settings", lambda _: (("User:root",), False))
    assert check(acl, *asked) == (0, "allow: super user\n")
    monkeypatch.setattr(checking, "_given_settings", lambda _: (None, False))
    outcome = acl("check", *asked)
    assert outcome.code == 1
    assert "note: the super users are not known" in outcome.errors
    monkeypatch.setattr(checking, "_given_settings", lambda _: ((), True))
    assert check(acl, *asked)[0] == 0


def test_a_check_reads_the_settings_of_a_broker(acl: Penstock) -> None:
    outcome = acl("check", "--as", "User:ANONYMOUS", "--operation", "alter", "--cluster", "--json")
    document = json.loads(outcome.output)
    assert document["allowed"] is document["super_users_known"]


# --- import and export ---


def test_an_export_is_imported(acl: Penstock, tmp_path: Path) -> None:
    acl("add", "--principal", "User:a", "--operation", "read", "--topic", "t*", "--group", "*")
    acl("add", "--deny", "--principal", "User:b", "--operation", "write", "--cluster")
    before = listed(acl)
    exported = acl("export")
    assert exported.code == 0
    path = tmp_path / "rules.json"
    path.write_text(exported.output)
    acl("remove", "--all", "--yes")
    assert listed(acl) == set()
    done = acl("import", str(path))
    assert done.output.count("created: ") == 3
    assert listed(acl) == before
    assert acl("export").output == exported.output


def test_an_export_with_unusual_rules_is_imported(
    acl: Penstock, broker: Broker, tmp_path: Path
) -> None:
    """A broker keeps each principal with a colon and each host, as Kafka does."""
    usual = AclBinding(
        ResourceType.TOPIC,
        "t",
        PatternType.LITERAL,
        "User:a",
        "*",
        Operation.READ,
        Permission.ALLOW,
    )
    unusual = ("Group:devs", "User:", ":", "user:a", "User:CN=a,O=\u00e9 \u2028\n", "User: a")
    rules = [usual._replace(principal=one) for one in unusual]
    rules += [usual._replace(host=one) for one in ("", "localhost", "10.0.0.0/8", "::1")]
    (address,) = parse_addresses(broker.bootstrap_server)
    with closing(connect(address, timeout_seconds=10)) as connection:
        assert connection.carry(create_rules(rules)) == [None] * len(rules)
    before = listed(acl)
    assert len(before) == len(rules)
    path = tmp_path / "rules.json"
    path.write_text(acl("export").output)
    assert acl("remove", "--all", "--yes").code == 0
    assert acl("import", str(path)).code == 0
    assert listed(acl) == before


def test_a_file_for_an_import_may_have_more_rules_than_that_of_a_broker(tmp_path: Path) -> None:
    entries = [
        {"principal": "User:a", "operation": "Read", "resource": f"Topic:t{number}"}
        for number in range(RULES_MAX + 1)
    ]
    path = tmp_path / "rules.json"
    path.write_text(json.dumps({"rules": entries}))
    assert len(rules_of_file(str(path))) == RULES_MAX + 1


def test_rules_come_from_standard_input(acl: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{"rules":[{"principal":"User:a","operation":"Read","resource":"Topic:t"}]}'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert acl("import", "-").code == 0
    assert len(listed(acl)) == 1


def test_a_wrong_file_creates_nothing(acl: Penstock, tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    good = '{"principal":"User:a","operation":"Read","resource":"Topic:t"}'
    path.write_text('{"rules":[' + good + ', {"principal":"User:a"}]}')
    done = acl("import", str(path))
    assert done.code == 2
    assert "rules.json: rules[1] has no key 'operation'" in done.errors
    assert listed(acl) == set()


@pytest.mark.parametrize("role", list(Role))
def test_a_role_is_imported(acl: Penstock, role: Role) -> None:
    done = acl("import", "--role", role.value, "--principal", "User:a", "--principal", "User:b")
    assert done.code == 0
    assert len(listed(acl)) == 2 * len(role_rules(role, "User:a"))


# --- Other brokers ---


def test_a_rule_of_a_file_is_kept(penstock: Penstock, tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    path.write_text('{"rules":[{"principal":"User:f","operation":"Read","resource":"Topic:t"}]}')
    with Broker(settings_of(GUARDED | {"security.acl_file": str(path)})) as broker:
        server = ("--bootstrap-server", broker.bootstrap_server)
        done = penstock("acl", "remove", "--all", "--yes", *server)
    assert (done.code, done.output) == (1, "")
    assert "not deleted: allow Read on Topic:t for User:f from any host" in done.errors
    assert "rules.json: delete it there" in done.errors


def test_a_broker_without_an_authorizer(penstock: Penstock) -> None:
    with Broker() as broker:
        server = ("--bootstrap-server", broker.bootstrap_server)
        add = ("--principal", "User:a", "--operation", "read", "--topic", "t")
        for words in (("list",), ("add", *add), ("remove", "--all", "--yes"), ("export",)):
            done = penstock("acl", *words, *server)
            assert (done.code, done.output) == (1, ""), words
            assert "SECURITY_DISABLED" in done.errors
