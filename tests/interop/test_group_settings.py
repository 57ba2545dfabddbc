"""Settings of single groups on Penstock and on Apache Kafka, by librdkafka, Kafka's tool and ours.

Settings of one tool are shown by the others; wrong settings are rejected with the same code; a
silent member is removed after the session timeout of its own group.
"""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import consumer_group_describe, consumer_group_heartbeat
from tests.broker.handlers.asker import Asker
from tests.broker.handlers.groups import ready
from tests.client.conftest import Commands
from tests.oracle.cache import OracleError
from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.kafka_jars import run_kafka_tool
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
TOOL = "kafka.admin.ConfigCommand"
SHORT_SESSION_MS = 2_000
SECONDS_MAX = 30.0
KAFKA = {
    "group.consumer.min.session.timeout.ms": str(SHORT_SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "500",
}
PENSTOCK = {
    "PENSTOCK_GROUPS__CONSUMER_SESSION_TIMEOUT_MS_MIN": str(SHORT_SESSION_MS),
    "PENSTOCK_GROUPS__CONSUMER_HEARTBEAT_INTERVAL_MS_MIN": "500",
}


@pytest.fixture(scope="module", params=["kafka", "penstock"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningBroker]:
    folder = tmp_path_factory.mktemp(request.param)
    made = (
        kafka_broker(folder, properties=KAFKA)
        if request.param == "kafka"
        else penstock_broker(folder, environment=PENSTOCK)
    )
    with made as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: RunningBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def change(admin: AdminClient, group: str, **edits: tuple[AlterConfigOpType, str]) -> None:
    """Edit settings, their dots written as underscores; raises what the broker answers."""
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=operation)
        for name, (operation, value) in edits.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(SECONDS_MAX)


def own_settings(admin: AdminClient, group: str) -> dict[str, str]:
    """What the group overrides."""
    asked = admin.describe_configs([ConfigResource(ResourceType.GROUP, group)])
    (future,) = asked.values()
    return {
        name: entry.value
        for name, entry in future.result(SECONDS_MAX).items()
        if entry.source == ConfigSource.GROUP_CONFIG.value
    }


def until_own(admin: AdminClient, group: str, wanted: dict[str, str]) -> None:
    """Kafka answers before its brokers have heard of a change."""
    deadline = time.monotonic() + SECONDS_MAX
    while own_settings(admin, group) != wanted:
        assert time.monotonic() < deadline, own_settings(admin, group)
        time.sleep(0.02)


def test_a_client_sets_describes_and_deletes(admin: AdminClient) -> None:
    assert own_settings(admin, "by-client") == {}
    change(admin, "by-client", consumer_session_timeout_ms=(AlterConfigOpType.SET, "50000"))
    until_own(admin, "by-client", {SESSION: "50000"})
    change(admin, "by-client", consumer_session_timeout_ms=(AlterConfigOpType.DELETE, ""))
    until_own(admin, "by-client", {})


REFUSED: list[tuple[str, tuple[AlterConfigOpType, str], int]] = [
    (SESSION, (AlterConfigOpType.SET, "1999"), KafkaError.INVALID_CONFIG),
    (SESSION, (AlterConfigOpType.SET, "60001"), KafkaError.INVALID_CONFIG),
    (SESSION, (AlterConfigOpType.SET, "5000"), KafkaError.INVALID_CONFIG),  # no longer than a beat
    (SESSION, (AlterConfigOpType.SET, "soon"), KafkaError.INVALID_CONFIG),
    (SESSION, (AlterConfigOpType.APPEND, "50000"), KafkaError.INVALID_CONFIG),
    (HEARTBEAT, (AlterConfigOpType.SET, "499"), KafkaError.INVALID_CONFIG),
    ("no.such.setting", (AlterConfigOpType.SET, "1"), KafkaError.INVALID_CONFIG),
]


@pytest.mark.parametrize(("name", "edit", "code"), REFUSED)
def test_what_is_wrong_is_refused_with_the_same_code(
    admin: AdminClient, name: str, edit: tuple[AlterConfigOpType, str], code: int
) -> None:
    with pytest.raises(KafkaException) as refused:
        change(admin, "refused", **{name.replace(".", "_"): edit})
    assert refused.value.args[0].code() == code
    assert name in refused.value.args[0].str()
    assert own_settings(admin, "refused") == {}


def tool(broker: RunningBroker, group: str, *words: str) -> str:
    """What Kafka's own tool prints."""
    place = ["--bootstrap-server", broker.bootstrap, "--entity-type", "groups"]
    return run_kafka_tool(TOOL, [*place, "--entity-name", group, *words])


def test_kafkas_tool_and_ours_show_what_the_other_sets(
    broker: RunningBroker, admin: AdminClient
) -> None:
    ours = Commands(broker.bootstrap)
    group = "by-tools"
    tool(broker, group, "--alter", "--add-config", f"{SESSION}=50000,{HEARTBEAT}=6000")
    until_own(admin, group, {SESSION: "50000", HEARTBEAT: "6000"})
    ours.lines("group", "configure", group, f"{SESSION}=51000", "--delete", HEARTBEAT)
    until_own(admin, group, {SESSION: "51000"})
    described = tool(broker, group, "--describe")
    assert f"{SESSION}=51000" in described
    assert HEARTBEAT not in described
    assert group in run_kafka_tool(
        TOOL, ["--bootstrap-server", broker.bootstrap, "--entity-type", "groups", "--describe"]
    )
    wrong = ours.run("group", "configure", group, f"{SESSION}=1")
    assert wrong.returncode == 1
    assert "INVALID_CONFIG" in wrong.stderr
    with pytest.raises(OracleError, match="must be greater than or equal to"):
        tool(broker, group, "--alter", "--add-config", f"{SESSION}=1")
    tool(broker, group, "--alter", "--delete-config", SESSION)
    until_own(admin, group, {})


def test_our_description_of_a_group_shows_its_settings(
    broker: RunningBroker, admin: AdminClient
) -> None:
    ours = Commands(broker.bootstrap)
    ours.lines("topic", "create", "described", "--partitions", "1")
    where = ("--topic", "described", "--to-latest", "--execute")
    ours.lines("group", "reset-offsets", "described", *where)
    ours.lines("group", "configure", "described", f"{SESSION}=50000")
    until_own(admin, "described", {SESSION: "50000"})
    (document,) = ours.document("group", "describe", "described")
    settings = {one["name"]: (one["value"], one["source"]) for one in document["configs"]}
    assert settings[SESSION] == ("50000", "group")
    assert settings[HEARTBEAT] == ("5000", "default")
    assert ours.lines("group", "describe", "described")[-1].split() == [SESSION, "50000", "group"]


def join(asker: Asker, group: str) -> int:
    """Become the only member; the interval that it is told."""
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="silent",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=("sessions",),
        topic_partitions=(),
    )
    answer = asker.ask(request, 1, consumer_group_heartbeat.ConsumerGroupHeartbeatResponse)
    assert answer.error_code == ErrorCode.NONE, answer
    return answer.heartbeat_interval_ms


