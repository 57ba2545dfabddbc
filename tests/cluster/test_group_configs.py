"""Settings of single groups are Kafka 4.3.1's, and are read, refused and used as in Kafka."""

import json
from pathlib import Path

import pytest

from penstock.cluster.configs.described_configs import ConfigSource, Synonym
from penstock.cluster.configs.group_configs import (
    ASSIGNMENT_INTERVAL,
    DEAD_LETTER_COPY,
    DEAD_LETTER_TOPIC,
    GROUP_CONFIGS,
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    SHARE_DELIVERY_LIMIT,
    SHARE_HEARTBEAT_INTERVAL,
    SHARE_ISOLATION,
    SHARE_LOCK_DURATION,
    SHARE_LOCKS_MAX,
    SHARE_OFFSET_RESET,
    SHARE_RENEW,
    SHARE_SESSION_TIMEOUT,
    Bounds,
    DeliverySettings,
    checked_settings,
    delivery_settings,
    describe_group,
    group_rules,
    text_in_force,
    value_in_force,
)
from penstock.cluster.configs.share_offset_reset import OffsetReset
from penstock.cluster.configs.topic_config_table import SettingType
from penstock.cluster.configs.topic_configs import parse_value
from penstock.core.errors import InvalidTopicConfigError
from penstock.core.settings.coordinator_settings import GroupsSettings

KAFKA = json.loads((Path(__file__).parent / "kafka_4_3_1_group_configs.json").read_text())[
    "configs"
]
KAFKAS = GROUP_CONFIGS.keys() & KAFKA.keys()
RULES = group_rules(GroupsSettings())
QUICK = group_rules(
    GroupsSettings(
        consumer_session_timeout_ms=6_000,
        consumer_session_timeout_ms_min=1_000,
        consumer_session_timeout_ms_max=50_000,
        consumer_heartbeat_interval_ms=500,
        consumer_heartbeat_interval_ms_min=500,
        consumer_heartbeat_interval_ms_max=20_000,
        consumer_assignment_interval_ms=200,
        consumer_assignment_interval_ms_min=100,
    )
)


def test_the_table_has_what_kafka_has_for_the_groups_there_are() -> None:
    assert {name for name in KAFKA if not name.startswith("streams.")} == KAFKAS
    assert GROUP_CONFIGS.keys() - KAFKAS == {DEAD_LETTER_TOPIC, DEAD_LETTER_COPY}


