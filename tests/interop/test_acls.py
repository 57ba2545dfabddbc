"""Access rules and users on Penstock and on Apache Kafka: permissions, tools, and real logins.

Both brokers have an authorizer that denies what no rule allows. The harness is a super user on the
listener PLAINTEXT; clients log in on SASL_PLAINTEXT.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, admin

from penstock.cli.main import run as run_penstock
from penstock.client.acl_calls import create_rules, delete_rules, describe_rules
from penstock.client.security.options import parse_security
from penstock.client.transport.addresses import parse_addresses
from penstock.client.transport.blocking import BlockingConnection, connect
from penstock.client.user_calls import (
    delete_credential,
    describe_users,
    salt_password,
    set_password,
)
from penstock.core.errors import AuthenticationError, BrokerAnswerError
from penstock.security.acls.filters import AclFilter
from penstock.security.acls.values import CLUSTER_NAME
from penstock.security.acls.values import AclBinding as Rule
from penstock.security.acls.values import Operation as Asked
from penstock.security.acls.values import PatternType as Pattern
from penstock.security.acls.values import Permission as Effect
from penstock.security.acls.values import ResourceType as Kind
from penstock.security.secret import Secret
from tests.broker.handlers.asker import Asker, fresh_name
from tests.oracle.kafka_jars import run_kafka_tool
from tests.oracle.secured_kafka import (
    PLAINTEXT,
    SASL_PLAINTEXT,
    SCRAM_256,
    SCRAM_512,
    USER,
    secured_kafka,
)
from tests.oracle.secured_penstock import SecuredBroker, secured_penstock

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

ALICE = f"User:{USER}"
SECONDS_MAX = 20.0
ANSWER_SECONDS = 10.0
ACL_TOOL = "org.apache.kafka.tools.AclCommand"
CONFIG_TOOL = "kafka.admin.ConfigCommand"
DENIED = "CLUSTER_AUTHORIZATION_FAILED"


@pytest.fixture(scope="module", params=["kafka", "penstock"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredBroker]:
    start: Any = secured_kafka if request.param == "kafka" else secured_penstock
    folder = tmp_path_factory.mktemp(request.param)
    with start(folder, authorizer=True, allow_everyone_if_no_acl_found=False) as running:
        yield running


@pytest.fixture
def root(broker: SecuredBroker) -> Iterator[BlockingConnection]:
    """A connection of the super user; afterwards there is no rule."""
    address = parse_addresses(broker.bootstrap(PLAINTEXT))[0]
    connection = connect(address, timeout_seconds=ANSWER_SECONDS)
    yield connection
    connection.carry(delete_rules([AclFilter()]))
    until(lambda: not connection.carry(describe_rules(AclFilter())))
    connection.close()


@pytest.fixture
def alice(broker: SecuredBroker) -> Iterator[BlockingConnection]:
    """A connection of a user without a permission."""
    connection = logged_in(broker, USER, broker.password(SCRAM_256), SCRAM_256)
    yield connection
    connection.close()


def logged_in(
    broker: SecuredBroker, user: str, password: str, mechanism: str
) -> BlockingConnection:
    security = parse_security(login(broker, user, password, mechanism))
    address = parse_addresses(broker.bootstrap(SASL_PLAINTEXT))[0]
    return connect(address, timeout_seconds=ANSWER_SECONDS, security=security)


def login(broker: SecuredBroker, user: str, password: str, mechanism: str) -> dict[str, str]:
    return {
        "bootstrap.servers": broker.bootstrap(SASL_PLAINTEXT),
        "security.protocol": SASL_PLAINTEXT,
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def until(condition: Callable[[], object]) -> None:
    """Kafka's brokers learn of changes some milliseconds later."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def until_equal(found: Callable[[], object], wanted: object) -> None:
    """Wait until a function returns this."""
    until(lambda: found() == wanted)


def rule(kind: Kind, name: str, operation: Asked, effect: Effect = Effect.ALLOW) -> Rule:
    return Rule(kind, name, Pattern.LITERAL, ALICE, "*", operation, effect)


def error_of(connection: BlockingConnection, call: Any) -> str:  # noqa: ANN401 (of any result)
    """The name of the error of a call, or an empty text."""
    try:
        outcome = connection.carry(call)
    except BrokerAnswerError as error:
        return error.name
    if isinstance(outcome, list):
        errors = {one.name for one in outcome if isinstance(one, BrokerAnswerError)}
        return ", ".join(sorted(errors))
    return ""


# --- Permissions ---

