"""The table of topic settings is Kafka 4.3.1's, and texts are read as Kafka reads them."""

import json
from pathlib import Path

import pytest

from penstock.cluster.configs.described_configs import (
    NO_LAYERS,
    broker_synonyms,
    describe_topic,
)
from penstock.cluster.configs.topic_config_table import BEYOND_KAFKA, KAFKA_TABLE, SettingType
from penstock.cluster.configs.topic_configs import (
    TOPIC_CONFIGS,
    check_override,
    parse_topic_settings,
    parse_value,
    usable_topic_settings,
)
from penstock.cluster.configs.topic_routing import TopicRouting, topic_routing
from penstock.core.errors import InvalidTopicConfigError

KAFKA = json.loads((Path(__file__).parent / "kafka_4_3_1_topic_configs.json").read_text())[
    "configs"
]


def test_the_table_has_every_setting_of_kafka_and_a_few_of_ours() -> None:
    assert TOPIC_CONFIGS.keys() - KAFKA.keys() == {one.name for one in BEYOND_KAFKA}
    assert {one.name for one in KAFKA_TABLE} == KAFKA.keys()


def test_a_setting_that_kafka_lacks_is_described_only_where_it_is_set() -> None:
    assert {one.config.name for one in describe_topic({})} == KAFKA.keys()
    given = {"penstock.routing": "queue", "errors.deadletterqueue.group.enable": "true"}
    described = {one.config.name: one.value for one in describe_topic(given)}
    assert described.keys() - KAFKA.keys() == given.keys()
    assert described["penstock.routing"] == "queue"


@pytest.mark.parametrize(
    ("settings", "routing"),
    [
        ({}, TopicRouting(is_queue=False, buffer_size=None)),
        ({"penstock.routing": "queue"}, TopicRouting(is_queue=True, buffer_size=None)),
        ({"penstock.routing": " queue "}, TopicRouting(is_queue=True, buffer_size=None)),
        ({"penstock.routing": "ring"}, TopicRouting(is_queue=False, buffer_size=None)),
        ({"penstock.buffer.size": "7"}, TopicRouting(is_queue=False, buffer_size=7)),
        ({"penstock.buffer.size": "0"}, TopicRouting(is_queue=False, buffer_size=None)),
        ({"penstock.buffer.size": "-7"}, TopicRouting(is_queue=False, buffer_size=None)),
        ({"penstock.buffer.size": "9" * 30}, TopicRouting(is_queue=False, buffer_size=None)),
    ],
)
def test_the_routing_of_a_topic(settings: dict[str, str], routing: TopicRouting) -> None:
    assert topic_routing(settings) == routing


@pytest.mark.parametrize(
    ("name", "text"),
    [("penstock.routing", "ring"), ("penstock.buffer.size", "1000001")],
)
def test_a_wrong_routing_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidTopicConfigError, match=name):
        check_override(name, text)


@pytest.mark.parametrize("name", sorted(KAFKA))
def test_a_setting_is_kafkas(name: str) -> None:
    ours, kafkas = TOPIC_CONFIGS[name], KAFKA[name]
    assert ours.type is SettingType[kafkas["type"]]
    assert ours.default == kafkas["default"]
    assert ours.sensitive == kafkas["sensitive"]
    followed = broker_synonyms(ours.synonym, NO_LAYERS) if ours.synonym else ()
    assert [[one.name, one.value] for one in followed] == kafkas["default_synonyms"]
    assert ours.documentation.endswith(".")
    parse_value(ours, ours.default)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("retention.ms", "-5", "for configuration retention.ms: Value must be at least -1"),
        ("retention.ms", "abc", "Not a number of type LONG"),
        ("retention.ms", "", "Not a number of type LONG"),
        ("retention.ms", "1_000", "Not a number of type LONG"),
        ("retention.ms", "5.0", "Not a number of type LONG"),
        ("retention.ms", "٣", "Not a number of type LONG"),
        ("flush.ms", "9223372036854775808", "Not a number of type LONG"),
        ("segment.bytes", "99999999999", "Not a number of type INT"),
        ("segment.bytes", "1048575", "Value must be at least 1048576"),
        ("segment.ms", "0", "Value must be at least 1"),
        ("cleanup.policy", "foo", "Invalid value foo for configuration cleanup.policy: String"),
        ("compression.type", "brotli", "one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("message.timestamp.type", "Foo", "String must be one of: CreateTime, LogAppendTime"),
        ("preallocate", "yes", "Expected value to be either true or false"),
        ("preallocate", "", "Expected value to be either true or false"),
        ("min.cleanable.dirty.ratio", "2", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "nan", "Not a number of type DOUBLE"),
        ("compression.gzip.level", "0", "Value must be at least 1"),
        ("nosuch.setting", "1", "Unknown topic config name: nosuch.setting"),
        ("../../etc/passwd", "1", "Unknown topic config name"),
    ],
)
def test_wrong_values_are_refused_in_kafkas_words(name: str, text: str, message: str) -> None:
    with pytest.raises(InvalidTopicConfigError) as caught:
        check_override(name, text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention.ms", " 5 "),
        ("retention.ms", "+5"),
        ("retention.ms", "-1"),
        ("retention.bytes", "-7"),
        ("cleanup.policy", " delete , compact "),
        ("cleanup.policy", ""),
        ("preallocate", "TRUE"),
        ("compression.gzip.level", "-1"),
        ("segment.bytes", "1048576"),
        ("unclean.leader.election.enable", "false"),
        ("min.cleanable.dirty.ratio", "5e-1"),
    ],
)
def test_what_kafka_takes_is_taken(name: str, text: str) -> None:
    check_override(name, text)


