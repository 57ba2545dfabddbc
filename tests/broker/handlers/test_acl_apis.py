"""CreateAcls, DescribeAcls and DeleteAcls, as Kafka does them with its StandardAuthorizer."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.settings.tree import settings_of
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from penstock.security.acls.rules_file import format_rules
from penstock.security.acls.values import (
    CLUSTER_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.testing import Broker
from tests.broker.handlers.acls import (
    alter,
    condition,
    create,
    creation,
    delete,
    deletion,
    describe,
    described,
    exactly,
    rule,
    upsertion,
)
from tests.broker.handlers.asker import Asker, fresh_name
from tests.oracle.secured_kafka import PLAINTEXT, secured_kafka

DONE = (0, "")
DELETED = (0, None)
INVALID = int(ErrorCode.INVALID_REQUEST)
GUARDED = {
    "listener.port": 0,
    "node.storage": "memory",
    "security.authorizer": "acl",
    "security.super_users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def guarded_penstock() -> Iterator[int]:
    with Broker(settings_of(GUARDED)) as running:
        yield running.port


@pytest.fixture(scope="module")
def denying_penstock() -> Iterator[int]:
    with Broker(settings_of(GUARDED | {"security.super_users": "User:admin"})) as running:
        yield running.port


@pytest.fixture(scope="module")
def guarded_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with secured_kafka(tmp_path_factory.mktemp("guarded"), authorizer=True) as running:
        yield running.ports[PLAINTEXT]


@pytest.fixture(params=["penstock", pytest.param("kafka", marks=pytest.mark.interop)])
def asker(request: pytest.FixtureRequest) -> Iterator[Asker]:
    """A connection of a super user to a broker with an authorizer."""
    port = request.getfixturevalue(f"guarded_{request.param}")
    with Asker(port, is_kafka=request.param == "kafka") as connection:
        yield connection


def of(asker: Asker, principal: str) -> set[AclBinding]:
    return described(asker, principal_filter=principal)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_rules_are_created_listed_and_deleted(asker: Asker, version: int) -> None:
    principal = f"User:{fresh_name()}"
    rules = [
        rule("orders", principal=principal),
        rule("*", principal=principal, permission=Permission.DENY),
        rule("ord", principal=principal, pattern=PatternType.PREFIXED, host="10.0.0.1"),
        rule("g", principal=principal, resource_type=ResourceType.GROUP, operation=Operation.ALL),
        rule(
            CLUSTER_NAME,
            principal=principal,
            resource_type=ResourceType.CLUSTER,
            operation=Operation.ALTER,
        ),
    ]
    assert create(asker, *rules, version=version) == [DONE] * 5
    asker.until(lambda: described(asker, version, principal_filter=principal) == set(rules))
    assert delete(asker, exactly(rules[0]), version=version) == [(DELETED, {rules[0]: DELETED})]
    asker.until(lambda: of(asker, principal) == set(rules[1:]))
    ((outcome, found),) = delete(asker, condition(principal_filter=principal), version=version)
    assert (outcome, set(found)) == (DELETED, set(rules[1:]))
    asker.until(lambda: not of(asker, principal))


def test_a_rule_that_exists_is_created_again_with_success(asker: Asker) -> None:
    principal = f"User:{fresh_name()}"
    one = rule("t", principal=principal)
    assert create(asker, one, one) == [DONE, DONE]
    asker.until(lambda: of(asker, principal) == {one})
    assert create(asker, one) == [DONE]
    assert of(asker, principal) == {one}


@pytest.mark.parametrize(
    "fields",
    [
        {"resource_name": "*", "resource_pattern_type": PatternType.PREFIXED},
        {"resource_name": "a b/c"},
        {"resource_name": "ü"},
        {"principal": ":"},
        {"principal": "User:"},
        {"principal": "Role:x"},
        {"principal": "user:x"},
        {"host": ""},
        {"host": "localhost"},
        {"host": "10.0.0.0/8"},
        {"operation": Operation.CLUSTER_ACTION},
        {"resource_type": ResourceType.DELEGATION_TOKEN, "operation": Operation.DESCRIBE},
        {"resource_type": ResourceType.USER, "operation": Operation.CREATE_TOKENS},
        {
            "resource_type": ResourceType.TRANSACTIONAL_ID,
            "operation": Operation.TWO_PHASE_COMMIT,
        },
    ],
    ids=str,
)
def test_rules_that_kafka_accepts_too(asker: Asker, fields: dict[str, object]) -> None:
    assert create(asker, creation(rule(fresh_name()), **fields)) == [DONE]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"resource_name": ""}, "Invalid empty resource name"),
        (
            {"resource_type": ResourceType.CLUSTER, "resource_name": "x"},
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        (
            {"resource_type": ResourceType.CLUSTER, "resource_name": "*"},
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        (
            {"principal": "alice"},
            (
                "Could not parse principal from `alice` (no colon is present separating the "
                "principal type from the principal name)"
            ),
        ),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": 9}, "Invalid patternType UNKNOWN"),
        ({"operation": 99}, "Invalid operation UNKNOWN"),
        ({"permission_type": 9}, "Invalid permissionType UNKNOWN"),
    ],
    ids=str,
)
def test_wrong_rules_are_refused_one_by_one(
    asker: Asker, fields: dict[str, object], message: str
) -> None:
    good = rule(fresh_name())
    outcomes = create(asker, good, creation(rule("t"), **fields))
    assert outcomes == [DONE, (INVALID, message)]
    asker.until(lambda: good in described(asker, resource_name_filter=good.name))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"resource_type": ResourceType.ANY}, "Invalid resourceType ANY"),
        ({"resource_type": ResourceType.UNKNOWN}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": PatternType.MATCH}, "Invalid patternType MATCH"),
        ({"operation": Operation.ANY}, "Invalid operation ANY"),
        ({"permission_type": Permission.ANY}, "Invalid permissionType ANY"),
    ],
    ids=str,
)
def test_values_of_filters_are_refused_in_a_rule(
    guarded_penstock: int, fields: dict[str, object], message: str
) -> None:
    """Kafka answers UNKNOWN_SERVER_ERROR to the whole request, or closes the connection."""
    with Asker(guarded_penstock) as asker:
        outcomes = create(asker, rule(fresh_name()), creation(rule("t"), **fields))
    assert outcomes == [DONE, (INVALID, message)]


def test_texts_of_rules_are_bounded(guarded_penstock: int) -> None:
    """Kafka accepts 32,767 bytes for each."""
    with Asker(guarded_penstock) as asker:
        ((code, message),) = create(asker, rule("x" * 1025))
    assert code == ErrorCode.POLICY_VIOLATION
    assert message == "The resource name of an ACL may have 1024 bytes at most."


def test_filters_select_rules(asker: Asker) -> None:
    principal, other = f"User:{fresh_name()}", f"User:{fresh_name()}"
    literal = rule("orders", principal=principal)
    wildcard = rule("*", principal=principal, operation=Operation.WRITE)
    prefixed = rule("ord", principal=principal, pattern=PatternType.PREFIXED)
    character = rule("*", principal=principal, pattern=PatternType.PREFIXED)
    denied = rule("orders", principal=other, permission=Permission.DENY, host="10.0.0.1")
    group = rule("orders", principal=other, resource_type=ResourceType.GROUP)
    every = [literal, wildcard, prefixed, character, denied, group]
    assert create(asker, *every) == [DONE] * len(every)
    asker.until(lambda: of(asker, principal) | of(asker, other) == set(every))

    def matching(**fields: object) -> set[AclBinding]:
        return described(asker, **fields) & set(every)

    topic: dict[str, object] = {"resource_type_filter": ResourceType.TOPIC}
    match: dict[str, object] = {"pattern_type_filter": PatternType.MATCH}
    assert matching(**topic, resource_name_filter="orders") == {literal, denied}
    assert matching(**topic, **match, resource_name_filter="orders") == {
        literal,
        wildcard,
        prefixed,
        denied,
    }
    assert matching(**topic, **match, resource_name_filter="*") == {wildcard, character}
    assert matching(**match) == set(every)
    assert matching(pattern_type_filter=PatternType.PREFIXED) == {prefixed, character}
    assert matching(**topic, resource_name_filter="*") == {wildcard, character}
    assert matching(host_filter="10.0.0.1") == {denied}
    assert matching(operation=Operation.WRITE) == {wildcard}
    assert matching(permission_type=Permission.DENY) == {denied}
    assert matching(resource_type_filter=ResourceType.GROUP) == {group}
    assert matching(resource_name_filter="") == set()
    assert matching(principal_filter="alice") == set()
    assert matching(resource_type_filter=99) == set()
    assert matching(pattern_type_filter=9) == set()
    assert matching(operation=99) == set()
    assert matching(permission_type=9) == set()


def test_filters_of_one_deletion_may_overlap(asker: Asker) -> None:
    principal = f"User:{fresh_name()}"
    rules = [rule(name, principal=principal) for name in "abc"]
    create(asker, *rules)
    asker.until(lambda: of(asker, principal) == set(rules))
    outcomes = delete(
        asker,
        exactly(rules[0]),
        condition(principal_filter=principal),
        condition(resource_type_filter=99),
        condition(operation=99),
        condition(resource_name_filter="nothing"),
        exactly(rules[1]),
    )
    assert [(outcome, set(found)) for outcome, found in outcomes] == [
        (DELETED, {rules[0]}),
        (DELETED, set(rules)),
        ((INVALID, "Unknown patternFilter."), set()),
        ((INVALID, "Unknown entryFilter."), set()),
        (DELETED, set()),
        (DELETED, {rules[1]}),
    ]
    asker.until(lambda: not of(asker, principal))


def test_requests_without_rules(asker: Asker) -> None:
    assert create(asker) == []
    assert delete(asker) == []


@pytest.mark.slow
def test_a_request_changes_ten_thousand_rules_at_most(asker: Asker) -> None:
    principal = f"User:{fresh_name()}"
    rules = [rule(f"t{number}", principal=principal) for number in range(10_001)]
    text = "Unable to perform excessively large batch operation."
    assert set(create(asker, *rules)) == {(int(ErrorCode.POLICY_VIOLATION), text)}
    assert set(create(asker, *rules[1:])) == {DONE}
    assert create(asker, rules[0]) == [DONE]
    asker.until(lambda: len(of(asker, principal)) == 10_001)
    text = "Cannot remove more than 10000 acls in a single delete operation."
    everything = condition(principal_filter=principal)
    assert delete(asker, exactly(rules[0]), everything) == [((INVALID, text), {})] * 2
    assert delete(asker, exactly(rules[0])) == [(DELETED, {rules[0]: DELETED})]
    asker.until(lambda: rules[0] not in of(asker, principal))
    ((outcome, found),) = delete(asker, everything)
    assert (outcome, len(found)) == (DELETED, 10_000)
    asker.until(lambda: not of(asker, principal))


class TestWithoutAnAuthorizer:
    """The broker of other tests has none."""

    @pytest.fixture(params=["penstock", pytest.param("kafka", marks=pytest.mark.interop)])
    def open_asker(self, request: pytest.FixtureRequest) -> Iterator[Asker]:
        running = request.getfixturevalue("kafka" if request.param == "kafka" else "broker")
        with Asker(running.port, is_kafka=request.param == "kafka") as connection:
            yield connection

    def test_security_is_disabled(self, open_asker: Asker) -> None:
        disabled = int(ErrorCode.SECURITY_DISABLED)
        text = "No Authorizer is configured."
        assert create(open_asker, rule("a"), rule("")) == [(disabled, text)] * 2
        assert (
            delete(open_asker, condition(), condition(operation=99)) == [((disabled, text), {})] * 2
        )
        answer = describe(open_asker)
        assert (int(answer.error_code), answer.error_message, answer.resources) == (
            disabled,
            "No Authorizer is configured on the broker",
            (),
        )


class TestWithoutPermission:
    """A client that is not a super user; `tests.interop.test_acls` has the same on Kafka."""

    DENIED = (int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), "Cluster authorization failed.")

    def test_rules_are_neither_shown_nor_changed(self, denying_penstock: int) -> None:
        with Asker(denying_penstock) as asker:
            assert create(asker, rule("a"), rule("")) == [self.DENIED] * 2
            assert delete(asker, condition(), condition(operation=99)) == [(self.DENIED, {})] * 2
            answer = describe(asker)
        assert (int(answer.error_code), answer.error_message) == self.DENIED
        assert answer.resources == ()

    def test_users_are_neither_shown_nor_changed(self, denying_penstock: int) -> None:
        with Asker(denying_penstock) as asker:
            changes = (upsertion("u"), upsertion("u"), deletion("v"))
            assert alter(asker, *changes) == {"u": self.DENIED, "v": self.DENIED}
            answer = asker.ask(
                DescribeUserScramCredentialsRequest(users=(UserName(name="u"),)),
                0,
                DescribeUserScramCredentialsResponse,
            )
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert (answer.error_code, answer.error_message) == (denied, None)
        assert [(one.user, one.error_code) for one in answer.results] == [("", denied)]


class TestRulesOfAFile:
    """Rules of a file are in force and listed, and only the file deletes them."""

    FIXED = rule("fixed", principal="User:f")

    @pytest.fixture
    def port(self, tmp_path: Path) -> Iterator[int]:
        path = tmp_path / "rules.json"
        path.write_text(format_rules([self.FIXED]))
        with Broker(settings_of(GUARDED | {"security.acl_file": str(path)})) as running:
            yield running.port

    def test_they_are_listed_and_not_deleted(self, port: int) -> None:
        other = rule("other", principal="User:f")
        with Asker(port) as asker:
            assert described(asker) == {self.FIXED}
            assert create(asker, other) == [DONE]
            assert described(asker) == {self.FIXED, other}
            (everything, one, nothing) = delete(
                asker, condition(), exactly(self.FIXED), exactly(rule("nothing"))
            )
            code, message = everything[1].pop(self.FIXED)
            assert code == ErrorCode.POLICY_VIOLATION
            assert "rules.json: delete it there." in (message or "")
            assert everything == (DELETED, {other: DELETED})
            assert one == (DELETED, {self.FIXED: (code, message)})
            assert nothing == (DELETED, {})
            assert described(asker) == {self.FIXED}

    def test_a_rule_of_both_is_listed_once_and_stays_in_the_file(self, port: int) -> None:
        with Asker(port) as asker:
            assert create(asker, self.FIXED) == [DONE]
            assert described(asker) == {self.FIXED}
            delete(asker, exactly(self.FIXED))
            assert described(asker) == {self.FIXED}