READS = {"describe rules": describe_rules(AclFilter()), "describe users": describe_users([USER])}
"""A user is named: Kafka 4.3.1 does not answer a denied request for all users."""
WRITES = {
    "create rules": create_rules([rule(Kind.TOPIC, "t", Asked.READ)]),
    "delete rules": delete_rules([AclFilter(name="nothing")]),
    "set password": set_password("new", salt_password(Secret("p"), SCRAM_256, 4096, b"salt")),
}


def allowed(connection: BlockingConnection) -> set[str]:
    """The calls that are not denied; no other error may occur."""
    outcomes = {name: error_of(connection, call) for name, call in (READS | WRITES).items()}
    assert set(outcomes.values()) <= {"", DENIED}
    return {name for name, error in outcomes.items() if not error}


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ((), set()),
        ((Asked.DESCRIBE,), set(READS)),
        ((Asked.ALTER,), set(READS | WRITES)),
        ((Asked.ALL,), set(READS | WRITES)),
        ((Asked.DESCRIBE_CONFIGS, Asked.ALTER_CONFIGS, Asked.CREATE, Asked.CLUSTER_ACTION), set()),
    ],
    ids=["none", "describe", "alter", "all", "others"],
)
def test_permissions_on_the_cluster(
    root: BlockingConnection,
    alice: BlockingConnection,
    operations: tuple[Asked, ...],
    expected: set[str],
) -> None:
    rules = [rule(Kind.CLUSTER, CLUSTER_NAME, operation) for operation in operations]
    assert root.carry(create_rules(rules)) == [None] * len(rules)
    until(lambda: allowed(alice) == expected)


def test_a_denied_request_changes_nothing(
    root: BlockingConnection, alice: BlockingConnection
) -> None:
    kept = rule(Kind.GROUP, "g", Asked.READ)
    root.carry(create_rules([kept]))
    until(lambda: root.carry(describe_rules(AclFilter())) == [kept])
    assert error_of(alice, delete_rules([AclFilter()])) == DENIED
    assert error_of(alice, create_rules([rule(Kind.TOPIC, "t", Asked.ALL)])) == DENIED
    assert error_of(alice, delete_credential(USER, SCRAM_256)) == DENIED
    assert root.carry(describe_rules(AclFilter())) == [kept]
    (found,) = root.carry(describe_users([USER]))
    assert set(found.iterations) == {SCRAM_256, SCRAM_512}


def test_a_deny_wins_over_an_allow(root: BlockingConnection, alice: BlockingConnection) -> None:
    both = [
        rule(Kind.CLUSTER, CLUSTER_NAME, Asked.ALL),
        rule(Kind.CLUSTER, CLUSTER_NAME, Asked.ALTER, Effect.DENY),
    ]
    root.carry(create_rules(both))
    until(lambda: allowed(alice) == set(READS))


# --- Clients ---


def delivered(broker: SecuredBroker, topic: str) -> str:
    """Produce one record as alice; the name of its error, or an empty text."""
    settings: dict[str, Any] = login(broker, USER, broker.password(SCRAM_512), SCRAM_512)
    producer = Producer({**settings, "message.timeout.ms": 5_000, "log_level": 0})
    errors: list[KafkaError | None] = []
    producer.produce(topic, b"value", on_delivery=lambda error, _: errors.append(error))
    producer.flush(ANSWER_SECONDS)
    (error,) = errors
    return "" if error is None else error.name()


def test_rules_are_in_force_for_a_producer(broker: SecuredBroker, root: BlockingConnection) -> None:
    topic = fresh_name("produced")
    with Asker(broker.ports[PLAINTEXT], is_kafka=broker.broker.name == "kafka") as asker:
        asker.create(topic)
    assert delivered(broker, topic) == "TOPIC_AUTHORIZATION_FAILED"
    write = rule(Kind.TOPIC, topic, Asked.WRITE)
    idempotent = rule(Kind.CLUSTER, CLUSTER_NAME, Asked.IDEMPOTENT_WRITE)
    root.carry(create_rules([write, idempotent]))
    until(lambda: not delivered(broker, topic))
    root.carry(delete_rules([AclFilter(*write)]))
    until(lambda: delivered(broker, topic) == "TOPIC_AUTHORIZATION_FAILED")


def rdkafka_rule(kind: str, name: str, pattern: str = "LITERAL") -> Any:  # noqa: ANN401 (untyped)
    """A rule that lets alice read, as librdkafka's client has it."""
    client: Any = admin
    return client.AclBinding(
        client.ResourceType[kind],
        name,
        client.ResourcePatternType[pattern],
        ALICE,
        "*",
        client.AclOperation.READ,
        client.AclPermissionType.ALLOW,
    )


