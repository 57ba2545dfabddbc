"""The broker's settings on the wire: Kafka's names and units, and where each value comes from."""

from penstock.cluster.configs.broker_configs import (
    _ROWS,
    DYNAMIC_CONFIGS,
    LEADER_RATE,
    OPERATION_CONFIGS,
    describe_broker,
    describe_shared,
    static_layer,
)
from penstock.cluster.configs.described_configs import (
    BrokerLayers,
    ConfigSource,
    DescribedConfig,
    topic_defaults,
)
from penstock.cluster.configs.topic_configs import parse_value
from penstock.core.settings.cluster_settings import ClusterSettings
from penstock.core.settings.security_settings import SecuritySettings
from penstock.core.settings.tree import ListenerSettings, Settings, TopicDefaultsSettings

CHANGED = Settings(
    topic_defaults=TopicDefaultsSettings(
        partitions_default=3, auto_create=False, retention_ms=5_000
    ),
    listener=ListenerSettings(connection_idle_seconds_max=1.5),
)


def by_name(entries: tuple[DescribedConfig, ...]) -> dict[str, DescribedConfig]:
    return {entry.config.name: entry for entry in entries}


def test_only_what_was_given_is_in_the_static_layer() -> None:
    assert static_layer(Settings()) == {}
    assert static_layer(CHANGED) == {
        "auto.create.topics.enable": "false",
        "connections.max.idle.ms": "1500",
        "log.retention.ms": "5000",
        "num.partitions": "3",
    }


def test_replication_settings_of_the_broker_are_defaults_of_topics() -> None:
    cluster = ClusterSettings(min_insync_replicas_default=2, unclean_leader_election=True)
    given = topic_defaults(BrokerLayers(static=static_layer(Settings(cluster=cluster))))
    assert given == {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"}


def test_each_setting_is_declared_once() -> None:
    names = [row.name for row in _ROWS]
    assert len(names) == len(set(names))
    found = by_name(describe_broker(BrokerLayers()))
    for name, value in (
        ("quota.window.num", "11"),
        ("quota.window.size.seconds", "1"),
        ("controller.quota.window.num", "11"),
        ("controller.quota.window.size.seconds", "1"),
    ):
        assert found[name].value == value


def test_values_are_those_in_force_in_kafkas_units() -> None:
    found = by_name(describe_broker(BrokerLayers(static=static_layer(CHANGED))))
    assert found["num.partitions"].value == "3"
    assert found["num.partitions"].source is ConfigSource.STATIC_BROKER
    assert [synonym.value for synonym in found["num.partitions"].synonyms] == ["3", "1"]
    assert found["auto.create.topics.enable"].value == "false"
    assert found["connections.max.idle.ms"].value == "1500"
    assert found["log.segment.bytes"].source is ConfigSource.DEFAULT
    assert found["log.retention.ms"].value == "5000"
    assert list(found) == sorted(found)


def test_settings_of_the_authorizer_are_shown_where_they_are_given() -> None:
    names = {"super.users", "allow.everyone.if.no.acl.found"}
    assert not names & by_name(describe_broker(BrokerLayers())).keys()
    given = Settings(
        security=SecuritySettings(super_users="User:a;User:b", allow_everyone_if_no_acl_found=True)
    )
    found = by_name(describe_broker(BrokerLayers(static=static_layer(given))))
    assert [found[name].value for name in sorted(names)] == ["true", "User:a;User:b"]
    assert all(found[name].is_read_only for name in names)


def test_what_is_given_in_hours_has_no_milliseconds() -> None:
    found = by_name(describe_broker(BrokerLayers()))
    retention = found["log.retention.ms"]
    assert (retention.value, retention.source) == (None, ConfigSource.DEFAULT)
    assert found["log.retention.hours"].value == "168"
    assert found["log.retention.minutes"].value is None


def test_a_change_over_the_wire_wins_over_the_file() -> None:
    layers = BrokerLayers(
        own={"log.retention.ms": "7"},
        shared={"log.retention.ms": "6", "message.max.bytes": "100"},
        static=static_layer(CHANGED),
    )
    found = by_name(describe_broker(layers))
    assert found["log.retention.ms"].value == "7"
    assert found["log.retention.ms"].source is ConfigSource.DYNAMIC_BROKER
    assert [one.value for one in found["log.retention.ms"].synonyms] == ["7", "6", "5000", "168"]
    assert found["message.max.bytes"].source is ConfigSource.DYNAMIC_ALL_BROKERS


def test_only_what_was_changed_for_all_brokers_is_theirs() -> None:
    layers = BrokerLayers(
        own={"log.retention.ms": "7", "log.roll.ms": "9"}, shared={"log.retention.ms": "6"}
    )
    (entry,) = describe_shared(layers)
    assert (entry.config.name, entry.value) == ("log.retention.ms", "6")
    assert entry.source is ConfigSource.DYNAMIC_ALL_BROKERS
    assert [one.source for one in entry.synonyms] == [ConfigSource.DYNAMIC_ALL_BROKERS]
    assert describe_shared(BrokerLayers()) == ()


def test_only_what_can_be_changed_is_not_read_only() -> None:
    entries = describe_broker(BrokerLayers())
    changeable = {entry.config.name for entry in entries if not entry.is_read_only}
    assert changeable == DYNAMIC_CONFIGS.keys() - OPERATION_CONFIGS.keys()


def test_settings_for_operation_are_shown_while_they_are_set() -> None:
    found = by_name(describe_broker(BrokerLayers(own={LEADER_RATE: "1000"})))
    assert found.keys() & OPERATION_CONFIGS.keys() == {LEADER_RATE}
    assert (found[LEADER_RATE].value, found[LEADER_RATE].is_read_only) == ("1000", False)
    assert found[LEADER_RATE].source is ConfigSource.DYNAMIC_BROKER


def test_every_value_has_its_type_and_its_meaning() -> None:
    for entry in describe_broker(BrokerLayers()):
        assert entry.config.documentation.endswith(".")
        if entry.value is not None:
            parse_value(entry.config, entry.value)
