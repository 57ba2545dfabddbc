"""The source of a setting's value: the layers of a broker, and the resources that use them."""

import json
from pathlib import Path

from penstock.cluster.configs.described_configs import (
    TOPIC_DEFAULTS,
    BrokerLayers,
    ConfigSource,
    Synonym,
    broker_synonyms,
    describe_topic,
    topic_defaults,
)

KAFKA = json.loads((Path(__file__).parent / "kafka_4_3_1_topic_configs.json").read_text())[
    "configs"
]
OWN, SHARED = ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_ALL_BROKERS
STATIC, DEFAULT = ConfigSource.STATIC_BROKER, ConfigSource.DEFAULT


def test_layers_win_in_their_order() -> None:
    name = "log.segment.bytes"
    layers = BrokerLayers({name: "3000000"}, {name: "2000000"}, {name: "1500000"})
    assert broker_synonyms(name, layers) == (
        Synonym(name, "3000000", OWN),
        Synonym(name, "2000000", SHARED),
        Synonym(name, "1500000", STATIC),
        Synonym(name, TOPIC_DEFAULTS[name], DEFAULT),
    )
    assert layers.given(name) == "3000000"
    assert layers.given("log.roll.ms") is None


def test_units_of_one_setting() -> None:
    """As Apache Kafka 4.3.1 answers: hours alone are no synonym of milliseconds."""
    assert broker_synonyms("log.retention.ms", BrokerLayers()) == ()
    layers = BrokerLayers(shared={"log.retention.ms": "5"})
    assert broker_synonyms("log.retention.ms", layers) == (
        Synonym("log.retention.ms", "5", SHARED),
        Synonym("log.retention.hours", "168", DEFAULT),
    )
    assert broker_synonyms("log.retention.hours", layers) == (
        Synonym("log.retention.hours", "168", DEFAULT),
    )


def test_topics_follow_what_was_given_to_the_broker() -> None:
    assert topic_defaults(BrokerLayers()) == {}
    layers = BrokerLayers(
        own={"log.retention.ms": "7"},
        shared={"log.retention.ms": "6", "message.max.bytes": "100"},
        static={"node.id": "4", "log.segment.bytes": "2097152"},
    )
    assert topic_defaults(layers) == {
        "retention.ms": "7",
        "max.message.bytes": "100",
        "segment.bytes": "2097152",
    }


def test_a_topic_says_where_its_values_come_from() -> None:
    layers = BrokerLayers(own={"log.roll.ms": "5"}, static={"log.segment.bytes": "2097152"})
    described = {
        entry.config.name: entry for entry in describe_topic({"retention.ms": "5"}, layers)
    }
    assert list(described) == sorted(KAFKA)
    retention = described["retention.ms"]
    assert (retention.value, retention.source) == ("5", ConfigSource.TOPIC)
    assert retention.synonyms == (Synonym("retention.ms", "5", ConfigSource.TOPIC),)
    segment = described["segment.bytes"]
    assert (segment.value, segment.source) == ("2097152", STATIC)
    assert segment.synonyms == (
        Synonym("log.segment.bytes", "2097152", STATIC),
        Synonym("log.segment.bytes", "1073741824", DEFAULT),
    )
    assert (described["segment.ms"].value, described["segment.ms"].source) == ("5", OWN)
    assert described["flush.ms"].source is DEFAULT
    assert not any(entry.is_read_only for entry in described.values())