def test_librdkafka_manages_rules(broker: SecuredBroker, root: BlockingConnection) -> None:
    library: Any = admin
    client = library.AdminClient({"bootstrap.servers": broker.bootstrap(PLAINTEXT)})
    binding = rdkafka_rule("TOPIC", "orders", "PREFIXED")
    (created,) = client.create_acls([binding]).values()
    created.result(ANSWER_SECONDS)
    wanted = [Rule(Kind.TOPIC, "orders", Pattern.PREFIXED, ALICE, "*", Asked.READ, Effect.ALLOW)]
    until(lambda: root.carry(describe_rules(AclFilter())) == wanted)
    matching = library.AclBindingFilter(
        library.ResourceType.TOPIC,
        "orders-1",
        library.ResourcePatternType.MATCH,
        None,
        None,
        library.AclOperation.ANY,
        library.AclPermissionType.ANY,
    )
    assert client.describe_acls(matching).result(ANSWER_SECONDS) == [binding]
    (deleted,) = client.delete_acls([matching]).values()
    assert deleted.result(ANSWER_SECONDS) == [binding]
    until(lambda: not root.carry(describe_rules(AclFilter())))
    # librdkafka's BROKER is the type of the cluster.
    (refused,) = client.create_acls([rdkafka_rule("BROKER", "not the cluster")]).values()
    with pytest.raises(KafkaException) as caught:
        refused.result(ANSWER_SECONDS)
    assert caught.value.args[0].code() == KafkaError.INVALID_REQUEST


# --- Kafka's tools ---


def test_kafkas_tool_manages_rules(broker: SecuredBroker, root: BlockingConnection) -> None:
    where = ["--bootstrap-server", broker.bootstrap(PLAINTEXT)]
    who = ["--allow-principal", ALICE]
    run_kafka_tool(ACL_TOOL, [*where, "--add", *who, "--producer", "--topic", "orders"])
    operations = {Asked.WRITE, Asked.DESCRIBE, Asked.CREATE}
    wanted = {rule(Kind.TOPIC, "orders", operation) for operation in operations}
    until(lambda: set(root.carry(describe_rules(AclFilter()))) == wanted)
    printed = run_kafka_tool(ACL_TOOL, [*where, "--list", "--topic", "orders"])
    assert "resourceType=TOPIC, name=orders, patternType=LITERAL" in printed
    for operation in operations:
        entry = f"principal={ALICE}, host=*, operation={operation.name}, permissionType=ALLOW"
        assert entry in printed
    run_kafka_tool(ACL_TOOL, [*where, "--remove", "--force", "--topic", "orders"])
    until(lambda: not root.carry(describe_rules(AclFilter())))


def test_kafkas_tool_manages_users(broker: SecuredBroker, root: BlockingConnection) -> None:
    name = fresh_name("tool")
    where = ["--bootstrap-server", broker.bootstrap(PLAINTEXT), "--entity-type", "users"]
    credential = f"{SCRAM_512}=[iterations=5000,password=secret]"
    run_kafka_tool(
        CONFIG_TOOL, [*where, "--entity-name", name, "--alter", "--add-config", credential]
    )
    until(lambda: [one.user for one in root.carry(describe_users([name]))] == [name])
    printed = run_kafka_tool(CONFIG_TOOL, [*where, "--describe"])
    assert f"user-principal '{name}' are {SCRAM_512}=iterations=5000" in printed
    logged_in(broker, name, "secret", SCRAM_512).close()
    deleted = ["--alter", "--delete-config", SCRAM_512]
    run_kafka_tool(CONFIG_TOOL, [*where, "--entity-name", name, *deleted])
    until(lambda: not root.carry(describe_users([name])))


# --- Penstock's commands ---


