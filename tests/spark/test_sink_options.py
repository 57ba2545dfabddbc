"""Options and columns of the sink: valid ones, and errors with the name and the remedy."""

import pickle

import pytest

from penstock.client.transport.addresses import Address
from penstock.core.errors import ConfigError
from penstock.spark.errors import OptionError
from penstock.spark.kafka_settings import TO_CLIENT
from penstock.spark.sink import producer_settings
from penstock.spark.sink.options import (
    ColumnError,
    Guarantee,
    SinkColumns,
    SinkOptions,
    find_columns,
    read_sink_options,
)

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def read(options: dict[str, str] | None = None, *, is_stream: bool = True) -> SinkOptions:
    return read_sink_options({**SERVERS, **(options or {})}, is_stream=is_stream)


def test_the_defaults() -> None:
    options = read()
    assert options.client.bootstrap == (Address("localhost", 9092),)
    assert options.client.retry_timeout_ms == 120_000
    assert options.topic is None
    assert options.guarantee is Guarantee.EXACTLY_ONCE
    assert (options.acks, options.is_idempotent, options.codec) == (-1, True, 0)
    assert options.transaction_timeout_ms == 900_000
    assert options.decision_topic == "__penstock_sink_decisions"
    assert options.warnings == ()
    assert read(is_stream=False).guarantee is Guarantee.AT_LEAST_ONCE


def test_options_travel_to_tasks() -> None:
    options = read({"topic": "orders"})
    assert pickle.loads(pickle.dumps(options)) == options
    assert hash(options) == hash(read({"topic": "orders"}))


def test_names_are_the_same_in_any_case() -> None:
    options = read(
        {
            "TOPIC": "orders",
            "DeliveryGuarantee": "At-Least-Once",
            "Kafka.Compression.Type": "zstd",
            "kafka.batch.size": "1000",
        }
    )
    assert options.topic == "orders"
    assert options.guarantee is Guarantee.AT_LEAST_ONCE
    assert options.codec == 4
    assert options.batch_bytes_max == 1_000


def test_what_spark_hands_on_is_no_mistake() -> None:
    assert read({"checkpointLocation": "c", "queryName": "q", "path": "p"}).warnings == ()


@pytest.mark.parametrize(
    ("acks", "expected"), [("all", (-1, True)), ("1", (1, False)), ("0", (0, False))]
)
def test_acks(acks: str, expected: tuple[int, bool]) -> None:
    options = read({"kafka.acks": acks}, is_stream=False)
    assert (options.acks, options.is_idempotent) == expected


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"topic": "a b"}, "'topic'.*is no name of a topic"),
        ({"topic": ".."}, "'topic'"),
        ({"decisionTopic": ""}, "'decisionTopic'"),
        ({"transactionalIdPrefix": ""}, "'transactionalIdPrefix'"),
        ({"transactionalIdPrefix": "x" * 101}, "101 characters"),
        ({"deliveryGuarantee": "twice"}, "exactly-once"),
        ({"failOnReplayDifference": "maybe"}, "'failOnReplayDifference'"),
        ({"kafka.acks": "1"}, "at-least-once"),
        ({"kafka.enable.idempotence": "false"}, "'kafka.enable.idempotence'"),
        ({"kafka.compression.type": "brotli"}, "gzip"),
        ({"kafka.batch.size": "0"}, "'kafka.batch.size'"),
        ({"kafka.transaction.timeout.ms": "soon"}, "'kafka.transaction.timeout.ms'"),
        ({"kafka.delivery.timeout.ms": "-1"}, "'kafka.delivery.timeout.ms'"),
        ({"topics": "x"}, "Did you mean 'topic'"),
        ({"kafka.compresion.type": "zstd"}, "Did you mean 'kafka.compression.type'"),
        ({"kafka.nonsense": "1"}, "no such setting"),
        *[({f"kafka.{name}": "x"}, "cannot be set") for name in producer_settings.REFUSED],
    ],
)
def test_a_wrong_option_is_told(options: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        read(options)


def test_a_batch_cannot_be_exactly_once() -> None:
    with pytest.raises(OptionError, match="writeStream"):
        read({"deliveryGuarantee": "exactly-once"}, is_stream=False)


def test_idempotence_needs_all_acks() -> None:
    with pytest.raises(OptionError, match="acks=all"):
        read({"kafka.acks": "1", "kafka.enable.idempotence": "true"}, is_stream=False)


def test_bootstrap_servers_are_needed() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers"):
        read_sink_options({}, is_stream=True)


def test_what_has_no_effect_is_told() -> None:
    options = read({"includeHeaders": "true", "color": "red", "kafka.linger.ms": "5"})
    assert len(options.warnings) == 3
    assert all("has no effect" in one for one in options.warnings)


def test_no_setting_is_in_two_tables() -> None:
    tables = [
        producer_settings.USED,
        TO_CLIENT,
        set(producer_settings.WITHOUT_EFFECT),
        set(producer_settings.REFUSED),
    ]
    names = [name for table in tables for name in table]
    assert len(names) == len(set(names))


# --- Columns ---

ALL = [
    ("offset", "bigint"),
    ("key", "string"),
    ("value", "binary"),
    ("headers", "array<struct<key:string,value:binary>>"),
    ("partition", "int"),
    ("topic", "string"),
]


def test_columns_are_found_by_name() -> None:
    assert find_columns(ALL, None) == SinkColumns(2, 1, 3, 4, 5)
    assert find_columns(ALL, "orders") == SinkColumns(2, 1, 3, 4, None)
    assert find_columns([("value", "string")], "orders") == SinkColumns(0, None, None, None, None)


@pytest.mark.parametrize(
    ("columns", "topic", "problem"),
    [
        ([("key", "string")], "t", "no column `value`"),
        ([("Value", "string")], "t", "no column `value`"),
        ([("value", "string")], None, "set the option topic"),
        ([("value", "void")], "t", "`value` is void"),
        ([("value", "string"), ("value", "string")], "t", "two columns `value`"),
        ([("value", "string"), ("key", "int")], "t", "`key` is int.*cast"),
        ([("value", "string"), ("topic", "binary")], "t", "`topic` is binary"),
        ([("value", "string"), ("partition", "bigint")], "t", "`partition` is bigint"),
        ([("value", "string"), ("headers", "map<string,binary>")], "t", "`headers` is map"),
    ],
)
def test_a_wrong_column_is_told(
    columns: list[tuple[str, str]], topic: str | None, problem: str
) -> None:
    with pytest.raises(ColumnError, match=problem):
        find_columns(columns, topic)
