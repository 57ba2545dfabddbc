"""Settings as each layer wants them."""

from penstock.cluster.configs.topic_configs import parse_topic_settings
from penstock.records.builder import CREATE_TIME, LOG_APPEND_TIME
from penstock.records.compression import GZIP, NONE
from penstock.replication.topic_conversion import log_settings, produce_rules


def test_rules_for_producers() -> None:
    plain = produce_rules(parse_topic_settings({}))
    assert (plain.batch_bytes_max, plain.compacted) == (1_048_588, False)
    assert (plain.timestamp_type, plain.codec) == (CREATE_TIME, None)
    changed = produce_rules(
        parse_topic_settings(
            {
                "cleanup.policy": "compact,delete",
                "compression.type": "gzip",
                "max.message.bytes": "77",
                "message.timestamp.type": "LogAppendTime",
                "message.timestamp.before.max.ms": "5",
                "message.timestamp.after.max.ms": "6",
            }
        )
    )
    assert (changed.batch_bytes_max, changed.compacted, changed.codec) == (77, True, GZIP)
    assert (changed.timestamp_type, changed.before_max_ms) == (LOG_APPEND_TIME, 5)
    assert changed.after_max_ms == 6
    assert produce_rules(parse_topic_settings({"compression.type": "uncompressed"})).codec == NONE


def test_retention_is_for_topics_that_delete() -> None:
    bounds = {"retention.ms": "5000", "retention.bytes": "6000"}
    deleted = log_settings(parse_topic_settings(bounds))
    assert (deleted.retention_ms, deleted.retention_bytes, deleted.is_compacted) == (
        5_000,
        6_000,
        False,
    )
    compacted = log_settings(parse_topic_settings({**bounds, "cleanup.policy": "compact"}))
    assert (compacted.retention_ms, compacted.retention_bytes, compacted.is_compacted) == (
        -1,
        -1,
        True,
    )
    both = log_settings(parse_topic_settings({**bounds, "cleanup.policy": "compact,delete"}))
    assert (both.retention_ms, both.is_compacted) == (5_000, True)


def test_a_compacted_topic_rolls_before_its_longest_lag() -> None:
    bounds = {"segment.ms": "1000", "max.compaction.lag.ms": "300"}
    assert log_settings(parse_topic_settings(bounds)).segment_ms == 1_000
    compacted = log_settings(parse_topic_settings({**bounds, "cleanup.policy": "compact"}))
    assert compacted.segment_ms == 300
    assert compacted.compaction_lag_ms_max == 300


def test_only_a_topic_that_is_merely_compacted_keeps_its_records_from_being_deleted() -> None:
    for policy, is_allowed in (
        ("delete", True),
        ("compact,delete", True),
        ("", True),
        ("compact", False),
    ):
        settings = log_settings(parse_topic_settings({"cleanup.policy": policy}))
        assert settings.deletes_records is is_allowed
        assert settings.compacts is ("compact" in policy)