def test_a_setting_without_effect_takes_only_its_default() -> None:
    for config in TOPIC_CONFIGS.values():
        check_override(config.name, config.default)
    with pytest.raises(InvalidTopicConfigError, match=r"remote\.storage\.enable"):
        check_override("remote.storage.enable", "true")
    with pytest.raises(InvalidTopicConfigError, match="no use for it yet"):
        check_override("compression.zstd.level", "7")


def test_settings_of_compaction_are_taken() -> None:
    settings = parse_topic_settings(
        {
            "cleanup.policy": "compact,delete",
            "delete.retention.ms": "5",
            "min.cleanable.dirty.ratio": "0.01",
            "min.compaction.lag.ms": "6",
            "max.compaction.lag.ms": "7",
        }
    )
    assert settings.cleanup_compact
    assert settings.cleanup_delete
    assert settings.delete_retention_ms == 5
    assert settings.min_cleanable_dirty_ratio == 0.01
    assert (settings.min_compaction_lag_ms, settings.max_compaction_lag_ms) == (6, 7)


def test_an_empty_policy_neither_deletes_nor_compacts() -> None:
    settings = parse_topic_settings({"cleanup.policy": ""})
    assert not settings.cleanup_compact
    assert not settings.cleanup_delete


def test_lags_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidTopicConfigError, match=r"min\.compaction\.lag\.ms \(8\) > max"):
        parse_topic_settings({"min.compaction.lag.ms": "8", "max.compaction.lag.ms": "7"})


@pytest.mark.parametrize("text", [",", "compact,", ",delete"])
def test_an_empty_item_of_a_list_is_refused(text: str) -> None:
    with pytest.raises(InvalidTopicConfigError, match="values must not be empty"):
        check_override("cleanup.policy", text)


def test_a_missing_value_is_refused() -> None:
    with pytest.raises(InvalidTopicConfigError, match="Null value"):
        check_override("retention.ms", None)


def test_a_refusal_repeats_no_megabyte() -> None:
    with pytest.raises(InvalidTopicConfigError) as caught:
        check_override("retention.ms", "9" * 1_000_000)
    assert len(str(caught.value)) < 1000
    with pytest.raises(InvalidTopicConfigError) as caught:
        check_override("9" * 1_000_000, "1")
    assert len(str(caught.value)) < 1000


def test_settings_get_types_and_the_broker_gives_defaults() -> None:
    settings = parse_topic_settings(
        {"cleanup.policy": "compact", "retention.ms": "-1", "preallocate": "True"},
        {"retention.ms": "7", "segment.bytes": "2097152"},
    )
    assert settings.cleanup_compact
    assert not settings.cleanup_delete
    assert settings.retention_ms == -1
    assert settings.segment_bytes == 2_097_152
    assert settings.max_message_bytes == 1_048_588
    assert settings.preallocate is True
    assert parse_topic_settings({}).cleanup_delete
    with pytest.raises(InvalidTopicConfigError):
        parse_topic_settings({"retention.ms": "soon"})


@pytest.mark.parametrize(
    ("overrides", "defaults", "lags", "problem_count"),
    [
        ({"max.compaction.lag.ms": "5"}, {"min.compaction.lag.ms": "9"}, (0, 5), 1),
        ({"min.compaction.lag.ms": "9"}, {"max.compaction.lag.ms": "5"}, (9, 2**63 - 1), 1),
        ({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "5"}, {}, (0, 2**63 - 1), 2),
        ({"min.compaction.lag.ms": "soon", "x": "y"}, {"retention.bytes": "z"}, (0, 2**63 - 1), 3),
    ],
)
def test_what_is_stored_is_used_as_far_as_it_can_be(
    overrides: dict[str, str],
    defaults: dict[str, str],
    lags: tuple[int, int],
    problem_count: int,
) -> None:
    settings, problems = usable_topic_settings({**overrides, "retention.ms": "7"}, defaults)
    assert (settings.min_compaction_lag_ms, settings.max_compaction_lag_ms) == lags
    assert settings.retention_ms == 7
    assert len(problems) == problem_count
