"""Settings of the share coordinator, with Kafka 4.3's names and defaults; a part of `settings`."""

from typing import Annotated

from pydantic import Field

from penstock.core import limits
from penstock.core.settings.settings_section import Section


class SharesSettings(Section):
    """The stored delivery state of share groups."""

    state_partitions: Annotated[
        int,
        Field(
            ge=1,
            le=limits.PARTITIONS_PER_TOPIC_MAX,
            description="Partitions of `__share_group_state`, which is created for the first share "
            "group; not to be changed afterwards.",
            json_schema_extra={
                "unit": "partitions",
                "kafka": "share.coordinator.state.topic.num.partitions",
            },
        ),
    ] = 50
    state_segment_bytes: Annotated[
        int,
        Field(
            ge=1048576,
            le=2**31 - 1,
            description="Segment size of `__share_group_state`.",
            json_schema_extra={
                "unit": "bytes",
                "kafka": "share.coordinator.state.topic.segment.bytes",
            },
        ),
    ] = 104_857_600
    updates_per_snapshot: Annotated[
        int,
        Field(
            ge=0,
            le=500,
            description="After this number of changes the whole state of a share-partition is "
            "stored again.",
            json_schema_extra={
                "unit": "records",
                "kafka": "share.coordinator.snapshot.update.records.per.snapshot",
                "live": True,
            },
        ),
    ] = 500
    cold_snapshot_interval_ms: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description="The state of a share-partition at rest is stored again after this time, "
            "so that the log before it can be deleted.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "share.coordinator.cold.partition.snapshot.interval.ms",
                "live": True,
            },
        ),
    ] = 300_000
    prune_interval_ms: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description="Time between two deletions of records that newer snapshots replace.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "share.coordinator.state.topic.prune.interval.ms",
                "live": True,
            },
        ),
    ] = 300_000
    write_timeout_ms: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description="Longest wait of a change for the followers of its partition.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "share.coordinator.write.timeout.ms",
            },
        ),
    ] = 5_000
