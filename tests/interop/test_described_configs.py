"""DescribeConfigs of a topic, a group and a broker, field by field, on Penstock and Apache Kafka.

Every setting that both have has the same type, default, synonyms and rights, or the tables below
say where not and why. Settings of Apache Kafka alone are named below, by the reason; a named
setting that both have fails the test, so that the tables stay true. Documentation is each project's
own: it must exist.
"""

import re
from collections.abc import Iterator, Mapping

import pytest

from penstock.protocol.messages.describe_configs import DescribeConfigsResourceResult
from tests.broker.handlers.asker import Asker
from tests.broker.handlers.test_describe_configs import ask, configs_in
from tests.interop.conftest import BrokerNamed

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

TOPIC, BROKER, GROUP = 2, 4, 32
DEFAULT_SOURCE = 5
Configs = Mapping[str, DescribeConfigsResourceResult]

MISSING_SETTINGS = {
    r"add\.partitions\.to\.txn\.|controlled\.|controller\.(?!quota)|early\.start\.|initial\.broker\."
    r"|inter\.broker\.|leader\.imbalance\.|auto\.leader\.|metadata\.|num\.replica\."
    r"|process\.roles|replica\.(?!selector)|replication\.quota\.|request\.timeout|security\.inter\."
    r"|alter\.log\.dirs\.|socket\.connection\.setup\.": "there is one broker",
    r"sasl\.|ssl\.|authorizer\.|principal\.|connections\.max\.reauth|security\.prov"
    r"|listener\.security\.": "settings of each listener, and of security, by other names",
    r"delegation\.": "no delegation tokens",
    r"group\.share\.(?:assignors|initialize|persister)|share\.": (
        "one assignor, and another way to the delivery state"
    ),
    r"group\.streams\.": "no groups of the streams protocol yet",
    r"remote\.|follower\.fetch\.": "no tiered storage yet",
    r"max\.connection\.creation": "a quota of single addresses",
    r"queued\.max\.requests|log\.retention\.check|log\.cleaner\.backoff|log\.flush\.offset": (
        "settings of Penstock's own, not shown under Kafka's names"
    ),
    r"background\.threads|num\.(?!part)|.*purgatory|offsets\.load"
    r"|group\.coordinator\.(?!rebalance)|log\.cleaner\.(dedupe|io|threads)"
    r"|transaction\.state\.log\.load|socket\.(listen|receive|send)"
    r"|offsets\.commit\.timeout": "one event loop: there are no such threads, queues and buffers",
    r"log\.flush\.(scheduler|start)|log\.dir(?!s)|cordoned\.": "other storage engine",
    r"metric|kafka\.metrics|telemetry": "metrics are pulled, and settings of their own",
    r".*\.policy\.class|config\.providers|client\.quota\.callback": "no plug-ins of Java classes",
    r"max\.connections\.per\.ip\.overrides": "one bound for every address",
    r"max\.request\.partition\.size": "a fixed bound of the same size",
    r"transaction\.partition\.verification": "transactions are always verified",
}
"""Settings of Kafka's broker that Penstock does not describe, and why."""

DEFAULTS_DIFFER = {
    "group.coordinator.rebalance.protocols": "the streams protocol is not served",
    "listeners": "only this machine may connect, unless it is told otherwise",
    "log.dirs": "it starts without a setting",
    "max.connections": "bounded",
    "max.connections.per.ip": "bounded",
    "node.id": "it starts without a setting",
    "broker.id": "it starts without a setting",
    "offsets.topic.replication.factor": "one broker",
    "queued.max.request.bytes": "bounded",
    "transaction.state.log.min.isr": "one broker",
    "transaction.state.log.replication.factor": "one broker",
}
READ_ONLY_HERE = {
    "group.consumer.assignment.interval.ms": "by a setting, or for each group",
    "group.share.assignment.interval.ms": "by a setting, or for each group",
    "listeners": "by a setting",
    "max.connections": "by a setting",
    "max.connections.per.ip": "by a setting",
    "producer.id.expiration.ms": "by a setting",
}
"""What Kafka changes over the wire and Penstock only by its settings."""


