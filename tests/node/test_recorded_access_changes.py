"""Changes of rules and users are in the audit log by name, without keys, salts and passwords."""

import json
import logging

import pytest

from penstock.core.settings.config import load_settings
from penstock.core.settings.tree import Settings
from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from penstock.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from penstock.security.acls.values import Operation, PatternType, Permission, ResourceType
from penstock.security.audit import NAMED_MAX
from penstock.testing import Broker
from tests.broker.handlers.asker import Asker

RULES = NAMED_MAX + 5


def settings_of(authorizer: str) -> Settings:
    text = f"""
[node]
storage = "memory"
[admin]
enabled = false
[listener]
port = 0
[security]
authorizer = "{authorizer}"
super_users = "User:ANONYMOUS"
"""
    return load_settings(text, {}, {}).settings


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "penstock.audit")
    return caplog


def changes_in(log: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    lines = [json.loads(one.getMessage()) for one in log.records if one.name == "penstock.audit"]
    return [one for one in lines if one["event"] == "changed"]


def creation(name: str, principal: str = "User:eve") -> AclCreation:
    return AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=name,
        resource_pattern_type=PatternType.PREFIXED,
        principal=principal,
        host="*",
        operation=Operation.WRITE,
        permission_type=Permission.ALLOW,
    )


def test_rules_are_named_when_they_are_created_and_deleted(log: pytest.LogCaptureFixture) -> None:
    wanted = tuple(creation(f"secret-{number:02}") for number in range(RULES))
    refused = creation("of-nobody", principal="not a principal")
    every = DeleteAclsFilter(
        resource_type_filter=ResourceType.ANY,
        pattern_type_filter=PatternType.ANY,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )
    with Broker(settings_of("acl")) as broker, Asker(broker.port) as asker:
        asker.ask(CreateAclsRequest(creations=(refused, *wanted)), 3, CreateAclsResponse)
        asker.ask(DeleteAclsRequest(filters=(every,)), 3, DeleteAclsResponse)
    created, deleted = changes_in(log)
    assert (created["api"], deleted["api"]) == ("CREATE_ACLS", "DELETE_ACLS")
    assert created["principal"] == "User:ANONYMOUS"
    for line in (created, deleted):
        assert line["others"] == RULES - NAMED_MAX
        assert isinstance(line["changes"], list)
        assert len(line["changes"]) == NAMED_MAX
    assert isinstance(created["changes"], list)
    assert created["changes"][0] == {
        "permission": "ALLOW",
        "principal": "User:eve",
        "host": "*",
        "operation": "WRITE",
        "resource": "TOPIC:secret-00",
        "pattern": "PREFIXED",
    }


def upsertion(name: str, mechanism: int = 1) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=4_096,
        salt=b"the-salt-of-a-user",
        salted_password=b"the-salted-password-of-a-user---",
    )


@pytest.mark.parametrize("authorizer", ["none", "acl"])
def test_users_are_named_with_an_authorizer_or_without(
    log: pytest.LogCaptureFixture, authorizer: str
) -> None:
    added = AlterUserScramCredentialsRequest(
        deletions=(), upsertions=(upsertion("alice"), upsertion("bob", 2), upsertion("carol", 9))
    )
    removed = AlterUserScramCredentialsRequest(
        deletions=(ScramCredentialDeletion(name="alice", mechanism=1),), upsertions=()
    )
    with Broker(settings_of(authorizer)) as broker, Asker(broker.port) as asker:
        for request in (added, removed, removed):
            asker.ask(request, 0, AlterUserScramCredentialsResponse)
    first, second = changes_in(log)
    assert first["changes"] == [
        {"user": "alice", "mechanism": "SCRAM-SHA-256", "change": "set"},
        {"user": "bob", "mechanism": "SCRAM-SHA-512", "change": "set"},
    ]
    assert second["changes"] == [
        {"user": "alice", "mechanism": "SCRAM-SHA-256", "change": "deleted"}
    ]
    assert first["api"] == second["api"] == "ALTER_USER_SCRAM_CREDENTIALS"
    assert "salt" not in log.text


def test_a_broker_without_identities_records_no_other_changes(
    log: pytest.LogCaptureFixture,
) -> None:
    with Broker(settings_of("none")) as broker, Asker(broker.port) as asker:
        asker.create("orders")
    assert [one for one in log.records if one.name == "penstock.audit"] == []