@pytest.mark.parametrize("name", sorted(KAFKAS))
def test_a_setting_is_kafkas(name: str) -> None:
    ours, kafkas = GROUP_CONFIGS[name], KAFKA[name]
    assert ours.type is SettingType[kafkas["type"]]
    assert ours.default == kafkas["default"] == text_in_force(name, {}, RULES)
    assert ours.sensitive == kafkas["sensitive"]
    assert kafkas["default_synonyms"] == [[ours.synonym, ours.default]]
    assert ours.documentation.endswith(".")
    parse_value(ours, ours.default)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({}, {}),
        ({SESSION_TIMEOUT: "45000"}, {SESSION_TIMEOUT: "45000"}),
        ({SESSION_TIMEOUT: "60000"}, {SESSION_TIMEOUT: "60000"}),
        ({SESSION_TIMEOUT: " +50000 "}, {SESSION_TIMEOUT: "50000"}),
        ({HEARTBEAT_INTERVAL: "15000"}, {HEARTBEAT_INTERVAL: "15000"}),
        ({ASSIGNMENT_INTERVAL: "0"}, {ASSIGNMENT_INTERVAL: "0"}),
        ({SHARE_LOCK_DURATION: "15000"}, {SHARE_LOCK_DURATION: "15000"}),
        ({SHARE_DELIVERY_LIMIT: "10"}, {SHARE_DELIVERY_LIMIT: "10"}),
        ({SHARE_LOCKS_MAX: "4000"}, {SHARE_LOCKS_MAX: "4000"}),
        ({SHARE_ISOLATION: "read_committed"}, {SHARE_ISOLATION: "read_committed"}),
        ({SHARE_RENEW: " FALSE"}, {SHARE_RENEW: "false"}),
        ({SHARE_OFFSET_RESET: "by_duration:PT1H"}, {SHARE_OFFSET_RESET: "by_duration:PT1H"}),
    ],
)
def test_what_is_taken(given: dict[str, str], stored: dict[str, str]) -> None:
    assert checked_settings(given, RULES) == stored


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"nope": "1"}, "Unknown group config name: nope"),
        ({"n" * 500: "1"}, "Unknown group config name: " + "n" * 249),
        ({"streams.num.standby.replicas": "0"}, ".* Penstock has no streams groups"),
        ({SESSION_TIMEOUT: "x"}, "Invalid value x for configuration .* Not a number of type INT"),
        ({SESSION_TIMEOUT: ""}, "Invalid value  for configuration .* Not a number of type INT"),
        ({SESSION_TIMEOUT: "99999999999"}, ".* Not a number of type INT"),
        ({SESSION_TIMEOUT: "0"}, ".*: Value must be at least 1"),
        ({ASSIGNMENT_INTERVAL: "-1"}, ".*: Value must be at least 0"),
        (
            {SESSION_TIMEOUT: "44999"},
            r"consumer.session.timeout.ms must be greater than or equal to group.* \(45000\)",
        ),
        (
            {HEARTBEAT_INTERVAL: "15001"},
            r"consumer.heartbeat.interval.ms must be less than or equal to group.* \(15000\)",
        ),
        (
            {ASSIGNMENT_INTERVAL: "15001"},
            r"consumer.assignment.interval.ms must be less than or equal to group.* \(15000\)",
        ),
        (
            {SHARE_SESSION_TIMEOUT: "60001"},
            r"share.session.timeout.ms must be less than or equal to group.share.max.* \(60000\)",
        ),
        (
            {SHARE_LOCKS_MAX: "4001"},
            "share.partition.max.record.locks must be less than or equal to group.share.max.part",
        ),
        ({SHARE_DELIVERY_LIMIT: "1"}, ".*: Value must be at least 2"),
        ({SHARE_ISOLATION: "serial"}, "Invalid value serial for configuration .* must be one of"),
        ({SHARE_RENEW: "yes"}, ".*: Expected value to be either true or false"),
        ({SHARE_OFFSET_RESET: "by_duration:1h"}, "Invalid value by_duration:1h for configuration"),
        # Of several that are wrong, the one that Kafka names.
        ({SHARE_SESSION_TIMEOUT: "1", HEARTBEAT_INTERVAL: "1"}, "consumer.heartbeat.interval.ms"),
        ({HEARTBEAT_INTERVAL: "y", "nope": "1"}, "Unknown group config name"),
        ({HEARTBEAT_INTERVAL: "y", SESSION_TIMEOUT: "x"}, "Invalid value x"),
        ({SESSION_TIMEOUT: "1", HEARTBEAT_INTERVAL: "1"}, "consumer.heartbeat.interval.ms must"),
        ({ASSIGNMENT_INTERVAL: "70000", SESSION_TIMEOUT: "1"}, "consumer.session.timeout.ms must"),
    ],
)
def test_what_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidTopicConfigError, match=f"^{message}"):
        checked_settings(given, RULES)


def test_no_message_repeats_without_bound() -> None:
    for given in ({"n" * 100_000: "1"}, {SESSION_TIMEOUT: "5" * 100_000}):
        with pytest.raises(InvalidTopicConfigError) as refused:
            checked_settings(given, RULES)
        assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    "given",
    [
        {HEARTBEAT_INTERVAL: "6000"},  # as long as the broker's session
        {SESSION_TIMEOUT: "1000", HEARTBEAT_INTERVAL: "1000"},
    ],
)
def test_a_session_must_outlast_a_heartbeat(given: dict[str, str]) -> None:
    with pytest.raises(InvalidTopicConfigError, match=f"{SESSION_TIMEOUT} must be greater than"):
        checked_settings(given, QUICK)
    assert checked_settings({SESSION_TIMEOUT: "1000", HEARTBEAT_INTERVAL: "999"}, QUICK)


def test_the_brokers_own_value_is_within_its_bounds() -> None:
    rules = group_rules(
        GroupsSettings(consumer_session_timeout_ms=6_000, consumer_heartbeat_interval_ms=20_000)
    )
    assert rules[SESSION_TIMEOUT] == Bounds(6_000, 6_000, 60_000)
    assert rules[HEARTBEAT_INTERVAL] == Bounds(20_000, 5_000, 20_000)
    assert checked_settings({SESSION_TIMEOUT: "50000"}, rules) == {SESSION_TIMEOUT: "50000"}


