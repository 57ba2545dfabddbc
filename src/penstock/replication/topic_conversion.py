"""Converts topic settings for each layer: rules for producers, settings for logs."""

from collections.abc import Mapping
from typing import Final

from penstock.cluster.configs.topic_configs import TopicSettings
from penstock.records.builder import CREATE_TIME, LOG_APPEND_TIME
from penstock.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from penstock.records.validation import ProduceRules
from penstock.storage.log.log_settings import LogSettings

_CODECS: Final[Mapping[str, int | None]] = {
    "producer": None,
    "uncompressed": NONE,
    "gzip": GZIP,
    "snappy": SNAPPY,
    "lz4": LZ4,
    "zstd": ZSTD,
}


def produce_rules(settings: TopicSettings) -> ProduceRules:
    """Return the rules of a topic's settings for a produced batch."""
    return ProduceRules(
        batch_bytes_max=settings.max_message_bytes,
        compacted=settings.cleanup_compact,
        timestamp_type=LOG_APPEND_TIME
        if settings.message_timestamp_type == "LogAppendTime"
        else CREATE_TIME,
        before_max_ms=settings.message_timestamp_before_max_ms,
        after_max_ms=settings.message_timestamp_after_max_ms,
        codec=_CODECS[settings.compression_type],
    )


def log_settings(settings: TopicSettings, *, is_adopted: bool = False) -> LogSettings:
    """Return the log settings of a topic's partitions.

    An adopted log may have been compacted by its earlier broker, whatever its settings are here.
    """
    segment_ms = settings.segment_ms
    if settings.cleanup_compact and settings.max_compaction_lag_ms > 0:
        # Records in the active segment are not compacted.
        segment_ms = min(segment_ms, settings.max_compaction_lag_ms)
    return LogSettings(
        segment_bytes=settings.segment_bytes,
        segment_ms=segment_ms,
        index_interval_bytes=settings.index_interval_bytes,
        index_bytes_max=settings.segment_index_bytes,
        retention_ms=settings.retention_ms if settings.cleanup_delete else -1,
        retention_bytes=settings.retention_bytes if settings.cleanup_delete else -1,
        is_compacted=settings.cleanup_compact or is_adopted,
        is_adopted=is_adopted,
        deletes_records=settings.cleanup_delete or not settings.cleanup_compact,
        compacts=settings.cleanup_compact,
        dirty_ratio_min=settings.min_cleanable_dirty_ratio,
        compaction_lag_ms_min=settings.min_compaction_lag_ms,
        compaction_lag_ms_max=settings.max_compaction_lag_ms,
        delete_retention_ms=settings.delete_retention_ms,
    )
