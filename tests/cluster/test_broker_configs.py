"""The broker's settings on the wire: Kafka's names and units, and where each value comes from."""

from penstock.cluster.broker_configs import describe_broker
from penstock.cluster.topic_configs import ConfigSource, parse_value
from penstock.core.settings import ListenerSettings, Settings, TopicDefaultsSettings


def test_values_are_those_in_force_in_kafkas_units() -> None:
    settings = Settings(
        topic_defaults=TopicDefaultsSettings(partitions_default=3, auto_create=False),
        listener=ListenerSettings(connection_idle_seconds_max=1.5),
    )
    found = {entry.config.name: entry for entry in describe_broker(settings)}
    assert found["num.partitions"].value == "3"
    assert found["num.partitions"].source is ConfigSource.STATIC_BROKER
    assert [synonym.value for synonym in found["num.partitions"].synonyms] == ["3", "1"]
    assert found["auto.create.topics.enable"].value == "false"
    assert found["connections.max.idle.ms"].value == "1500"
    assert found["log.segment.bytes"].source is ConfigSource.DEFAULT
    assert list(found) == sorted(found)


def test_every_value_has_its_type() -> None:
    for entry in describe_broker(Settings()):
        parse_value(entry.config, entry.value)
