"""Options: Spark's names, defaults and conflicts; every wrong one is named with its remedy."""

import pickle

import pytest

from penstock.core.errors import ConfigError
from penstock.core.types import TopicPartition
from penstock.spark.errors import OptionError
from penstock.spark.source.consumer_settings import REFUSED, WITHOUT_EFFECT
from penstock.spark.source.options import KNOWN, Mode, SourceOptions, read_source_options
from penstock.spark.source.starting import EARLIEST, LATEST
from penstock.spark.source.task_reader import TaskSettings

SERVERS = {"kafka.bootstrap.servers": "one:9092,two:9093"}
TOPIC = {**SERVERS, "subscribe": "orders"}


def read(given: dict[str, str], mode: Mode = Mode.STREAM) -> SourceOptions:
    return read_source_options(given, mode)


def refused(given: dict[str, str], mode: Mode = Mode.STREAM) -> OptionError:
    with pytest.raises(OptionError) as caught:
        read(given, mode)
    assert caught.value.remedy, "an error without a remedy"
    return caught.value


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    stream, batch = read(TOPIC), read(TOPIC, Mode.BATCH)
    assert stream.start.edge == LATEST
    assert batch.start.edge == EARLIEST
    assert batch.end.edge == LATEST
    assert stream.fail_on_data_loss
    assert not stream.include_headers
    assert not stream.is_read_committed
    assert not stream.may_start_at_latest
    assert stream.limits.offsets_max is None
    assert stream.limits.delay_ms_max == 15 * 60_000
    assert stream.splitting.partitions_min is None
    assert (stream.lookups.attempts, stream.lookups.pause_ms) == (3, 1000)
    assert stream.client.bootstrap == (("one", 9092), ("two", 9093))
    assert stream.group_id is None
    assert not stream.warnings


def test_names_are_the_same_in_any_case() -> None:
    options = read(
        {
            "KAFKA.BOOTSTRAP.SERVERS": "one:9092",
            "SUBSCRIBE": "orders",
            "FAILonDATAloss": "False",
            "maxoffsetspertrigger": "7",
            "Kafka.Isolation.Level": "READ_COMMITTED",
        }
    )
    assert not options.fail_on_data_loss
    assert options.limits.offsets_max == 7
    assert options.is_read_committed


def test_every_option_is_read() -> None:
    options = read(
        {
            **TOPIC,
            "startingOffsets": '{"orders":{"0":3}}',
            "startingOffsetsByTimestampStrategy": "latest",
            "includeHeaders": "true",
            "minPartitions": "9",
            "maxRecordsPerPartition": "100",
            "maxBytesPerPartition": "1m",
            "minOffsetsPerTrigger": "5",
            "maxTriggerDelay": "2s",
            "maxBytesPerTrigger": "10k",
            "groupIdPrefix": "team",
            "kafka.group.id": "mine",
            "kafka.client.id": "job",
            "kafka.max.partition.fetch.bytes": "2000000",
            "fetchOffset.numRetries": "5",
            "fetchOffset.retryIntervalMs": "10",
            "kafkaConsumer.pollTimeoutMs": "7000",
            "partition.metadata.cache.ttl.ms": "500",
        }
    )
    assert options.start.offsets == {TopicPartition("orders", 0): 3}
    assert options.may_start_at_latest
    assert options.include_headers
    assert options.splitting == (type(options.splitting))(9, 100, 1_048_576)
    assert (options.limits.offsets_min, options.limits.delay_ms_max) == (5, 2000)
    assert options.limits.bytes_max == 10_240
    assert (options.group_id, options.group_prefix) == ("mine", "team")
    assert options.client.client_id == "job"
    assert options.fetch.partition_bytes_max == 2_000_000
    assert options.lookups == (type(options.lookups))(5, 10, 500)
    assert options.task_client.retry_timeout_ms == 7000
    assert options.client.retry_timeout_ms != 7000


def test_what_tasks_need_can_travel() -> None:
    settings = TaskSettings.of(read(TOPIC))
    assert pickle.loads(pickle.dumps(settings)) == settings


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({}, "subscribe"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "assign"),
        ({"subscribe": "a", "subscribePattern": "a.*"}, "subscribePattern"),
        ({"subscribe": " , "}, "subscribe"),
        ({"subscribe": "orders.*"}, "subscribe"),
        ({"subscribe": "a,.."}, "subscribe"),
        ({"subscribe": "a" * 250}, "subscribe"),
        ({"subscribePattern": "  "}, "subscribePattern"),
        ({"subscribePattern": "(a"}, "subscribePattern"),
        ({"assign": "a"}, "assign"),
        ({"assign": '{"a": [0, 0]}'}, "assign"),
        ({"assign": '{"a": [-1]}'}, "assign"),
        ({"assign": "{}"}, "assign"),
    ],
)
def test_exactly_one_thing_says_what_to_read(given: dict[str, str], option: str) -> None:
    assert refused({**SERVERS, **given}).option == option


def test_topics_are_trimmed_and_named_once() -> None:
    assert read({**SERVERS, "subscribe": " a , b,a,"}).subscription.topics == ("a", "b")


