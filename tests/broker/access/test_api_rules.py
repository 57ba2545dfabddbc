"""Every API has an entry in `API_RULES`, its handler asks for nothing else; shortcuts ask too."""

import ast
import importlib
import inspect
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.broker.access import Access
from penstock.broker.api_rules import API_RULES, Need
from penstock.broker.dispatch import Dispatcher, Handler
from penstock.broker.handlers import HANDLERS
from penstock.broker.peer import Peer
from penstock.core.metrics import Registry
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.codec import Message
from penstock.protocol.connection import ClientConnection, Request, ServerConnection
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.framing import ReadArena
from penstock.security.acls.values import Operation, ResourceType
from penstock.security.principal import Principal, user
from tests.broker.access.fakes import RuleSet
from tests.broker.handlers.asker import NAMED, Asker, batch_of, fresh_name, produce_request
from tests.broker.handlers.fakes import FakeServices
from tests.broker.handlers.test_versions import REQUESTS, Target, codes_in
from tests.storage.logs import PARTITION

OPEN_APIS = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
DENIED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


# --- The table ---


def test_every_handler_has_an_entry() -> None:
    assert set(HANDLERS) - set(API_RULES) == set()


def test_only_logins_and_versions_need_no_permission() -> None:
    assert {key for key, needs in API_RULES.items() if not needs} == OPEN_APIS


def test_an_api_without_an_entry_cannot_be_served() -> None:
    handlers: dict[int, Handler] = {ApiKey.VOTE: Handler(lambda _request, _context: None, 0, 0)}  # type: ignore[arg-type,return-value]
    with pytest.raises(ValueError, match=r"API_RULES for API keys \[52\]"):
        Dispatcher(FakeServices().services, handlers, Registry())


def operations_in(handler: Handler) -> set[Operation]:
    """The operations that the source of a handler names."""
    handler.load()
    name = handler.module_name or inspect.getmodule(handler.function).__name__.rpartition(".")[2]  # type: ignore[union-attr]
    source = inspect.getsource(importlib.import_module(f"penstock.broker.handlers.{name}"))
    return {
        Operation[node.attr]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "Operation"
    }


@pytest.mark.parametrize("key", HANDLERS, ids=lambda key: ApiKey(key).name)
def test_a_handler_names_only_operations_of_its_entry(key: int) -> None:
    declared = {need.operation for need in API_RULES[key]}
    assert operations_in(HANDLERS[key]) <= declared


# --- The questions of each version of each API ---


Asked = dict[int, set[Need]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """By API, the questions of handlers and shortcuts; not those for bit sets in answers."""
    found: Asked = defaultdict(set)
    allows: Callable[..., bool] = Access.allows
    allows_any: Callable[..., bool] = Access.allows_any

    def spy(
        self: Access,
        peer: Peer,
        api_key: int,
        operation: Operation,
        kind: ResourceType,
        *rest: object,
        **options: object,
    ) -> bool:
        found[api_key].add(Need(kind, operation))
        return allows(self, peer, api_key, operation, kind, *rest, **options)

    def spy_any(
        self: Access, peer: Peer, api_key: int, operation: Operation, kind: ResourceType
    ) -> bool:
        found[api_key].add(Need(kind, operation))
        return allows_any(self, peer, api_key, operation, kind)

    monkeypatch.setattr(Access, "allows", spy)
    monkeypatch.setattr(Access, "allows_any", spy_any)
    return found


def versions_of(key: int) -> range:
    versions = HANDLERS[key].versions
    return range(versions.lowest, versions.highest + 1)


@pytest.mark.parametrize("key", REQUESTS, ids=lambda key: key.name)
@pytest.mark.parametrize("is_allowed", [False, True])
def test_each_version_asks_for_the_permissions_of_its_entry(
    asker: Asker, rules: RuleSet, asked: Asked, key: ApiKey, is_allowed: bool
) -> None:
    for version in versions_of(key):
        rules.all_but()
        name = fresh_name("rules")
        target = Target(name, asker.create(name))
        asked.clear()
        if not is_allowed:
            rules.only()
        for build in REQUESTS[key]:
            asker.send(build(version, target), version)
            answer: Any = asker.receive(object)
            if is_allowed:
                assert not DENIED & set(codes_in(answer))
        assert asked[key] <= API_RULES[key]
        # DescribeCluster asks only for a bit set that a request wants.
        if key not in OPEN_APIS | {ApiKey.DESCRIBE_CLUSTER}:
            assert asked[key]
        assert set(asked) == {key}
        if not is_allowed:
            rules.all_but()
            assert asker.describe(name).topic_id == target.id


# --- Shortcuts ---


SHORTCUT_REQUESTS: dict[int, tuple[Message, int]] = {
    ApiKey.PRODUCE: (
        produce_request(PARTITION.topic, {0: batch_of(b"a", timestamps_ms=[1])}),
        NAMED,
    )
}
"""A request that the shortcut of each API answers, and its version."""


class OneUser(RuleSet):
    """Allows one user everything."""

    def allows(
        self,
        principal: Principal,
        address: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        return principal == user("alice") and address == "10.0.0.1"


def test_every_shortcut_asks() -> None:
    """A new shortcut needs a request here; one that ignores the access fails."""
    shortcuts = {key: handler.shortcut for key, handler in HANDLERS.items() if handler.shortcut}
    assert set(shortcuts) == set(SHORTCUT_REQUESTS)
    for key, shortcut in shortcuts.items():
        message, version = SHORTCUT_REQUESTS[key]
        fake = FakeServices()
        rules = OneUser()
        services = replace(fake.services, access=Access(rules, rules))
        before = fake.node.appends
        for stranger in (Peer("10.0.0.1", user("bob")), Peer("10.0.0.2", user("alice"))):
            assert shortcut(received(key, message, version), services, stranger) is None
        assert fake.node.appends == before
        alice = Peer("10.0.0.1", user("alice"))
        assert shortcut(received(key, message, version), services, alice) is not None
        assert fake.node.appends > before


def received(key: int, message: Message, version: int) -> Request:
    """The request as the broker gets it."""
    server = ServerConnection({key: (0, version)}, ReadArena())
    _, frame = ClientConnection("test").send_request(message, version)
    server.receive_data(b"".join(frame))
    request = server.next_request()
    assert request is not None
    return request