@pytest.mark.parametrize(
    ("stored", "used"),
    [
        ({}, 45_000),
        ({HEARTBEAT_INTERVAL: "7000"}, 45_000),
        ({SESSION_TIMEOUT: "50000"}, 50_000),
        ({SESSION_TIMEOUT: "1000"}, 45_000),
        ({SESSION_TIMEOUT: "70000"}, 60_000),
        ({SESSION_TIMEOUT: "soon"}, 45_000),
        ({SESSION_TIMEOUT: "-5"}, 45_000),
        ({"from.a.newer.version": "1"}, 45_000),
    ],
)
def test_what_is_stored_is_used_within_the_bounds(stored: dict[str, str], used: int) -> None:
    assert value_in_force(SESSION_TIMEOUT, stored, RULES) == used


def test_a_description_says_where_values_come_from() -> None:
    found = {
        entry.config.name: entry for entry in describe_group({SESSION_TIMEOUT: "70000"}, QUICK)
    }
    assert list(found) == sorted(KAFKAS)
    session = found[SESSION_TIMEOUT]
    # As it is stored, whatever is in force.
    assert (session.value, session.source) == ("70000", ConfigSource.GROUP)
    assert session.synonyms == (
        Synonym(SESSION_TIMEOUT, "70000", ConfigSource.GROUP),
        Synonym("group.consumer.session.timeout.ms", "6000", ConfigSource.STATIC_BROKER),
        Synonym("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT),
    )
    heartbeat = found[HEARTBEAT_INTERVAL]
    assert (heartbeat.value, heartbeat.source) == ("500", ConfigSource.STATIC_BROKER)
    assert {entry.source for entry in describe_group({}, RULES)} == {ConfigSource.DEFAULT}


def test_a_share_session_is_longer_than_its_heartbeats() -> None:
    rules = group_rules(
        GroupsSettings(share_session_timeout_ms=6_000, share_heartbeat_interval_ms=6_000)
    )
    with pytest.raises(
        InvalidTopicConfigError, match=r"share\.session\.timeout\.ms must be greater"
    ):
        checked_settings({SHARE_HEARTBEAT_INTERVAL: "6000"}, rules)


def test_the_settings_of_deliveries() -> None:
    latest = OffsetReset("latest")
    assert delivery_settings({}, RULES) == DeliverySettings(
        30_000, 5, 2_000, is_committed_only=False, offset_reset=latest, is_renew_enabled=True
    )
    stored = {
        SHARE_LOCK_DURATION: "1000000",  # stored under other bounds
        SHARE_DELIVERY_LIMIT: "7",
        SHARE_LOCKS_MAX: "no number",
        SHARE_ISOLATION: "read_committed",
        SHARE_RENEW: "false",
        SHARE_OFFSET_RESET: "by_duration:P1DT1.5S",
    }
    assert delivery_settings(stored, RULES) == DeliverySettings(
        60_000,
        7,
        2_000,
        is_committed_only=True,
        offset_reset=OffsetReset("by_duration", 86_401_500),
        is_renew_enabled=False,
    )
    assert delivery_settings({SHARE_OFFSET_RESET: "nonsense"}, RULES).offset_reset == latest


# --- Dead letters: Kafka 4.4's settings ---


def test_settings_of_dead_letters_are_described_where_they_are_set() -> None:
    given = {DEAD_LETTER_TOPIC: "dlq.orders"}
    (one,) = [entry for entry in describe_group(given, RULES) if entry.config.name not in KAFKAS]
    assert (one.config.name, one.value) == (DEAD_LETTER_TOPIC, "dlq.orders")


def test_settings_of_dead_letters_are_used() -> None:
    given = {DEAD_LETTER_TOPIC: " dlq.orders ", DEAD_LETTER_COPY: "TRUE"}
    assert checked_settings(given, RULES) == {
        DEAD_LETTER_TOPIC: "dlq.orders",
        DEAD_LETTER_COPY: "true",
    }
    settings = delivery_settings(given, RULES)
    assert (settings.dead_letter_topic, settings.copies_dead_letters) == ("dlq.orders", True)
    assert delivery_settings({DEAD_LETTER_TOPIC: "no topic"}, RULES).dead_letter_topic == ""
    assert checked_settings({DEAD_LETTER_TOPIC: ""}, RULES) == {DEAD_LETTER_TOPIC: ""}


@pytest.mark.parametrize(
    ("name", "words"),
    [("a b", "Topic name is invalid"), ("__state", "belongs to the broker"), ("x" * 250, "length")],
)
def test_a_wrong_dead_letter_topic_is_refused(name: str, words: str) -> None:
    with pytest.raises(InvalidTopicConfigError, match=words):
        checked_settings({DEAD_LETTER_TOPIC: name}, RULES)