def member_count(asker: Asker, group: str) -> int:
    request = consumer_group_describe.ConsumerGroupDescribeRequest(
        group_ids=(group,), include_authorized_operations=False
    )
    answer = asker.ask(request, 1, consumer_group_describe.ConsumerGroupDescribeResponse)
    return len(answer.groups[0].members)


def test_a_silent_member_is_out_after_the_session_of_its_group(
    broker: RunningBroker, admin: AdminClient
) -> None:
    change(
        admin,
        "short",
        consumer_session_timeout_ms=(AlterConfigOpType.SET, str(SHORT_SESSION_MS)),
        consumer_heartbeat_interval_ms=(AlterConfigOpType.SET, "700"),
    )
    until_own(admin, "short", {SESSION: str(SHORT_SESSION_MS), HEARTBEAT: "700"})
    with Asker(broker.port, is_kafka=broker.name == "kafka") as asker:
        asker.create("sessions")
        for group in ("short", "usual"):
            ready(asker, group)
        assert (join(asker, "short"), join(asker, "usual")) == (700, 5_000)
        started = time.monotonic()
        while member_count(asker, "short"):
            assert time.monotonic() < started + SECONDS_MAX
            time.sleep(0.05)
        assert time.monotonic() - started > SHORT_SESSION_MS / 1000 - 0.5
        assert member_count(asker, "usual") == 1


def test_a_real_member_stays_in_a_group_with_a_short_session(
    broker: RunningBroker, admin: AdminClient
) -> None:
    change(
        admin,
        "lively",
        consumer_session_timeout_ms=(AlterConfigOpType.SET, str(SHORT_SESSION_MS)),
        consumer_heartbeat_interval_ms=(AlterConfigOpType.SET, "500"),
    )
    ours = Commands(broker.bootstrap)
    ours.lines("topic", "create", "lively", "--partitions", "1")
    lost: list[object] = []
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "lively",
            "group.protocol": "consumer",
        }
    )
    try:
        consumer.subscribe(["lively"], on_lost=lambda _, partitions: lost.append(partitions))
        deadline = time.monotonic() + SECONDS_MAX
        while not consumer.assignment():
            assert time.monotonic() < deadline
            consumer.poll(0.05)
        # With the broker's interval of five seconds it would be out by now.
        until = time.monotonic() + 2.5 * SHORT_SESSION_MS / 1000
        while time.monotonic() < until:
            consumer.poll(0.1)
        assert consumer.assignment()
        assert not lost
    finally:
        consumer.close()