@pytest.fixture
def penstock(
    broker: SecuredBroker, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    def run(*words: str) -> tuple[int, str]:
        capfd.readouterr()
        code = run_penstock([*words, "--bootstrap-server", broker.bootstrap(PLAINTEXT)])
        captured = capfd.readouterr()
        return code, captured.out or captured.err

    return run


def test_our_command_manages_rules(
    root: BlockingConnection, penstock: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    one = ("--principal", ALICE, "--operation", "read", "--topic", "ord*")
    assert penstock("acl", "add", *one)[0] == 0
    until(lambda: len(root.carry(describe_rules(AclFilter()))) == 1)
    code, text = penstock("acl", "list", "--json")
    assert (code, [rule["name"] for rule in json.loads(text)]) == (0, ["ord"])
    code, text = penstock("acl", "check", "--as", ALICE, "--operation", "read", "--topic", "orders")
    assert (code, text.split(":")[0]) == (0, "allow")
    code, exported = penstock("acl", "export")
    assert code == 0
    code, text = penstock("acl", "remove", "--all", "--yes")
    assert (code, text.count("deleted: ")) == (0, 1)
    until(lambda: not root.carry(describe_rules(AclFilter())))
    path = tmp_path / "rules.json"
    path.write_text(exported)
    assert penstock("acl", "import", str(path))[0] == 0
    assert penstock("acl", "import", "--role", "viewer", "--principal", "User:v")[0] == 0
    until(lambda: len(root.carry(describe_rules(AclFilter()))) == 8)


def test_a_check_says_what_the_broker_does(
    broker: SecuredBroker, root: BlockingConnection, penstock: Callable[..., tuple[int, str]]
) -> None:
    topic = fresh_name("checked")
    with Asker(broker.ports[PLAINTEXT], is_kafka=broker.broker.name == "kafka") as asker:
        asker.create(topic)
    asked = ["acl", "check", "--as", ALICE, "--operation", "write", "--topic", topic]
    asked += ["--host", "127.0.0.1"]
    write = rule(Kind.TOPIC, topic, Asked.WRITE)
    here = rule(Kind.TOPIC, topic, Asked.ALL, Effect.DENY)._replace(host="127.0.0.1")
    idempotent = rule(Kind.CLUSTER, CLUSTER_NAME, Asked.IDEMPOTENT_WRITE)
    for rules, is_allowed in (([], False), ([write, idempotent], True), ([write, here], False)):
        root.carry(delete_rules([AclFilter()]))
        root.carry(create_rules(rules))
        count = len(rules)
        until_equal(lambda: len(root.carry(describe_rules(AclFilter()))), count)
        until_equal(lambda: delivered(broker, topic) == "", is_allowed)
        assert penstock(*asked)[0] == (0 if is_allowed else 1)


def test_our_command_manages_users(
    broker: SecuredBroker,
    root: BlockingConnection,
    penstock: Callable[..., tuple[int, str]],
    tmp_path: Path,
) -> None:
    name = fresh_name("ours")
    secret = tmp_path / "password"
    mechanisms: list[str] = []
    for mechanism, words in ((SCRAM_512, ()), (SCRAM_256, ("--mechanism", SCRAM_256))):
        mechanisms.append(mechanism)
        secret.write_text(f"first {mechanism}\n")
        secret.chmod(0o600)
        added = penstock("user", "add", name, *words, "--password-file", str(secret))
        assert added[0] == 0, added
        until_equal(lambda: iterations(root, name).keys() >= {*mechanisms}, True)
        logged_in(broker, name, f"first {mechanism}", mechanism).close()
    assert iterations(root, name) == {SCRAM_256: 8192, SCRAM_512: 8192}
    secret.write_text("second")
    assert penstock("user", "password", name, "--password-file", str(secret))[0] == 0
    until(lambda: can_log_in(broker, name, "second", SCRAM_512))
    assert can_log_in(broker, name, "second", SCRAM_256)
    assert not can_log_in(broker, name, f"first {SCRAM_512}", SCRAM_512)
    code, text = penstock("user", "list", name, "--json")
    assert (code, json.loads(text)[0]["user"]) == (0, name)
    assert penstock("user", "remove", name, "--yes")[0] == 0
    until(lambda: not iterations(root, name))
    until(lambda: not can_log_in(broker, name, "second", SCRAM_512))


def iterations(root: BlockingConnection, name: str) -> dict[str, int]:
    found = root.carry(describe_users([name]))
    return found[0].iterations if found else {}


def can_log_in(broker: SecuredBroker, user: str, password: str, mechanism: str) -> bool:
    try:
        logged_in(broker, user, password, mechanism).close()
    except AuthenticationError:
        return False
    return True


# --- Restarts ---


def test_rules_and_users_outlive_the_broker(tmp_path: Path) -> None:
    """On Penstock, after SIGKILL."""
    with secured_penstock(
        tmp_path, authorizer=True, allow_everyone_if_no_acl_found=False
    ) as running:
        address = parse_addresses(running.bootstrap(PLAINTEXT))[0]
        kept = rule(Kind.CLUSTER, CLUSTER_NAME, Asked.DESCRIBE)
        root = connect(address, timeout_seconds=ANSWER_SECONDS)
        root.carry(create_rules([kept]))
        root.carry(set_password("new", salt_password(Secret("p"), SCRAM_256, 4096, b"salt")))
        root.close()
        running.broker.kill()
        running.broker.start()
        alice = logged_in(running, USER, running.password(SCRAM_256), SCRAM_256)
        assert allowed(alice) == set(READS)
        alice.close()
        assert can_log_in(running, "new", "p", SCRAM_256)