@pytest.fixture(scope="module")
def askers(broker_named: BrokerNamed) -> Iterator[tuple[Asker, Asker]]:
    """Kafka's and ours."""
    kafka, penstock = broker_named("kafka"), broker_named("penstock")
    with Asker(kafka.port, is_kafka=True) as theirs, Asker(penstock.port) as ours:
        yield theirs, ours


def described(askers: tuple[Asker, Asker], kind: int, name: str) -> tuple[Configs, Configs]:
    theirs, ours = (
        configs_in(ask(asker, kind, name, synonyms=True, documentation=True)) for asker in askers
    )
    return theirs, ours


def facts(config: DescribeConfigsResourceResult) -> dict[str, object]:
    """What must be equal of a setting that nobody changed."""
    return {
        "type": config.config_type,
        "sensitive": config.is_sensitive,
        "read only": config.read_only,
        "source": config.config_source,
        "value": config.value,
        "synonyms": [(one.name, one.value, one.source) for one in config.synonyms],
        "documented": bool(config.documentation),
    }


def test_topics(askers: tuple[Asker, Asker]) -> None:
    for asker in askers:
        asker.create("described", configs={"retention.ms": "600000", "cleanup.policy": "compact"})
    theirs, ours = described(askers, TOPIC, "described")
    # Kafka writes it down for all brokers when it makes a cluster that could have replicas.
    replicas = "min.insync.replicas"
    assert {name: facts(one) for name, one in ours.items() if name != replicas} == {
        name: facts(one) for name, one in theirs.items() if name != replicas
    }
    assert ours[replicas].value == theirs[replicas].value == "1"


def test_groups(askers: tuple[Asker, Asker]) -> None:
    theirs, ours = described(askers, GROUP, "described")
    missing = theirs.keys() - ours.keys()
    assert {name for name in theirs if name.startswith("streams.")} == missing
    assert {name: facts(one) for name, one in ours.items()} == {
        name: facts(one) for name, one in theirs.items() if name not in missing
    }


def test_the_broker_has_no_setting_of_its_own_invention(askers: tuple[Asker, Asker]) -> None:
    theirs, ours = described(askers, BROKER, "1")
    assert ours.keys() <= theirs.keys()


def test_what_the_broker_does_not_have_has_a_reason(askers: tuple[Asker, Asker]) -> None:
    theirs, ours = described(askers, BROKER, "1")
    missing = theirs.keys() - ours.keys()
    unexplained = {
        name for name in missing if not any(re.match(one, name) for one in MISSING_SETTINGS)
    }
    assert unexplained == set()
    for pattern in MISSING_SETTINGS:
        assert any(re.match(pattern, name) for name in missing), pattern
        assert not [name for name in ours if re.match(pattern, name)], pattern


def test_types_and_rights_of_the_broker(askers: tuple[Asker, Asker]) -> None:
    theirs, ours = described(askers, BROKER, "1")
    for name, one in ours.items():
        kafkas = theirs[name]
        assert (one.config_type, one.is_sensitive) == (kafkas.config_type, kafkas.is_sensitive), (
            name
        )
        assert one.documentation, name
    differing = {name for name, one in ours.items() if one.read_only != theirs[name].read_only}
    assert differing == READ_ONLY_HERE.keys()


def test_defaults_of_the_broker(askers: tuple[Asker, Asker]) -> None:
    theirs, ours = described(askers, BROKER, "1")

    def default(config: DescribeConfigsResourceResult) -> list[tuple[str, str | None]]:
        return [(one.name, one.value) for one in config.synonyms if one.source == DEFAULT_SOURCE]

    differing = {name for name, one in ours.items() if default(one) != default(theirs[name])}
    assert differing == DEFAULTS_DIFFER.keys()