@pytest.mark.parametrize("given", [{}, {"kafka.bootstrap.servers": ""}])
def test_servers_are_needed(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers"):
        read({"subscribe": "a", **given})


@pytest.mark.parametrize(
    ("name", "value"), [("kafka.security.protocol", "TLS"), ("kafka.ssl.key.password", "x")]
)
def test_wrong_security_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        read({**TOPIC, name: value})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("startingOffsets", "earlyest"),
        ("startingOffsets", "17"),
        ("startingOffsets", '{"orders":{"0":-3}}'),
        ("startingOffsets", '{"orders":{"0":"1"}}'),
        ("startingOffsets", '{"orders":{"0":1,"0":2}}'),
        ("startingOffsets", '{"orders":{"x":1}}'),
        ("startingOffsets", '{"orders":[1]}'),
        ("startingOffsets", "{" * 100_000),
        ("startingOffsetsByTimestamp", '{"orders":{"0":-1}}'),
        ("startingTimestamp", "2024-01-01"),
        ("startingTimestamp", "-1"),
        ("startingOffsetsByTimestampStrategy", "earliest"),
        ("failOnDataLoss", "yes"),
        ("includeHeaders", "1"),
        ("minPartitions", "0"),
        ("minPartitions", "1000001"),
        ("minPartitions", "many"),
        ("maxRecordsPerPartition", "-5"),
        ("maxBytesPerPartition", "0"),
        ("maxBytesPerTrigger", "10 apples"),
        ("maxOffsetsPerTrigger", "0"),
        ("maxOffsetsPerTrigger", "9" * 30),
        ("minOffsetsPerTrigger", "1.5"),
        ("maxTriggerDelay", "15 parsecs"),
        ("fetchOffset.numRetries", "0"),
        ("kafkaConsumer.pollTimeoutMs", "0"),
        ("partition.metadata.cache.ttl.ms", "0"),
        ("kafka.isolation.level", "serializable"),
        ("kafka.max.partition.fetch.bytes", "0"),
    ],
)
@pytest.mark.parametrize("mode", list(Mode))
def test_a_wrong_value_names_its_option(option: str, value: str, mode: Mode) -> None:
    assert refused({**TOPIC, option: value}, mode).option == option


@pytest.mark.parametrize("option", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_a_stream_has_no_end(option: str) -> None:
    value = {"endingOffsets": "latest", "endingTimestamp": "5"}.get(option, '{"orders":{"0":5}}')
    assert refused({**TOPIC, option: value}).option == option
    assert read({**TOPIC, option: value}, Mode.BATCH).end.option == option


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets"),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, "startingOffsets"),
        ({"endingOffsets": "earliest"}, "endingOffsets"),
        ({"endingOffsets": '{"orders":{"0":-2}}'}, "endingOffsets"),
        (
            {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"1":9}}'},
            "endingOffsets",
        ),
        (
            {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"0":4}}'},
            "startingOffsets",
        ),
        ({"startingTimestamp": "5", "endingTimestamp": "4"}, "startingTimestamp"),
    ],
)
def test_a_batch_goes_forwards(given: dict[str, str], option: str) -> None:
    assert refused({**TOPIC, **given}, Mode.BATCH).option == option


def test_the_smaller_limit_is_the_minimum() -> None:
    given = {**TOPIC, "minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "15"}
    assert refused(given).option == "minOffsetsPerTrigger"


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_settings_that_would_make_a_query_wrong_are_refused(name: str) -> None:
    assert refused({**TOPIC, f"kafka.{name}": "x"}).option == f"kafka.{name}"


@pytest.mark.parametrize("name", sorted(WITHOUT_EFFECT))
def test_settings_without_effect_are_told(name: str) -> None:
    (warning,) = read({**TOPIC, f"kafka.{name}": "x"}).warnings
    assert f"'kafka.{name}' has no effect" in warning


def test_unknown_settings_of_kafka_are_refused() -> None:
    assert "kafka.isolation.level" in refused({**TOPIC, "kafka.isolation.levle": "x"}).remedy
    assert refused({**TOPIC, "kafka.frobnicate": "x"}).option == "kafka.frobnicate"


def test_a_typing_error_is_not_ignored() -> None:
    for wrong, right in (
        ("startingOffset", "startingOffsets"),
        ("failOnDataLos", "failOnDataLoss"),
    ):
        assert right in refused({**TOPIC, wrong: "x"}).remedy


def test_what_is_ignored_is_told() -> None:
    assert read({**TOPIC, "path": "x"}).warnings == (
        "option 'path' has no effect: the source does not know it.",
    )
    batch = read({**TOPIC, "maxOffsetsPerTrigger": "5", "maxTriggerDelay": "1s"}, Mode.BATCH)
    assert len(batch.warnings) == 2
    both = read({**TOPIC, "startingTimestamp": "5", "startingOffsets": "earliest"})
    assert both.warnings == (
        "option 'startingOffsets' has no effect: startingTimestamp wins over it.",
    )


def test_the_winning_position_is_sparks() -> None:
    given = {
        **TOPIC,
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"orders":{"0":5}}',
        "startingTimestamp": "7",
    }
    assert read(given).start.timestamp_ms == 7
    del given["startingTimestamp"]
    assert read(given).start.timestamps_ms == {TopicPartition("orders", 0): 5}


def test_known_options_are_in_order_and_in_the_guide() -> None:
    assert list(KNOWN) == sorted(KNOWN)


def test_a_fetch_is_bounded() -> None:
    huge = read({**TOPIC, "kafka.max.partition.fetch.bytes": str(2**31 - 1)})
    assert huge.fetch.partition_bytes_max <= 104_857_600
    small = read({**TOPIC, "kafka.fetch.max.bytes": "1000"})
    assert small.fetch.partition_bytes_max == small.fetch.bytes_max == 1000
