"""Settings of librdkafka: the guarantees cannot be switched off, and wrong arguments are named."""

import sys

import pytest

import penstock
from penstock.consumers.errors import ConsumerExtraMissingError
from penstock.consumers.kafka import kafka_options, library
from penstock.consumers.options import ConsumerOptions, Mode
from penstock.core.errors import ConfigError

OPTIONS = ConsumerOptions(topic="t", group="g", batch=2, concurrency=3)
TLS = {"security.protocol": "SSL", "fetch.min.bytes": "5", "group.instance.id": "a"}


def test_a_member_of_a_group_commits_by_itself() -> None:
    chosen = kafka_options.group_settings(OPTIONS, "b:1", TLS)
    assert chosen["enable.auto.commit"] is False
    assert chosen["group.protocol"] == "consumer"
    assert chosen["isolation.level"] == "read_committed"
    assert chosen["security.protocol"] == "SSL"
    assert "partition.assignment.strategy" not in chosen
    classic = kafka_options.group_settings(OPTIONS, "b:1", {"group.protocol": "classic"})
    assert classic["partition.assignment.strategy"] == "cooperative-sticky"


def test_a_member_of_a_share_group_acknowledges_by_itself() -> None:
    chosen = kafka_options.share_settings(OPTIONS, "b:1", TLS)
    assert chosen["share.acknowledgement.mode"] == "explicit"
    assert chosen["max.poll.records"] == 6
    assert "group.instance.id" not in chosen


def test_copies_are_acknowledged_by_all_replicas() -> None:
    chosen = kafka_options.producer_settings("b:1", TLS | {"acks": "0"})
    assert (chosen["acks"], chosen["enable.idempotence"]) == ("all", True)
    assert "fetch.min.bytes" not in chosen
    assert "fetch.min.bytes" not in kafka_options.admin_settings("b:1", TLS)


@pytest.mark.parametrize("name", ["group.id", "enable.auto.commit", "auto.offset.reset"])
def test_settings_of_the_consumer_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' is controlled"):
        kafka_options.group_settings(OPTIONS, "b:1", {name: "x"})
    with pytest.raises(ConfigError, match=f"'{name}' is controlled"):
        kafka_options.share_settings(OPTIONS, "b:1", {name: "x"})


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ConsumerExtraMissingError, match="confluent-kafka") as raised:
        library.load()
    assert "pip install 'penstock[consumer]'" in raised.value.hint


def test_an_old_package_has_no_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        __version__ = "2.14.0"

    monkeypatch.setitem(sys.modules, "confluent_kafka", Old())
    with pytest.raises(ConsumerExtraMissingError, match=r"needs confluent-kafka 2\.15 .* 2\.14\.0"):
        library.load_share_consumer()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"topic": ""}, "topic is empty"),
        ({"group": ""}, "group is empty"),
        ({"batch": 0}, "batch is 0, it must be 1 to 10000"),
        ({"concurrency": 1_001}, "concurrency is 1001"),
        ({"timeout_seconds": 0}, "timeout_seconds is 0"),
        ({"start": "middle"}, "start is 'middle'"),
        ({"dead_letter": "t"}, "must be another topic"),
        ({"dead_letter": ""}, "must be another topic"),
        ({"mode": "both"}, "'both' is not a valid Mode"),
        ({"order": "none"}, "'none' is not a valid Order"),
        (
            {"group": "g" * 250, "retry": penstock.RetryPolicy(attempts=9)},
            "has 258 characters, at most 249",
        ),
    ],
)
def test_wrong_arguments_of_the_decorator(wrong: dict[str, object], words: str) -> None:
    arguments: dict[str, object] = {"topic": "t", "group": "g"}
    with pytest.raises(ConfigError, match=words):
        penstock.consumer(**(arguments | wrong))  # type: ignore[arg-type]


def test_retry_topics() -> None:
    long = penstock.RetryPolicy(attempts=9)
    assert ConsumerOptions(topic="t", group="g").retry_topic is None
    assert ConsumerOptions(topic="t", group="g", retry=long).retry_topic == "retry.g.t"
    queue = ConsumerOptions(topic="t", group="g", retry=long, mode=Mode.QUEUE)
    assert queue.retry_topic is None
